"""check_world(): finds what is broken in a new world.

It reads the declarations, interprets the kernels with every access checked, and plays a batch at random (illegal
actions included) while it checks every rule. Then it repeats the calls in worlds that must not differ: with other batch
sizes, thread counts, histories. The rules are the functions of `rules`, `interpreted` and `replays`: the contract of a
world, in code.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from milkrun.core.arguments import check_count
from milkrun.core.check import interpreted, rules
from milkrun.core.check.bench import Bench, Call, choose
from milkrun.core.check.replays import REPLAY_RULES, writes_inside
from milkrun.core.check.rules import Task, Transition
from milkrun.core.errors import ConfigError, KernelRefused, MilkrunError, MissingExtra
from milkrun.core.registry import make, world_spec
from milkrun.core.world import World

ROWS = 64
TURNS, MOST = 80, 5  # turns of the play; up to five times as many until every row has ended once
_FOREIGN = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (os.path.dirname(__file__), np.__file__, numba.__file__)
)
"""Folders of code that is not the author's: `core`, numpy and numba."""
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


def check_world(world: World | type[World] | str, *, task: Task | None = None, turns: int = TURNS) -> list[Finding]:
    """What is broken in a world; an empty list if nothing was found.

    `world` is a class or an id, checked in the default configuration, or a World, whose class, configuration, number of
    rows and seed are used and which does not change. `task(world)` gives the cost of each row's
    solution, to compare with the objective of finished episodes; the default is the task that the class names. `turns`
    is the least number of turns to play: take fewer for a world whose steps take milliseconds.

    Declarations are checked first, then the kernels as plain Python, then one play, then replays of it. Each stage
    relies on the ones before, so the search ends after the first stage or replay with a finding.
    """
    named = world_spec(world) if isinstance(world, str) else None  # an unknown id is an error of the caller
    if not (named or isinstance(world, World) or (isinstance(world, type) and issubclass(world, World))):
        raise ConfigError(f"check_world takes a World, a World class or an id, not a {type(world).__name__}")
    try:
        if named:
            world = make(named.id, ROWS, seed=0)
        if isinstance(world, World):
            cls, config, rows, seed = type(world), world.config, max(world.num_envs, 8), world.seed
        else:
            cls, config, rows, seed = world, world.Config(), ROWS, 0  # type: ignore[union-attr, assignment]
    except Exception as error:
        return [_raised(error)]
    found: list[Finding] = []
    for declaration in rules.DECLARATIONS:
        found += _findings(declaration, cls, config)
        if found and declaration is not rules.documented:
            return found
    bench = Bench(cls, config, rows, seed, check_count("turns", turns, 1))
    seen = _findings(interpreted.accesses_checked, bench) or _findings(interpreted.open_while_live, bench)
    seen = seen or _watch(bench, task)
    for rule in REPLAY_RULES:
        if seen:
            break
        seen = _findings(rule, bench)
    return found + seen


def _findings(rule: Callable[..., Any], *args: Any) -> list[Finding]:
    try:
        return [Finding(rule.__name__, *fault) for fault in rule(*args)]
    except Exception as error:
        return [_raised(error)]


def _raised(error: Exception) -> Finding:
    """The finding for an error in the author's code (a declaration, a kernel, a hook), or for a kernel that does not
    compile. Errors that are not Milkrun's get their place added."""
    if isinstance(error, MissingExtra):
        raise error  # not a fault of the world
    if isinstance(error, MilkrunError):
        rule = "compiles" if isinstance(error, KernelRefused) else "raises_nothing"
        return Finding(rule, getattr(error, "row", None), getattr(error, "field", ""), str(error))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_FOREIGN)]
    at = (theirs or frames)[-1]
    said = str(error).strip().partition("\n")[0]
    place = f"{at.name} ({os.path.basename(at.filename)}:{at.lineno})"
    return Finding("raises_nothing", None, "", f"{place} raises {type(error).__name__}: {said}")


def _watch(bench: Bench, task: Task | None) -> list[Finding]:
    """Plays, and checks every rule of `rules` after each call; the first finding of each rule and field."""
    found: dict[tuple[str, str], Finding] = {}
    try:
        task = task or rules.task_of(bench.cls, bench.config)
    except Exception as error:
        return [_raised(error)]
    for transition in _transitions(bench, found):
        for rule in rules.RESET_RULES if transition.call.actions is None else rules.STEP_RULES:
            for finding in _findings(rule, transition):
                found.setdefault((finding.rule, finding.field), finding)
        if not found:  # these rely on all other rules
            late = _findings(rules.takes_own_states, transition)
            if task is not None and not late:
                late = _findings(rules.agrees_with_task, transition, task)
            found |= {(finding.rule, finding.field): finding for finding in late}
    return [*found.values(), *_findings(writes_inside, bench)]


def _transitions(bench: Bench, found: dict[tuple[str, str], Finding]) -> Iterator[Transition]:
    """The transitions of a play; a call that raises ends it with a finding."""
    try:
        yield from play(bench)
    except Exception as error:
        finding = _raised(error)
        found[finding.rule, ""] = finding


def play(bench: Bench) -> Iterator[Transition]:
    """Plays at random, and appends each call to the script of the bench.

    A turn resets the rows that have ended and steps three quarters of the batch, so that rows get out of step.
    """
    world, rng = bench.make(), np.random.default_rng(bench.seed)
    before = rules.frame_of(world)
    due, ended_once = np.ones(bench.rows, bool), np.zeros(bench.rows, bool)
    for turn in range(MOST * bench.turns):
        for call in _turn(world, due, rng):
            bench.script.append(call)
            after = rules.frame_of(world)
            yield Transition(world, call, before, after)
            before = after
        due = world.terminated | world.truncated
        ended_once |= due
        if turn >= bench.turns and ended_once.all():
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
