"""The solvers of the routing worlds: instances become a plain `Problem`, a method plans trips, the task prices them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, ShapeError, missing_extra
from milkrun.core.instances import as_array, read_instances
from milkrun.core.references import resolve
from milkrun.core.registry import make
from milkrun.routing.instances import Instance
from milkrun.solvers import heuristics
from milkrun.solvers import workers as pool
from milkrun.solvers.problem import Problem, of_world
from milkrun.solvers.solve import Job, Progress, Solution


def solve_job(job: Job) -> Solution:
    """Every method of the routing worlds; which of them a world has, its class says."""
    world, arrays = _read(job.spec, job.instances, dict(job.config))
    problem = of_world(world, arrays)
    if job.method == "savings" and not problem.multi:
        raise ConfigError("method='savings' joins trips; with trips='single' there is only one")
    judge = judge_of(world, arrays)
    optimal = np.zeros(len(problem), np.bool_)
    with job.bar(len(problem)) as advance:
        if job.method in heuristics.METHODS:
            plans = heuristics.run_heuristic(
                problem, job.method, rule=job.rule, workers=job.workers, progress=advance
            )
        elif job.method == "exact":
            plans, optimal = _solve_apart(problem, job.method, lambda b: (judge.rows([b]),), job.workers, advance)
        else:
            plans, optimal = solve_by_package(
                problem, job.method, job.time_limit, job.seed, job.workers, job.iterations, advance
            )
    actions = _in_actions(world, problem, plans)
    return Solution(actions, judge(actions), optimal)


def solve_by_package(
    problem: Problem, method: str, time_limit: float, seed: int, workers: int, iterations: int | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:  # fmt: skip
    """Plans by PyVRP or OR-Tools, each instance on its own, and whether nothing is better."""
    try:
        importlib.import_module({"pyvrp": "pyvrp", "ortools": "ortools.constraint_solver.pywrapcp"}[method])
    except ImportError:
        raise missing_extra(method, "solvers") from None
    return _solve_apart(problem, method, lambda b: (time_limit, seed, iterations), workers, progress)


def _solve_apart(
    problem: Problem, method: str, more: Callable[[int], tuple[Any, ...]], workers: int,
    progress: Progress | None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:  # fmt: skip
    """(B, P) plans, padded with 0, and whether nothing is better; `more` are the method's own arguments."""
    found = pool.solve_each(method, lambda b: (problem.rows([b]), 0, *more(b)), len(problem), workers, progress)
    plans = np.zeros((len(problem), 2 * problem.nodes + 4), np.int32)
    for b, (plan, _) in enumerate(found):
        plans[b, : len(plan)] = plan
    return plans, np.array([proven for _, proven in found], np.bool_)


