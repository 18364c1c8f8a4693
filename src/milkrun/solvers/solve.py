"""One door to every solver: `solve` reads instances of a world, has them solved, and lets the checker judge the answer.

What the caller gets is a plan in the world's own actions and its cost by `milkrun.routing.tasks`, which share no code
with any solver; a plan that breaks a rule is an error, never an answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.clock import Clock, listening
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean, missing_extra
from milkrun.core.instances import as_array, read_instances
from milkrun.core.registry import list_worlds, make, world_spec
from milkrun.routing.instances import Instance
from milkrun.solvers import heuristics
from milkrun.solvers import workers as pool
from milkrun.solvers.darp import rows as darp_rows
from milkrun.solvers.problem import MUST_VISIT_ALL, Problem, of_world

NOTICEABLE = 0.05  # seconds
COMMON = ("nearest", "insertion", "2opt", "oropt", "ls")
WORLDS: Mapping[str, tuple[str, ...]] = {
    "TSP": (*COMMON, "exact", "pyvrp", "ortools"),
    "TSPKopt": (*COMMON, "exact", "pyvrp", "ortools"),
    "CVRP": (*COMMON, "savings", "exact", "pyvrp", "ortools"),
    "VRPP": (*COMMON, "exact", "pyvrp"),
    "CVRPP": (*COMMON, "exact", "pyvrp"),
    "WCVRP": (*COMMON, "exact", "pyvrp"),
    "CWCVRP": (*COMMON, "savings", "exact", "pyvrp"),
    "DARP": darp_rows.METHODS,
}
"""The methods of each world."""


class Solution(NamedTuple):
    """Answers for B instances."""

    actions: NDArray[np.int32]
    """(B, L) what to do in the world, padded with 0: the `pi` of the tasks"""
    cost: NDArray[np.float64]
    """(B,) minus the objective, by the checker"""
    optimal: NDArray[np.bool_]
    """(B,) whether nothing can be better: always with `exact`; with `pyvrp` and `ortools`, which search and prove
    nothing, only where there was nothing to choose; never with a heuristic"""


def solve(
    world_name: str, instances: Any, method: str | None = None, time_limit: float = 1.0, seed: int = 0,
    workers: int = 1, *, progress: bool | None = None, rule: str | None = None, iterations: int | None = None,
    **config: Any,
) -> Solution:  # fmt: skip
    """Solves a batch of instances of a routing world.

    `instances` is a dict of arrays with the instance first, as a generator gives them or under the names of the world's
    fields, or an Instance read from a file; for DARP a DARPInstance, or a list of them. `config` are options of the
    world: weights of the objective, metric, single or many trips. `time_limit` (seconds an instance, without those of
    the compiler), `seed` and `iterations` are for `pyvrp`, `ortools` and `improve`; with `iterations` (of `ortools`:
    solutions) `time_limit` has no effect, and the answer does not depend on the speed of the machine. `rule` is for
    `insertion`. `workers` cores are used, by threads (heuristics) or by processes. `progress=True` shows a bar, which
    also says when it waits for the compiler. Whatever the method, the actions are those that the world's mask allows,
    one after the other.
    """
    name = str(world_name)
    spec = world_spec(name if "-v" in name else f"milkrun/{_exact_name(name)}-v0")
    methods = WORLDS.get(spec.name)
    if methods is None:
        hint = "; the policy 'rolling' plans it day by day" if spec.name in ("SCWCVRP", "SDWCVRP") else ""
        raise ConfigError(f"{spec.id} has no solvers{hint}; worlds that have: {', '.join(WORLDS)}")
    if method is None:
        method = "ls" if "ls" in methods else "improve"
    if not isinstance(method, str) or method not in methods:
        known = {name for those in WORLDS.values() for name in those}
        what = f"is not for {spec.name}" if str(method) in known else f"is unknown{did_you_mean(str(method), methods)}"
        raise ConfigError(f"method={method!r} {what}; {spec.name} has {', '.join(methods)}")
    if rule is not None and not isinstance(rule, str):
        raise ConfigError(f"rule={rule!r}: must be the name of a rule")
    if rule is not None and method not in ("insertion", "ls"):
        raise ConfigError(f"rule={rule!r} belongs to the methods 'insertion' and 'ls', not to {method!r}")
    time_limit = check_seconds("time_limit", time_limit)
    workers, seed = check_count("workers", workers, 1), check_seed(seed)
    if iterations is not None:
        iterations = check_count("iterations", iterations, 1)
    if spec.name == "DARP":
        rows = darp_rows.rows_of(instances)
        with _bar(progress, f"DARP by {method}", len(rows)) as tell:
            found = darp_rows.solve_rows(rows, method, time_limit, seed, workers, iterations, rule, config, tell)
        return Solution(*found)
    world, arrays = _read(spec, instances, config)
    problem = of_world(world, arrays)
    if method == "savings" and not problem.multi:
        raise ConfigError("method='savings' joins trips; with trips='single' there is only one")
    judge = judge_of(world, arrays)
    optimal = np.zeros(len(problem), np.bool_)
    with _bar(progress, f"{spec.name} by {method}", len(problem)) as tell:
        if method in heuristics.METHODS:
            plans = heuristics.run_heuristic(problem, method, rule=rule, workers=workers, progress=tell)
        elif method == "exact":
            plans, optimal = _solve_apart(problem, method, lambda b: (judge.rows([b]),), workers, tell)
        else:
            plans, optimal = solve_by_package(problem, method, time_limit, seed, workers, iterations, tell)
    actions = _in_actions(world, problem, plans)
    return Solution(actions, judge(actions), optimal)


def solve_by_package(
    problem: Problem, method: str, time_limit: float, seed: int, workers: int, iterations: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:  # fmt: skip
    """Plans by PyVRP or OR-Tools, each instance on its own, and whether nothing is better."""
    try:
        importlib.import_module({"pyvrp": "pyvrp", "ortools": "ortools.constraint_solver.pywrapcp"}[method])
    except ImportError:
        raise missing_extra(method, "solvers") from None
    return _solve_apart(problem, method, lambda b: (time_limit, seed, iterations), workers, progress)


def _solve_apart(
    problem: Problem, method: str, more: Callable[[int], tuple[Any, ...]], workers: int,
    progress: Callable[[int], object] | None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:  # fmt: skip
    """(B, P) plans, padded with 0, and whether nothing is better; `more` are the method's own arguments."""
    found = pool.solve_each(method, lambda b: (problem.rows([b]), 0, *more(b)), len(problem), workers, progress)
    plans = np.zeros((len(problem), 2 * problem.nodes + 4), np.int32)
    for b, (plan, _) in enumerate(found):
        plans[b, : len(plan)] = plan
    return plans, np.array([proven for _, proven in found], np.bool_)


