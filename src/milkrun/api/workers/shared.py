"""Observations as arrays: one array (n, *shape) for each leaf of the space, in memory that all workers can share.

The memory is an anonymous file. The pool creates it after the workers have reported their spaces, so no environment is
made only to read its space. Each worker receives the open file through its connection. The file has no name: the system
frees it with the last process that maps it, however that process ends.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array

from milkrun.core.errors import ShapeError

FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
ALIGNMENT = 64


def has_fixed_shape(space: Any) -> bool:
    """Whether every value of the space is a fixed set of arrays."""
    if isinstance(space, spaces.Dict):
        return all(map(has_fixed_shape, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(has_fixed_shape, space.spaces))
    return isinstance(space, FIXED)


def create_memory(space: spaces.Space[Any], count: int) -> int:
    """Returns the descriptor of an anonymous file with room for `count` observations."""
    size = 0

    def measure(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal size
        size += _padded(shape, dtype)
        return np.empty(0)

    create_empty_array(space, count, fn=measure)
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("milkrun-observations")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def map_rows(space: spaces.Space[Any], count: int, fd: int) -> Any:
    """Maps the file of `create_memory` and closes the descriptor. Returns arrays in the structure of the space."""
    try:
        memory = mmap.mmap(fd, 0)
    finally:
        os.close(fd)
    offset = 0

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal offset
        array: np.ndarray = np.ndarray(shape, dtype, memory, offset)
        offset += _padded(shape, dtype)
        return array

    return create_empty_array(space, count, fn=allocate)


def write_row(rows: Any, i: int, obs: Any) -> None:
    """Writes an observation that `conform` has returned into row i."""
    if isinstance(rows, dict):
        for key, part in rows.items():
            write_row(part, i, obs[key])
    elif isinstance(rows, tuple):
        for part, value in zip(rows, obs):
            write_row(part, i, value)
    else:
        rows[i] = obs


def conform(rows: Any, obs: Any, where: str = "") -> Any:
    """The observation as arrays of the shapes and dtypes of these rows, copied only where a dtype differs. Raises
    ShapeError if a shape differs or a value does not fit the dtype."""
    if isinstance(rows, dict):
        if not hasattr(obs, "keys") or set(obs.keys()) != set(rows):
            found = sorted(map(str, obs.keys())) if hasattr(obs, "keys") else type(obs).__name__
            raise ShapeError(f"observation{where}: its space has the keys {sorted(map(str, rows))}, it has {found}")
        return {key: conform(part, obs[key], f"{where}[{key!r}]") for key, part in rows.items()}
    if isinstance(rows, tuple):
        if not isinstance(obs, (tuple, list)) or len(obs) != len(rows):
            raise ShapeError(
                f"observation{where}: its space has {len(rows)} parts, it is {type(obs).__name__} "
                f"of {len(obs) if hasattr(obs, '__len__') else 1}"
            )
        return tuple(conform(part, value, f"{where}[{k}]") for k, (part, value) in enumerate(zip(rows, obs)))
    value, shape, dtype = np.asarray(obs), rows.shape[1:], rows.dtype
    if value.shape != shape:
        raise ShapeError(f"observation{where}: its space has the shape {shape}, it has {value.shape}")
    if value.dtype != dtype and not _fits(value, dtype):
        raise ShapeError(f"observation{where}: its space has the dtype {dtype}, {_describe(value)} does not fit in")
    return value.astype(dtype, copy=False)


def copy_rows(rows: Any, index: list[int] | None = None) -> Any:
    """A copy of these rows, or of all (None), in the structure of the space."""
    if isinstance(rows, dict):
        return {key: copy_rows(part, index) for key, part in rows.items()}
    if isinstance(rows, tuple):
        return tuple(copy_rows(part, index) for part in rows)
    return rows.copy() if index is None else rows[index]


def send_descriptor(connection: Connection, fd: int) -> None:
    """Sends an open file; the process at the other end gets a descriptor of its own."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        socket.send_fds(channel, [b"."], [fd])


def receive_descriptor(connection: Connection) -> int:
    """Receives the open file of `send_descriptor`."""
    with socket.socket(fileno=os.dup(connection.fileno())) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    return fds[0]


def _padded(shape: tuple[int, ...], dtype: Any) -> int:
    """The bytes of an array, rounded up; at least one block, since a file of no bytes cannot be mapped."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT


def _fits(value: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether an array keeps its values in this dtype; floats may be rounded."""
    if value.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not value.size or (int(value.min()) >= limits.min and int(value.max()) <= limits.max)
    return np.can_cast(value.dtype, dtype, "same_kind")


def _describe(value: np.ndarray) -> str:
    """The dtype of an array; of integers also their range."""
    within = f" in {value.min()}..{value.max()}" if value.dtype.kind in "iu" and value.size else ""
    return f"{value.dtype}{within}"
