"""The simulator's side of the link: one thread that serves all connections.

It greets clients, validates their messages, lets a group play when its requests are complete, and sends signs of life
to those that wait. A client that violates the protocol gets an error and is disconnected; others are not affected.
Memory is bounded: connections, environments and frame sizes are limited, and a client that does not read its replies
is not served (back-pressure).
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hmac
import os
import secrets
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from milkrun.core.errors import ConfigError, LinkError
from milkrun.tracking.link import wire
from milkrun.tracking.link.group import Group, Request, make_world, reword
from milkrun.tracking.link.wire import LOOPBACK, MIN_TOKEN, Fault

SPARE = 64
"""Connections allowed besides those of environments: before `hello` or while closing."""
MAX_DISCARDED = 1 << 20
"""Bytes that are read and discarded from a connection that is closing."""


@dataclass(frozen=True)
class Limits:
    """Seconds. Tests use shorter ones."""

    greeting: float = 10.0  # until `hello` is complete
    frame: float = 5.0  # from the first byte of a frame to its last
    wait: float = 1.0  # between two signs of life to a client that waits
    newcomer: float = 1.0  # that new members wait for members that are not new
    leaving: float = 1.0  # between the last message to a client and the end of the connection
    idle: float = 600.0  # without environments, after which the simulator ends; 0: never
    unread: float = 120.0  # that sent bytes may stay unacknowledged


class Stage(enum.Enum):
    GREETING = enum.auto()  # before `hello`
    MAKING = enum.auto()  # the world is being made
    PLAYING = enum.auto()
    LEAVING = enum.auto()  # the last message has been sent


class Connection:
    """A client. `turn` is the number that its next request must have."""

    __slots__ = (
        "discarded",
        "frame_since",
        "group",
        "idx",
        "last_sent",
        "live",
        "nonce",
        "out",
        "peer",
        "reader",
        "since",
        "sock",
        "stage",
        "turn",
    )

    def __init__(self, sock: socket.socket, peer: str, now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.reader = wire.FrameReader(max_payload=0)
        self.out = b""  # bytes that could not be sent yet
        self.stage = Stage.GREETING
        self.nonce = secrets.token_bytes(16)
        self.since = now  # start of this stage
        self.frame_since: float | None = None  # first byte of an incomplete frame
        self.last_sent = now
        self.group: Group | None = None
        self.idx = -1
        self.turn = 0
        self.live = False  # whether an episode goes on
        self.discarded = 0  # bytes

    def __str__(self) -> str:
        """The name of the client in the log."""
        if self.group is None:
            return self.peer
        return f"environment {self.idx} of group {self.group.name!r} ({self.peer})"


class Server:
    """A simulator at `host` and `port` (0: a free one). It listens from the start; `serve` replies until `stop`.

    `defaults`: options of the world for groups that do not name them. `log` gets a line when an environment connects or
    leaves. The simulator ends with the process `watch`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = wire.PORT,
        *,
        token: bytes | None = None,
        max_envs: int = 256,
        defaults: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        watch: int | None = None,
        log: Callable[[str], object] = lambda line: None,
    ) -> None:
        if host not in LOOPBACK and not token:
            raise ConfigError(
                f"host {host!r} can be reached from other machines: that needs a token, a file with a "
                "secret of your own (--token-file)"
            )
        if host not in LOOPBACK and token and len(token) < MIN_TOKEN:
            raise ConfigError(
                f"host {host!r} can be reached from other machines: that needs a token of at least "
                f"{MIN_TOKEN} bytes, not {len(token)}"
            )
        self._token = token
        self._max_envs = max_envs
        self._log = log
        self._defaults = {name: value for name, value in (defaults or {}).items() if value is not None}
        self.limits = limits or Limits()
        wire.read_options({}, self._defaults)  # validates them
        self._listener = _listen(host, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._take_worlds)
        self._connections: dict[socket.socket, Connection] = {}
        self._groups: dict[str, Group] = {}
        self._changed: dict[Group, None] = {}  # groups with new requests or fewer members, in order
        self._interval = min(self.limits.wait, self.limits.frame, self.limits.greeting) / 4
        self._next_tick = self._last_env = time.monotonic()
        self._end_reason: str | None = None
        self._made: SimpleQueue[tuple[Group, Any]] = SimpleQueue()
        self._orders: SimpleQueue[Group | None] = SimpleQueue()
        self._maker: threading.Thread | None = None
        self._parent = watch
        self._parent_file = None if watch is None else _open_process(watch)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def serve(self) -> str:
        """Serves until `stop`, the idle timeout, or the end of the parent process; returns the reason."""
        if self._parent_file is not None:
            self._selector.register(self._parent_file, selectors.EVENT_READ, self._end_with_parent)
        try:
            while self._end_reason is None:
                for key, events in self._selector.select(max(0.0, self._next_tick - time.monotonic())):
                    if isinstance(key.data, Connection):
                        self._transfer(key.data, events)
                    else:
                        key.data()
                while self._changed:
                    group, _ = self._changed.popitem()
                    if group.due:
                        self._play(group, sorted(group.requests))
                if time.monotonic() >= self._next_tick:
                    self._tick()
                    self._check_groups()
            return self._end_reason
        finally:
            self._close()

    def stop(self) -> None:
        """Ends `serve`; callable from any thread or a signal handler."""
        self._end_reason = "stopped"
        self._wake()

    def join(self) -> None:
        """After `serve`: waits for the end of the thread that makes worlds."""
        if self._maker is not None:
            self._maker.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")

    def _take_worlds(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        while not self._made.empty():
            self._take_world(*self._made.get())

    def _end_with_parent(self) -> None:
        self._end_reason = "its parent has ended"

    def _check_groups(self) -> None:
        """Plays overdue requests and ends the simulator if it is orphaned or idle."""
        if self._parent is not None and not _exists(self._parent):
            self._end_with_parent()
        for group in list(self._groups.values()):
            if overdue := group.overdue(time.monotonic() - self.limits.newcomer):
                self._play(group, overdue)
        if self._groups:
            self._last_env = time.monotonic()
        elif 0 < self.limits.idle < time.monotonic() - self._last_env:
            self._end_reason = f"no environment for {self.limits.idle:g} s"

    def _close(self) -> None:
        if self._maker is not None:
            self._orders.put(None)
        for connection in list(self._connections.values()):
            self._drop(connection, "the simulator ends")
        self._groups.clear()
        self._selector.close()
        for sock in (self._listener, self._wake_reader, self._wake_writer):
            sock.close()
        if self._parent_file is not None:
            os.close(self._parent_file)

    def _tick(self) -> None:
        """Sends signs of life and enforces the time limits."""
        now = time.monotonic()
        self._next_tick = now + self._interval
        limits = self.limits
        for c in list(self._connections.values()):
            if c.stage is Stage.GREETING and now - c.since > limits.greeting:
                self._refuse(c, Fault("protocol", f"no hello within {limits.greeting:g} s"))
            elif c.stage is Stage.LEAVING:
                if now - c.since > limits.leaving:
                    self._drop(c)
            elif c.frame_since is not None and now - c.frame_since > limits.frame:
                self._refuse(c, Fault("protocol", f"a frame was begun and not completed within {limits.frame:g} s"))
            elif now - c.last_sent >= limits.wait and c.group is not None:
                if c.stage is Stage.MAKING:
                    self._send(c, {"type": "wait", "turn": None, "missing": []})
                elif c.idx in c.group.requests:
                    turn = c.group.requests[c.idx].turn
                    self._send(c, {"type": "wait", "turn": turn, "missing": c.group.missing})

    # -- connections --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._log(f"cannot accept a connection: {e.strerror}")
                    time.sleep(0.01)  # avoids a busy loop
                return
            _set_options(sock, self.limits)
            if len(self._connections) >= self._max_envs + SPARE:
                with contextlib.suppress(OSError):
                    sock.send(wire.encode({"type": "error", "code": "busy", "text": "too many connections"}))
                sock.close()
                continue
            connection = Connection(sock, f"{peer[0]}:{peer[1]}", time.monotonic())
            self._connections[sock] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)
            challenge = {"proto": wire.PROTO, "nonce": connection.nonce, "auth": self._token is not None}
            self._send(connection, {"type": "challenge", **challenge})

    def _transfer(self, c: Connection, events: int) -> None:
        """Sends the backlog and reads, as far as the socket is ready."""
        # An event of another connection in the same round may have dropped this one.
        if events & selectors.EVENT_WRITE and c.sock in self._connections:
            self._flush(c)
        if not events & selectors.EVENT_READ or c.sock not in self._connections or c.out:
            return
        try:
            count = c.sock.recv_into(c.reader.space())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self._drop(c, "lost")
        elif c.stage is Stage.LEAVING:
            c.discarded += count
            if c.discarded > MAX_DISCARDED:
                self._drop(c)
        else:
            c.reader.advance(count)
            self._read(c)

    def _read(self, c: Connection) -> None:
        """Handles the received frames, until a backlog stops reading."""
        try:
            while c.stage is not Stage.LEAVING and not c.out and (frame := c.reader.frame()) is not None:
                self._handle(c, frame[0])
        except Fault as fault:
            self._refuse(c, fault)
        if c.stage is not Stage.LEAVING:
            c.frame_since = None if not c.reader.partial or c.out else c.frame_since or time.monotonic()

    def _send(self, c: Connection, header: wire.Header) -> None:
        c.out += wire.encode(header)
        self._flush(c)

    def _flush(self, c: Connection) -> None:
        """Sends as much of the backlog as the socket takes, and waits for the socket if a rest remains."""
        c.last_sent = time.monotonic()
        if c.out:
            try:
                c.out = c.out[c.sock.send(c.out) :]
            except BlockingIOError:
                pass
            except OSError:
                self._drop(c, "lost")
                return
            self._select(c)
        if c.stage is Stage.LEAVING and not c.out:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_WR)  # reading goes on, since a close might discard the last message

    def _send_arrays(self, c: Connection, head: bytes, arrays: list[Any]) -> None:
        """Sends a frame with a payload, by one call and without a copy if the socket takes it whole."""
        c.last_sent = time.monotonic()
        if c.out:  # frames stay in order and whole
            c.out = b"".join([c.out, head, *(a.tobytes() for a in arrays)])
            return
        try:
            sent = c.sock.sendmsg([head, *arrays])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(c, "lost")
            return
        if sent < len(head) + sum(a.nbytes for a in arrays):
            c.out = b"".join([head, *(a.tobytes() for a in arrays)])[sent:]
            self._select(c)

    def _select(self, c: Connection) -> None:
        """Selects the connection for writing while it has a backlog, else for reading."""
        events = selectors.EVENT_WRITE if c.out else selectors.EVENT_READ
        if self._selector.get_key(c.sock).events == events:
            return
        self._selector.modify(c.sock, events, c)
        if not c.out and c.stage is not Stage.LEAVING and c.reader.partial:
            self._read(c)  # frames received before the backlog

    def _refuse(self, c: Connection, fault: Fault) -> None:
        """Sends an error and ends the connection."""
        if c.group is not None or fault.code not in ("protocol", "version", "too_large"):
            self._log(f"{c}: {fault.code}: {fault.text}")
        self._leave(c)
        self._send(c, {"type": "error", "code": fault.code, "text": fault.text[:1000]})

    def _leave(self, c: Connection) -> None:
        self._release(c)
        c.stage = Stage.LEAVING
        c.since = time.monotonic()
        c.reader = wire.FrameReader(max_payload=0)

    def _drop(self, c: Connection, why: str = "") -> None:
        """Closes the connection."""
        if self._connections.pop(c.sock, None) is None:
            return
        if why and c.group is not None:
            self._log(f"{c}: {why}")
        self._release(c)
        c.stage = Stage.LEAVING
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(c.sock)
        c.sock.close()

    def _release(self, c: Connection) -> None:
        """Removes the connection from its group, and the group with its last member."""
        group, c.group = c.group, None
        if group is None:
            return
        group.members.pop(c.idx, None)
        group.requests.pop(c.idx, None)
        group.answered.discard(c.idx)
        if group.members:
            self._changed[group] = None
        else:
            self._changed.pop(group, None)
            del self._groups[group.name]
            if group.world is not None:
                group.world.close()
                group.world = None

    # -- messages -----------------------------------------------------------------------------------------------------

    def _handle(self, c: Connection, header: wire.Header) -> None:
        kind = header["type"]
        if header.get("arrays"):
            raise Fault("protocol", "what a client sends has no arrays")
        if kind == "close":
            if c.group is not None:
                self._log(f"{c}: closed")
            self._leave(c)
            self._send(c, {"type": "bye"})
        elif c.stage is Stage.GREETING:
            if kind != "hello":
                raise Fault("protocol", f"the first frame of a client is `hello`, not {kind[:40]!r}")
            self._handle_hello(c, header)
        elif kind == "ping":
            self._send(c, {"type": "pong"})
        elif kind == "pong":
            pass
        elif kind not in ("step", "reset"):
            raise Fault("protocol", f"a client sends reset, step, ping, pong or close here, not {kind[:40]!r}")
        elif c.stage is Stage.MAKING:
            raise Fault("protocol", "the first request comes after `welcome`")
        else:
            self._handle_request(c, header)

    def _handle_hello(self, c: Connection, header: wire.Header) -> None:
        if header.get("proto") != wire.PROTO:
            raise Fault("version", f"this simulator speaks version {wire.PROTO} of the protocol")
        name = wire.string(header, "group", 128, 1)
        idx = header.get("idx")
        if type(idx) is not int:
            raise Fault("protocol", "`idx` of `hello` is an integer")
        self._check_token(c, name, idx, header.get("mac"))
        n = wire.integer(header, "n", 1, wire.MAX_ENVS)
        barrier = wire.boolean(header, "barrier")
        given = header.get("config")
        if not 0 <= idx < n:
            raise Fault("index", f"`idx` {idx} is not in 0 .. {n - 1}")
        if type(given) is not dict:
            raise Fault("protocol", "`config` of `hello` is a map")
        try:
            config = wire.read_options(given, self._defaults)
        except ConfigError as e:
            raise Fault("config", reword(e)) from None
        group = self._groups.get(name)
        if group is None:
            taken = sum(g.n for g in self._groups.values())
            if taken + n > self._max_envs:
                raise Fault("busy", f"{taken} of {self._max_envs} environments are taken: no room for {n} more")
            group = self._groups[name] = Group(name, n, barrier, config)
        elif (difference := group.differs(n, barrier, config)) is not None:
            raise Fault("config", difference)
        elif idx in group.members:
            raise Fault("index", f"environment {idx} of group {name!r} is connected already")
        group.members[idx] = c
        c.group = group
        c.idx = idx
        c.stage = Stage.MAKING
        c.since = time.monotonic()
        if group.world is not None:
            self._welcome(c)
        elif len(group.members) == 1:
            self._order_world(group)

    def _check_token(self, c: Connection, group: str, idx: int, mac: Any) -> None:
        if self._token is None:
            return
        if type(mac) is not bytes:
            raise Fault("auth", "this simulator needs a token")
        if not hmac.compare_digest(mac, wire.mac_of(self._token, c.nonce, group, idx)):
            raise Fault("auth", "wrong token")

    def _welcome(self, c: Connection) -> None:
        c.stage = Stage.PLAYING
        c.since = time.monotonic()
        self._log(f"{c}: here")
        self._send(c, c.group.welcome())  # type: ignore[union-attr]

    def _handle_request(self, c: Connection, header: wire.Header) -> None:
        group: Group = c.group  # type: ignore[assignment]
        now = time.monotonic()
        turn = wire.integer(header, "turn", 0)
        if header["type"] == "reset":
            seed, row, episode = (wire.integer(header, key, 0) for key in ("seed", "row", "episode"))
            request = Request(turn, now, key=(seed, row, episode))
        else:
            wire.floats(header.get("cmd"), "`cmd` of `step`", wire.SPEEDS)
            request = Request(turn, now, action=group.read_action(header.get("action")))
        if c.idx in group.requests:
            self._refuse_turn(c, turn, f"the request of turn {group.requests[c.idx].turn} is not answered yet")
        elif turn != c.turn:
            self._refuse_turn(c, turn, f"this is turn {c.turn}, not {turn}")
        elif request.key is None and not c.live:
            self._refuse_turn(c, turn, "an episode begins with `reset`")
        else:
            c.turn += 1
            group.requests[c.idx] = request
            c.last_sent = now
            self._changed[group] = None

    def _refuse_turn(self, c: Connection, turn: int, text: str) -> None:
        self._send(c, {"type": "error", "code": "turn", "turn": turn, "text": text})

    def _play(self, group: Group, order: list[int]) -> None:
        """Plays the requests of these environments of a group and sends the replies."""
        group.playing = True
        try:
            for replies in group.play(order):
                for reply in replies:
                    if (c := group.members.get(reply.idx)) is not None:
                        c.live = not reply.done
                        group.answered.add(reply.idx)
                        self._send_arrays(c, reply.head, reply.arrays)
                if time.monotonic() >= self._next_tick:
                    self._tick()
                if group.world is None:  # all members have left
                    break
        except Exception as e:
            self._log(f"group {group.name!r}: the simulator failed:\n{traceback.format_exc()}")
            for idx in order:
                failed = group.requests.pop(idx, None)
                if failed is not None and (c := group.members.get(idx)) is not None:
                    c.live = False
                    text = f"{type(e).__name__} in the simulator; its log has more. A reset goes on"
                    self._send(c, {"type": "error", "code": "internal", "turn": failed.turn, "text": text})
        finally:
            group.playing = False

    # -- worlds -------------------------------------------------------------------------------------------------------

    def _order_world(self, group: Group) -> None:
        """Has the world of a group made by another thread, since it may take as long as compiling."""
        if self._maker is None:
            self._maker = threading.Thread(target=self._make_worlds, name="milkrun-link-worlds", daemon=True)
            self._maker.start()
        self._orders.put(group)

    def _make_worlds(self) -> None:
        while (group := self._orders.get()) is not None:
            made: Any = None
            if group.members:  # else all have left
                try:
                    made = make_world(group.config, group.n)
                except BaseException as e:
                    made = e
            self._made.put((group, made))
            self._wake()

    def _take_world(self, group: Group, made: Any) -> None:
        """Welcomes the members of a group when its world is made, or refuses them."""
        if self._groups.get(group.name) is not group:
            return
        if isinstance(made, tuple):
            group.set_world(*made)
        for c in list(group.members.values()):
            if isinstance(made, ConfigError):
                self._refuse(c, Fault("config", reword(made)))
            elif not isinstance(made, tuple):
                self._log(f"group {group.name!r}: its world cannot be made: {made!r}")
                self._refuse(c, Fault("internal", f"the world cannot be made: {type(made).__name__}"))
            else:
                self._welcome(c)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises LinkError or ConfigError with the cause."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=256)
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            raise LinkError(
                f"port {port} of {host} is taken: another program listens there, maybe another simulator. "
                "End it, or choose another port (0: a free one)"
            ) from None
        raise LinkError(f"cannot listen at {host}:{port}: {e.strerror or e}") from None
    except OverflowError:
        raise ConfigError(f"port {port}: must be in 0..65535") from None
    sock.setblocking(False)
    return sock


def _set_options(sock: socket.socket, limits: Limits) -> None:
    """Makes a connection non-blocking and undelayed, and has the system close it when the client is gone."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # the client has left already, or the socket is no TCP
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", 10),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", int(1000 * limits.unread)),
        ):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _open_process(pid: int) -> int | None:
    """A file that becomes readable when the process ends; None without support, or if it has ended already."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
