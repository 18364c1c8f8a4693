"""Sled: a world on a toy engine with every trait that makes real engines hard to keep.

The engine's memory has gaps, and a forked child lacks its threads. It keeps a count outside the state (how long a row
has been still) that only `place` clears. One axis, so that tests can work it out by hand.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import Config, option
from milkrun.core.engine import EngineWorld
from milkrun.core.fields import Field, bool_, constant, float32, float64, instance, int64, mask, state, view
from milkrun.core.kernels import kernel
from milkrun.core.rng import stream, uniform

LEFT, WAIT, RIGHT = range(3)


class Ice:
    """Moves points with friction: position, speed and push of each row, in columns of one array with gaps."""

    def __init__(self, rows: int, threads: int) -> None:
        self.memory = np.full((rows, 8), -7.0)
        self.state = self.memory[:, 1:6:2]
        self.still = np.zeros(rows, np.int64)  # no part of the state: ticks since a row was put or pushed
        self.calls, self.breaks = 0, False
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def put(self, rows: np.ndarray) -> None:
        """Notifies the engine that the state of these rows was written from outside."""
        self.still[rows] = 0

    def tick(self, rows: np.ndarray) -> None:
        """Advances these rows by a tenth of a second, in two halves on threads where there are any."""
        self.calls += 1
        if self.breaks:
            raise ConnectionError("the engine has gone")
        halves = np.array_split(rows, 2)
        if self.pool is None:
            for half in halves:
                self._move(half)
        else:
            for done in [self.pool.submit(self._move, half) for half in halves]:
                done.result()

    def _move(self, rows: np.ndarray) -> None:
        position, speed, push = self.state[rows].T
        speed = 0.9 * speed + 0.1 * push
        self.state[rows, 1] = speed
        self.state[rows, 0] = position + 0.1 * speed
        self.still[rows] = np.where(push == 0.0, self.still[rows] + 1, 0)


@dataclass(frozen=True, kw_only=True)
class SledConfig(Config):
    ticks: int = option(4, "ticks of the engine a step", low=1, high=100)
    reach: float = option(0.3, "how near the flag counts", low=0.0)
    max_steps: int | None = option(30, "steps until a row is truncated", low=1)


class Sled(EngineWorld):
    """Push a sled over the ice to a flag.

    Observations: place, speed, where the flag is, how far.
    Actions: push left, wait, push right.
    Mask: no push beyond three units from the middle.
    Ends: at the flag, or with `max_steps`.
    Reward: minus the distance after each step.
    """

    Config = SledConfig
    action = discrete(3)

    reach = constant(float64, doc="how near the flag counts")
    flag = instance(float64, low=-2.0, high=2.0, doc="where the flag stands")
    motion = state(float64, 3, strided=True, doc="position, speed and push, the engine's own memory")
    fuel = state(float32, low=0.0, high=1.0, doc="share of steps left")
    pushed = state(int64, low=0, doc="pushes so far")
    far = view(float64, doc="distance to the flag")
    near = view(bool_, doc="a step of one tick would do")
    action_mask = mask(3, doc="pushes that keep the sled on the ice")

    def connect(self) -> Ice:
        return Ice(self.num_envs, self.engine_threads)

    def allocate(self, field: Field, shape: tuple[int, ...]) -> np.ndarray:
        return self.engine.state if field.name == "motion" else super().allocate(field, shape)

    def place(self, rows: np.ndarray) -> None:
        self.engine.put(rows)

    def advance(self, rows: np.ndarray) -> None:
        for _ in range(self.config.ticks):
            moving = rows[~self.illegal[rows]]
            if len(moving):
                self.engine.tick(moving)
        self.engine.put(rows)  # the engine's count outside the state is not part of a row


@kernel
def generate(w, b):
    w.flag[w.instance_row[b]] = 4.0 * uniform(stream(w.stream[b, 0], w.stream[b, 1], w.stream[b, 2], 1), 0) - 2.0


@kernel
def reset(w, b):
    for k in range(3):
        w.motion[b, k] = 0.0
    w.fuel[b] = 1.0
    w.pushed[b] = 0
    mark(w, b)


@kernel
def step(w, b, action):
    w.motion[b, 2] = action - 1
    w.pushed[b] += action != 1


@kernel
def settle(w, b):
    if w.illegal[b]:
        return
    w.motion[b, 2] = 0.0
    w.fuel[b] = max(0.0, w.fuel[b] - 1.0 / w.max_steps)
    w.reward[b] = -distance(w, b)
    w.terminated[b] = distance(w, b) <= w.reach
    mark(w, b)


@kernel
def update_views(w, b):
    w.far[b] = distance(w, b)
    w.near[b] = distance(w, b) <= w.reach + 0.01


@kernel
def distance(w, b):
    return abs(w.motion[b, 0] - w.flag[w.instance_row[b]])


@kernel
def mark(w, b):
    w.action_mask[b, 0] = w.motion[b, 0] > -3.0
    w.action_mask[b, 1] = True
    w.action_mask[b, 2] = w.motion[b, 0] < 3.0


Sled.bind(generate=generate, reset=reset, step=step, settle=settle, update_views=update_views)


@kernel
def homing(w, b, x, i):
    """Pushes towards the flag."""
    return 2 if w.motion[b, 0] < w.flag[w.instance_row[b]] else 0
