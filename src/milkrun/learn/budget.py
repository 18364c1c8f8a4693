"""What a run settles before its first step: how many steps fit its minutes, whether starts are given, and what its
references reach on the held-out instances."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol

import torch

from milkrun.core.engine import EngineWorld
from milkrun.core.layouts import layouts
from milkrun.learn.log import Bar, clock_text
from milkrun.learn.reinforce import Options
from milkrun.solvers import evaluate, policies_for
from milkrun.solvers.named import SolverPolicy

HELD_OUT, HELD_OUT_SEED = 256, 4321
FEW_HELD_OUT = 32  # in worlds whose steps are slow
TRIAL = 20  # at most so many steps turn minutes into steps
TRIAL_SHARE = 0.04  # of the budget
STARTS_TRIAL = 100  # steps with and without given starts
EVALUATIONS, EVALUATION_SHARE = 20, 0.2  # at most
TRAINING_SHARE = 0.92  # with evaluations
REFERENCE_SHARE = 0.05  # of the budget
LEAST_REFERENCES = 1.0  # seconds, of a run of few steps
QUICK_SOLVERS = ("ls", "savings")  # need no extra
LEAST_SEARCH = 0.05  # seconds of PyVRP for an instance


class Algorithm(Protocol):
    """The state of a run as the loop sees it: `ReinforceRun` and `PPORun`."""

    world: Any
    options: Any
    """a dataclass with `steps` and `seed`"""
    step: int
    title: str
    unit: str
    """what a step is counted in: "instances", or "steps" of rows"""

    @property
    def per_step(self) -> int: ...
    @property
    def episodes(self) -> int: ...
    def train_step(self) -> Any: ...
    def policy(self) -> Any: ...
    def after_evaluation(self, number: int) -> None: ...
    def describe(self, **more: Any) -> dict[str, Any]: ...
    def explain(self) -> dict[str, Any]: ...
    def weights(self) -> dict[str, torch.Tensor]: ...
    def tensors(self) -> dict[str, torch.Tensor]: ...


Builder = Callable[[Any], Algorithm]
"""Makes an untrained algorithm from its options."""


def held_out_of(world: Any) -> int:
    """The number of held-out instances: fewer where an engine or a picture makes steps slow."""
    return FEW_HELD_OUT if isinstance(world, EngineWorld) or "view" in layouts(world) else HELD_OUT


def judge_of(world: Any) -> Any:
    """A world with a row for each held-out instance."""
    return type(world)(held_out_of(world), world.config, seed=HELD_OUT_SEED, autoreset="disabled")


def judge(world: Any, policy: Any) -> float:
    """The mean return of a policy on the held-out instances; `world` is that of `judge_of`."""
    return evaluate(world, policy, world.num_envs, HELD_OUT_SEED).mean


# -- steps ------------------------------------------------------------------------------------------------------------


def time_steps(build: Builder, options: Any, limit: float) -> tuple[float, Algorithm]:
    """Seconds of a training step after the first, which compiles; of as many as fit the limit, at least one."""
    state = build(options)
    times: list[float] = []
    while len(times) < TRIAL and (len(times) < 2 or sum(times) < limit):
        start = time.perf_counter()
        state.train_step()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[len(times[1:]) // 2], state


def in_time(build: Builder, options: Any, seconds: float) -> tuple[Any, int]:
    """The options with as many steps as the budget allows, and the number of evaluations, whose time is deducted."""
    each, state = time_steps(build, options, TRIAL_SHARE * seconds)
    start = time.perf_counter()
    judge(judge_of(state.world), state.policy())
    judged = time.perf_counter() - start
    evaluations = min(EVALUATIONS, max(1, int(EVALUATION_SHARE * seconds / judged)))
    return replace(options, steps=max(1, int((TRAINING_SHARE * seconds - evaluations * judged) / each))), evaluations


def estimate(build: Builder, options: Any) -> float:
    """Seconds that a run of given steps may take."""
    return float(options.steps * time_steps(build, options, limit=1.0)[0])


def try_starts(build: Builder, options: Options, bar: Bar | None) -> Options:
    """Trains some steps with and without given starts, and keeps what is better on held-out instances."""
    means = {}
    for starts in (True, False):
        if bar is not None:
            bar.show(f"trying starts={'yes' if starts else 'no'}")
        state = build(replace(options, steps=STARTS_TRIAL, starts=starts))
        for _ in range(STARTS_TRIAL):
            state.train_step()
        means[starts] = judge(judge_of(state.world), state.policy())
    return replace(options, starts=max(means, key=lambda k: means[k]))


# -- references -------------------------------------------------------------------------------------------------------


def references_of(world: Any, seconds: float, bar: Bar | None) -> dict[str, float]:
    """Mean returns on the held-out instances: every policy of the world and one solver, within their share of the
    budget. Slower ones are left out."""
    found: dict[str, float] = {}
    limit = max(LEAST_REFERENCES, REFERENCE_SHARE * seconds)
    start = time.perf_counter()
    players = {name: factory(0) for name, factory in policies_for(world.id).items()}
    each = 0.8 * limit / held_out_of(world)
    for name in solvers_of(type(world), each):
        players[name] = SolverPolicy(name, 0, time_limit=max(0.01, each))
    for name, player in players.items():
        if time.perf_counter() - start > limit and found:
            break
        if bar is not None:
            bar.show(f"reference {name} (at most {clock_text(limit)} for all)")
        found[name] = judge(judge_of(world), player)
    return found


def solvers_of(cls: Any, seconds: float) -> list[str]:
    """PyVRP if it is installed, plays this world and has time for each instance; else a quick solver."""
    if not cls.plans_are_actions:
        return []
    if "pyvrp" in cls.solvers and find_spec("pyvrp") is not None and seconds >= LEAST_SEARCH:
        return ["pyvrp"]
    return [name for name in QUICK_SOLVERS if name in cls.solvers][:1]
