"""The client's side of the link: one environment (`Link`) over one connection (`Channel`) to a simulator.

A reset or a step is a request and, later, its answer, so that many environments can be requested before the first
answer is awaited. The client numbers the episodes: after a lost connection the next episode is the one that a world in
this process would play.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import socket
import struct
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from milkrun.core.actions import action_array
from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import (
    Closed,
    ConfigError,
    LinkAuth,
    LinkError,
    LinkProtocol,
    LinkTimeout,
    LinkVersion,
    ResetNeeded,
    ShapeError,
)
from milkrun.tracking.config import FULL_SPEED, REASONS, TrackingConfig
from milkrun.tracking.link import launch, wire
from milkrun.tracking.link.scoring import NAN, TIME, Score, Scorer
from milkrun.tracking.link.wire import Fault
from milkrun.tracking.moment import Moment, resize

ADVICE = {
    "version": "both sides must speak the same version: install the same Milkrun on both",
    "auth": "the option token_file must name a file with the secret that the simulator was started with (--token-file)",
    "busy": "start the simulator with a larger --max-envs, or another one on another port",
    "index": "each environment needs an index of its own; a second set of environments on the same simulator needs a "
    "group of its own, link='tcp://host:port/name'",
    "config": "all environments of a group must have the same number, barrier and options",
    "internal": "the log of the simulator says more; the next reset goes on",
}
LINK_LOST = REASONS.index("link_lost")
STOP = [0.0, 0.0, 0.0, 0.0]
SPEEDS = np.array(FULL_SPEED)
MAX_SIDE = 4096
"""Pixels a side of a picture."""
RETRY = 0.05
"""Seconds between two attempts to connect."""
BRIEF = 0.1
"""Seconds of a wait that should find its data already received."""
GROUP = "main"
_ADDRESS = re.compile(r"tcp://(\[[^\]/]+\]|[^:/\[\]]+)(?::(\d{1,5}))?(?:/(.*))?", re.ASCII | re.DOTALL)

_unresponsive: dict[tuple[str, int], float] = {}
"""By host and port, the time when a simulator last failed to greet. Others then wait only briefly for it, so that the
environments of a process, which lose a simulator together, do not each wait in full."""


@dataclass(frozen=True)
class Patience:
    """Seconds. Tests use shorter ones."""

    silence: float = 5.0  # without a byte while an answer is due, after which the simulator counts as dead
    frame: float = 5.0  # from the first byte of a frame to its last
    index: float = 2.0  # for which a taken index is retried, since a lost connection frees its index soon


class Lost(Exception):
    """The simulator is gone or silent. Never leaves the link."""

    def __init__(self, why: str, silent: bool = False) -> None:
        super().__init__(why)
        self.silent = silent


class IndexTaken(LinkError):
    """The index is connected, or its lost connection has not been noticed yet."""


class Failed(LinkError):
    """The simulator failed to answer this request; the connection stays."""


ERRORS: Mapping[str, type[LinkError]] = {
    "version": LinkVersion,
    "auth": LinkAuth,
    "protocol": LinkProtocol,
    "too_large": LinkProtocol,
    "turn": LinkProtocol,
    "index": IndexTaken,
    "internal": Failed,
}


class Address(NamedTuple):
    """Host and port of a simulator, and the group of an environment there."""

    host: str
    port: int
    group: str = GROUP

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(config: TrackingConfig) -> Address:
    """The address in the option `link`; "tcp" is this machine at the option `port`."""
    link = config.link
    if link is None or link == "tcp":
        address = Address("127.0.0.1", config.port)
    else:
        match = _ADDRESS.fullmatch(link)
        if match is None or int(match[2] or 0) > 65535:
            raise ConfigError(
                f"TrackingConfig.link = {link!r}: must be 'tcp', 'tcp://host:port' or 'tcp://host:port/group'"
            )
        port = config.port if match[2] is None else int(match[2])
        address = Address(match[1].strip("[]"), port, match[3] or GROUP)
    if not 1 <= len(address.group.encode(errors="replace")) <= 128 or not address.group.isprintable():
        raise ConfigError(f"TrackingConfig.link = {link!r}: the name of a group has 1 to 128 bytes that can be printed")
    if config.auto_start and address.host not in wire.LOOPBACK:
        raise ConfigError(
            f"TrackingConfig.link = {link!r}: auto_start starts a simulator on this machine: leave the "
            "host out, or set auto_start to false"
        )
    if not config.auto_start and address.port == 0:
        raise ConfigError("TrackingConfig.port = 0: a free port is taken with auto_start only")
    return address


# -- one connection ---------------------------------------------------------------------------------------------------


class Welcome(NamedTuple):
    """What a simulator says of itself: its picture (C, H, W), sim steps a second, its capabilities."""

    image: tuple[int, int, int]
    sim_hz: float
    caps: frozenset[str]


class Channel:
    """One connection to a simulator, with a limit to every wait. `name` is that of the environment in errors."""

    def __init__(self, address: Address, name: str, patience: Patience, deadline: float, size: int = 1 << 16) -> None:
        self._address = address
        self._name = name
        self._patience = patience
        self._reader = wire.FrameReader(size=size)
        self._frame_since: float | None = None  # first byte of an incomplete frame
        self._missing: list[int] = []  # of the last `wait`
        self._alive = False  # whether a `wait` came
        self._silence = patience.silence
        self._place = address.host, address.port
        if time.monotonic() - _unresponsive.get(self._place, -math.inf) < patience.silence:
            self._silence = min(BRIEF, patience.silence)
            deadline = min(deadline, time.monotonic() + self._silence)
        self._sock = self._connect(deadline)
        self._heard = time.monotonic()  # of the last byte, or of the request

    def close(self) -> None:
        self._sock.close()

    def _connect(self, deadline: float) -> socket.socket:
        host, port = self._place
        try:
            sock = socket.create_connection((host, port), timeout=max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            _unresponsive[self._place] = time.monotonic()
            self.fail(LinkTimeout, "does not answer: is the address right, and does a firewall let this port through?")
        except ConnectionRefusedError:
            raise Lost("no simulator listens there") from None
        except (OSError, UnicodeError, OverflowError) as e:
            why = getattr(e, "strerror", None) or e
            self.fail(LinkError, f"cannot be reached: {why}", "check host and port of the option link")
        if sock.getsockname() == sock.getpeername():  # TCP lets a free local port connect to itself
            sock.close()
            raise Lost("no simulator listens there")
        try:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # Timeouts of the system save the poll that Python's own timeouts need before each call.
            tick = min(0.5, self._patience.silence / 8, self._patience.frame / 8)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(tick))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self._patience.silence))
        except OSError:
            sock.close()
            raise Lost("the connection broke at once") from None
        return sock

    def greet(self, hello: wire.Header, token: bytes | None, deadline: float) -> Welcome:
        """Exchanges challenge, hello and welcome."""
        try:
            challenge = self._receive_challenge(deadline)
            _check_proto(challenge)
            nonce = challenge.get("nonce")
            if type(nonce) is not bytes or not 16 <= len(nonce) <= 64:
                raise Fault("protocol", "`nonce` of `challenge` is a binary of 16 to 64 bytes")
            mac = None
            if wire.boolean(challenge, "auth"):
                if token is None:
                    self.fail(
                        LinkAuth,
                        "requires a token: set the option token_file to a file with the secret that "
                        "the simulator was started with",
                    )
                mac = wire.mac_of(token, nonce, hello["group"], hello["idx"])
            self.send({**hello, "mac": mac})
            welcome, _ = self.receive("welcome", deadline)
            _check_proto(welcome)
            if wire.integer(welcome, "n", 1, wire.MAX_ENVS) != hello["n"]:
                raise Fault("protocol", f"`n` of `welcome` is {welcome['n']}, not {hello['n']} as requested")
            return _read_welcome(welcome)
        except Fault as fault:
            self.blame(fault)

    def _receive_challenge(self, deadline: float) -> wire.Header:
        try:
            challenge, _ = self.receive("challenge", deadline)
        except Lost as lost:
            if lost.silent:
                _unresponsive[self._place] = time.monotonic()
            raise
        _unresponsive.pop(self._place, None)
        self._silence = self._patience.silence
        return challenge

    def send(self, header: wire.Header) -> None:
        self._heard = time.monotonic()
        try:
            self._sock.sendall(wire.encode(header))
        except OSError as e:
            raise Lost(_describe(e)) from None

    def receive(self, kind: str, deadline: float) -> wire.Frame:
        """The next frame of this kind, whose payload is valid until the next call.

        Signs of life before it are handled; an `error` is raised.
        """
        try:
            self._missing = []
            self._alive = False
            latest = max(deadline, time.monotonic() + BRIEF)  # frames received already are read even after the deadline
            while True:
                while (frame := self._reader.frame()) is None:
                    self._fill(deadline)
                self._frame_since = None
                if frame[0]["type"] == kind:
                    return frame
                self._handle(frame[0], kind)
                if time.monotonic() > latest:
                    self._fail_overdue()
        except Fault as fault:
            self.blame(fault)

    def _fill(self, deadline: float) -> None:
        """Reads some bytes, and enforces the time limits."""
        # Of several environments with a dead simulator the first waits; the others are late by then and only poll.
        now = time.monotonic()
        late = now > deadline or now - self._heard > self._silence
        try:
            count = self._sock.recv_into(self._reader.space(), 0, socket.MSG_DONTWAIT if late else 0)
        except BlockingIOError:
            count = -1
        except OSError as e:
            raise Lost(_describe(e)) from None
        if count == 0:
            raise Lost("it closed the connection")
        now = time.monotonic()
        if count > 0:
            self._reader.advance(count)
            self._heard = now
        elif now - self._heard > self._silence:
            before = ", nor to another just before" if self._silence < self._patience.silence else ""
            raise Lost(f"it said nothing for {self._silence:g} s{before}", silent=True)
        if not self._reader.partial:
            self._frame_since = None
        elif self._frame_since is None:
            self._frame_since = now
        elif now - self._frame_since > self._patience.frame:
            raise Lost(f"a frame was not complete within {self._patience.frame:g} s", silent=True)
        if now > deadline and count < 0:
            self._fail_overdue()

    def _handle(self, header: wire.Header, expected: str) -> None:
        """Handles a frame of another type than the expected one."""
        kind = header["type"]
        if kind == "wait":
            self._alive = True
            self._missing = list(wire.integers(header, "missing", wire.MAX_MISSING))
        elif kind == "ping":
            self.send({"type": "pong"})
        elif kind == "error":
            code = wire.string(header, "code", 64)
            text = _printable(wire.string(header, "text"))
            self.fail(ERRORS.get(code, LinkError), f"refuses: {text} ({_printable(code)})", ADVICE.get(code, ""))
        elif kind == "bye":
            raise Lost("it said bye")
        elif kind != "pong":
            raise Fault("protocol", f"it sent {_printable(kind)!r} where `{expected}` was expected")

    def _fail_overdue(self) -> NoReturn:
        if self._missing:
            named = ", ".join(map(str, self._missing[:16])) + (" ..." if len(self._missing) > 16 else "")
            self.fail(
                LinkTimeout,
                f"waits for environments {named} of the group, which are connected and have sent no request",
                "with barrier, send all requests before you wait for an answer, as `Envs` does; to step "
                "them one after another, set barrier to false",
            )
        if self._alive:
            self.fail(LinkTimeout, "is alive but busy, and did not answer within the option delay")
        self.fail(LinkTimeout, "said nothing within the option delay. It hangs, or another program listens there")

    def fail(self, kind: type[LinkError], what: str, advice: str = "") -> NoReturn:
        """Raises an error that names host, port and environment."""
        tail = f". {advice[0].upper()}{advice[1:]}" if advice else ""
        raise kind(f"the simulator at {self._address} ({self._name}) {what}{tail}") from None

    def blame(self, fault: Fault) -> NoReturn:
        """Raises the error for a protocol violation by the simulator."""
        if fault.code == "version":
            self.fail(
                LinkVersion,
                f"cannot be used by this Milkrun: {fault.text}",
                "another program may listen on this port, or a simulator of another version",
            )
        self.fail(LinkProtocol, f"broke the protocol: {fault.text}")


def _check_proto(header: wire.Header) -> None:
    if header.get("proto") != wire.PROTO:
        raise Fault("version", f"it speaks version {str(header.get('proto'))[:20]}, not {wire.PROTO}")


def _read_welcome(header: wire.Header) -> Welcome:
    image, hz, caps = header.get("image"), header.get("sim_hz"), header.get("caps")
    if type(image) is not list or len(image) != 3 or not all(type(n) is int for n in image):
        raise Fault("protocol", "`image` of `welcome` is [C, H, W]")
    if image[0] not in (1, 3) or not all(1 <= n <= MAX_SIDE for n in image[1:]):
        raise Fault("protocol", f"`image` of `welcome` has 1 or 3 channels and 1 to {MAX_SIDE} pixels a side")
    if type(hz) not in (int, float) or not 0 < hz < 1e9:  # type: ignore[operator]
        raise Fault("protocol", "`sim_hz` of `welcome` is a number above 0")
    if type(caps) is not list or not all(type(cap) is str for cap in caps):
        raise Fault("protocol", "`caps` of `welcome` is a list of strings")
    return Welcome((image[0], image[1], image[2]), float(hz), frozenset(caps))  # type: ignore[arg-type]


def _timeval(seconds: float) -> bytes:
    """Seconds as a `struct timeval`."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


