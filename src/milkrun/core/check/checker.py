"""check_world(): finds what is broken in a new world.

It reads the declarations, interprets the kernels with every access checked, plays a batch at random (illegal actions
included) with a rule book beside it, then makes the same calls again in worlds that may differ in nothing: other batch
sizes, thread counts, histories. The rules are the functions of `rules`, `interpreted` and `replays`; together they are
the contract, in code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core.check import rules
from milkrun.core.check.bench import Bench, Call, choose
from milkrun.core.check.interpreted import accesses_checked
from milkrun.core.check.replays import REPLAY_RULES, writes_inside
from milkrun.core.check.rules import Moment, Task
from milkrun.core.errors import ConfigError
from milkrun.core.registry import make
from milkrun.core.world import World

ROWS = 64
LEAST, MOST = 80, 400  # turns of the play; between them it goes on until every row has ended once
CLOSED = 0.1  # share of actions that are not allowed


@dataclass(frozen=True)
class Finding:
    """A rule that a world breaks, where, and how; as text, one sentence."""

    rule: str
    row: int | None
    field: str
    sentence: str

    def __str__(self) -> str:
        where = "" if self.row is None else f"row {self.row}: "
        return f"{self.rule}: {where}{self.sentence}"


def check_world(world: World | type[World] | str, *, task: Task | None = None) -> list[Finding]:
    """What is broken in a world; an empty list if nothing was found.

    `world` is a World, which lends its class, configuration, number of rows and seed and is not touched itself, or a
    class or an id, which are checked in their default configuration. `task(world)` gives the cost of each row's
    solution, to compare with the objective of finished episodes; without it, the task that the class names.

    Declarations are checked first, then the kernels as plain Python, then one play, then replays of it. Each stage
    stands on the one before, and each replay on those before it, so the search ends where the first fault was found.
    """
    if isinstance(world, str):
        world = make(world, ROWS, seed=0)
    if isinstance(world, World):
        cls, config, rows, seed = type(world), world.config, max(world.num_envs, 8), world.seed
    elif isinstance(world, type) and issubclass(world, World):
        cls, config, rows, seed = world, world.Config(), ROWS, 0
    else:
        raise ConfigError(f"check_world takes a World, a World class or an id, not a {type(world).__name__}")

    found: list[Finding] = []
    for declaration in rules.DECLARATIONS:
        found += _findings(declaration, cls, config)
        if found and declaration is not rules.documented:
            return found
    bench = Bench(cls, config, rows, seed)
    seen = _findings(accesses_checked, bench) or _watch(bench, task or rules.task_of(cls, config))
    for rule in REPLAY_RULES:
        if seen:
            break
        seen = _findings(rule, bench)
    return found + seen


def _findings(rule: Callable[..., Any], *args: Any) -> list[Finding]:
    return [Finding(rule.__name__, *fault) for fault in rule(*args)]


def _watch(bench: Bench, task: Task | None) -> list[Finding]:
    """Plays with every rule of `rules` beside it; of each rule and field the first finding."""
    found: dict[tuple[str, str], Finding] = {}
    for moment in play(bench):
        for rule in rules.RESET_RULES if moment.call.actions is None else rules.STEP_RULES:
            for finding in _findings(rule, moment):
                found.setdefault((finding.rule, finding.field), finding)
        if task is not None and not found:  # a task may rely on all the other rules
            for finding in _findings(rules.agrees_with_task, moment, task):
                found[finding.rule, finding.field] = finding
    return [*found.values(), *_findings(writes_inside, bench)]


def play(bench: Bench) -> Iterator[Moment]:
    """Every call of one random play; each is kept in the script of the bench.

    A turn resets the rows that have ended and steps three quarters of the batch, so that rows drift apart.
    """
    world, rng = bench.make(), np.random.default_rng(bench.seed)
    before = rules.frame_of(world)
    due, ended_once = np.ones(bench.rows, bool), np.zeros(bench.rows, bool)
    for turn in range(MOST):
        for call in _turn(world, due, rng):
            bench.script.append(call)
            after = rules.frame_of(world)
            yield Moment(world, call, before, after)
            before = after
        due = world.terminated | world.truncated
        ended_once |= due
        if turn >= LEAST and ended_once.all():
            break
    bench.some_ended = bool(ended_once.any())


def _turn(world: World, due: np.ndarray, rng: np.random.Generator) -> Iterator[Call]:
    if due.any():
        reset = Call(np.flatnonzero(due))
        world.reset(rows=reset.rows)
        yield reset
    rows = np.flatnonzero((rng.random(world.num_envs) < 0.75) & ~world.terminated & ~world.truncated)
    if len(rows):
        step = Call(rows, choose(world, rng, CLOSED)[rows])
        world.step(step.actions, rows=rows)
        yield step
