"""The rules that show when kernels are interpreted: every access is checked, and the bits are those of compiled play.

A few rows play side by side, each in a way of its own: at random, by the first or the last allowed action (which fills
records to their ends), or with long runs of illegal actions before and between (which count as steps, but do not move).
They do so in the configuration given, and in that with the smallest sizes it allows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from milkrun.core.check.bench import Bench, Call, Fault, apply, bits_differ, choose
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, KernelFault, ShutMask
from milkrun.core.fields import Role
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.world import World

ROWS = 8
LONGEST = 1_000  # turns of a play; illegal ones cost little
LOOKS = 8  # every so many calls somebody looks
LEANS = np.array([0, -1, 1, 0, 0, -1, 1, 0])
"""Which allowed action a row takes: any, the first, the last."""


@dataclasses.dataclass
class Take:
    """An interpreted play: its calls, and what each row was after them."""

    config: Config
    calls: list[Call]
    frames: list[dict[str, np.ndarray]]


def accesses_checked(bench: Bench) -> Iterator[Fault]:
    """A kernel touches what is there and its own: no index out of range, no other row, no left-over scratch."""
    for config in dict.fromkeys((bench.config, smallest(bench))):
        try:
            world = bench.make(ROWS, config=config, debug=True)
        except ConfigError:
            if config is bench.config:
                raise
            continue
        take = Take(config, [], [])
        bench.takes.append(take)
        try:
            for number, call in enumerate(_play(world, np.random.default_rng(bench.seed))):
                take.calls.append(call)
                world._launcher.first_fault(world._table_address, world._all_address, world.num_envs)
                take.frames.append(_frame(world, number))
        except KernelFault as error:
            size = "" if config is bench.config else f" with {_changes(bench.config, config)}"
            found = error.row, error.field, f"{error.place and error.place + ': '}{error.reason}{size}"
            if isinstance(error, ShutMask):
                bench.shut = found
            else:
                yield found
            return


def open_while_live(bench: Bench) -> Iterator[Fault]:
    """A live row has an allowed action, each of its agents one: the rule of `rules`, with the kernel that breaks it."""
    if bench.shut is not None:
        yield bench.shut


def interpreted_alike(bench: Bench) -> Iterator[Fault]:
    """Interpreted and compiled kernels leave the same bits."""
    for take in bench.takes:
        world = bench.make(ROWS, config=take.config)
        for number, (call, frame) in enumerate(zip(take.calls, take.frames)):
            apply(world, call)
            if number % LOOKS == 0:
                world.observe()
            for name, interpreted in frame.items():
                compiled = getattr(world, name)
                if compiled.tobytes() != interpreted.tobytes():
                    row = int(bits_differ(compiled, interpreted).argmax())
                    k = int(bits_differ(compiled[row].ravel(), interpreted[row].ravel()).argmax())
                    one, two = compiled[row].ravel()[k], interpreted[row].ravel()[k]
                    at = [int(j) for j in np.unravel_index(k, compiled.shape[1:])] if compiled.ndim > 1 else ""
                    yield row, name, f"{name}{at} = {one}, but {two} when the kernels are interpreted"
                    return


def smallest(bench: Bench) -> Config:
    """The configuration with every option that sets a size at its lower bound, as far as they go together."""
    config: Any = bench.config
    for f in dataclasses.fields(config):
        value, low = getattr(config, f.name), f.metadata.get("low")
        if type(value) is not int or not isinstance(low, int) or value <= low:
            continue
        try:
            smaller = config.replace(**{f.name: low})
            if bench.cls.variant(smaller) is bench.cls.variant(config):
                if bench.cls.size_of(smaller) != bench.cls.size_of(config):
                    config = smaller
        except ConfigError:
            continue
    return config


def _play(world: World, rng: np.random.Generator) -> Iterator[Call]:
    """The calls of one play, made in `world`: an episode of each row in its own way, then the start of another."""
    longest = max([*world.sizes.values(), 8])
    limit = min(LONGEST, 2 * longest + 2 if world.max_steps == NO_LIMIT else int(world.max_steps))
    every = np.arange(ROWS)
    yield _made(world, Call(every))
    for turn in range(limit):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        if not len(live):
            break
        yield _made(world, Call(live, choose(world, rng, _refused(turn, limit), LEANS)[live]))
    yield _made(world, Call(every))
    for _ in range(3):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        yield _made(world, Call(live, choose(world, rng)[live]))


def _refused(turn: int, limit: int) -> np.ndarray:
    """(ROWS,) the chance that a row tries what is not allowed."""
    late, half = turn < limit - max(8, limit // 8), turn < limit // 2
    return np.array([0, 0, 0, 0.1, late, turn % 2, half, 0.5])


def _made(world: World, call: Call) -> Call:
    apply(world, call)
    return call


def _frame(world: World, number: int) -> dict[str, np.ndarray]:
    looked = number % LOOKS == 0
    if looked:
        world.observe()
    fields = (f for f in world.fields.values() if f.per_row and (looked or not f.on_demand) and f.role is not Role.KEY)
    return {f.name: getattr(world, f.name).copy() for f in fields}


def _changes(before: Config, after: Config) -> str:
    changed = (f.name for f in dataclasses.fields(after) if getattr(before, f.name) != getattr(after, f.name))
    return ", ".join(f"{name}={getattr(after, name)!r}" for name in changed)