def _exact_name(name: str) -> str:
    """The name of a registered world, whatever its letter case and namespace."""
    short = str(name).rpartition("/")[2]
    known = {id.rpartition("/")[2].rpartition("-v")[0] for id in list_worlds("routing")}
    return next((k for k in known if k.lower() == short.lower()), short)


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
    if played is not None:
        arrays = {name: array[played] for name, array in arrays.items()}
    return world, arrays


@dataclass(frozen=True, eq=False)
class Judge:
    """A checker with the instances and the weights of a config; worker processes get theirs by pickle."""

    task: str
    arrays: dict[str, NDArray[Any]]
    metric: str
    weights: dict[str, float] | None
    modes: dict[str, Any]

    def rows(self, chosen: Any) -> Judge:
        """The judge of some of the instances."""
        return replace(self, arrays={name: array[chosen] for name, array in self.arrays.items()})

    def __call__(self, actions: NDArray[Any], b: int | None = None) -> NDArray[np.float64]:
        """The cost of a plan for each instance; with b, of many plans for that one, inf where they break a rule."""
        module, _, name = self.task.partition(":")
        told = getattr(importlib.import_module(module), name).get_costs(
            self.arrays if b is None else self.rows(slice(b, b + 1)).arrays, actions, self.weights,
            metric=self.metric, on_violation="raise" if b is None else "inf", **self.modes,
        )  # fmt: skip
        return np.asarray(told[0], np.float64)


def judge_of(world: Any, arrays: dict[str, NDArray[Any]]) -> Judge:
    """The judge of these instances of a world."""
    config = world.config
    if type(world).__name__ in MUST_VISIT_ALL:
        return Judge(world.task, arrays, config.metric, None, {})
    weights = {"length": config.beta}
    if "waste" in arrays:
        weights |= {"waste": config.waste_weight, "overflow": config.overflow_price}
    else:
        weights["prize"] = config.prize_weight
    modes = {"trips": config.trips, "must_go_reserve": config.must_go_reserve}
    return Judge(world.task, arrays, config.metric, weights, modes)


def _in_actions(world: Any, problem: Problem, plans: NDArray[np.int32]) -> NDArray[np.int32]:
    """Plans (trips, each closed by 0) as actions of the world; a tour from a free start begins with node 0."""
    if problem.circular and getattr(world.config, "start", "free") == "free":
        plans = np.concatenate([np.zeros_like(plans[:, :1]), plans[:, :-1]], axis=1)
    if problem.circular:
        return np.ascontiguousarray(plans[:, : problem.nodes])
    used = np.flatnonzero((plans != 0).any(axis=0))
    length = int(used[-1]) + 2 if len(used) else 1  # the zero that closes the last trip
    return np.ascontiguousarray(plans[:, :length])


@contextmanager
def _bar(progress: bool | None, title: str, total: int) -> Iterator[Callable[[int], object] | None]:
    if not progress:
        yield None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        raise missing_extra("rich", "cli") from None
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as bar:
        task = bar.add_task(title, total=total)
        clock = Clock()

        def say(compiling: bool) -> None:
            told = f", after {clock.compiling:.1f} s of compiling" if clock.compiling >= NOTICEABLE else ""
            bar.update(task, description="compiling" if compiling else f"{title}{told}", refresh=True)

        with listening(say):
            yield lambda count: bar.advance(task, count)
