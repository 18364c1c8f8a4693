"""CWCVRP in C, as a representative of the profit and waste worlds, on the instances of a Milkrun world.

It has the same fields; rewards and masks are first compared with that world.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..timing import clock, step_time
from .c_kernel import _library

SIZES = ["rows", "nodes", "tour_size", "max_steps"]
PRICES = ["waste_weight", "beta", "overflow_price"]
GIVEN = ["locs", "waste", "max_waste", "capacity", "must_go"]
STATE = {
    "current_node": np.int64,
    "i": np.int64,
    "trips": np.int32,
    "tour_len": np.int32,
    "skipped": np.int32,
    "missed": np.int32,
    "overflows": np.int32,
    "load": np.float32,
    "collected": np.float32,
    "tour_length": np.float32,
    "trip_length": np.float32,
    "visited": "N",
    "tour": "L",
    "objective": np.float64,
    "reward": np.float32,
    "terminated": np.uint8,
    "truncated": np.uint8,
    "illegal": np.uint8,
    "action_mask": "N",
}


class _World(ctypes.Structure):
    _fields_ = (
        [(n, ctypes.c_int64) for n in SIZES]
        + [(n, ctypes.c_double) for n in PRICES]
        + [(n, ctypes.c_void_p) for n in (*GIVEN, *STATE)]
    )


class WasteC:
    """CWCVRP in C, one thread, on the instances of `world` and recorded actions (T, B)."""

    def __init__(self, world: Any, actions: np.ndarray) -> None:
        self.library = _library("cwcvrp")
        rows, nodes = world.num_envs, world.sizes["N"]
        shape = {"N": ((rows, nodes), np.uint8), "L": ((rows, world.sizes["A"]), np.int16)}
        self.fields = {
            n: np.zeros(*(shape[kind] if isinstance(kind, str) else (rows, kind))) for n, kind in STATE.items()
        }
        self.given = {n: np.ascontiguousarray(getattr(world, n)) for n in GIVEN}
        arrays = {**self.given, **self.fields}
        prices = {"waste_weight": world.gain_weight, "beta": world.beta, "overflow_price": world.overflow_price}
        sizes = {"rows": rows, "nodes": nodes, "tour_size": world.sizes["A"], "max_steps": world.max_steps}
        self.world = _World(**sizes, **prices, **{n: a.ctypes.data for n, a in arrays.items()})
        self.address = ctypes.addressof(self.world)
        self.actions = np.ascontiguousarray(actions)
        self._check(world)

    def start(self) -> None:
        self.library.reset(self.address)

    def play(self, first: int, last: int) -> float:
        """Play the recorded steps first..last-1; returns their seconds."""
        step, world, places = self.library.step, self.address, [a.ctypes.data for a in self.actions[first:last]]
        before = clock()
        for place in places:
            step(world, place)
        return clock() - before

    def seconds(self, **timing: Any) -> float:
        return step_time(self.start, self.play, len(self.actions), **timing)

    def _check(self, world: Any) -> None:
        world.reset(seed=0)
        self.start()
        for t, action in enumerate(self.actions):
            world.step(action)
            self.play(t, t + 1)
            np.testing.assert_array_equal(self.fields["reward"], world.reward)
            np.testing.assert_array_equal(self.fields["action_mask"].astype(bool), world.action_mask)
            assert not self.fields["illegal"].any()
