"""Validates the arguments of a world: counts, seeds, rows and modes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, ShapeError, shown

SEED_LIMIT = 2**63
MODES = {"disabled": 0, "next_step": 1, "same_step": 2}
"""What `step` does to a row that had ended: nothing; it begins the next episode; the next episode has begun already
(its flags still describe the end), so the row is stepped."""
FINITE = float(np.finfo(np.float64).max)
Rows = Sequence[int] | np.ndarray | None


def autoreset_name(mode: Any) -> str:
    """ "next_step", "same_step" or "disabled", from such a text or Gymnasium's AutoresetMode."""
    value = getattr(mode, "value", mode)
    word = value.lower().replace("_", "") if isinstance(value, str) else ""
    for name in MODES:
        if word == name.replace("_", ""):
            return name
    raise ConfigError(f"autoreset={shown(mode)}: must be 'next_step', 'same_step' or 'disabled'")


def check_seed(seed: Any) -> int:
    """A seed as an int in 0..2**63-1."""
    if not _is_integer(seed) or not 0 <= int(seed) < SEED_LIMIT:
        raise ConfigError(f"seed {shown(seed)}: must be an integer in 0..2**63-1")
    return int(seed)


def check_count(name: str, value: Any, low: int, high: int = SEED_LIMIT - 1) -> int:
    """An integer that is at least `low`, and at most what 64 bits hold or `high`."""
    if not _is_integer(value) or value < low:
        raise ConfigError(f"{name}={shown(value)}: must be an integer >= {low}")
    if value > high:
        raise ConfigError(f"{name}={shown(value)}: must be an integer in {low}..{high}")
    return int(value)


def check_number(name: str, value: Any) -> float:
    """A finite real number."""
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        if -FINITE <= value <= FINITE:
            return float(value)
    raise ConfigError(f"{name}={value!r}: must be a finite number")


def check_seconds(name: str, value: Any) -> float:
    """A time above 0."""
    if not (seconds := check_number(name, value)) > 0:
        raise ConfigError(f"{name}={value!r}: must be above 0 seconds")
    return seconds


_interpreting: ContextVar[bool | str | None] = ContextVar("interpreting", default=None)


@contextmanager
def interpreting(debug: bool | str | None) -> Iterator[None]:
    """The debug mode of worlds that bindings make in this context, unless `debug` is an argument of theirs."""
    token = _interpreting.set(debug)
    try:
        yield
    finally:
        _interpreting.reset(token)


def read_debug(debug: Any) -> bool | str:
    """True if kernels are interpreted, "bounds" if they are compiled with checked indices, else False.

    Without a value that of the surrounding `interpreting` counts, else that of MILKRUN_DEBUG.
    """
    if debug is None:
        debug = _interpreting.get()
    if debug is None:
        said = os.environ.get("MILKRUN_DEBUG", "0")
        if said not in ("", "0", "1", "bounds"):
            raise ConfigError(f"MILKRUN_DEBUG={said!r}: must be 0, 1 or bounds")
        return said if said == "bounds" else said == "1"
    if isinstance(debug, str) and debug == "bounds":
        return debug
    if not isinstance(debug, (bool, np.bool_)):
        raise ConfigError(
            f"debug={shown(debug)}: must be True, 'bounds' or False, or None for the value of MILKRUN_DEBUG"
        )
    return bool(debug)


def read_rows(rows: Any, num_envs: int) -> np.ndarray:
    """Row numbers, int64 and contiguous, from a list of unique indices or a bool array."""
    try:
        array = np.asarray(rows)
    except ValueError as e:
        raise ShapeError(f"rows: not a list of row numbers: {e}") from None
    if array.dtype == np.bool_:
        if array.shape != (num_envs,):
            raise ShapeError(f"a bool `rows` must have the shape ({num_envs},), not {array.shape}")
        return np.flatnonzero(array)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ShapeError(f"rows must be a list of row numbers or a bool array, not {array.dtype} {array.shape}")
    outside = (array < 0) | (array >= num_envs)
    if outside.any():
        raise ShapeError(f"rows: {array[outside][0]} is not in 0..{num_envs - 1}")
    ascending = (array[1:] > array[:-1]).all()  # the common case; this test costs less than sorting
    if not ascending and len(np.unique(array)) != len(array):
        raise ShapeError("rows: a row is named twice")
    return np.ascontiguousarray(array, np.int64)


def read_keys(stream: np.ndarray, rows: np.ndarray, first_row: int, seed: Any) -> np.ndarray:
    """The stream keys (seed, row, episode) of the next episode of some rows; `seed` as `World.reset` takes it."""
    keys = stream[rows]
    if seed is None:
        keys[:, 2] += 1
    elif not is_list(seed):
        keys[:, 0], keys[:, 1], keys[:, 2] = check_seed(seed), first_row + rows, 0
    else:
        if len(seed) != len(rows):
            raise ShapeError(f"{len(seed)} seeds for {len(rows)} rows")
        keys[:, 0], keys[:, 1], keys[:, 2] = [check_seed(s) for s in seed], 0, 0
    return keys


def is_list(seed: Any) -> bool:
    """Whether `seed` is a list with one seed a row."""
    return isinstance(seed, (list, tuple, range)) or (isinstance(seed, np.ndarray) and seed.ndim > 0)


def name_rows(rows: np.ndarray) -> str:
    """ "row 3" or "rows 3, 5, ...", for messages."""
    listed = ", ".join(map(str, rows[:8])) + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
    return f"row{'s' if len(rows) > 1 else ''} {listed}"


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
