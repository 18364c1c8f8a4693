"""The numbers of interpreted kernels: Python's int and bool, numpy's uint64, and numpy's floats with plain comparisons.

These follow compiled code where it matters: uint64 wraps around, a float divided by 0 is inf or nan, float32 with
float64 gives float64. A last bit of a float may differ; `check_world` compares floats by a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from milkrun.core.interpreter.faults import fault

OPERATIONS = "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs".split()
COMPARISONS = "lt le gt ge eq ne".split()


def _closed(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of numpy's floats whose result is a number of interpreted kernels, too. Numpy's comparisons return
    its own bool, whose sums and differences are logical; compiled code counts."""
    return lambda self, *other: as_scalar(operation(self, *other))


def _float_type(base: type) -> type:
    names = [f"__{name}__" for name in (*OPERATIONS, *COMPARISONS)]
    return type(base.__name__, (base,), {**{n: _closed(getattr(base, n)) for n in names}, "__hash__": base.__hash__})


Float32, Float64 = _float_type(np.float32), _float_type(np.float64)


def as_scalar(value: Any, shown: str = "") -> Any:
    """A number as interpreted kernels hold it.

    An array is refused as allocated by `shown`; other values stay.
    """
    if isinstance(value, np.ndarray):
        raise fault(f"{shown} makes an array: kernels allocate nothing; write a loop or declare a scratch field")
    if isinstance(value, (np.bool_, np.integer)):
        return value if isinstance(value, np.uint64) else value.item()
    if type(value) in (float, np.float64):
        return Float64(value)
    if type(value) is np.float32:
        return Float32(value)
    return tuple(as_scalar(item, shown) for item in value) if type(value) is tuple else value


class IntegerType:
    """An integer type as kernels call it: an integer keeps its low bits, a float its whole part if that fits."""

    def __init__(self, kind: Any) -> None:
        self.dtype = np.dtype(kind)
        info = np.iinfo(kind)
        self._low = int(info.min)
        self._high = int(info.max)

    def __call__(self, value: Any = 0) -> Any:
        if isinstance(value, (float, np.floating)):
            if not math.isfinite(value) or not self._low <= int(value) <= self._high:
                raise fault(f"{float(value)!r} cannot become {self.dtype} ({self._low}..{self._high})")
        wrapped = (int(value) - self._low) % (self._high - self._low + 1) + self._low
        return np.uint64(wrapped) if self.dtype == np.uint64 else wrapped


NUMBER_TYPES: dict[np.dtype, Any] = {
    **{np.dtype(kind): IntegerType(kind) for kind in "i1 i2 i4 i8 u1 u2 u4 u8".split()},
    **{np.dtype(np.float32): Float32, np.dtype(np.float64): Float64, np.dtype(np.bool_): bool},
}


def number_type(dtype: np.dtype) -> Any:
    """A number type as kernels call it."""
    return NUMBER_TYPES.get(dtype, dtype.type)
