"""A connection as the simulator has it, and the socket that it listens on."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
from dataclasses import dataclass

from milkrun.core.errors import ConfigError, LinkError
from milkrun.tracking.link import wire
from milkrun.tracking.link.groups import Group

GREETING, MAKING, PLAYING, LEAVING = range(4)
"""A connection: before its hello; its world is being made; it plays; it has been told its last."""


@dataclass(frozen=True)
class Limits:
    """Seconds. Tests make them short."""

    greeting: float = 10.0  # until a hello is complete
    frame: float = 5.0  # from the first byte of a frame to its last
    wait: float = 1.0  # between two signs of life to one that waits
    newcomer: float = 1.0  # that one who is new waits for those who are not
    leaving: float = 1.0  # until one that was told its last must be gone
    idle: float = 600.0  # without any environment, after which the simulator ends; 0: never
    unread: float = 120.0  # that sent bytes may stay unacknowledged


class Connection:
    """One environment's, or of one who would be. `turn` is the number that its next question must have."""

    __slots__ = (
        "began",
        "fresh",
        "group",
        "idx",
        "inbox",
        "last_sent",
        "nonce",
        "out",
        "peer",
        "since",
        "sock",
        "stage",
        "taken",
        "turn",
    )

    def __init__(self, sock: socket.socket, peer: str, now: float) -> None:
        self.sock, self.peer = sock, peer
        self.inbox = wire.Inbox(most_payload=0)
        self.out = b""  # what could not be sent yet
        self.stage = GREETING
        self.nonce = secrets.token_bytes(16)
        self.since = now  # of this stage
        self.began: float | None = None  # a frame, that is not complete
        self.last_sent = now  # that it must wait, or anything else
        self.group: Group | None = None
        self.idx = -1
        self.turn = 0
        self.fresh = False  # there is an episode that a step can go on with
        self.taken = 0  # bytes thrown away

    def __str__(self) -> str:
        """Who it is, in the simulator's log."""
        if self.group is None:
            return self.peer
        return f"environment {self.idx} of group {self.group.name!r} ({self.peer})"


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections there. Raises LinkError, which says what is in the way."""
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


def set_options(sock: socket.socket, limits: Limits) -> None:
    """A connection sends at once, never blocks the simulator, and ends by itself if the other side is gone."""
    sock.setblocking(False)
    with contextlib.suppress(OSError):  # one that is gone again, or no TCP
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
