"""The simulator's side of the link: one thread that serves all connections.

It greets, checks and sorts what arrives, lets groups play when their turn is complete, and tells those who wait that it
is alive. Whoever breaks the rules is told which and loses the connection; nobody else notices. Memory is bounded: so
many connections, so many environments, a frame or two of each, and nothing is read from who does not read.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.tracking.link import wire
from milkrun.tracking.link.address import LOOPBACK, SHORTEST
from milkrun.tracking.link.connection import (
    GREETING,
    LEAVING,
    MAKING,
    PLAYING,
    Connection,
    Limits,
    listen,
    set_options,
)
from milkrun.tracking.link.groups import Group, Question, make_world, read_options, refusal
from milkrun.tracking.link.parent import Parent
from milkrun.tracking.link.wire import Fault

SPARE = 64
"""Connections that may be there beside those of environments: who has not said hello, who is leaving."""
DRAINED = 1 << 20
"""Bytes that are read and thrown away of one that is leaving."""


class Server:
    """A simulator at `host` and `port` (0: a free one). It listens from the start; `serve` answers until `stop`.

    `defaults` are options of the world for groups that name none; `log` gets a line when environments come and go;
    `watch` is the process with which the simulator ends.
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
        if host not in LOOPBACK and token and len(token) < SHORTEST:
            raise ConfigError(
                f"host {host!r} can be reached from other machines: that needs a token of at least "
                f"{SHORTEST} bytes, not {len(token)}"
            )
        self._token, self._max_envs, self._log = token, max_envs, log
        self._defaults = {name: value for name, value in (defaults or {}).items() if value is not None}
        self.limits = limits or Limits()
        read_options({}, self._defaults)  # wrong ones are refused now
        self._listener = listen(host, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._bell, self._ring = socket.socketpair()  # wakes the loop
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, self._heard)
        self._connections: dict[socket.socket, Connection] = {}
        self._groups: dict[str, Group] = {}
        self._asked: dict[Group, None] = {}  # groups that have new questions, or fewer members
        self._beat = min(self.limits.wait, self.limits.frame, self.limits.greeting) / 4
        self._next_beat = self._last_env = time.monotonic()
        self._over: str | None = None  # why `serve` shall end
        self._made: SimpleQueue[tuple[Group, Any]] = SimpleQueue()
        self._orders: SimpleQueue[Group | None] = SimpleQueue()
        self._maker: threading.Thread | None = None
        self._parent = Parent(watch) if watch else None

    # -- the loop -----------------------------------------------------------------------------------------------------

    def serve(self) -> str:
        """Answers until it is stopped, has been idle for too long, or its parent has died; says which."""
        if self._parent is not None and self._parent.file is not None:
            self._selector.register(self._parent.file, selectors.EVENT_READ, self._orphaned)
        try:
            while self._over is None:
                for key, events in self._selector.select(max(0.0, self._next_beat - time.monotonic())):
                    if isinstance(key.data, Connection):
                        self._attend(key.data, events)
                    else:
                        key.data()
                while self._asked:
                    group, _ = self._asked.popitem()
                    if group.due:
                        self._play(group, sorted(group.questions))
                if time.monotonic() >= self._next_beat:
                    self._tick()
                    self._look_around()
            return self._over
        finally:
            self._end()

    def stop(self) -> None:
        """Ends `serve`, from any thread or a signal handler."""
        self._over = "stopped"
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._ring.send(b"\0")

    def _heard(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)
        while not self._made.empty():
            self._adopt(*self._made.get())

    def _orphaned(self) -> None:
        self._over = "its parent has ended"

    def _look_around(self) -> None:
        """Lets those play who have waited for long enough, and sees whether anybody still needs this simulator."""
        if self._parent is not None and self._parent.gone():
            self._orphaned()
        for group in list(self._groups.values()):
            if new := group.overdue(time.monotonic() - self.limits.newcomer):
                self._play(group, new)
        if self._groups:
            self._last_env = time.monotonic()
        elif 0 < self.limits.idle < time.monotonic() - self._last_env:
            self._over = f"no environment for {self.limits.idle:g} s"

    def _end(self) -> None:
        if self._maker is not None:
            self._orders.put(None)
        for connection in list(self._connections.values()):
            self._drop(connection, "the simulator ends")
        self._groups.clear()
        self._selector.close()
        for sock in (self._listener, self._bell, self._ring):
            sock.close()
        if self._parent is not None:
            self._parent.close()

    def _tick(self) -> None:
        """What is due by the clock: signs of life, and ends of patience."""
        now = time.monotonic()
        self._next_beat = now + self._beat
        limits = self.limits
        for c in list(self._connections.values()):
            if c.stage == GREETING and now - c.since > limits.greeting:
                self._refuse(c, Fault("protocol", f"no hello within {limits.greeting:g} s"))
            elif c.stage == LEAVING:
                if now - c.since > limits.leaving:
                    self._drop(c)
            elif c.began is not None and now - c.began > limits.frame:
                self._refuse(c, Fault("protocol", f"a frame was begun and not completed within {limits.frame:g} s"))
            elif now - c.last_sent >= limits.wait and c.group is not None:
                if c.stage == MAKING:
                    self._tell(c, {"type": "wait", "turn": None, "missing": []})
                elif c.idx in c.group.questions:
                    turn = c.group.questions[c.idx].turn
                    self._tell(c, {"type": "wait", "turn": turn, "missing": c.group.missing})

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
                    time.sleep(0.01)  # or the loop would turn without end
                return
            connection = Connection(sock, f"{peer[0]}:{peer[1]}", time.monotonic())
            set_options(sock, self.limits)
            if len(self._connections) >= self._max_envs + SPARE:
                with contextlib.suppress(OSError):
                    sock.send(wire.head({"type": "error", "code": "busy", "text": "too many connections"}))
                sock.close()
                continue
            self._connections[sock] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self._tell(
                connection,
                {"type": "challenge", "proto": wire.PROTO, "nonce": connection.nonce, "auth": self._token is not None},
            )

    def _attend(self, c: Connection, events: int) -> None:
        """Sends what could not be sent, reads what has come."""
        # Another's event of the same round may have dropped it since.
        if events & selectors.EVENT_WRITE and c.sock in self._connections:
            self._send(c)
        if not events & selectors.EVENT_READ or c.sock not in self._connections or c.out:
            return
        try:
            count = c.sock.recv_into(c.inbox.room())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if count == 0:
            self._drop(c, "lost")
            return
        if c.stage == LEAVING:
            c.taken += count
            if c.taken > DRAINED:
                self._drop(c)
            return
        c.inbox.took(count)
        self._read(c)

    def _read(self, c: Connection) -> None:
        """Takes the frames that are there, until something cannot be sent: a backlog stops reading."""
        try:
            while c.stage != LEAVING and not c.out and (frame := c.inbox.frame()) is not None:
                self._take(c, frame[0])
        except Fault as fault:
            self._refuse(c, fault)
        if c.stage != LEAVING:
            c.began = None if not c.inbox.begun or c.out else c.began or time.monotonic()

    def _tell(self, c: Connection, header: wire.Header) -> None:
        c.out += wire.head(header)
        self._send(c)

    def _send(self, c: Connection) -> None:
        """Sends as much as the other side takes, and asks to be called again for the rest."""
        c.last_sent = time.monotonic()
        if c.out:
            try:
                c.out = c.out[c.sock.send(c.out) :]
            except BlockingIOError:
                pass
            except OSError:
                self._drop(c, "lost")
                return
            self._watch(c)
        if c.stage == LEAVING and not c.out:
            with contextlib.suppress(OSError):
                c.sock.shutdown(socket.SHUT_WR)  # and what still comes is read, else the last words might be lost

    def _send_arrays(self, c: Connection, head: bytes, arrays: list[Any]) -> None:
        """A frame with a payload, in one call and without a copy if the other side takes it."""
        c.last_sent = time.monotonic()
        if c.out:  # frames stay in order and whole: this one goes behind what could not be sent yet
            c.out = b"".join([c.out, head, *(a.tobytes() for a in arrays)])
            return
        try:
            sent = c.sock.sendmsg([head, *arrays])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(c, "lost")
            return
        total = len(head) + sum(a.nbytes for a in arrays)
        if sent < total:
            c.out = b"".join([head, *(a.tobytes() for a in arrays)])[sent:]
            self._watch(c)

    def _watch(self, c: Connection) -> None:
        """Reads from those who read."""
        events = selectors.EVENT_WRITE if c.out else selectors.EVENT_READ
        key = self._selector.get_key(c.sock)
        if key.events == events:
            return
        self._selector.modify(c.sock, events, c)
        if not c.out and c.stage != LEAVING and c.inbox.begun:
            self._read(c)  # what came meanwhile

    def _refuse(self, c: Connection, fault: Fault) -> None:
        """Tells what is wrong, and ends the connection."""
        if c.group is not None or fault.code not in ("protocol", "version", "too_large"):
            self._log(f"{c}: {fault.code}: {fault.text}")
        self._leave(c)
        self._tell(c, {"type": "error", "code": fault.code, "text": fault.text[:1000]})

    def _leave(self, c: Connection) -> None:
        self._release(c)
        c.stage, c.since = LEAVING, time.monotonic()
        c.inbox = wire.Inbox(most_payload=0)

    def _drop(self, c: Connection, why: str = "") -> None:
        """The connection is over."""
        if self._connections.pop(c.sock, None) is None:
            return
        if why and c.group is not None:
            self._log(f"{c}: {why}")
        self._release(c)
        c.stage = LEAVING
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(c.sock)
        c.sock.close()

    def _release(self, c: Connection) -> None:
        """Its place in its group is free."""
        group, c.group = c.group, None
        if group is None:
            return
        group.members.pop(c.idx, None)
        group.questions.pop(c.idx, None)
        group.answered.discard(c.idx)
        if group.members:
            self._asked[group] = None
        else:
            self._asked.pop(group, None)
            del self._groups[group.name]
            if group.world is not None:
                group.world.close()
                group.world = None

    # -- messages -----------------------------------------------------------------------------------------------------

    def _take(self, c: Connection, header: wire.Header) -> None:
        kind = header["type"]
        if header.get("arrays"):
            raise Fault("protocol", "what a client sends has no arrays")
        if kind == "close":
            if c.group is not None:
                self._log(f"{c}: closed")
            self._leave(c)
            self._tell(c, {"type": "bye"})
        elif c.stage == GREETING:
            if kind != "hello":
                raise Fault("protocol", f"the first frame of a client is `hello`, not {kind[:40]!r}")
            self._hello(c, header)
        elif kind == "ping":
            self._tell(c, {"type": "pong"})
        elif kind == "pong":
            pass
        elif kind not in ("step", "reset"):
            raise Fault("protocol", f"a client sends reset, step, ping, pong or close here, not {kind[:40]!r}")
        elif c.stage == MAKING:
            raise Fault("protocol", "the first question comes after `welcome`")
        else:
            self._question(c, header)

    def _hello(self, c: Connection, header: wire.Header) -> None:
        if header.get("proto") != wire.PROTO:
            raise Fault("version", f"this simulator speaks version {wire.PROTO} of the protocol")
        name, idx = wire.text(header, "group", 128, 1), header.get("idx")
        if type(idx) is not int:
            raise Fault("protocol", "`idx` of `hello` is an integer")
        self._check_token(c, name, idx, header.get("mac"))
        n, barrier = wire.whole(header, "n", 1, wire.MOST_ENVS), wire.flag(header, "barrier")
        given = header.get("config")
        if not 0 <= idx < n:
            raise Fault("index", f"`idx` {idx} is not in 0 .. {n - 1}")
        if type(given) is not dict:
            raise Fault("protocol", "`config` of `hello` is a map")
        try:
            config = read_options(given, self._defaults)
        except ConfigError as e:
            raise Fault("config", refusal(e)) from None
        group = self._groups.get(name)
        if group is None:
            taken = sum(g.n for g in self._groups.values())
            if taken + n > self._max_envs:
                raise Fault("busy", f"{taken} of {self._max_envs} environments are taken: no room for {n} more")
            group = self._groups[name] = Group(name, n, barrier, config)
        elif (how := group.differs(n, barrier, config)) is not None:
            raise Fault("config", how)
        elif idx in group.members:
            raise Fault("index", f"environment {idx} of group {name!r} is connected already")
        group.members[idx] = c
        c.group, c.idx, c.stage, c.since = group, idx, MAKING, time.monotonic()
        if group.world is not None:
            self._welcome(c)
        elif len(group.members) == 1:
            self._order(group)

    def _check_token(self, c: Connection, group: str, idx: int, mac: Any) -> None:
        if self._token is None:
            return
        if type(mac) is not bytes:
            raise Fault("auth", "this simulator needs a token")
        if not hmac.compare_digest(mac, wire.mac_of(self._token, c.nonce, group, idx)):
            raise Fault("auth", "wrong token")

    def _welcome(self, c: Connection) -> None:
        c.stage, c.since = PLAYING, time.monotonic()
        self._log(f"{c}: here")
        self._tell(c, c.group.welcome())  # type: ignore[union-attr]

    def _question(self, c: Connection, header: wire.Header) -> None:
        group: Group = c.group  # type: ignore[assignment]
        now = time.monotonic()
        turn = wire.whole(header, "turn", 0)
        if header["type"] == "reset":
            key = wire.whole(header, "seed", 0), wire.whole(header, "row", 0), wire.whole(header, "episode", 0)
            question = Question(turn, now, key=key)
        else:
            wire.numbers(header.get("cmd"), "`cmd` of `step`", wire.SPEEDS)
            question = Question(turn, now, action=group.read_action(header.get("action")))
        if c.idx in group.questions:
            self._scold(c, turn, f"the question of turn {group.questions[c.idx].turn} is not answered yet")
        elif turn != c.turn:
            self._scold(c, turn, f"this is turn {c.turn}, not {turn}")
        elif question.key is None and not c.fresh:
            self._scold(c, turn, "an episode begins with `reset`")
        else:
            c.turn += 1
            group.questions[c.idx] = question
            c.last_sent = now
            self._asked[group] = None

    def _scold(self, c: Connection, turn: int, text: str) -> None:
        self._tell(c, {"type": "error", "code": "turn", "turn": turn, "text": text})

    def _play(self, group: Group, order: list[int]) -> None:
        """Plays a turn of these environments of a group and tells them."""
        group.playing = True
        try:
            for frames in group.play(order):
                for idx, head, arrays in frames:
                    if (c := group.members.get(idx)) is not None:
                        c.fresh = not arrays[1][wire.DONE]
                        group.answered.add(idx)
                        self._send_arrays(c, head, arrays)
                if time.monotonic() >= self._next_beat:
                    self._tick()
                if group.world is None:  # all have left meanwhile
                    break
        except Exception as e:
            self._log(f"group {group.name!r}: the simulator failed:\n{traceback.format_exc()}")
            for idx in order:
                failed = group.questions.pop(idx, None)
                if failed is not None and (c := group.members.get(idx)) is not None:
                    c.fresh = False
                    text = f"{type(e).__name__} in the simulator; its log has more. A reset goes on"
                    self._tell(c, {"type": "error", "code": "internal", "turn": failed.turn, "text": text})
        finally:
            group.playing = False

    # -- worlds -------------------------------------------------------------------------------------------------------

    def _order(self, group: Group) -> None:
        """Has the world of a group made in the thread for it: that may take as long as compiling."""
        if self._maker is None:
            self._maker = threading.Thread(target=self._make_worlds, name="milkrun-link-worlds", daemon=True)
            self._maker.start()
        self._orders.put(group)

    def _make_worlds(self) -> None:
        while (group := self._orders.get()) is not None:
            made: Any = None
            if group.members:  # else all have left meanwhile
                try:
                    made = make_world(group.config, group.n)
                except BaseException as e:
                    made = e
            self._made.put((group, made))
            self._wake()

    def _adopt(self, group: Group, made: Any) -> None:
        if self._groups.get(group.name) is not group:
            return
        if isinstance(made, tuple):
            group.adopt(*made)
        for c in list(group.members.values()):
            if isinstance(made, ConfigError):
                self._refuse(c, Fault("config", refusal(made)))
            elif not isinstance(made, tuple):
                self._log(f"group {group.name!r}: its world cannot be made: {made!r}")
                self._refuse(c, Fault("internal", f"the world cannot be made: {type(made).__name__}"))
            else:
                self._welcome(c)

    def join(self) -> None:
        """After `serve`: waits until the thread that makes worlds has ended."""
        if self._maker is not None:
            self._maker.join()
