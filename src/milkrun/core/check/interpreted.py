"""The rules that show when kernels are interpreted: every access is checked, and the bits are those of compiled play.

A few rows play side by side, each in a way of its own: at random, by the first or the last allowed action (which fills
records to their ends), or with long runs of illegal actions before and between (which count as steps, but do not move).
They do so in the configuration given, and in that with the smallest sizes it allows. Then the same worlds are asked to
load states with a whole number at an end of its bounds, and play on from those that they take.
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
from milkrun.core.check.bench import Bench, Call, Fault, apply, bits_differ, choose
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError, KernelFault, MilkrunError, ShutMask
from milkrun.core.fields import Field, Role
from milkrun.core.launcher import NO_LIMIT
from milkrun.core.world import World

ROWS = 8
LONGEST = 1_000  # turns of a play; illegal ones cost little
LOOKS = 8  # every so many calls somebody looks
CALL_SECONDS = 60.0  # of processor time for a reset or a step of all rows; the slowest world takes less than one
_CORE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
STEPS = 8  # of play from a state at the end of its bounds
LEANS = np.array([0, -1, 1, 0, 0, -1, 1, 0])
"""Which allowed action a row takes: any, the first, the last."""


@dataclasses.dataclass
class Take:
    """An interpreted play: its calls, and what each row was after them; its world as it stands at the end, and what it
    saved when its last episodes began."""

    config: Config
    world: World
    calls: list[Call] = dataclasses.field(default_factory=list)
    frames: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)
    begun: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def accesses_checked(bench: Bench) -> Iterator[Fault]:
    """A kernel touches what is there and its own: no index out of range, no other row, no left-over scratch."""
    for config in dict.fromkeys((bench.config, smallest(bench))):
        try:
            world = bench.make(ROWS, config=config, debug=True)
        except ConfigError:
            if config is bench.config:
                raise
            continue
        take = Take(config, world)
        bench.takes.append(take)
        try:
            for number, call in enumerate(_limited(_play(world, np.random.default_rng(bench.seed)))):
                take.calls.append(call)
                world._launcher.first_fault(world._table_address, world._all_address, world.num_envs)
                take.frames.append(_frame(world, number))
                if call.actions is None:
                    take.begun = world.state_dict()
        except KernelFault as error:
            found = error.row, error.field, _told(error) + _size(bench, config)
            if isinstance(error, ShutMask):
                bench.shut = found
            else:
                yield found
            return


def _limited(calls: Iterator[Call]) -> Iterator[Call]:
    """The calls, each stopped with KernelFault where it takes more than CALL_SECONDS of processor time: a kernel that
    never ends would never be found. A signal does that, so it works in the main thread only."""
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


def ends_guarded(bench: Bench) -> Iterator[Fault]:
    """A saved state with a number at an end of its bounds is refused, or can be played: no kernel leaves its arrays."""
    for take in bench.takes:
        rng = np.random.default_rng(bench.seed)
        under_way = take.world.state_dict()
        tried = [(f, value) for f in take.world.fields.values() for value in _ends(f, take.world.sizes)]
        for saved, whole in ((take.begun, True), (under_way, False)):
            for first in range(0, len(tried), ROWS):
                lot = dict(enumerate(tried[first : first + ROWS]))
                taken: list[int] = []
                loading: int | None = None
                try:
                    for loading in lot:
                        if _takes(take.world, saved, loading, *lot[loading], None if whole else rng):
                            taken.append(loading)
                    loading = None
                    for _ in range(min(STEPS, bench.turns)):
                        live = [row for row in taken if not (take.world.terminated[row] or take.world.truncated[row])]
                        if live:
                            take.world.step(choose(take.world, rng)[live], rows=live)
                except ShutMask:  # such a state leads nowhere, but no kernel leaves its arrays
                    continue
                except KernelFault as error:
                    f, value = lot[loading if loading is not None else error.row if error.row in lot else taken[0]]
                    told = (
                        f"a saved state with {f.name} = {value} is taken, and then {_told(error)}"
                        f"{_size(bench, take.config)}: the kernel `fault` or check_states must refuse such a state, "
                        "or the kernel guard its access"
                    )
                    yield None, f.name, told
                    return


def _ends(f: Field, sizes: dict[str, int]) -> list[int]:
    """The lowest, the highest and the last but one value of a state field with which kernels may index. Where no
    highest value is declared, as of a counter, it is the largest size."""
    if f.role is not Role.STATE or not may_index(f) or 0 in f.shape(sizes):
        return []
    low, high = f.bounds(sizes)
    span = np.iinfo(f.dtype)
    least = span.min if low is None else max(int(low), span.min)
    most = min(max(sizes.values(), default=0) if high is None else int(high), span.max)
    return list(dict.fromkeys(value for value in (least, most, most - 1) if value >= least and most >= least))


def _takes(
    world: World, saved: dict[str, np.ndarray], row: int, f: Field, value: int, rng: np.random.Generator | None
) -> bool:
    """Whether a world takes a row back with another value in a field: in all its elements, or in one by `rng`. A row
    that has it already, or has ended, is not tried."""
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


def _told(error: KernelFault) -> str:
    return f"{error.place and error.place + ': '}{error.reason}"


def _size(bench: Bench, config: Config) -> str:
    return "" if config is bench.config else f" with {_changes(bench.config, config)}"


def _changes(before: Config, after: Config) -> str:
    changed = (f.name for f in dataclasses.fields(after) if getattr(before, f.name) != getattr(after, f.name))
    return ", ".join(f"{name}={getattr(after, name)!r}" for name in changed)
