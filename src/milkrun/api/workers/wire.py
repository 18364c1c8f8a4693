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
    data = len(message).to_bytes(LENGTH, "little") + message
    sent = os.write(fd, data)
    if sent < len(data):
        rest = memoryview(data)
        while sent < len(data):
            sent += os.write(fd, rest[sent:])


def receive(fd: int, ahead: int = AHEAD) -> bytes:
    """Waits for a message. No other may be on its way behind it, unless `ahead` is LENGTH: then no byte more is read.
    Raises EOFError if the other end was closed."""
    data = _read(fd, ahead)
    while len(data) < LENGTH:
        data += _read(fd, LENGTH - len(data))
    size = LENGTH + int.from_bytes(data[:LENGTH], "little")
    if len(data) == size:
        return data[LENGTH:]
    whole = bytearray(data)
    while len(whole) < size:
        whole += _read(fd, min(size - len(whole), 1 << 20))
    return bytes(whole[LENGTH:])


def _read(fd: int, most: int) -> bytes:
    data = os.read(fd, most)
    if not data:
        raise EOFError("the other end is closed")
    return data