def _describe(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "it takes no more bytes"
    with contextlib.suppress(KeyError, TypeError):
        return f"{error.strerror} ({errno.errorcode[error.errno]})"  # type: ignore[index]
    return str(error)


def _printable(text: Any) -> str:
    """Untrusted text without control characters, for error messages."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:500])


# -- one environment --------------------------------------------------------------------------------------------------

Key = tuple[int, int, int]
"""Seed, row and number of an episode."""


class Pending(NamedTuple):
    """A request without answer: a reset to the episode `key`, or a step with the command `cmd`."""

    turn: int
    key: Key | None
    cmd: list[float]
    deadline: float  # of the answer; counted from the request, so that requests in parallel share their wait


class Link:
    """Environment `row` of a group of `count` on a simulator.

    It connects at once, and with `auto_start` starts the simulator if necessary. Its episodes are (seed, row, 0),
    (seed, row, 1) ..., as those of this row in a world.
    """

    def __init__(
        self, config: TrackingConfig, *, seed: int, row: int, count: int, patience: Patience | None = None
    ) -> None:
        self.config = config
        self.count = check_count("count", count, 1, wire.MAX_ENVS)
        self.row = check_count("row", row, 0)
        if self.row >= self.count:
            raise ConfigError(f"row={row}: must be in 0..{count - 1}")
        self._patience = patience or Patience()
        self._address = read_address(config)
        self._token = wire.read_token(config.token_file)
        self._key: Key = check_seed(seed), self.row, -1  # of the last episode that began
        self._moves = [[float(x) for x in move] for move in config.moves[: config.action_dim]]
        self._hello = {
            "type": "hello",
            "proto": wire.PROTO,
            "group": self._address.group,
            "n": self.count,
            "idx": self.row,
            "barrier": config.barrier,
            "config": wire.options_of(config),
        }
        self._pending: Pending | None = None
        self._send_error: str | None = None  # why the pending step could not be sent
        self._live = False  # whether an episode goes on
        self._last: Moment | None = None
        self._frames: list[np.ndarray] = []
        self._turn = 0
        # A finalizer that referenced `self` would keep it alive, so resources are held by an object of their own.
        self._resources = _Resources()
        self._finalizer = weakref.finalize(self, _Resources.release, self._resources)
        try:
            if config.auto_start:
                self._resources.simulator = launch.share(config, self._address.host, self._address.port, self.row)
            self._connect(time.monotonic() + config.delay)
        except BaseException:
            self.close()
            raise

    # -- requests and answers -----------------------------------------------------------------------------------------

    def ask_reset(self, seed: int | None = None) -> None:
        """Requests the next episode, or with a seed the first of (seed, 0, 0), (seed, 0, 1) ..."""
        self._check_open()
        key = (*self._key[:2], self._key[2] + 1) if seed is None else (check_seed(seed), 0, 0)
        if self._pending is not None:
            with contextlib.suppress(LinkError):
                self.answer()
        self._live = False
        self._send_reset(key)

    def ask_step(self, action: Any) -> None:
        """Requests a step. An action out of range flies as stop."""
        self._check_open()
        if self._pending is not None:
            raise ResetNeeded(f"{self._label} has a pending request: fetch its answer, or reset")
        if not self._live:
            raise ResetNeeded(f"{self._label}: reset before the next step")
        sent, cmd = self._read_action(action)
        turn = self._turn
        self._pending = Pending(turn, None, cmd, time.monotonic() + self.config.delay)
        self._turn += 1
        try:
            self._channel.send({"type": "step", "turn": turn, "action": sent, "cmd": cmd})
        except Lost as lost:
            self._send_error = str(lost)
            self._resources.disconnect()
        except BaseException:
            self._pending = None
            self._live = False
            self._resources.disconnect()
            raise

    def answer(self) -> Moment:
        """Waits for the answer to the pending request.

        If the simulator died during a step, the answer is the last picture, reward 0, truncated, reason `link_lost`. If
        it died during a reset, the episode is requested once more.
        """
        self._check_open()
        pending = self._take_pending()
        try:
            try:
                return self._receive(pending)
            except Lost as lost:
                self._resources.disconnect()
                if lost.silent:
                    self._resources.kill()
                if pending.key is None:
                    return self._lost_moment(str(lost))
            self._send_reset(pending.key)
            return self._receive(self._take_pending())
        except Lost as lost:
            self._resources.disconnect()
            raise self._no_simulator(lost) from None
        except Failed as e:
            self._live = False
            raise LinkError(str(e)) from None
        except BaseException:  # an interrupt may have come in the middle of a frame
            self._live = False
            self._resources.disconnect()
            raise

    def close(self) -> None:
        """Closes the connection, and with its last environment a simulator that was started by this process."""
        self._pending = None
        self._live = False
        self._finalizer()

    @property
    def address(self) -> Address:
        """Where the simulator is; the port is the actual one if this process started it."""
        simulator = self._resources.simulator
        return self._address if simulator is None else self._address._replace(port=simulator.port)

    @property
    def _label(self) -> str:
        return f"environment {self.row} of {self.count} in group {self._address.group!r}"

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise Closed(f"the link of {self._label} was closed")

    # -- the connection -----------------------------------------------------------------------------------------------

    @property
    def _channel(self) -> Channel:
        if self._resources.channel is None:
            raise Lost("there is no connection")
        return self._resources.channel

    def _connect(self, deadline: float) -> None:
        """Connects and greets. Restarts a simulator of this process that died, and once one that is silent."""
        simulator = self._resources.simulator
        index_deadline = min(deadline, time.monotonic() + self._patience.index)
        silent = False
        while True:
            if simulator is not None:
                simulator.ensure(deadline)
                self._resources.pid = simulator.pid
            try:
                return self._greet(deadline)
            except IndexTaken as e:
                if time.monotonic() > index_deadline:
                    raise LinkError(str(e)) from None
            except Failed as e:
                raise LinkError(str(e)) from None
            except Lost as lost:
                if time.monotonic() > deadline or not self.config.auto_start or (lost.silent and silent):
                    raise self._no_simulator(lost) from None
                if lost.silent and simulator is not None:
                    self._resources.kill()
                    silent = True
            time.sleep(RETRY)

    def _greet(self, deadline: float) -> None:
        c = self.config
        frame_size = 3 * c.size**2 + 8 * 100 + 20 * c.lidar_points * c.cloud + (1 << 12)
        self._resources.channel = channel = Channel(self.address, self._label, self._patience, deadline, frame_size)
        try:
            welcome = channel.greet(self._hello, self._token, deadline)
        except BaseException:
            self._resources.disconnect()
            raise
        self._scorer = Scorer(c, welcome.caps)
        self._shapes = {"image": ("u1", welcome.image), "base": ("f8", (wire.BASE,)), "params": ("f8", (wire.PARAMS,))}
        if "rewards" in welcome.caps:
            self._shapes["scores"] = "f8", (wire.SCORES,)
        if c.cloud and "cloud" in welcome.caps:
            self._shapes["cloud"] = "f4", (5 * c.lidar_points,)
        self._turn = 0
        self._send_error = None

    def _no_simulator(self, lost: Lost) -> LinkError:
        """The error of a failed connection, with advice."""
        text = f"no connection with a simulator at {self.address} ({self._label}): {lost}"
        if lost.silent:
            return LinkTimeout(f"{text}. It hangs, or another program listens on this port")
        if self._resources.simulator is not None:
            return LinkError(f"{text}. The simulator that was started for it {self._resources.simulator.state}")
        if self.config.auto_start:
            return LinkError(f"{text}. Environment 0 starts the simulator: is its process there, with the same port?")
        return LinkError(f"{text}. Start one (milkrun simulate --port {self.address.port}), or set auto_start to true")

    # -- frames -------------------------------------------------------------------------------------------------------

    def _take_pending(self) -> Pending:
        pending, self._pending = self._pending, None
        if pending is None:
            raise ResetNeeded(f"{self._label} has no pending request: reset it")
        return pending

    def _send_reset(self, key: Key) -> None:
        """Requests an episode; connects if necessary, also if the connection proves to be lost."""
        deadline = time.monotonic() + self.config.delay
        seed, row, episode = key
        for attempt in range(2):
            if self._resources.channel is None:
                self._connect(deadline)
            turn = self._turn
            try:
                self._channel.send({"type": "reset", "turn": turn, "seed": seed, "row": row, "episode": episode})
                self._turn += 1
                self._pending = Pending(turn, key, STOP, deadline)
                return
            except Lost as lost:
                self._resources.disconnect()
                if attempt:
                    raise self._no_simulator(lost) from None
            except BaseException:
                self._resources.disconnect()
                raise

    def _receive(self, pending: Pending) -> Moment:
        if self._send_error is not None:
            raise Lost(self._send_error)
        channel = self._channel
        header, payload = channel.receive("obs", pending.deadline)
        try:
            moment = self._read(pending, header, wire.read_arrays(header, payload))
        except Fault as fault:
            channel.blame(fault)
        if pending.key is not None:
            self._key = pending.key
        self._live = not moment.done
        self._last = moment  # for the answer of a step in which the simulator dies
        return _copy(moment)

    def _read(self, pending: Pending, header: wire.Header, arrays: dict[str, np.ndarray]) -> Moment:
        """The moment of an `obs`, validated."""
        if header.get("turn") != pending.turn:
            raise Fault("protocol", f"it answered turn {str(header.get('turn'))[:20]}, not {pending.turn}")
        sim_step = wire.integer(header, "sim_step", 0)
        reason = wire.integer(header, "reason", 0, len(REASONS) - 1)
        done, truncated = wire.boolean(header, "done"), wire.boolean(header, "truncated")
        visible, illegal = wire.boolean(header, "visible"), wire.boolean(header, "illegal")
        if done != (reason > 0) or truncated != (reason >= TIME):
            raise Fault("protocol", f"`done` {done} and `truncated` {truncated} do not go with the reason {reason}")
        for name, (dtype, shape) in self._shapes.items():
            array = arrays.get(name)
            if array is None or array.dtype != wire.DTYPES[dtype] or array.shape != shape:
                raise Fault("protocol", f"`obs` has an array {name!r}, {dtype} {shape}")
        known = {name: arrays[name] for name in self._shapes}
        image, base, params = known["image"], known["base"], known["params"]
        scores, cloud = known.get("scores"), known.get("cloud")
        finite = all(np.isfinite(array).all() for name, array in known.items() if name != "image")
        if pending.key is not None:
            if done:
                raise Fault("protocol", "an episode cannot be over after `reset`")
            if not finite:
                raise Fault("protocol", "after `reset` it sent a number that is not finite")
            score = self._scorer.reset(params, visible, scores)
        elif not finite:
            score = Score(0.0, 0.0, 0.0, reason or NAN)
        else:
            reward = float(base[wire.REWARD])
            score = self._scorer.step(sim_step, params, visible, pending.cmd, reason, reward, scores)
        c = self.config
        if c.cloud and cloud is None:
            cloud = np.zeros(5 * c.lidar_points, np.float32)
        return Moment(
            image=self._stack(resize(image, c.channels, c.size), pending.key is not None),
            reward=score.reward,
            r_c=score.r_c,
            r_d=score.r_d,
            terminated=0 < score.reason < TIME,
            truncated=score.reason >= TIME,
            reason=score.reason,
            sim_step=sim_step,
            kind=wire.string(header, "kind", 64),
            visible=visible,
            illegal=illegal,
            other_state=_finite(base[1 : wire.REWARD], finite) if c.other_state else None,
            params=_finite(params, finite) if c.reward_params else None,
            cloud=None if cloud is None else _finite(cloud, finite),
        )

    def _stack(self, image: np.ndarray, first: bool) -> np.ndarray:
        """With `frame_stack` the last pictures, oldest first; the first of an episode also stands for earlier ones."""
        height = self.config.frame_stack
        if not height:
            return image
        self._frames = [image] * height if first else [*self._frames[1:], image]
        return np.stack(self._frames)

    def _lost_moment(self, why: str) -> Moment:
        logging.getLogger("milkrun").warning("the simulator at %s (%s) was lost: %s", self.address, self._label, why)
        self._live = False
        moment = _copy(self._last)  # type: ignore[arg-type]
        return replace(
            moment,
            reward=0.0,
            r_c=0.0,
            r_d=0.0,
            terminated=False,
            truncated=True,
            reason=LINK_LOST,
            illegal=False,
        )

    def _read_action(self, action: Any) -> tuple[Any, list[float]]:
        """An action as it is sent, and its command (four speeds)."""
        if self.config.action_mode == "velocity":
            given = action_array("action", action)
            if given.shape != (wire.SPEEDS,) or given.dtype.kind != "f":
                raise ShapeError(f"action must be floats of shape ({wire.SPEEDS},), not {given.dtype} {given.shape}")
            with np.errstate(over="ignore"):
                speeds = given.astype(np.float32)  # the precision of a world in this process
            if not (np.abs(speeds) <= 1).all():
                # A fixed value out of range, since a frame may not hold NaN or infinity.
                return [-2.0] * wire.SPEEDS, STOP
            return speeds.tolist(), (SPEEDS * speeds).tolist()
        if type(action) is not int:
            given = action_array("action", action)
            if given.shape != () or given.dtype.kind not in "iu":
                raise ShapeError(f"action must be an integer, not {given.dtype} {given.shape}")
            action = int(given)
        if not 0 <= action < len(self._moves):
            # A fixed value out of range, since msgpack has no integers beyond 64 bits.
            return -1, STOP
        return action, self._moves[action]


class _Resources:
    """Connection and simulator of a link. Released also if the link is not closed, but not by a forked child."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.simulator: launch.Simulator | None = None
        self.pid: int | None = None  # of the simulator process at the last connect
        self._process = os.getpid()

    def kill(self) -> None:
        """Kills a simulator of this process that is silent, since every further request would wait for it."""
        if self.simulator is not None:
            self.simulator.kill(self.pid)

    def disconnect(self) -> None:
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()

    def release(self) -> None:
        simulator, self.simulator = self.simulator, None
        if os.getpid() == self._process:
            if self.channel is not None:
                with contextlib.suppress(Lost):
                    self.channel.send({"type": "close"})
            if simulator is not None:
                simulator.release()
        self.disconnect()


def _copy(moment: Moment) -> Moment:
    """A copy with arrays of its own."""
    m = moment
    other, params, cloud = (None if a is None else a.copy() for a in (m.other_state, m.params, m.cloud))
    return replace(m, image=m.image.copy(), other_state=other, params=params, cloud=cloud)


def _finite(array: np.ndarray, finite: bool) -> np.ndarray:
    """A copy, with 0 for numbers that are not finite."""
    return array.copy() if finite else np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)
