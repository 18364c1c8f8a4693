"""The solvers of the routing worlds: converts instances to a `Problem`, runs a method, and prices its plans."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, missing_extra
from milkrun.core.references import resolve
from milkrun.solvers import heuristics
from milkrun.solvers import workers as pool
from milkrun.solvers.given import read_given
from milkrun.solvers.problem import Problem, of_world
from milkrun.solvers.solve import Job, Progress, Solution


def solve_job(job: Job) -> Solution:
    """Runs any method of the routing worlds; each world class names its own."""
    world, arrays = read_given(job.spec, job.instances, dict(job.config))
    problem = of_world(world, arrays)
    if job.method == "savings" and not problem.multi:
        raise ConfigError("method='savings' merges trips; with trips='single' there is only one")
    pricer = pricer_of(world, arrays)
    optimal = np.zeros(len(problem), np.bool_)
    with job.bar(len(problem)) as advance:
        if job.method in heuristics.METHODS:
            plans = heuristics.run_heuristic(problem, job.method, rule=job.rule, workers=job.workers, progress=advance)
        elif job.method == "exact":
            plans, optimal = _solve_apart(problem, job.method, lambda b: (pricer.rows([b]),), job.workers, advance)
        else:
            plans, optimal = solve_by_package(
                problem, job.method, job.time_limit, job.seed, job.workers, job.iterations, advance
            )
    actions = _in_actions(world, problem, plans)
    return Solution(actions, pricer(actions), optimal)


def solve_by_package(
    problem: Problem,
    method: str,
    time_limit: float,
    seed: int,
    workers: int,
    iterations: int | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Plans by PyVRP or OR-Tools for each instance, and whether they are proven optimal."""
    try:
        importlib.import_module({"pyvrp": "pyvrp", "ortools": "ortools.constraint_solver.pywrapcp"}[method])
    except ImportError:
        raise missing_extra(method, "solvers") from None
    return _solve_apart(problem, method, lambda b: (time_limit, seed, iterations), workers, progress)


def _solve_apart(
    problem: Problem,
    method: str,
    more: Callable[[int], tuple[Any, ...]],
    workers: int,
    progress: Progress | None,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """(B, P) plans, padded with 0, and whether they are proven optimal; `more` are extra arguments of the method."""
    found = pool.solve_each(method, lambda b: (problem.rows([b]), 0, *more(b)), len(problem), workers, progress)
    plans = np.zeros((len(problem), 2 * problem.nodes + 4), np.int32)
    for b, (plan, _) in enumerate(found):
        plans[b, : len(plan)] = plan
    return plans, np.array([proven for _, proven in found], np.bool_)


@dataclass(frozen=True, eq=False)
class Pricer:
    """A checker with the instances and the weights of a config; worker processes receive it by pickle."""

    task: Any
    arrays: dict[str, NDArray[Any]]
    weights: dict[str, float] | None
    rules: dict[str, Any]

    def rows(self, chosen: Any) -> Pricer:
        """The pricer of some of the instances."""
        return replace(self, arrays={name: array[chosen] for name, array in self.arrays.items()})

    def __call__(self, actions: NDArray[Any], b: int | None = None) -> NDArray[np.float64]:
        """The cost of a plan for each instance; with b, of many plans for that instance, inf if invalid."""
        cost, _, _ = resolve(self.task, "task").get_costs(
            self.arrays if b is None else self.rows(slice(b, b + 1)).arrays,
            actions,
            self.weights,
            on_violation="raise" if b is None else "inf",
            **self.rules,
        )
        return np.asarray(cost, np.float64)


def pricer_of(world: Any, arrays: dict[str, NDArray[Any]]) -> Pricer:
    """The pricer of these instances of a world."""
    return Pricer(world.task, arrays, world.task_weights(world.config), world.task_options(world.config))


def _in_actions(world: Any, problem: Problem, plans: NDArray[np.int32]) -> NDArray[np.int32]:
    """Plans (trips, each closed by 0) as actions of the world; a tour from a free start begins with node 0."""
    if problem.circular and getattr(world.config, "start", "free") == "free":
        plans = np.concatenate([np.zeros_like(plans[:, :1]), plans[:, :-1]], axis=1)
    if problem.circular:
        return np.ascontiguousarray(plans[:, : problem.nodes])
    used = np.flatnonzero((plans != 0).any(axis=0))
    length = int(used[-1]) + 2 if len(used) else 1  # the zero that closes the last trip
    return np.ascontiguousarray(plans[:, :length])
