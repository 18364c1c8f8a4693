"""The rules that need interpreted kernels: every access is valid, and compiled kernels leave the same numbers.

Each of a few rows plays in its own way: at random, by the first or the last allowed action (which fills records to
their ends), or with long runs of illegal actions (which count as steps, but change nothing). They play in the given
configuration, and in that with the smallest sizes. Then the same worlds load states with a whole number at an end of
its bounds, and play on from those that they accept.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from milkrun.core.bounds import may_index
from milkrun.core.check.bench import TOLERANCE, Bench, Call, Fault, apply, choose, first_difference
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, KernelFault, MilkrunError, ShutMask
from milkrun.core.fields import Field, Role
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.world import World

ROWS = 8
LONGEST = 1_000  # turns of a play; illegal ones cost little
OBSERVED = 8  # views on demand are computed after every so many calls
CALL_SECONDS = 60.0  # of processor time for a reset or a step of all rows; the slowest world takes less than one
_CORE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STEPS = 8  # of play from a state at the end of its bounds
LEANS = np.array([0, -1, 1, 0, 0, -1, 1, 0])
"""Which allowed action a row takes: any (0), the first (-1), the last (1)."""


@dataclasses.dataclass
class Play:
    """An interpreted play: its calls, the fields after each, its world, and the state when its last episodes began."""

    config: Config
    world: World
    calls: list[Call] = dataclasses.field(default_factory=list)
    frames: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
    begun: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def accesses_checked(bench: Bench) -> Iterator[Fault]:
    """A kernel accesses only its own row, by indices in range, and reads no scratch that it has not written."""
    for config in dict.fromkeys((bench.config, smallest(bench))):
        try:
            world = bench.make(ROWS, config=config, debug=True)
        except ConfigError:
            if config is bench.config:
                raise
            continue
        play = Play(config, world)
        bench.plays.append(play)
        try:
            for number, call in enumerate(_limited(_calls(world, np.random.default_rng(bench.seed)))):
                play.calls.append(call)
                world._launcher.first_fault(world._table_address, world._all_address, world.num_envs)
                play.frames.append(_frame(world, number))
                if call.actions is None:
                    play.begun = world.state_dict()
        except KernelFault as error:
            found = error.row, error.field, _sentence(error) + _size(bench, config)
            if isinstance(error, ShutMask):
                bench.shut = found
            else:
                yield found
            return


def _limited(calls: Iterator[Call]) -> Iterator[Call]:
    """The calls, each limited to CALL_SECONDS of processor time: an endless loop in a kernel becomes a KernelFault.
    This takes a signal, so calls in other threads have no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield from calls
        return

    def stop(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename.startswith(_CORE):
            frame = frame.f_back
        code = frame.f_code if frame is not None else stop.__code__
        line = f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno if frame is not None else 0})"
        raise KernelFault(f"has run for {CALL_SECONDS:g} s: does a loop never end?", place=line)

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        while True:
            signal.setitimer(signal.ITIMER_VIRTUAL, CALL_SECONDS)
            call = next(calls, None)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if call is None:
                return
            yield call
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def open_while_live(bench: Bench) -> Iterator[Fault]:
    """A live row has an allowed action for each agent: the rule of `rules`, with the kernel that breaks it."""
    if bench.shut is not None:
        yield bench.shut


def interpreted_alike(bench: Bench) -> Iterator[Fault]:
    """Interpreted and compiled kernels leave the same whole numbers and flags, and floats equal within TOLERANCE.

    After each call the compiled world continues from the interpreted numbers, so that rounding does not add up.
    """
    for play in bench.plays:
        world = bench.make(ROWS, config=play.config)
        for number, (call, frame) in enumerate(zip(play.calls, play.frames)):
            apply(world, call)
            if number % OBSERVED == 0:
                world.observe()
            for name, interpreted in frame.items():
                compiled = getattr(world, name)
                if found := first_difference(name, compiled, interpreted, TOLERANCE):
                    row, label, one, two = found
                    yield row, name, f"{label} = {one}, but {two} when the kernels are interpreted"
                    return
                compiled[...] = interpreted


