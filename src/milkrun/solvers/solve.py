"""One call for every solver: `solve` looks up the method in what the world's class says and hands the instances to it.

What the caller gets is a plan in the world's own actions and its cost by the world's task, which shares no code with
any solver; a plan that breaks a rule is an error, never an answer. That holds for solvers of others too: see `verdict`.
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
from milkrun.solvers.policies import policies_for

NOTICEABLE = 0.05  # seconds
Progress = Callable[[int], object]
"""called with the number of instances just done"""


WORLDS = ByWorld("solvers", lambda spec: spec.name, lambda world: tuple(world.solvers))
"""Name of a world -> the methods that solve it, as its class says."""


class Solution(NamedTuple):
    """Answers for B instances."""

    actions: NDArray[np.int32]
    """(B, L) what to do in the world, padded with 0: the `pi` of the tasks"""
    cost: NDArray[np.float64]
    """(B,) minus the objective, by the checker"""
    optimal: NDArray[np.bool_]
    """(B,) whether nothing can be better: always with `exact`; with `pyvrp` and `ortools`, which search and prove
    nothing, only where there was nothing to choose; never with a heuristic"""


@dataclass(frozen=True, eq=False)
class Job:
    """What a solver is asked: a function `solver(job)` that returns a `Solution`."""

    spec: WorldSpec
    instances: Any
    """as the caller gave them"""
    method: str
    config: dict[str, Any]
    """options of the world"""
    time_limit: float
    """seconds an instance"""
    seed: int
    workers: int
    iterations: int | None
    rule: str | None
    progress: bool

    @contextmanager
    def bar(self, total: int) -> Iterator[Progress | None]:
        """A bar of so many instances, if the caller wants one: what to call when some are done, or None."""
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

    `instances` is a dict of arrays with the instance first, as a generator gives them or under the names of the world's
    fields, or an Instance read from a file; for DARP a DARPInstance, or a list of them. `config` are options of the
    world: weights of the objective, metric, single or many trips. `time_limit` (seconds an instance, without those of
    the compiler), `seed` and `iterations` are for `pyvrp`, `ortools` and `improve`; with `iterations` (of `ortools`:
    solutions) `time_limit` has no effect, and the answer does not depend on the speed of the machine. `rule` is for
    `insertion`. A method may also be a policy of the world: its answer is what it plays, good or bad.
    `workers` cores are used, by threads (heuristics) or by processes. `progress=True` shows a bar, which also says when
    it waits for the compiler. Whatever the method, the actions are those that the world's mask allows,
    one after the other.
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
        policy = policies_for(spec.id)[method](seed)
        return Solution(*PlanChecker(spec, method, instances, job.config).check_policy(policy))
    solver = refer(spec.load(), "solvers", method)
    solution = solver(job)
    if str(getattr(solver, "__module__", "")).startswith("milkrun."):
        return Solution(*solution)  # the solvers of the library call the checker themselves
    return Solution(*PlanChecker(spec, method, instances, job.config).check(solution))


def check_method(spec: WorldSpec, method: str | None) -> str:
    """A method of a world or one of its policies, by default the one that its class prefers; refused if unknown."""
    cls = spec.load()
    methods = cls.solvers
    if not methods:
        hint = "; the policy 'rolling' plans it day by day" if "rolling" in cls.policies else ""
        raise ConfigError(f"{spec.id} has no solvers{hint}; worlds that have: {', '.join(WORLDS)}")
    if method is None:
        method = cls.default_solver or next(iter(methods))
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

        def say(compiling: bool) -> None:
            waited = f", after {clock.compiling:.1f} s of compiling" if clock.compiling >= NOTICEABLE else ""
            bar.update(task, description="compiling" if compiling else f"{title}{waited}", refresh=True)

        with listening(say):
            yield lambda count: bar.advance(task, count)
