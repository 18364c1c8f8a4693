"""A group of environments on Milkrun's simulator: one world, of which each environment is a row, and the `obs` frames.

It is apart from `server.py`, which knows sockets and messages but no world.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.tracking.config import SIM_HZ, TrackingConfig
from milkrun.tracking.link import wire
from milkrun.tracking.tables import KINDS
from milkrun.tracking.world import Tracking

CAPS = ("ends", "rewards", "cloud")
WARM_UP_ROWS = 8
"""Rows of the warm-up step: enough that the multi-threaded code is compiled too."""
MAX_CHUNK = 0.5
"""Seconds of one chunk of a large group; the server sends signs of life between chunks."""
NUMBERS = wire.BASE + wire.PARAMS + wire.SCORES
"""Of an `obs`: its float64 arrays are adjacent."""
SMALL: dict[str, Any] = {"size": 16, "ground_cell": 10.0, "max_vehicles": 1}


class Request(NamedTuple):
    """A `reset` to the episode `key` (seed, row, episode), or a `step` with `action`."""

    turn: int
    time: float  # of arrival
    key: tuple[int, int, int] | None = None
    action: Any = None


class Reply(NamedTuple):
    """An `obs` frame. The arrays are views of the world and must be sent before the environment's next request."""

    idx: int
    head: bytes
    arrays: list[Any]
    done: bool


def make_world(config: TrackingConfig, rows: int) -> tuple[Tracking, float]:
    """The world of a group, compiled and warmed up, and the seconds that one of its rows takes."""
    config = config.replace(other_state=True, reward_params=True)
    world: Tracking = Tracking.variant(config)(rows, config, seed=0, autoreset="disabled")
    action = np.zeros((rows, wire.SPEEDS)) if config.action_mode == "velocity" else np.zeros(rows, np.int64)
    # The first round compiles; the second, of one row, is timed.
    for tried in (np.arange(min(rows, WARM_UP_ROWS)), np.arange(1)):
        start = time.perf_counter()
        world.reset(tried)
        world.step(action[: len(tried)], tried)
        world.observe(tried)
    return world, time.perf_counter() - start


def compile_code(config: TrackingConfig) -> None:
    """Compiles the code of a simulator into the cache."""
    make_world(TrackingConfig.build(**SMALL, action_mode=config.action_mode), WARM_UP_ROWS)


