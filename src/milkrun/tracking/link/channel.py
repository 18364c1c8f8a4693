"""A connection to a simulator as the client has it: connect, greet, ask, wait, with an end to every wait.

What goes wrong is either `Lost`, the other side is gone, which the client may mend, or an error of the family that says
who was asked for what, and what to do about it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from milkrun.core.errors import LinkAuth, LinkError, LinkProtocol, LinkTimeout, LinkVersion
from milkrun.tracking.link import wire
from milkrun.tracking.link.address import Address
from milkrun.tracking.link.wire import Fault

ADVICE = {
    "version": "both sides must speak the same version: install the same Milkrun on both",
    "auth": "the option token_file must name a file with the secret that the simulator was started with (--token-file)",
    "busy": "start the simulator with a larger --max-envs, or another one on another port",
    "index": "each environment needs an index of its own; a second set of environments on the same simulator needs a "
    "group of its own, link='tcp://host:port/name'",
    "config": "all environments of a group must have the same number, barrier and options",
    "internal": "the log of the simulator says more; the next reset goes on",
}
LARGEST_SIDE = 4096
"""Pixels a side of a picture."""
BRIEF = 0.1
"""Seconds: for a look at what has come by now; and for a greeting where another has just waited in vain."""

_unanswered: dict[tuple[str, int], float] = {}
"""Where, and when, a connection or greeting was last waited for in vain: many environments of one process that lost
their simulator together do not wait one after another."""


@dataclass(frozen=True)
class Patience:
    """Seconds. Tests make them short."""

    silence: float = 5.0  # without a byte while an answer is due, after which the simulator is dead
    frame: float = 5.0  # from the first byte of a frame to its last
    index: float = 2.0  # for which an index that is still taken is asked for again: a lost connection frees it soon


class Lost(Exception):
    """The simulator is gone, or says nothing any more. It stays inside the link."""

    def __init__(self, why: str, silent: bool = False) -> None:
        super().__init__(why)
        self.silent = silent


class IndexTaken(LinkError):
    """The simulator has an environment of this index, or has not noticed yet that it is gone."""


class Failed(LinkError):
    """The simulator failed at this question; the connection stays."""


ERRORS: Mapping[str, type[LinkError]] = {
    "version": LinkVersion,
    "auth": LinkAuth,
    "protocol": LinkProtocol,
    "too_large": LinkProtocol,
    "turn": LinkProtocol,
    "index": IndexTaken,
    "internal": Failed,
}


class Welcome(NamedTuple):
    """What a simulator says of itself: its picture (C, H, W), sim steps a second, what it does by itself."""

    image: tuple[int, int, int]
    sim_hz: float
    caps: frozenset[str]


class Channel:
    """One connection. `who` says in errors which environment this is."""

    def __init__(self, address: Address, who: str, patience: Patience, deadline: float, size: int = 1 << 16) -> None:
        self._address, self._who, self._patience = address, who, patience
        self._inbox = wire.Inbox(size=size)
        self._began: float | None = None
        self.missing: list[int] = []
        self._alive = False  # it has said that it is
        self._silence = patience.silence
        self._place = address.host, address.port
        if time.monotonic() - _unanswered.get(self._place, -math.inf) < patience.silence:
            self._silence = min(BRIEF, patience.silence)
            deadline = min(deadline, time.monotonic() + self._silence)
        self._sock = self._connect(deadline)
        self._heard = time.monotonic()
        self._send = self._sock.sendall
        self._recv_into = self._sock.recv_into

    def close(self) -> None:
        self._sock.close()

    # -- connect and greet --------------------------------------------------------------------------------------------

    def _connect(self, deadline: float) -> socket.socket:
        host, port = self._address.host, self._address.port
        try:
            sock = socket.create_connection((host, port), timeout=max(0.01, deadline - time.monotonic()))
        except TimeoutError:
            _unanswered[self._place] = time.monotonic()
            self.fail(LinkTimeout, "does not answer: is the address right, and does a firewall let this port through?")
        except (OSError, UnicodeError, OverflowError) as e:
            if isinstance(e, ConnectionRefusedError):
                raise Lost("no simulator listens there") from None
            why = getattr(e, "strerror", None) or e
            self.fail(LinkError, f"cannot be reached: {why}", "check host and port of the option link")
        if sock.getsockname() == sock.getpeername():  # a free port can be connected with itself
            sock.close()
            raise Lost("no simulator listens there")
        try:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # The system's own timeouts: Python's would ask whether there is something before each look.
            tick = min(0.5, self._patience.silence / 8, self._patience.frame / 8)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(tick))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self._patience.silence))
        except OSError:
            sock.close()
            raise Lost("the connection broke at once") from None
        return sock

    def greet(self, hello: wire.Header, token: bytes | None, deadline: float) -> Welcome:
        """Says who this is; what the simulator says of itself."""
        try:
            challenge = self._challenge(deadline)
            self._check_proto(challenge)
            nonce = challenge.get("nonce")
            if type(nonce) is not bytes or not 16 <= len(nonce) <= 64:
                raise Fault("protocol", "`nonce` of `challenge` is a binary of 16 to 64 bytes")
            mac = None
            if wire.flag(challenge, "auth"):
                if token is None:
                    self.fail(
                        LinkAuth,
                        "asks for a token: set the option token_file to a file with the secret that "
                        "the simulator was started with",
                    )
                mac = wire.mac_of(token, nonce, hello["group"], hello["idx"])
            self.send({**hello, "mac": mac})
            welcome, _ = self.receive("welcome", deadline)
            self._check_proto(welcome)
            if wire.whole(welcome, "n", 1, wire.MOST_ENVS) != hello["n"]:
                raise Fault("protocol", f"`n` of `welcome` is {welcome['n']}, not {hello['n']} as asked for")
            return _read_welcome(welcome)
        except Fault as fault:
            self.blame(fault)

    def _challenge(self, deadline: float) -> wire.Header:
        try:
            challenge, _ = self.receive("challenge", deadline)
        except Lost as lost:
            if lost.silent:
                _unanswered[self._place] = time.monotonic()
            raise
        _unanswered.pop(self._place, None)
        self._silence = self._patience.silence
        return challenge

    def _check_proto(self, header: wire.Header) -> None:
        if header.get("proto") != wire.PROTO:
            raise Fault("version", f"it speaks version {str(header.get('proto'))[:20]}, not {wire.PROTO}")

    # -- ask and wait -------------------------------------------------------------------------------------------------

    def send(self, header: wire.Header) -> None:
        self._heard = time.monotonic()  # from here on an answer is due
        try:
            self._send(wire.head(header))
        except OSError as e:
            raise Lost(_why(e)) from None

    def receive(self, kind: str, deadline: float) -> wire.Frame:
        """The next frame of this kind. Those that say that the simulator is alive are taken on the way; an error that
        it sends is raised. The payload is there until the next call."""
        try:
            self.missing, self._alive = [], False
            latest = max(deadline, time.monotonic() + BRIEF)  # what has come already is taken, though it be late
            frame = self._inbox.frame()
            while True:
                while frame is None:
                    self._fill(deadline)
                    frame = self._inbox.frame()
                self._began = None
                found = frame[0]["type"]
                if found == kind:
                    return frame
                self._take(frame[0], kind)
                if time.monotonic() > latest:
                    self._overdue()
                frame = self._inbox.frame()
        except Fault as fault:
            self.blame(fault)

    def _fill(self, deadline: float) -> None:
        """Reads some bytes, or finds that it has waited for too long."""
        # Of several that ask the same simulator the first finds out that it is dead; the others need not wait again.
        now = time.monotonic()
        late = now > deadline or now - self._heard > self._silence
        try:
            count = self._recv_into(self._inbox.room(), 0, socket.MSG_DONTWAIT if late else 0)
        except BlockingIOError:
            count = -1
        except OSError as e:
            raise Lost(_why(e)) from None
        if count == 0:
            raise Lost("it closed the connection")
        now = time.monotonic()
        if count > 0:
            self._inbox.took(count)
            self._heard = now
        elif now - self._heard > self._silence:
            before = ", nor to another just before" if self._silence < self._patience.silence else ""
            raise Lost(f"it said nothing for {self._silence:g} s{before}", silent=True)
        if not self._inbox.begun:
            self._began = None
        elif self._began is None:
            self._began = now
        elif now - self._began > self._patience.frame:
            raise Lost(f"a frame was not complete within {self._patience.frame:g} s", silent=True)
        if now > deadline and count < 0:
            self._overdue()

    def _take(self, header: wire.Header, expected: str) -> None:
        """A frame that is not the one that is waited for."""
        found = header["type"]
        if found == "wait":
            self._alive = True
            self.missing = list(wire.wholes(header, "missing", wire.MOST_NAMED))
        elif found == "ping":
            self.send({"type": "pong"})
        elif found == "error":
            code, text = wire.text(header, "code", 64), _printable(wire.text(header, "text"))
            self.fail(ERRORS.get(code, LinkError), f"refuses: {text} ({_printable(code)})", ADVICE.get(code, ""))
        elif found == "bye":
            raise Lost("it said bye")
        elif found != "pong":
            raise Fault("protocol", f"it sent {_printable(found)!r} where `{expected}` was expected")

    def _overdue(self) -> NoReturn:
        if self.missing:
            named = ", ".join(map(str, self.missing[:16])) + (" ..." if len(self.missing) > 16 else "")
            self.fail(
                LinkTimeout,
                f"waits for environments {named} of the group, which are connected and have asked for nothing",
                "with barrier all must be asked before one is waited for, as `Envs` does; if they "
                "are stepped one after another, set barrier to false",
            )
        if self._alive:
            self.fail(LinkTimeout, "is alive but busy, and did not answer within the option delay")
        self.fail(LinkTimeout, "said nothing within the option delay. It hangs, or another program listens there")

    # -- what goes wrong ----------------------------------------------------------------------------------------------

    def fail(self, kind: type[LinkError], what: str, advice: str = "") -> NoReturn:
        """Raises an error that names host, port and environment."""
        tail = f". {advice[0].upper()}{advice[1:]}" if advice else ""
        raise kind(f"the simulator at {self._address} ({self._who}) {what}{tail}") from None

    def blame(self, fault: Fault) -> NoReturn:
        """Raises the error for what the simulator should not have sent."""
        if fault.code == "version":
            self.fail(
                LinkVersion,
                f"is none that this Milkrun can speak with: {fault.text}",
                "another program may listen on this port, or a simulator of another version",
            )
        self.fail(LinkProtocol, f"broke the protocol: {fault.text}")


def _read_welcome(header: wire.Header) -> Welcome:
    image, hz, caps = header.get("image"), header.get("sim_hz"), header.get("caps")
    if type(image) is not list or len(image) != 3 or not all(type(n) is int for n in image):
        raise Fault("protocol", "`image` of `welcome` is [C, H, W]")
    if image[0] not in (1, 3) or not all(1 <= n <= LARGEST_SIDE for n in image[1:]):
        raise Fault("protocol", f"`image` of `welcome` has 1 or 3 channels and 1 to {LARGEST_SIDE} pixels a side")
    if type(hz) not in (int, float) or not 0 < hz < 1e9:  # type: ignore[operator]
        raise Fault("protocol", "`sim_hz` of `welcome` is a number above 0")
    if type(caps) is not list or not all(type(cap) is str for cap in caps):
        raise Fault("protocol", "`caps` of `welcome` is a list of strings")
    return Welcome((image[0], image[1], image[2]), float(hz), frozenset(caps))  # type: ignore[arg-type]


def _timeval(seconds: float) -> bytes:
    """Seconds as the system takes them."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


def _why(error: OSError) -> str:
    if isinstance(error, BlockingIOError):
        return "it takes no more bytes"
    with contextlib.suppress(KeyError, TypeError):
        return f"{error.strerror} ({errno.errorcode[error.errno]})"  # type: ignore[index]
    return str(error)


def _printable(text: Any) -> str:
    """What somebody else wrote, fit to be shown."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:500])
