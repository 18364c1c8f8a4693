"""A group of environments on a simulator: one world whose rows they are, and the frames that tell of a row.

The world is made and tried out away from the loop that serves connections, since the first use may have to compile.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.tracking.config import SIM_HZ, TrackingConfig
from milkrun.tracking.link import wire
from milkrun.tracking.tables import KINDS
from milkrun.tracking.world import Tracking

CAPS = ("ends", "rewards", "cloud")
CLIENTS_OWN = (
    "norm",
    "need_render",
    "verbose",
    "log_dir",
    "link",
    "port",
    "auto_start",
    "delay",
    "barrier",
    "token_file",
    "max_restarts",
    "other_state",
    "reward_params",
    "critic",
    "frame_stack",
)
"""Options that change nothing of what a simulator computes."""
TRIED = 8
"""Rows that are played once before anybody plays: enough that the code for several threads is made too."""
AT_ONCE = 0.5
"""Seconds that a piece of a turn may take: between pieces, those who wait are told so."""
NUMBERS = wire.BASE + wire.PARAMS + wire.SCORES
"""Of an `obs`: its arrays of float64 stand one behind the other."""
SMALL: dict[str, Any] = {"size": 16, "ground_cell": 10.0, "max_vehicles": 1}


class Question(NamedTuple):
    """What an environment asks: an episode by its key (seed, row, episode), or a step by an action."""

    turn: int
    at: float  # when
    key: tuple[int, int, int] | None = None
    action: Any = None


Told = tuple[int, bytes, list[Any]]
"""To an environment: its idx, the head of the frame, the arrays behind it. They are the world's own: they must be sent
before the environment asks again."""


def read_options(given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> TrackingConfig:
    """The options of a group from a `hello`; where it does not name one, `defaults` may. Raises ConfigError."""
    try:
        config = TrackingConfig.build(config={**(defaults or {}), **given})
    except (TypeError, ValueError, ArithmeticError) as e:  # ConfigError is a ValueError
        raise e if isinstance(e, ConfigError) else ConfigError(f"the options cannot be read: {e}") from None
    unchanged = {f.name: f.default for f in dataclasses.fields(TrackingConfig) if f.name in CLIENTS_OWN}
    return config.replace(**unchanged)


def options_of(config: TrackingConfig) -> dict[str, Any]:
    """The options of a `hello`: those that a simulator has a use for and that are not the default. Scene and weather
    are named unless they are None: there a simulator may have its own."""
    named = {}
    # Beside those two and the client's own, an option that may be None has it as its default.
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.name in CLIENTS_OWN or value is None or (value == f.default and f.name not in ("scene", "weather")):
            continue
        named[f.name] = list(value) if isinstance(value, tuple) else value
    return named


def make_world(config: TrackingConfig, rows: int) -> tuple[Tracking, float]:
    """The world of a group, whose code is compiled and has run; and the seconds that a row of it takes."""
    config = config.replace(other_state=True, reward_params=True)
    world: Tracking = Tracking.variant(config)(rows, config, seed=0, autoreset="disabled")
    action = np.zeros((rows, wire.SPEEDS)) if config.action_mode == "velocity" else np.zeros(rows, np.int64)
    # The first round compiles; the second, of one row, is the one whose time counts.
    for tried in (np.arange(min(rows, TRIED)), np.arange(1)):
        start = time.perf_counter()
        world.reset(tried)
        world.step(action[: len(tried)], tried)
        world.observe(tried)
    return world, time.perf_counter() - start


def compile_code(config: TrackingConfig) -> None:
    """Has the code that a simulator needs for these options compiled, here and in the folder of compiled code."""
    make_world(TrackingConfig.build(**SMALL, action_mode=config.action_mode), TRIED)


class Group:
    """Environments that share a world. `members` and `questions` are by `idx`; the server fills them."""

    def __init__(self, name: str, n: int, barrier: bool, config: TrackingConfig) -> None:
        self.name, self.n, self.barrier, self.config = name, n, barrier, config
        self.members: dict[int, Any] = {}
        self.questions: dict[int, Question] = {}
        self.answered: set[int] = set()  # members that have had an answer: the others are new
        self.world: Any = None
        self.playing = False
        self._piece = n

    def differs(self, n: int, barrier: bool, config: TrackingConfig) -> str | None:
        """How what another client says differs from what the group is."""
        if n != self.n:
            return f"group {self.name!r} has {self.n} environments, not {n}"
        if barrier != self.barrier:
            return f"group {self.name!r} has barrier={self.barrier}"
        for f in dataclasses.fields(config):
            ours, theirs = getattr(self.config, f.name), getattr(config, f.name)
            if ours != theirs:
                return f"group {self.name!r} has {f.name}={ours!r}, not {theirs!r}"
        return None

    def adopt(self, world: Any, seconds: float) -> None:
        """The world is there; a row of it takes so long."""
        self.world = world
        self._piece = max(1, min(self.n, int(AT_ONCE / max(seconds, 1e-9))))
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
        """An action as the world takes it. One that is of the right type and none of the world's stays so: it is flown
        as stop there."""
        if self.config.action_mode == "velocity":
            return wire.numbers(action, "`action` of `step`", wire.SPEEDS)
        if type(action) is not int:
            raise wire.Fault("protocol", "`action` of `step` is an integer")
        return action if -(2**63) <= action < 2**63 else -1

    @property
    def due(self) -> bool:
        """Whether there is somebody to answer now."""
        waiting = len(self.questions)
        return waiting > 0 and self.world is not None and (not self.barrier or waiting == len(self.members))

    def overdue(self, since: float) -> list[int]:
        """With barrier: those that are new and have waited since then for others who are not. These may have had their
        answers of this turn before the new ones came, and then ask for nothing until the new ones have theirs."""
        new = self.members.keys() - self.answered
        if self.world is None or not self.barrier or not new or not new <= self.questions.keys():
            return []
        return sorted(new) if all(self.questions[idx].at < since for idx in new) else []

    @property
    def missing(self) -> list[int]:
        """Those that the others wait for."""
        if self.playing or self.world is None:
            return []
        return sorted(self.members.keys() - self.questions.keys())[: wire.MOST_NAMED]

    def play(self, order: Sequence[int]) -> Iterator[list[Told]]:
        """Plays the questions of these environments. What is told comes in pieces, after each of which there is time
        to look up."""
        for at in range(0, len(order), self._piece):
            piece = [idx for idx in order[at : at + self._piece] if idx in self.questions]  # some may have left
            if piece:
                frames = self._play(piece, self.questions)
                for idx in piece:
                    del self.questions[idx]
                yield frames

    def _play(self, order: Sequence[int], asked: Mapping[int, Question]) -> list[Told]:
        world = self.world
        rows = np.array(order)
        begin = [b for b in order if asked[b].key is not None]
        move = [b for b in order if asked[b].key is None]
        if begin:
            # the episode that `reset` begins is the one after that of the stream
            world.stream[begin] = [asked[b].key for b in begin]
            world.stream[begin, 2] -= 1
            world.reset(begin)
        if move:
            kind = np.float64 if self.config.action_mode == "velocity" else np.int64
            world.step(np.array([asked[b].action for b in move], kind), move)
        world.observe(rows)
        done, truncated, steps = world.done[rows], world.truncated[rows], world.sim_step[rows]
        fresh = np.array([asked[b].key is not None for b in order])
        table = np.empty((len(order), NUMBERS))
        table[:, 0] = steps
        table[:, 1 : wire.REWARD] = world.other_state[rows]
        table[:, wire.REWARD] = np.where(fresh, 0.0, world.reward_exact[rows])
        table[:, wire.DONE] = done
        table[:, wire.BASE : wire.BASE + wire.PARAMS] = world.reward_params[rows]
        table[:, -2], table[:, -1] = world.r_c[rows], world.r_d[rows]
        columns = (
            steps,
            done,
            truncated,
            world.reason[rows],
            world.target_kind[rows],
            world.visible[rows],
            world.illegal[rows] & ~fresh,
        )
        frames = []
        listed = zip(*(values.tolist() for values in columns))
        for k, (b, (sim_step, ended, cut, reason, vehicle, visible, illegal)) in enumerate(zip(order, listed)):
            header = {
                "type": "obs",
                "turn": asked[b].turn,
                "sim_step": sim_step,
                "done": ended,
                "truncated": cut,
                "reason": reason,
                "kind": KINDS[vehicle],
                "visible": visible,
                "illegal": illegal,
                "arrays": self._arrays,
            }
            arrays = [world.image[b], table[k]]
            if len(self._arrays) > 4:
                arrays.append(world.cloud[b])
            frames.append((b, wire.head(header, self._payload), arrays))
        return frames


def refusal(error: ConfigError) -> str:
    """What is wrong with the options of a group, without the name of our class."""
    return str(error).replace("TrackingConfig.", "").replace("TrackingConfig ", "the tracking world ")