class Group:
    """Environments that share a world. The server fills `members` (connections) and `requests`, both by `idx`."""

    def __init__(self, name: str, n: int, barrier: bool, config: TrackingConfig) -> None:
        self.name = name
        self.n = n
        self.barrier = barrier
        self.config = config
        self.members: dict[int, Any] = {}
        self.requests: dict[int, Request] = {}
        self.answered: set[int] = set()  # members with at least one reply; the others are new
        self.world: Any = None
        self.playing = False
        self._chunk = n

    def differs(self, n: int, barrier: bool, config: TrackingConfig) -> str | None:
        """The first difference between this group and the `hello` of another client; None: there is none."""
        if n != self.n:
            return f"group {self.name!r} has {self.n} environments, not {n}"
        if barrier != self.barrier:
            return f"group {self.name!r} has barrier={self.barrier}"
        for f in dataclasses.fields(config):
            ours, theirs = getattr(self.config, f.name), getattr(config, f.name)
            if ours != theirs:
                return f"group {self.name!r} has {f.name}={ours!r}, not {theirs!r}"
        return None

    def set_world(self, world: Any, seconds: float) -> None:
        """Takes the world that `make_world` returned."""
        self.world = world
        self._chunk = max(1, min(self.n, int(MAX_CHUNK / max(seconds, 1e-9))))
        shape, cloud = world.image.shape[1:], world.cloud.shape[1]
        arrays: list[Any] = [
            ["image", "u1", list(shape)],
            ["base", "f8", [wire.BASE]],
            ["params", "f8", [wire.PARAMS]],
            ["scores", "f8", [wire.SCORES]],
        ]
        if cloud:
            arrays.append(["cloud", "f4", [cloud]])
        self._arrays = arrays
        self._payload = int(np.prod(shape)) + 8 * NUMBERS + 4 * cloud

    def welcome(self) -> wire.Header:
        image = list(self.world.image.shape[1:])
        return {"type": "welcome", "proto": wire.PROTO, "n": self.n, "image": image, "sim_hz": SIM_HZ, "caps": CAPS}

    def read_action(self, action: Any) -> Any:
        """The action of a `step`, validated by type. An action out of range stays so: the world flies it as stop."""
        if self.config.action_mode == "velocity":
            return wire.floats(action, "`action` of `step`", wire.SPEEDS)
        if type(action) is not int:
            raise wire.Fault("protocol", "`action` of `step` is an integer")
        return action if -(2**63) <= action < 2**63 else -1

    @property
    def due(self) -> bool:
        """Whether the requests can be played now."""
        waiting = len(self.requests)
        return waiting > 0 and self.world is not None and (not self.barrier or waiting == len(self.members))

    def overdue(self, since: float) -> list[int]:
        """With barrier: the new members, if all of them have waited since then for members that are not new.

        Those may have received their replies of this turn before the new members came, and then request nothing until
        the new members have theirs.
        """
        new = self.members.keys() - self.answered
        if self.world is None or not self.barrier or not new or not new <= self.requests.keys():
            return []
        return sorted(new) if all(self.requests[idx].time < since for idx in new) else []

    @property
    def missing(self) -> list[int]:
        """Members without a request, for which the others wait."""
        if self.playing or self.world is None:
            return []
        return sorted(self.members.keys() - self.requests.keys())[: wire.MAX_MISSING]

    def play(self, order: Sequence[int]) -> Iterator[list[Reply]]:
        """Plays the requests of these environments in chunks and yields the replies of each chunk."""
        for at in range(0, len(order), self._chunk):
            chunk = [idx for idx in order[at : at + self._chunk] if idx in self.requests]  # some may have left
            if chunk:
                replies = self._play(chunk)
                for idx in chunk:
                    del self.requests[idx]
                yield replies

    def _play(self, order: Sequence[int]) -> list[Reply]:
        world, requests = self.world, self.requests
        rows = np.array(order)
        resets = [b for b in order if requests[b].key is not None]
        steps = [b for b in order if requests[b].key is None]
        if resets:
            # `reset` begins the episode after that of the stream.
            world.stream[resets] = [requests[b].key for b in resets]
            world.stream[resets, 2] -= 1
            world.reset(resets)
        if steps:
            kind = np.float64 if self.config.action_mode == "velocity" else np.int64
            world.step(np.array([requests[b].action for b in steps], kind), steps)
        world.observe(rows)
        fresh = np.array([requests[b].key is not None for b in order])
        table = np.empty((len(order), NUMBERS))
        table[:, 0] = world.sim_step[rows]
        table[:, 1 : wire.REWARD] = world.other_state[rows]
        table[:, wire.REWARD] = np.where(fresh, 0.0, world.reward_exact[rows])
        table[:, wire.DONE] = world.done[rows]
        table[:, wire.BASE : wire.BASE + wire.PARAMS] = world.reward_params[rows]
        table[:, -2] = world.r_c[rows]
        table[:, -1] = world.r_d[rows]
        # Conversion by column is much faster than reading single elements of arrays.
        columns = {
            "sim_step": world.sim_step[rows].tolist(),
            "done": world.done[rows].tolist(),
            "truncated": world.truncated[rows].tolist(),
            "reason": world.reason[rows].tolist(),
            "kind": [KINDS[k] for k in world.target_kind[rows].tolist()],
            "visible": world.visible[rows].tolist(),
            "illegal": (world.illegal[rows] & ~fresh).tolist(),
        }
        replies = []
        for k, b in enumerate(order):
            values = {name: column[k] for name, column in columns.items()}
            header = {"type": "obs", "turn": requests[b].turn, **values, "arrays": self._arrays}
            arrays = [world.image[b], table[k]]
            if len(self._arrays) > 4:
                arrays.append(world.cloud[b])
            replies.append(Reply(b, wire.encode(header, self._payload), arrays, values["done"]))
        return replies


def reword(error: ConfigError) -> str:
    """The text of an error in options, without the name of Milkrun's class."""
    return str(error).replace("TrackingConfig.", "").replace("TrackingConfig ", "the tracking world ")