def _read(spec: Any, instances: Any, config: dict[str, Any]) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A world of the right size and the instances as its checked fields."""
    cls = spec.load()
    if isinstance(instances, Instance):
        config = {**instances.config, **config}
        instances = {name: np.asarray(value)[None] for name, value in instances.arrays().items()}
    if not hasattr(instances, "keys"):
        raise ShapeError(f"instances are a mapping of names to arrays or an Instance, not a {type(instances).__name__}")
    given = {str(k): as_array(str(k), instances[k]) for k in list(instances.keys()) if instances[k] is not None}
    if {"prize", "waste", "demand_units"} & set(given):
        given.pop("demand", None)  # generators hand the same array out under both names
    matrix = given.get("dist", given.get("dist_matrix"))
    places = given.get("locs") if matrix is None else matrix
    if places is None or places.ndim != 3:
        raise ShapeError("the instances need `locs` (B, n, 2) or `dist` (B, n, n), the instance first")
    if len(places) == 0 or np.shape(given.get("instance_row", [0])) == (0,):
        raise ShapeError("there is no instance to solve: the batch has 0 rows")
    if matrix is not None:
        config.setdefault("metric", "matrix")
    apart = cls.depot_apart and ("depot" not in given or matrix is not None)
    config.setdefault("num_loc", places.shape[1] - apart)
    windowed = {"time_windows", "start_time"} & set(given)
    if windowed and "time_windows" in cls.Config.__dataclass_fields__:
        config.setdefault("time_windows", True)
    if "service_time" in given and "service_times" in cls.Config.__dataclass_fields__:
        config.setdefault("service_times", True)
    world = make(spec.id, num_envs=1, **config)
    owner = given.get("instance_row")
    arrays, played = read_instances(world, given, len(places) if owner is None else np.size(owner))
    _refuse_contradictions(world.config, given, config)  # after the reader, which refuses strange shapes and values
    if played is not None:
        arrays = {name: array[played] for name, array in arrays.items()}
    return world, arrays


def _refuse_contradictions(config: Any, given: dict[str, NDArray[Any]], said: dict[str, Any]) -> None:
    """An instance says its capacity, its limit and its bins itself, so an option that says otherwise would be passed
    over; and automatic weights are those of the option's bins."""
    said = {**type(config).presets.get(said.get("preset", ""), {}), **said}
    said = {config.synonyms.get(name, name): value for name, value in said.items()}
    for name in ("capacity", "max_length", "max_waste"):
        values = given.get(name, given.get("vehicle_cap") if name == "capacity" else None)
        option = getattr(config, name, None)
        if values is None or values.dtype.kind not in "fiu" or option is None or isinstance(option, str):
            continue
        values = np.atleast_1d(values)  # one number stands for all instances
        exact = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
        other = values.astype(exact) != np.asarray(option, exact)
        if not other.any():
            continue
        row, value = int(np.argwhere(other)[0][0]), values[other][0]
        automatic = [w for w in ("length_weight", "overflow_weight") if getattr(config, w, None) == "auto"]
        if name in said:
            raise ConfigError(f"{name} = {said[name]!r}: instance {row} has {name} = {value}, by which it is solved: "
                              "leave the option out, or the field")
        if name == "max_waste" and automatic:
            raise ConfigError(f"instance {row} has max_waste = {value}, but the option max_waste is {option!r}, and "
                              f"{automatic[0]} = 'auto' is set by it: give max_waste={value}, or the weight")


@dataclass(frozen=True, eq=False)
class Judge:
    """A checker with the instances and the weights of a config; worker processes get theirs by pickle."""

    task: Any
    arrays: dict[str, NDArray[Any]]
    weights: dict[str, float] | None
    rules: dict[str, Any]

    def rows(self, chosen: Any) -> Judge:
        """The judge of some of the instances."""
        return replace(self, arrays={name: array[chosen] for name, array in self.arrays.items()})

    def __call__(self, actions: NDArray[Any], b: int | None = None) -> NDArray[np.float64]:
        """The cost of a plan for each instance; with b, of many plans for that one, inf where they break a rule."""
        cost, _, _ = resolve(self.task, "task").get_costs(
            self.arrays if b is None else self.rows(slice(b, b + 1)).arrays, actions, self.weights,
            on_violation="raise" if b is None else "inf", **self.rules,
        )  # fmt: skip
        return np.asarray(cost, np.float64)


def judge_of(world: Any, arrays: dict[str, NDArray[Any]]) -> Judge:
    """The judge of these instances of a world."""
    return Judge(world.task, arrays, world.task_weights(world.config), world.task_options(world.config))


def _in_actions(world: Any, problem: Problem, plans: NDArray[np.int32]) -> NDArray[np.int32]:
    """Plans (trips, each closed by 0) as actions of the world; a tour from a free start begins with node 0."""
    if problem.circular and getattr(world.config, "start", "free") == "free":
        plans = np.concatenate([np.zeros_like(plans[:, :1]), plans[:, :-1]], axis=1)
    if problem.circular:
        return np.ascontiguousarray(plans[:, : problem.nodes])
    used = np.flatnonzero((plans != 0).any(axis=0))
    length = int(used[-1]) + 2 if len(used) else 1  # the zero that closes the last trip
    return np.ascontiguousarray(plans[:, :length])
