"""One environment of a simulator elsewhere: ask for a reset or a step, then for the answer.

Whoever has several asks all before waiting for one. The client counts the episodes, so that after a lost connection, or
with another simulator, the next one is the one that would have come in this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from typing import Any, NamedTuple

import numpy as np

from milkrun.core.actions import action_array
from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import Closed, ConfigError, LinkError, LinkTimeout, ResetNeeded, ShapeError
from milkrun.tracking.config import FULL_SPEED, REASONS, TrackingConfig
from milkrun.tracking.link import launch, wire
from milkrun.tracking.link.address import Address, read_address, read_token
from milkrun.tracking.link.channel import Channel, Failed, IndexTaken, Lost, Patience, Welcome
from milkrun.tracking.link.groups import options_of
from milkrun.tracking.link.judge import NAN, TIME, Judge, Verdict
from milkrun.tracking.link.pictures import Fitter
from milkrun.tracking.link.wire import Fault
from milkrun.tracking.moment import Moment

LINK_LOST = REASONS.index("link_lost")
STOP = [0.0, 0.0, 0.0, 0.0]
AGAIN = 0.05
"""Seconds between two attempts to connect, where somebody else starts the simulator."""
SPEEDS = np.array(FULL_SPEED)

Key = tuple[int, int, int]
"""Seed, row and number of an episode."""


class Asked(NamedTuple):
    """A question under way: an episode by its key, or a step and what it commands."""

    turn: int
    key: Key | None
    cmd: list[float]
    deadline: float  # for the answer: several that are asked together do not wait one after another


class Link:
    """Environment `row` of `count` that share a group on a simulator. It connects at once, and with `auto_start` the
    simulator is started if need be. Episodes are (seed, row, 0), (seed, row, 1) ... as those of that row in a world."""

    def __init__(
        self, config: TrackingConfig, *, seed: int, row: int, count: int, patience: Patience | None = None
    ) -> None:
        self.config = config
        self.count = check_count("count", count, 1, wire.MOST_ENVS)
        self.row = check_count("row", row, 0)
        if self.row >= self.count:
            raise ConfigError(f"row={row}: must be in 0..{count - 1}")
        self._patience = patience or Patience()
        self._address = read_address(config)
        self._token = read_token(config.token_file)
        self._key: Key = check_seed(seed), self.row, -1  # of the last episode that was given
        self._moves = [[float(x) for x in move] for move in config.moves[: config.action_dim]]
        self._hello = {
            "type": "hello",
            "proto": wire.PROTO,
            "group": self._address.group,
            "n": self.count,
            "idx": self.row,
            "barrier": config.barrier,
            "config": options_of(config),
        }
        self._asked: Asked | None = None
        self._broken: str | None = None  # why the question under way was lost before its answer
        self._live = False  # an episode goes on
        self._last: Moment | None = None
        self._frames: list[np.ndarray] = []
        self._turn = 0
        # What is given back stands in an object of its own: a finalizer that held `self` would keep it alive.
        self._held = _Held()
        self._finalizer = weakref.finalize(self, _Held.let_go, self._held)
        try:
            if config.auto_start:
                self._held.simulator = launch.share(config, self._address, self.row)
            self._connect(time.monotonic() + config.delay)
        except BaseException:
            self.close()
            raise

    # -- what it is asked for -----------------------------------------------------------------------------------------

    def ask_reset(self, seed: int | None = None) -> None:
        """Asks for the next episode, or for the first of another seed: (seed, 0, 0), then (seed, 0, 1) ..."""
        self._refuse_closed()
        key = (*self._key[:2], self._key[2] + 1) if seed is None else (check_seed(seed), 0, 0)
        if self._asked is not None:
            with contextlib.suppress(LinkError):
                self.answer()
        self._live = False
        self._ask_episode(key, time.monotonic() + self.config.delay)

    def ask_step(self, action: Any) -> None:
        """Asks for a step. A number that is no action flies as stop."""
        self._refuse_closed()
        if self._asked is not None:
            raise ResetNeeded(f"{self._who} was asked already: fetch its answer, or reset")
        if not self._live:
            raise ResetNeeded(f"{self._who}: reset before the next step")
        sent, cmd = self._read_action(action)
        self._asked = asked = Asked(self._turn, None, cmd, time.monotonic() + self.config.delay)
        self._turn += 1
        try:
            self._channel.send({"type": "step", "turn": asked.turn, "action": sent, "cmd": cmd})
        except Lost as lost:
            self._broken = str(lost)
            self._drop()
        except BaseException:
            self._asked, self._live = None, False
            self._drop()
            raise

    def answer(self) -> Moment:
        """Waits for what came of the last question. If the simulator died during a step: the last picture, reward 0,
        truncated, with the reason `link_lost`."""
        self._refuse_closed()
        asked, self._asked = self._asked, None
        if asked is None:
            raise ResetNeeded(f"{self._who} was not asked for anything: reset it")
        try:
            if self._broken is not None:
                raise Lost(self._broken)
            return self._hear(asked, asked.deadline)
        except Lost as lost:
            self._drop()
            if lost.silent:
                self._held.kill()
            if asked.key is None:
                return self._lost_moment(str(lost))
        except Failed as e:
            self._live = False
            raise LinkError(str(e)) from None
        except BaseException:  # an interrupt, in the middle of a frame perhaps
            self._live = False
            self._drop()
            raise
        return self._begin_again(asked.key, time.monotonic() + self.config.delay)

    def close(self) -> None:
        """Ends the connection, and with its last environment a simulator that was started for it."""
        self._asked, self._live = None, False
        self._finalizer()

    # -- the connection -----------------------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        """Where the simulator is; the port is that of the simulator started for it, if it was."""
        simulator = self._held.simulator
        return self._address if simulator is None else self._address._replace(port=simulator.port)

    @property
    def _who(self) -> str:
        return f"environment {self.row} of {self.count} in group {self._address.group!r}"

    @property
    def _channel(self) -> Channel:
        if self._held.channel is None:
            raise Lost("there is no connection")
        return self._held.channel

    def _refuse_closed(self) -> None:
        if not self._finalizer.alive:
            raise Closed(f"the link of {self._who} was closed")

    def _drop(self) -> None:
        self._held.drop()

    def _connect(self, deadline: float) -> None:
        """A greeted connection. A simulator of our own is started again if it died, or has gone silent."""
        simulator, patient, silent = self._held.simulator, time.monotonic() + self._patience.index, False
        while True:
            if simulator is not None:
                simulator.ensure(deadline)
                self._held.pid = simulator.pid
            try:
                return self._greet(deadline)
            except IndexTaken as e:
                if time.monotonic() > min(patient, deadline):
                    raise LinkError(str(e)) from None
            except Failed as e:
                raise LinkError(str(e)) from None
            except Lost as lost:
                if time.monotonic() > deadline or not self.config.auto_start or (lost.silent and silent):
                    raise self._no_simulator(lost) from None
                if lost.silent and simulator is not None:
                    self._held.kill()
                    silent = True
            time.sleep(AGAIN)

    def _greet(self, deadline: float) -> None:
        expected = 3 * self.config.size**2 + 8 * 100 + 20 * self.config.lidar_points * self.config.cloud + (1 << 12)
        self._held.channel = channel = Channel(self.address, self._who, self._patience, deadline, expected)
        try:
            self._adopt(channel.greet(self._hello, self._token, deadline))
        except BaseException:
            self._drop()
            raise
        self._turn = 0
        self._broken = None

    def _adopt(self, welcome: Welcome) -> None:
        c = self.config
        self._welcome, self._judge = welcome, Judge(c, welcome.caps)
        self._fitter = Fitter(welcome.image, c.channels, c.size)
        self._shapes = {"image": ("u1", welcome.image), "base": ("f8", (wire.BASE,)), "params": ("f8", (wire.PARAMS,))}
        if "rewards" in welcome.caps:
            self._shapes["scores"] = "f8", (wire.SCORES,)
        if c.cloud and "cloud" in welcome.caps:
            self._shapes["cloud"] = "f4", (5 * c.lidar_points,)

    def _no_simulator(self, lost: Lost) -> LinkError:
        """The error of one that cannot be connected with, and what to do about it."""
        said = f"no connection with a simulator at {self.address} ({self._who}): {lost}"
        if lost.silent:
            return LinkTimeout(f"{said}. It hangs, or another program listens on this port")
        if self._held.simulator is not None:
            return LinkError(f"{said}. The simulator that was started for it {self._held.simulator.state}")
        if self.config.auto_start:
            return LinkError(f"{said}. Environment 0 starts the simulator: is its process there, with the same port?")
        return LinkError(f"{said}. Start one (milkrun simulate --port {self.address.port}), or set auto_start to true")

    # -- questions and answers ----------------------------------------------------------------------------------------

    def _ask_episode(self, key: Key, deadline: float) -> None:
        for attempt in range(2):
            if self._held.channel is None:
                self._connect(deadline)
            asked = Asked(self._turn, key, STOP, deadline)
            try:
                seed, row, episode = key
                self._channel.send({"type": "reset", "turn": asked.turn, "seed": seed, "row": row, "episode": episode})
                self._turn += 1
                self._asked = asked
                return
            except Lost as lost:
                self._drop()
                if attempt:
                    raise self._no_simulator(lost) from None
            except BaseException:
                self._drop()
                raise

    def _begin_again(self, key: Key, deadline: float) -> Moment:
        """The simulator died while it was asked for an episode: another, or the same again, is asked once more."""
        self._ask_episode(key, deadline)
        asked, self._asked = self._asked, None
        try:
            return self._hear(asked, deadline)  # type: ignore[arg-type]
        except BaseException as e:
            self._drop()
            if isinstance(e, Lost):
                raise self._no_simulator(e) from None
            if isinstance(e, Failed):
                raise LinkError(str(e)) from None
            raise

    def _hear(self, asked: Asked, deadline: float) -> Moment:
        channel = self._channel
        header, payload = channel.receive("obs", deadline)
        try:
            moment = self._read(asked, header, wire.read_arrays(header, payload))
        except Fault as fault:
            channel.blame(fault)
        if asked.key is not None:
            self._key = asked.key
        # It is kept for a simulator that dies in the next step, whose answer shows it again: so the receiver gets a
        # copy.
        self._live, self._last = not moment.done, moment
        return self._own(moment)

    def _read(self, asked: Asked, header: wire.Header, arrays: dict[str, np.ndarray]) -> Moment:
        """The moment that an `obs` tells of."""
        if header.get("turn") != asked.turn:
            raise Fault("protocol", f"it answered turn {str(header.get('turn'))[:20]}, not {asked.turn}")
        sim_step, reason = wire.whole(header, "sim_step", 0), wire.whole(header, "reason", 0, len(REASONS) - 1)
        done, truncated = wire.flag(header, "done"), wire.flag(header, "truncated")
        visible, illegal = wire.flag(header, "visible"), wire.flag(header, "illegal")
        if done != (reason > 0) or truncated != (reason >= TIME):
            raise Fault("protocol", f"`done` {done} and `truncated` {truncated} do not go with the reason {reason}")
        for name, (dtype, shape) in self._shapes.items():
            array = arrays.get(name)
            if array is None or array.dtype != wire.DTYPES[dtype] or array.shape != shape:
                raise Fault("protocol", f"`obs` has an array {name!r}, {dtype} {shape}")
        base, params, scores, cloud = (
            arrays[name] if name in self._shapes else None for name in ("base", "params", "scores", "cloud")
        )
        finite = True
        for a in (base, params, scores, cloud):
            if a is not None and not np.isfinite(a).all():
                finite = False
        if asked.key is not None:
            if done:
                raise Fault("protocol", "an episode cannot be over after `reset`")
            if not finite:
                raise Fault("protocol", "after `reset` it sent a number that is not finite")
            verdict = self._judge.begin(params, visible, scores)  # type: ignore[arg-type]
        elif not finite:
            verdict = Verdict(0.0, 0.0, 0.0, reason or NAN)
        else:
            paid = float(base[wire.REWARD])  # type: ignore[index]
            verdict = self._judge.step(sim_step, params, visible, asked.cmd, reason, paid, scores)  # type: ignore[arg-type]
        c = self.config
        if c.cloud and cloud is None:
            cloud = np.zeros(5 * c.lidar_points, np.float32)
        image = self._stack(self._fitter.fit(arrays["image"]), asked.key is not None)
        return Moment(
            image,
            verdict.reward,
            verdict.r_c,
            verdict.r_d,
            0 < verdict.reason < TIME,
            verdict.reason >= TIME,
            verdict.reason,
            sim_step,
            wire.text(header, "kind", 64),
            visible,
            illegal,
            _finite(base[1 : wire.REWARD], finite) if c.other_state else None,  # type: ignore[index]
            _finite(params, finite) if c.reward_params else None,  # type: ignore[arg-type]
            _finite(cloud, finite) if c.cloud else None,  # type: ignore[arg-type]
        )

    def _stack(self, image: np.ndarray, first: bool) -> np.ndarray:
        """With `frame_stack` the last pictures, oldest first; the first of an episode stands for those before it."""
        height = self.config.frame_stack
        if not height:
            return image
        self._frames = [image] * height if first else [*self._frames[1:], image]
        return np.stack(self._frames)

    def _own(self, moment: Moment) -> Moment:
        """A copy: what was handed out is the receiver's."""
        m = moment
        other, params, cloud = (None if a is None else a.copy() for a in (m.other_state, m.params, m.cloud))
        return Moment(
            m.image.copy(),
            m.reward,
            m.r_c,
            m.r_d,
            m.terminated,
            m.truncated,
            m.reason,
            m.sim_step,
            m.kind,
            m.visible,
            m.illegal,
            other,
            params,
            cloud,
        )

    def _lost_moment(self, why: str) -> Moment:
        logging.getLogger("milkrun").warning("the simulator at %s (%s) was lost: %s", self.address, self._who, why)
        self._live = False
        moment = self._own(self._last)  # type: ignore[arg-type]
        moment.reward = moment.r_c = moment.r_d = 0.0
        moment.terminated, moment.truncated, moment.reason, moment.illegal = False, True, LINK_LOST, False
        return moment

    def _read_action(self, action: Any) -> tuple[Any, list[float]]:
        """An action as it is sent, and the speeds that it means."""
        if self.config.action_mode == "velocity":
            given = action_array("action", action)
            if given.shape != (wire.SPEEDS,) or given.dtype.kind != "f":
                raise ShapeError(f"action must be floats of shape ({wire.SPEEDS},), not {given.dtype} {given.shape}")
            with np.errstate(over="ignore"):
                speeds = given.astype(np.float32)  # as a world in this process takes it
            if not (np.abs(speeds) <= 1).all():
                # Always these, since no frame holds NaN or infinity.
                return [-2.0] * wire.SPEEDS, STOP
            return speeds.tolist(), (SPEEDS * speeds).tolist()
        if type(action) is not int:
            given = action_array("action", action)
            if given.shape != () or given.dtype.kind not in "iu":
                raise ShapeError(f"action must be an integer, not {given.dtype} {given.shape}")
            action = int(given)
        if not 0 <= action < len(self._moves):
            # Always -1, since msgpack has no whole numbers beyond 64 bits.
            return -1, STOP
        return action, self._moves[action]


class _Held:
    """What a link has of the system: it is given back also if nobody closes the link, but not by a forked child."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.simulator: launch.Simulator | None = None
        self.pid: int | None = None  # of the simulator's process that was connected with
        self._process = os.getpid()

    def kill(self) -> None:
        """Ends a simulator of our own that has gone silent: who asks it again would wait again."""
        if self.simulator is not None:
            self.simulator.kill(self.pid)

    def drop(self) -> None:
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()

    def let_go(self) -> None:
        simulator, self.simulator = self.simulator, None
        if os.getpid() == self._process:
            if self.channel is not None:
                with contextlib.suppress(Lost):
                    self.channel.send({"type": "close"})
            if simulator is not None:
                simulator.release()
        self.drop()


def _finite(array: np.ndarray, finite: bool) -> np.ndarray:
    """A copy, with 0 for what is no number."""
    return array.copy() if finite else np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)
