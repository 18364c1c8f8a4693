"""Messages through a pair of sockets: a length and that many bytes.

`multiprocessing.Connection` reads the length and the message in two calls of the system and looks at its own state in
between. Here a message that came whole, as all short ones do, is read in one: half the time.
"""

from __future__ import annotations

import os

LENGTH = 8  # bytes of the length
AHEAD = 1 << 16  # bytes read at once, before the length is known


def send(fd: int, message: bytes) -> None:
    """Sends a message, however long the other end takes to make room for it."""
    Outgoing(message).write(fd)


def receive(fd: int, ahead: int = AHEAD) -> bytes:
    """Waits for a message. No other may be on its way behind it, unless `ahead` is LENGTH: then no byte more is read.
    Raises EOFError if the other end was closed."""
    return Incoming().read(fd, ahead)


class Outgoing:
    """A message to be sent, and what of it is left: who was interrupted goes on."""

    __slots__ = ("_rest",)

    def __init__(self, message: bytes) -> None:
        self._rest = len(message).to_bytes(LENGTH, "little") + message

    def write(self, fd: int) -> None:
        """Sends what is left, however long the other end takes to make room for it."""
        while self._rest:
            self._rest = self._rest[os.write(fd, self._rest) :]


class Incoming:
    """A message that comes, and what there is of it: who was interrupted goes on."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data: bytes | bytearray = b""

    @property
    def begun(self) -> bool:
        """Whether there is some of it, or all."""
        return bool(self._data)

    def read(self, fd: int, ahead: int = AHEAD) -> bytes:
        """As `receive`; once it is whole, it can be read again."""
        while True:
            had = len(self._data)
            if had >= LENGTH:
                missing = LENGTH + int.from_bytes(self._data[:LENGTH], "little") - had
                if not missing:
                    return bytes(self._data[LENGTH:])
                if isinstance(self._data, bytes):
                    self._data = bytearray(self._data)  # which grows without a copy
                self._data += os.read(fd, min(missing, 1 << 20))
            else:
                self._data += os.read(fd, LENGTH - had if had else ahead)
            if len(self._data) == had:
                raise EOFError("the other end is closed")
