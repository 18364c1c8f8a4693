"""The numbers of interpreted kernels: Python's int and bool, and numpy's uint64, float32 and float64.

These follow compiled code where it matters: uint64 wraps around, a float divided by 0 is inf or nan, float32 with
float64 gives float64. A last bit of a float may differ; `check_world` compares floats by a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from milkrun.core.interpreter.checked_array import CheckedArray, as_scalar
from milkrun.core.interpreter.faults import fault


class IntegerType:
    """An integer type as kernels call it: an integer keeps its low bits, a float its whole part if that fits."""

    def __init__(self, kind: Any) -> None:
        self.dtype = np.dtype(kind)
        info = np.iinfo(kind)
        self._low, self._high = int(info.min), int(info.max)

    def __call__(self, value: Any = 0) -> Any:
        if isinstance(value, (float, np.floating)):
            if not math.isfinite(value) or not self._low <= int(value) <= self._high:
                raise fault(f"{float(value)!r} cannot become {self.dtype} ({self._low}..{self._high})")
        wrapped = (int(value) - self._low) % (self._high - self._low + 1) + self._low
        return np.uint64(wrapped) if self.dtype == np.uint64 else wrapped


INTEGER_TYPES = {np.dtype(kind): IntegerType(kind) for kind in "i1 i2 i4 i8 u1 u2 u4 u8".split()}


def number_type(dtype: np.dtype) -> Any:
    """A number type as kernels call it."""
    return INTEGER_TYPES.get(dtype, dtype.type)


class Namespace:
    """A module as interpreted kernels see it; `mean` gives each of its names a meaning."""

    def __init__(self, module: ModuleType, mean: Callable[[Any], Any]) -> None:
        self._module, self._mean = module, mean

    def __getattr__(self, name: str) -> Any:
        value = vars(self)[name] = self._mean(getattr(self._module, name))
        return value


def numpy_meaning(value: Any) -> Any:
    """A number, type or function of numpy."""
    if isinstance(value, ModuleType):
        return Namespace(value, numpy_meaning)
    if isinstance(value, type) and issubclass(value, np.generic):
        return number_type(np.dtype(value))
    return _numpy_function(value) if callable(value) else as_scalar(value)


def _numpy_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy that takes whole arrays after a check, and returns a number."""

    def call(*args: Any, **named: Any) -> Any:
        arrays = [a for a in args if isinstance(a, CheckedArray)]
        if not arrays:
            shown = f"np.{function.__name__}()"
            return as_scalar(function(*args, **named), shown)
        result = function(*(a.read_whole() if isinstance(a, CheckedArray) else a for a in args), **named)
        return arrays[0].as_scalar(result, f"np.{function.__name__}() of the whole row {arrays[0].label}")

    return call


_IN_NUMPY = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "pow": "float_power",
    # These return an int, unlike numpy's.
    "ceil": "",
    "floor": "",
    "trunc": "",
}


def math_meaning(value: Any) -> Any:
    """A number or function of `math`, which returns inf or nan where Python raises, and float32 for float32."""
    if not callable(value):
        return as_scalar(value)
    other = getattr(np, _IN_NUMPY.get(value.__name__, value.__name__), None)

    def call(*args: Any) -> Any:
        if other is None:
            return as_scalar(value(*args))
        if all(type(x) is np.float32 for x in args):
            return as_scalar(other(*args))
        try:
            return as_scalar(value(*args))
        except (ValueError, OverflowError):
            return as_scalar(other(*args))

    return call


MATH, NUMPY = Namespace(math, math_meaning), Namespace(np, numpy_meaning)
