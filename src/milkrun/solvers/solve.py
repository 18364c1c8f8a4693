"""One call for every solver: `solve` finds the method in the world class and passes the instances to it.

The result is a plan in actions of the world and its cost by the task of the world, which shares no code with any
solver. A plan that breaks a rule raises an error, also from external solvers: see `plan_checker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count, check_seconds, check_seed
from milkrun.core.clock import Clock, listening
from milkrun.core.errors import ConfigError, did_you_mean, missing_extra
from milkrun.core.references import refer
from milkrun.core.registry import ByWorld, WorldSpec, named_world
from milkrun.solvers.plan_checker import PlanChecker
from milkrun.solvers.policies import policies_for, policy_file

NOTICEABLE = 0.05  # seconds
Progress = Callable[[int], object]
"""called with the number of newly solved instances"""


WORLDS = ByWorld("solvers", lambda spec: spec.name, lambda world: tuple(world.solvers))
"""Name of a world -> the methods of its class."""


class Solution(NamedTuple):
    """The solutions of B instances."""

    actions: NDArray[np.int32]
    """(B, L) actions in the world, padded with 0: the `pi` of the tasks"""
    cost: NDArray[np.float64]
    """(B,) minus the objective, by the checker"""
    optimal: NDArray[np.bool_]
    """(B,) whether the plan is proven optimal: always with `exact`; with `pyvrp` and `ortools` only if there was no
    choice; never with a heuristic"""


@dataclass(frozen=True, eq=False)
class Job:
    """The task of a solver, which is a function `solver(job)` that returns a `Solution`."""

    spec: WorldSpec
    instances: Any
    """as given by the caller"""
    method: str
    config: dict[str, Any]
    """options of the world"""
    time_limit: float
    """seconds for each instance"""
    seed: int
    workers: int
    iterations: int | None
    rule: str | None
    progress: bool

    @contextmanager
    def bar(self, total: int) -> Iterator[Progress | None]:
        """A progress bar for `total` instances: yields its callback, or None without a bar."""
        with _bar(self.progress, f"{self.spec.name} by {self.method}", total) as advance:
            yield advance


def solve(
    world_name: str,
    instances: Any,
    method: str | None = None,
    time_limit: float = 1.0,
    seed: int = 0,
    workers: int = 1,
    *,
    progress: bool | None = None,
    rule: str | None = None,
    iterations: int | None = None,
    **config: Any,
) -> Solution:
    """Solves a batch of instances of a world.

    `instances` is a dict of arrays with the instance first, as from a generator or by field names of the world, or an
    Instance read from a file; for DARP a DARPInstance or a list of them. `config` are options of the world: weights of
    the objective, metric, single or many trips.

    `time_limit` (seconds for each instance without compile time), `seed` and `iterations` are for `pyvrp`, `ortools`
    and `improve`. With `iterations` (solutions for `ortools`) `time_limit` has no effect, and the result does not
    depend on the speed of the machine. `rule` is for `insertion`. A method may also be a policy of the world, or the
    file of a trained one; its play is the solution.

    `workers` is the number of cores, used by threads (heuristics) or processes. `progress=True` shows a bar, which also
    shows when code is compiled. For every method the mask of the world allows the actions in their order.
    """
    spec = named_world(world_name)
    method = check_method(spec, method)
    if rule is not None and not isinstance(rule, str):
        raise ConfigError(f"rule={rule!r}: must be the name of a rule")
    if rule is not None and method not in ("insertion", "ls"):
        raise ConfigError(f"rule={rule!r} belongs to the methods 'insertion' and 'ls', not to {method!r}")
    time_limit = check_seconds("time_limit", time_limit)
    workers, seed = check_count("workers", workers, 1), check_seed(seed)
    if iterations is not None:
        iterations = check_count("iterations", iterations, 1)
    job = Job(
        spec, instances, method, {**spec.kwargs, **config}, time_limit, seed, workers, iterations, rule, bool(progress)
    )
    if method not in spec.load().solvers:
        policy = (policy_file(method) or policies_for(spec.id)[method])(seed)
        return Solution(*PlanChecker(spec, method, instances, job.config).check_policy(policy))
    solver = refer(spec.load(), "solvers", method)
    solution = solver(job)
    if str(getattr(solver, "__module__", "")).startswith("milkrun."):
        return Solution(*solution)  # the solvers of the library call the checker themselves
    return Solution(*PlanChecker(spec, method, instances, job.config).check(solution))


def check_method(spec: WorldSpec, method: str | None) -> str:
    """Validates a method or policy of a world; the default is that of its class."""
    cls = spec.load()
    methods = cls.solvers
    if not methods:
        hint = "; the policy 'rolling' plans day by day" if "rolling" in cls.policies else ""
        raise ConfigError(f"{spec.id} has no solvers{hint}; worlds with solvers: {', '.join(WORLDS)}")
    if method is None:
        method = cls.default_solver or next(iter(methods))
    if isinstance(method, str) and cls.plans_are_actions and policy_file(method):
        return method
    names = [*methods, *(name for name in policies_for(spec.id) if cls.plans_are_actions and name not in methods)]
    if not isinstance(method, str) or method not in names:
        known = {name for those in WORLDS.values() for name in those}
        what = f"is not for {spec.name}" if str(method) in known else f"is unknown{did_you_mean(str(method), names)}"
        raise ConfigError(f"method={method!r} {what}; {spec.name} has {', '.join(names)}")
    return method


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

        def show(compiling: bool) -> None:
            waited = f", after {clock.compiling:.1f} s of compiling" if clock.compiling >= NOTICEABLE else ""
            bar.update(task, description="compiling" if compiling else f"{title}{waited}", refresh=True)

        with listening(show):
            yield lambda count: bar.advance(task, count)
