"""Mutated towns, states and actions of the tracking world, many rows a call. An accepted row must play on with finite
numbers within their bounds.

A refused call must raise a MilkrunError that names the row. That row is restored and the call repeated, until all
remaining rows are accepted.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.world import Tracking

SMALL = {
    "size": 16,
    "ground_cell": 10.0,
    "max_boxes": 60,
    "max_vehicles": 4,
    "max_sim_steps": 60,
    "scene": tables.SCENES,
    "weather": tables.WEATHERS,
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "velocity": {"action_mode": "velocity", "frame_stack": 2, "cloud": True, "lidar_points": 16, "other_state": True},
    "published": {
        "reward": "D-VAT",
        "constants": "as_published",
        "occlusion": "zero",
        "reward_params": True,
        "critic": True,
        "wind_sigma": 5.0,
    },
    "e2e": {"reward": "E2E", "curriculum": "straight", "supersample": 2, "channels": 1, "control_hz": 500},
}
"""Worlds that read different parts of a state."""

INTS = (0, 1, -1, 2, 7, 10**8, -(2**31), 2**31 - 1, -(2**63), 2**63 - 1, 127, -128, 255, 32767)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-300, -1e-300, 1e-9, 0.1, 3.14159, -40.0, 50.0, 1e3, -1e4, 1e5, 1e6, -1e9, 1e12, 1e30,
          -1e30, 1e150, -1e300, 1.7e308, np.nan, np.inf, -np.inf)  # fmt: skip


def made(rows: int, kind: str = "plain", *, seed: int = 3, debug: bool = False, **options: Any) -> Any:
    """A world of this kind, some steps after its reset."""
    config = TrackingConfig.build(**{**SMALL, **KINDS[kind], **options})
    world = Tracking.variant(config)(rows, config, seed=seed, autoreset="disabled", debug=debug, threads=1)
    world.reset()
    return world


# -- mutations ------------------------------------------------------------------------------------------------------


def any_value(rng: np.random.Generator, array: np.ndarray, row: int, at: tuple[int, ...], bounds: Any) -> Any:
    """A number for one entry of an array: from the lists above, near the old one, at a bound, or from another row."""
    low, high = bounds
    ends = [x for x in (low, high) if x is not None]
    how = rng.random()
    if array.dtype.kind == "b":
        return not array[(row, *at)]
    if how < 0.25:
        return array[(int(rng.integers(len(array))), *at)]
    if array.dtype.kind == "f":
        if how < 0.5:
            return array[(row, *at)] * (1 + 10.0 ** rng.integers(-12, 1) * rng.choice([-1, 1]))
        if how < 0.65:
            return array[(row, *at)] + rng.normal() * 10.0 ** rng.integers(-6, 3)
        if how < 0.75 and ends:
            return float(rng.choice(ends)) * rng.choice([1.0, 1.0, 1 - 1e-12, 1 + 1e-12])
        return FLOATS[rng.integers(len(FLOATS))]
    span = np.iinfo(array.dtype)
    near = [int(array[(row, *at)]) + d for d in (-1, 1, 2)] + [int(x) + d for x in ends for d in (-1, 0, 1)]
    fits = [x for x in (*INTS, *near, *near) if span.min <= x <= span.max]
    return fits[rng.integers(len(fits))]


def spoil(rng: np.random.Generator, world: Any, arrays: dict[str, np.ndarray], names: list[str], row: int) -> list[str]:
    """Changes one to three fields of a row in place: one number, all of them, or a copy of another row."""
    chosen = [names[k] for k in rng.integers(len(names), size=rng.choice([1, 1, 2, 3]))]
    for name in chosen:
        array = arrays[name]
        if not array[row].size:
            continue
        at = tuple(int(rng.integers(n)) for n in array.shape[1:])
        if array.ndim > 1 and rng.random() < 0.5:  # the first entries are those that count
            at = (int(rng.integers(min(6, array.shape[1]))), *at[1:])
        how = rng.random()
        if how < 0.1:
            array[row] = array[rng.integers(len(array))]
            continue
        with np.errstate(all="ignore"):
            value = any_value(rng, array, row, at, world.fields[name].bounds(world.sizes))
        array[(row, *at) if how < 0.9 else (row,)] = value
    return chosen


def restore_refused_rows(give: Any, arrays: dict[str, np.ndarray], sound: dict[str, np.ndarray]) -> dict[int, str]:
    """Repeats the call until it is accepted, restoring each refused row. Returns the refused rows and their
    messages."""
    refused: dict[int, str] = {}
    while True:
        try:
            give(arrays)
            return refused
        except BadInstance as error:
            message = str(error)
        named = re.match(r"row (\d+): ", message)
        assert named, f"names no row: {message}"
        row = int(named[1])
        assert row not in refused, f"refused though sound: {message}"
        refused[row] = message
        for name, array in arrays.items():
            array[row] = sound[name][row]


# -- requirements on accepted rows ----------------------------------------------------------------------------------


def unsound(world: Any) -> list[str]:
    """Fields with numbers that are not finite, or with indices out of bounds."""
    wrong = []
    for f in world.fields.values():
        if f.role not in (Role.STATE, Role.VIEW, Role.INSTANCE) or f.name == "objective":
            continue
        array = getattr(world, f.name)
        if f.dtype.kind == "f":
            bad = ~np.isfinite(array)
        else:
            low, high = f.bounds(world.sizes)
            bad = np.zeros(array.shape, bool)
            bad |= array < low if low is not None else False
            bad |= array > high if high is not None else False
        if bad.any():
            at = tuple(int(k) for k in np.argwhere(bad)[0])
            wrong.append(f"{f.name}{list(at)} = {array[at]}")
    return wrong


def actions_of(world: Any, rng: np.random.Generator, n: int, wild: float = 0.2) -> np.ndarray:
    """Actions of n rows, some of them invalid."""
    if world.action.kind == "box":
        acts = rng.uniform(-1, 1, (n, 4)).astype(np.float32)
        strange = np.array([np.nan, np.inf, -np.inf, 1.0, -1.0, 1.0000001, -2.0, 3e38, 1e-40, -0.0], np.float32)
        return np.where(rng.random((n, 4)) < wild / 4, rng.choice(strange, (n, 4)), acts)
    acts = rng.integers(0, world.num_actions, n)
    return np.where(rng.random(n) < wild, rng.choice(np.array(INTS), n), acts)


def play(world: Any, rng: np.random.Generator, turns: int) -> None:
    """Steps the live rows and asserts that all numbers stay sound."""
    for _ in range(turns):
        live = np.flatnonzero(~(world.terminated | world.truncated))
        if len(live):
            world.step(actions_of(world, rng, len(live)), rows=live)
        world.observe()
        wrong = unsound(world)
        assert not wrong, wrong


def bits(world: Any, rows: Any = slice(None)) -> dict[str, bytes]:
    """State and observations of rows, as bytes."""
    fields = [f for f in world.fields.values() if f.role in (Role.STATE, Role.VIEW, Role.MASK)]
    return {f.name: getattr(world, f.name)[rows].tobytes() for f in fields}


STATES = [f.name for f in Tracking.fields.values() if f.role is Role.STATE]
TOWN = [f.name for f in Tracking.fields.values() if f.role is Role.INSTANCE]
