"""Instances at the door: what a caller gives is read, checked field by field and refused with row and reason.

Nothing here writes into a world; a refused instance leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from milkrun.core.errors import BadInstance, ShapeError, did_you_mean
from milkrun.core.fields import Field, Role

if TYPE_CHECKING:
    from milkrun.core.world import World


class Given(NamedTuple):
    """Instance fields with the instance first, and which of them each state row plays (None: its own)."""

    arrays: dict[str, np.ndarray]
    instance_row: np.ndarray | None


def read_instances(world: World, instance: Mapping[str, Any], rows: int) -> Given:
    """Checks what was given for `rows` state rows of `world`."""
    if not isinstance(instance, Mapping) and not hasattr(instance, "keys"):
        raise ShapeError(f"an instance is a mapping of field names to arrays, not a {type(instance).__name__}")
    names = list(instance.keys())
    values = {str(k): _as_array(str(k), instance[k]) for k in names}
    owner = values.pop("instance_row", None)
    values = world.arrange_instances(values)
    fields = {f.name: f for f in world.fields.values() if f.role is Role.INSTANCE and 0 not in f.shape(world.sizes)}
    for name in values:
        if name not in fields:
            raise ShapeError(f"{type(world).__name__} has no instance field {name!r}{did_you_mean(name, fields)}")
    if missing := [name for name in fields if name not in values]:
        raise ShapeError(f"the instance lacks {', '.join(repr(m) for m in missing)}")
    count = rows if owner is None else len(next(iter(values.values())))
    arrays = {name: _as_field(f, values[name], count, world.sizes) for name, f in fields.items()}
    for name, array in arrays.items():
        _check_values(fields[name], array, world.sizes)
    world.check_instances(arrays)
    return Given(arrays, None if owner is None else _owners(owner, rows, count))


def _owners(owner: Any, rows: int, count: int) -> np.ndarray:
    array = np.asarray(owner)
    if array.shape != (rows,) or array.dtype.kind not in "iu":
        raise ShapeError(f"instance_row must be {rows} integers, one a row, not {array.dtype} of shape {array.shape}")
    if rows and not (0 <= array.min() and array.max() < count):
        r = int(np.flatnonzero((array < 0) | (array >= count))[0])
        raise BadInstance(f"row {r}: instance_row = {array[r]}: there are {count} instances, 0..{count - 1}")
    return array.astype(np.int32)


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as e:
        raise ShapeError(f"{name}: not an array: {e}") from None
    if array.ndim == 0:
        raise ShapeError(f"{name} must have the instance as its first axis")
    return array


def _as_field(f: Field, array: np.ndarray, count: int, sizes: dict[str, int]) -> np.ndarray:
    expected = (count, *f.shape(sizes))
    if array.shape != expected:
        raise ShapeError(f"{f.name} must have the shape {expected}, not {array.shape}")
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}[f.dtype.kind]
    if array.dtype.kind not in kinds:
        raise ShapeError(f"{f.name} must be {f.dtype.name}; {array.dtype} would lose information")
    if f.dtype.kind in "iu" and array.size:
        span = np.iinfo(f.dtype)
        wrong = (array < span.min) | (array > span.max)
        if wrong.any():
            _refuse(f, array, wrong, f"must fit {f.dtype.name}")
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which the next check names
        return np.ascontiguousarray(array, dtype=f.dtype)


def _check_values(f: Field, array: np.ndarray, sizes: dict[str, int]) -> None:
    if f.dtype.kind == "f":
        wrong = np.isnan(array) if f.limit else ~np.isfinite(array)
        if wrong.any():
            _refuse(f, array, wrong, "must be a number" if f.limit else "must be finite")
    low, high = f.bounds(sizes)
    if low is not None and (array < low).any():
        _refuse(f, array, array < low, f"must be >= {low}")
    if high is not None and (array > high).any():
        _refuse(f, array, array > high, f"must be <= {high}")


def _refuse(f: Field, array: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    refuse(f.name, array, wrong, rule)


def refuse(name: str, array: np.ndarray, wrong: np.ndarray, rule: str) -> None:
    """Raises BadInstance for the first wrong element: row, field, index, value, rule."""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    index = f"[{', '.join(map(str, at[1:]))}]" if len(at) > 1 else ""
    raise BadInstance(f"row {at[0]}: {name}{index} = {array[at]}: {rule}")
