"""What the rules of check_world() share: worlds to compare, random actions and calls for them, their differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core.config import Config
from milkrun.core.fields import Field, Role
from milkrun.core.hooks import kernels_of
from milkrun.core.world import World

Fault = tuple[int | None, str, str]
"""Row, field, what is wrong: what a rule yields."""

GUARD = 4096  # unused bytes on either side of every array
TOLERANCE = 1e-5
"""Relative and absolute difference of a float that interpreted and compiled kernels may leave."""


@dataclass(frozen=True)
class Call:
    """A `step` of some rows, or without actions a `reset` of them."""

    rows: np.ndarray
    actions: np.ndarray | None = None


class Bench:
    """Makes worlds of one class and configuration, each array between two guards, and records calls."""

    def __init__(self, cls: type[World], config: Config, rows: int, seed: int, turns: int) -> None:
        self.cls = cls
        self.config = config
        self.rows = rows
        self.seed = seed
        self.turns = turns
        self.script: list[Call] = []
        self.some_ended = False
        self.plays: list[Any] = []  # interpreted plays
        self.shut: Fault | None = None  # why they ended, where a kernel left a live row no action
        self._guards: list[tuple[str, int, np.ndarray]] = []

    def make(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        guard: int = 0xA5,
        config: Config | None = None,
        autoreset: str = "disabled",
        first_row: int = 0,
        threads: int = 1,
        debug: bool = False,
    ) -> World:
        def allocate(field: Field, shape: tuple[int, ...]) -> np.ndarray:
            own = self.cls.allocate(world, field, shape)
            if field.strided:
                return own
            memory = np.full(own.nbytes + 2 * GUARD, guard, np.uint8)
            self._guards.append((field.name, guard, memory))
            array = memory[GUARD : GUARD + own.nbytes].view(field.dtype).reshape(shape)
            array[...] = own
            return array

        world = self.cls.__new__(self.cls)
        vars(world)["allocate"] = allocate
        self.cls.__init__(
            world,
            rows or self.rows,
            config or self.config,
            seed=self.seed if seed is None else seed,
            first_row=first_row,
            autoreset=autoreset,
            threads=threads,
            debug=debug,
        )
        return world

    def overrun(self) -> list[str]:
        """The fields of any world made here whose guards were overwritten."""
        return list(dict.fromkeys(name for name, guard, memory in self._guards if not _intact(guard, memory)))


def choose(
    world: World, rng: np.random.Generator, closed: float | np.ndarray = 0.0, lean: int | np.ndarray = 0
) -> np.ndarray:
    """A random allowed action for each row; with the probability `closed` an illegal one. A `lean` of -1 chooses
    the first allowed action, 1 the last."""
    lean = np.broadcast_to(lean, world.num_envs)[:, None]
    wild = rng.random(world.num_envs) < closed
    if world.action.kind == "box":
        numbers = rng.uniform(-1, 1, (world.num_envs, *world.action.shape(world.sizes))).astype(np.float32)
        numbers = np.where(lean == 0, numbers, lean.astype(np.float32))
        numbers[wild, 0] = 2.0
        return numbers
    choices = world.action.nvec(world.sizes)
    own_legal = "legal" in kernels_of(type(world))
    rebel = rng.integers(len(choices), size=world.num_envs)
    actions, end = np.zeros((world.num_envs, len(choices)), np.int64), 0
    for agent, n in enumerate(choices):
        allowed, end = world.action_mask[:, end : end + n], end + n
        noise = rng.random(allowed.shape)
        # Above 0, falling for -1 and rising for 1: argmax finds the first or the last of those allowed.
        noise = np.where(lean == 0, noise, 2.0 + lean * np.linspace(0.0, 1.0, n))
        taken, shut = (allowed * noise).argmax(1), (~allowed * noise).argmax(1)
        if not own_legal:  # a world with its own `legal` may allow actions outside the mask
            shut[allowed.all(1)] = n
        refused = wild & (rebel == agent) & ~(allowed.all(1) & own_legal)
        actions[:, agent] = np.where(refused, shut, taken)
    return actions if world.action.kind == "multi" else actions[:, 0]


def apply(world: World, call: Call) -> None:
    """Makes a call of a big batch in the slice of it that `world` holds."""
    here = (call.rows >= world.first_row) & (call.rows < world.first_row + world.num_envs)
    if here.any():
        rows = call.rows[here] - world.first_row
        if call.actions is None:
            world.reset(rows=rows)
        else:
            world.step(call.actions[here], rows=rows)


def replayed(bench: Bench, one: World, two: World, how: str, *, start: int = 0) -> Iterator[Fault]:
    """Makes the calls of the script in both worlds, until they differ."""
    for call in bench.script[start:]:
        apply(one, call)
        apply(two, call)
        if found := list(differences(one, two, how, instances=call.actions is None)):
            yield from found
            return


def numbers_differ(a: np.ndarray, b: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
    """(B,) the rows in which two arrays are not the same bits, or floats not equal within a tolerance."""
    if tolerance and a.dtype.kind == "f":
        x, y = (v.reshape(len(v), -1) for v in (a, b))
        return ~np.isclose(x, y, tolerance, tolerance, equal_nan=True).all(1)
    x, y = (np.ascontiguousarray(v).reshape(len(v), -1).view(np.uint8) for v in (a, b))
    return (x != y).any(1)


def first_difference(
    name: str, a: np.ndarray, b: np.ndarray, tolerance: float = 0.0
) -> tuple[int, str, Any, Any] | None:
    """Row, label and both values of the first number that differs; None if none does."""
    if a.tobytes() == b.tobytes() or not (rows := numbers_differ(a, b, tolerance)).any():
        return None
    row = int(rows.argmax())
    x, y = a[row].ravel(), b[row].ravel()
    k = int(numbers_differ(x, y, tolerance).argmax())
    at = [int(j) for j in np.unravel_index(k, a.shape[1:])] if a.ndim > 1 else ""
    return row, f"{name}{at}", x[k], y[k]


def differences(
    one: World,
    two: World,
    how: str,
    *,
    skip: Collection[str] = (),
    only: Collection[str] | None = None,
    instances: bool = True,
    on_demand: bool = False,
    tolerance: float = 0.0,
) -> Iterator[Fault]:
    """The fields in which world two differs from its slice of world one: in bits, or floats beyond a tolerance."""
    part = slice(two.first_row - one.first_row, two.first_row - one.first_row + two.num_envs)
    for f in one.fields.values():
        if not f.per_row or f.name in skip or (only is not None and f.name not in only) or 0 in f.shape(one.sizes):
            continue
        if (f.role is Role.KEY and f.name != "stream") or (f.on_demand and not on_demand):
            continue
        a, b = getattr(one, f.name), getattr(two, f.name)
        if f.role is Role.INSTANCE:
            if not instances:
                continue
            a, b = a[one.instance_row], b[two.instance_row]
        if found := first_difference(f.name, a[part], b, tolerance):
            row, label, x, y = found
            yield part.start + row, f.name, f"{label} = {x}, but {y} {how}"


def _intact(guard: int, memory: np.ndarray) -> bool:
    return bool((memory[:GUARD] == guard).all() and (memory[-GUARD:] == guard).all())