def ends_guarded(bench: Bench) -> Iterator[Fault]:
    """A saved state with a number at an end of its bounds is refused, or is played without an index out of range."""
    for play in bench.plays:
        rng = np.random.default_rng(bench.seed)
        under_way = play.world.state_dict()
        tried = [(f, value) for f in play.world.fields.values() for value in _ends(f, play.world.sizes)]
        for saved, whole in ((play.begun, True), (under_way, False)):
            for first in range(0, len(tried), ROWS):
                lot = dict(enumerate(tried[first : first + ROWS]))
                accepted: list[int] = []
                loading: int | None = None
                try:
                    for loading in lot:
                        if _accepts(play.world, saved, loading, *lot[loading], None if whole else rng):
                            accepted.append(loading)
                    loading = None
                    for _ in range(min(STEPS, bench.turns)):
                        live = [
                            row for row in accepted if not (play.world.terminated[row] or play.world.truncated[row])
                        ]
                        if live:
                            play.world.step(choose(play.world, rng)[live], rows=live)
                except ShutMask:  # a dead end, but no access out of range
                    continue
                except KernelFault as error:
                    f, value = lot[loading if loading is not None else error.row if error.row in lot else accepted[0]]
                    sentence = (
                        f"a saved state with {f.name} = {value} is accepted, and then {_sentence(error)}"
                        f"{_size(bench, play.config)}: the kernel `fault` or check_states must refuse such a state, "
                        "or the kernel guard its access"
                    )
                    yield None, f.name, sentence
                    return


def _ends(f: Field, sizes: dict[str, int]) -> list[int]:
    """The lowest, the highest and the last but one value of a state field that kernels may use as an index. Without a
    declared maximum, as of a counter, the largest size is used."""
    if f.role is not Role.STATE or not may_index(f) or 0 in f.shape(sizes):
        return []
    low, high = f.bounds(sizes)
    span = np.iinfo(f.dtype)
    least = span.min if low is None else max(int(low), span.min)
    most = min(max(sizes.values(), default=0) if high is None else int(high), span.max)
    return list(dict.fromkeys(value for value in (least, most, most - 1) if value >= least and most >= least))


def _accepts(
    world: World, saved: dict[str, np.ndarray], row: int, f: Field, value: int, rng: np.random.Generator | None
) -> bool:
    """Whether a world accepts a row with another value in a field: in all elements, or in one chosen by `rng`. A row
    that has the value already, or has ended, is not tried."""
    if saved["terminated"][row] or saved["truncated"][row]:
        return False
    own = saved["instance_row"][row]
    at = {g.name: own if g.role is Role.INSTANCE else row for g in world.fields.values()}
    changed = {name: array[[at[name]]] for name, array in saved.items()}
    changed["instance_row"][:] = 0
    if rng is None:
        changed[f.name][...] = value
    else:
        changed[f.name].reshape(-1)[rng.integers(changed[f.name].size)] = value
    if (changed[f.name] == saved[f.name][[row]]).all():
        return False
    try:
        world.load_state_dict(changed, rows=[row])
    except KernelFault:
        raise
    except MilkrunError:
        return False
    return True


def smallest(bench: Bench) -> Config:
    """The configuration with every option that sets a size at its lower bound, as far as their combination is valid."""
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


def _calls(world: World, rng: np.random.Generator) -> Iterator[Call]:
    """Makes the calls of one play in `world` and yields them: an episode of each row in its own way, then the start of
    another."""
    longest = max([*world.sizes.values(), 8])
    limit = min(LONGEST, 2 * longest + 2 if world.max_steps == NO_LIMIT else int(world.max_steps))
    every = np.arange(ROWS)
    yield _apply_call(world, Call(every))
    for turn in range(limit):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        if not len(live):
            break
        yield _apply_call(world, Call(live, choose(world, rng, _illegal_share(turn, limit), LEANS)[live]))
    yield _apply_call(world, Call(every))
    for _ in range(3):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        yield _apply_call(world, Call(live, choose(world, rng)[live]))


def _illegal_share(turn: int, limit: int) -> np.ndarray:
    """(ROWS,) the probability that a row takes an illegal action."""
    late, half = turn < limit - max(8, limit // 8), turn < limit // 2
    return np.array([0, 0, 0, 0.1, late, turn % 2, half, 0.5])


def _apply_call(world: World, call: Call) -> Call:
    apply(world, call)
    return call


def _frame(world: World, number: int) -> dict[str, np.ndarray]:
    observed = number % OBSERVED == 0
    if observed:
        world.observe()
    fields = (
        f for f in world.fields.values() if f.per_row and (observed or not f.on_demand) and f.role is not Role.KEY
    )
    return {f.name: getattr(world, f.name).copy() for f in fields}


def _sentence(error: KernelFault) -> str:
    return f"{error.place and error.place + ': '}{error.reason}"


def _size(bench: Bench, config: Config) -> str:
    return "" if config is bench.config else f" with {_changes(bench.config, config)}"


def _changes(before: Config, after: Config) -> str:
    changed = (f.name for f in dataclasses.fields(after) if getattr(before, f.name) != getattr(after, f.name))
    return ", ".join(f"{name}={getattr(after, name)!r}" for name in changed)
