"""Where observations lie: one array (n, *shape) for each leaf of the space, worker i writes row i.

The arrays stand one behind the other in a nameless file that lives in memory. The parent makes it when the workers have
named their spaces, so that no environment is made only to be asked, and hands each worker the open file; it is gone
with the last process that maps it, however that one ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import spaces

from milkrun.core.errors import ShapeError

ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ALIGNMENT = 64


def is_arrays(space: Any) -> bool:
    """Whether every value of the space is a fixed set of arrays."""
    if isinstance(space, spaces.Dict):
        return all(map(is_arrays, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(is_arrays, space.spaces))
    return isinstance(space, ARRAYS)


class Slots:
    """Room for one observation of each worker. `buffer` is memory that another process writes too; None: our own."""

    def __init__(self, space: spaces.Space[Any], count: int, buffer: Any = None) -> None:
        self._buffer = bytearray(size_of(space, count)) if buffer is None else buffer
        self._offset = 0
        self._tree = self._lay_out(space, count)

    def write(self, row: int, obs: Any) -> None:
        """Puts an observation into a row; refused if it is not of the space's shape or does not fit its dtype."""
        _write(self._tree, row, obs, "")

    def read(self, rows: Sequence[int] | None) -> Any:
        """Copies of these rows (None: all), stacked, in the structure of the space."""
        return _read(self._tree, rows)

    def _lay_out(self, space: Any, count: int) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._lay_out(part, count) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._lay_out(part, count) for part in space.spaces)
        shape = (count, *space.shape)
        array = np.ndarray(shape, space.dtype, self._buffer, self._offset)
        self._offset += _padded(array.nbytes)
        return array


def size_of(space: Any, count: int) -> int:
    """Bytes that `Slots` of this space take."""
    if isinstance(space, spaces.Dict):
        return sum(size_of(part, count) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(size_of(part, count) for part in space.spaces)
    return _padded(count * int(np.prod(space.shape)) * np.dtype(space.dtype).itemsize)


def open_memory(size: int) -> int:
    """The descriptor of a nameless file of `size` bytes."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("milkrun-observations")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def map_memory(fd: int) -> mmap.mmap:
    """The file as memory that all who map it share; the descriptor is not needed any more."""
    try:
        return mmap.mmap(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def send_descriptor(connection: Connection, fd: int) -> None:
    """Gives the process at the other end a descriptor of its own of the same file."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        socket.send_fds(channel, [b"."], [fd])


def receive_descriptor(connection: Connection) -> int:
    """What `send_descriptor` gave."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    return fds[0]


def _padded(nbytes: int) -> int:
    # At least one block: a file of no bytes cannot be mapped.
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


def _write(tree: Any, row: int, obs: Any, where: str) -> None:
    if isinstance(tree, dict):
        if not hasattr(obs, "keys") or set(obs.keys()) != set(tree):
            had = sorted(map(str, obs.keys())) if hasattr(obs, "keys") else type(obs).__name__
            raise ShapeError(f"observation{where}: its space has the keys {sorted(map(str, tree))}, it has {had}")
        for key, part in tree.items():
            _write(part, row, obs[key], f"{where}[{key!r}]")
        return
    if isinstance(tree, tuple):
        if not isinstance(obs, (tuple, list)) or len(obs) != len(tree):
            raise ShapeError(
                f"observation{where}: its space has {len(tree)} parts, it is {type(obs).__name__} "
                f"of {len(obs) if hasattr(obs, '__len__') else 1}"
            )
        for k, (part, value) in enumerate(zip(tree, obs)):
            _write(part, row, value, f"{where}[{k}]")
        return
    value, slot = np.asarray(obs), tree[row, ...]
    if value.shape != slot.shape:
        raise ShapeError(f"observation{where}: its space has the shape {slot.shape}, it has {value.shape}")
    if value.dtype != slot.dtype and not _fits(value, slot.dtype):
        raise ShapeError(f"observation{where}: its space has the dtype {slot.dtype}, {_value(value)} does not fit in")
    np.copyto(slot, value, casting="unsafe")


def _fits(value: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether an array keeps its values in this dtype, but for the rounding of floats."""
    if value.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not value.size or (int(value.min()) >= limits.min and int(value.max()) <= limits.max)
    return np.can_cast(value.dtype, dtype, "same_kind")


def _value(value: np.ndarray) -> str:
    """An array by its dtype, one of integers also by what is in it."""
    within = f" in {value.min()}..{value.max()}" if value.dtype.kind in "iu" and value.size else ""
    return f"{value.dtype}{within}"


def _read(tree: Any, rows: Sequence[int] | None) -> Any:
    if isinstance(tree, dict):
        return {key: _read(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_read(part, rows) for part in tree)
    return tree.copy() if rows is None else tree[list(rows)]
