"""Columns of an episode: arrays to JSON and back, in the format of docs/replay.md."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import FormatError, shown

PLAIN = 48  # up to this size a column is a plain list of numbers
DTYPES = ("uint8", "int16", "int32", "float32", "float64")
MOST_BYTES = 64 * 2**20  # of one column, inflated

Column = dict[str, Any]


def number(value: float) -> float | None:
    """A number for JSON: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def pack(array: np.ndarray, delta: bool = False, scale: float | None = None) -> Column:
    """An array as a column.

    `delta` stores differences along the first axis, which is time. `scale` rounds floats to its multiples.
    """
    if array.dtype.kind in "iu":
        array = _narrow(array)
    if array.size <= PLAIN:
        flat = array.astype(np.uint8) if array.dtype == np.bool_ else array
        values = flat.ravel().tolist() if flat.dtype.kind in "iu" else [number(v) for v in flat.ravel().tolist()]
        return {"shape": list(array.shape), "values": values}
    options: Column = {}
    if array.dtype == np.bool_ and (not delta or array.ndim > 1):
        options["bits"] = int(array.shape[-1])
        array = np.packbits(array, axis=-1, bitorder="little")
        if delta:
            options["xor"] = True
            array = np.concatenate([array[:1], array[1:] ^ array[:-1]])
    elif array.dtype == np.bool_:
        array = array.astype(np.uint8)
    elif array.dtype.kind == "f" and scale is not None:
        array = array.astype(np.float64)  # the difference to the offset would be rounded in float32
        # In the middle of the values, so that int16 holds the widest range.
        offset = float((array.max() + array.min()) / 2)
        array = _narrow(np.rint((array - offset) / scale).astype(np.int64), np.int16)
        options = {"scale": scale, "offset": offset}
    if delta and array.dtype.kind in "iu" and "xor" not in options:
        # Differences may wrap around in a narrow type. `decode` adds them in the same type, which undoes it.
        options["delta"] = True
        array = np.concatenate([array[:1], array[1:] - array[:-1]])
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    data = base64.b64encode(zlib.compress(raw, 9)).decode()
    return {"dtype": array.dtype.name, "shape": list(array.shape), **options, "data": data}


def _narrow(array: np.ndarray, *least: Any) -> np.ndarray:
    """Integers in the smallest type of the format that holds them; float64 beyond int32."""
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    for dtype in least or (np.uint8, np.int16):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array.astype(np.int32 if -(2**31) <= low and high < 2**31 else np.float64)


def decode(column: Any, name: str = "column") -> np.ndarray:
    """The array of a column: bool, integers, or floats with NaN for values that were not finite."""
    if not isinstance(column, dict) or not isinstance(column.get("shape"), list):
        raise FormatError(f"{name}: {shown(column)} is no column: it has no shape")
    shape = column["shape"]
    if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise FormatError(f"{name}: the shape {shown(shape)} is not a list of whole numbers")
    if "values" in column:
        return _plain_values(column["values"], shape, name)
    if column.get("dtype") not in DTYPES:
        raise FormatError(f"{name}: the dtype {shown(column.get('dtype'))} is none of {', '.join(DTYPES)}")
    dtype = np.dtype(column["dtype"])
    raw = _inflated(column.get("data"), name)
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise FormatError(f"{name}: {len(raw)} bytes do not fit the shape {shape} of {dtype.name}")
    array: Any = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    if column.get("xor") and dtype != np.uint8:
        raise FormatError(f"{name}: xor is for uint8, not for {dtype.name}")
    for option, undo in (("xor", np.bitwise_xor), ("delta", np.add)):
        if column.get(option) and array.size and array.ndim:
            array = undo.accumulate(array, axis=0, dtype=dtype)
    if "bits" in column:
        bits = column["bits"]
        if type(bits) is not int or dtype != np.uint8 or not shape or shape[-1] != -(-bits // 8):
            raise FormatError(f"{name}: {shown(bits)} bits do not fit the shape {shape} of {dtype.name}")
        return np.unpackbits(array, axis=-1, count=bits, bitorder="little").astype(np.bool_)
    if "scale" in column:
        try:
            return array * float(column["scale"]) + float(column.get("offset", 0.0))
        except (TypeError, ValueError):
            raise FormatError(f"{name}: the scale {shown(column['scale'])} is no number") from None
    return array


def _plain_values(values: Any, shape: list[int], name: str) -> np.ndarray:
    if not isinstance(values, list) or not all(v is None or type(v) in (int, float) for v in values):
        raise FormatError(f"{name}: values must be a list of numbers")
    if len(values) != math.prod(shape):
        raise FormatError(f"{name}: {len(values)} values do not fit the shape {shape}")
    whole = all(type(v) is int and abs(v) < 2**63 for v in values)
    listed = values if whole else [math.nan if v is None else float(v) for v in values]
    return np.array(listed, np.int64 if whole else np.float64).reshape(shape)


def _inflated(data: Any, name: str) -> bytes:
    opened = zlib.decompressobj()
    try:
        raw = opened.decompress(base64.b64decode(data, validate=True), MOST_BYTES + 1)
    except (TypeError, ValueError, zlib.error) as error:  # no text, no base64, no zlib
        raise FormatError(f"{name}: data is broken: {error}") from None
    if len(raw) > MOST_BYTES:
        raise FormatError(f"{name}: data inflates past {MOST_BYTES // 2**20} MB")
    if not opened.eof:
        raise FormatError(f"{name}: data is broken: it ends too soon")
    return raw


def ragged(lists: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Lists over time: the count of entries kept from the list before, the count of new ones, and the new ones."""
    keep, add, flat, last = list[int](), list[int](), list[int](), list[int]()
    for now in lists:
        k = 0
        while k < min(len(last), len(now)) and last[k] == now[k]:
            k += 1
        keep.append(k)
        add.append(len(now) - k)
        flat.extend(now[k:])
        last = list(now)
    columns = {"keep": keep, "add": add, "flat": flat}
    return {
        "ragged": True,
        **{key: pack(np.array(values, np.int64), delta=key == "keep") for key, values in columns.items()},
    }


def unragged(packed: Any, name: str = "ragged") -> list[list[int]]:
    """The inverse of `ragged`."""
    keep, add, flat = (decode(packed.get(key), f"{name}, {key}").tolist() for key in ("keep", "add", "flat"))
    if len(keep) != len(add):
        raise FormatError(f"{name}: {len(keep)} of keep and {len(add)} of add")
    lists, last, at = [], list[int](), 0
    for k, more in zip(keep, add, strict=True):
        if not 0 <= k <= len(last) or more < 0 or at + more > len(flat):
            raise FormatError(f"{name}: keep {k} of a list of {len(last)}, add {more} of {len(flat) - at}")
        last = [*last[:k], *flat[at : at + more]]
        at += more
        lists.append(last)
    return lists
