"""What `math`, `np`, the builtins and numba's types mean in interpreted kernels: what compiled code makes of them.

Compiled code calls the C library for every function of `math` and for the scalar functions of numpy, in float32 where
the argument is one, and answers inf or nan where Python raises. So does this.
"""

from __future__ import annotations

import builtins
import ctypes
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from milkrun.core.interpreter.arrays import Array
from milkrun.core.interpreter.faults import fault
from milkrun.core.interpreter.numbers import (
    NARROW,
    Float32,
    Float64,
    Short,
    UInt64,
    UShort,
    common,
    floor_and_rest,
    raised,
    rounded,
)

_C = ctypes.CDLL(None)  # the C library with its functions of numbers, as the compiler finds them in this process


class Cast:
    """A number type: as a function it converts, and arrays at addresses are made of it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.__name__ = self.dtype.name
        self._convert = self._integer if self.dtype.kind in "iu" else _FLOATS.get(self.dtype.name, bool)
        if self.dtype.kind == "u":
            self._kind: Callable[[int], int] = UShort if self.dtype.itemsize < 4 else UInt64
        else:
            self._kind = Short if self.dtype.itemsize < 4 else int

    def __call__(self, value: Any = 0) -> Any:
        return self._convert(value)

    def __repr__(self) -> str:
        return self.__name__

    def _integer(self, value: Any) -> int:
        """Integers keep their low bits; of a float the whole part, if the type holds it."""
        bits = 8 * self.dtype.itemsize
        least = -(1 << (bits - 1)) if self.dtype.kind == "i" else 0
        if isinstance(value, float):
            if not math.isfinite(value):
                raise fault(f"{float(value)!r} cannot become {self}")
            whole = int(value)
            if not least <= whole < least + (1 << bits):
                raise fault(f"{float(value)!r} cannot become {self} ({least}..{least + (1 << bits) - 1})")
            return self._kind(whole)
        # Two's complement: the number with the same low bits in the range that begins at `least`.
        return self._kind(((int(value) - least) & ((1 << bits) - 1)) + least)


_FLOATS: dict[str, Callable[[Any], Any]] = {
    "float64": lambda value: Float64(value),
    "float32": lambda value: value if type(value) is Float32 else Float32(rounded(float(value))),
}
CASTS = {
    name: Cast(name)
    for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
} | {"bool_": Cast(np.bool_), "boolean": Cast(np.bool_), "intp": Cast(np.int64)}  # fmt: skip


# -- functions of real numbers ------------------------------------------------------------------------------------


def _real(name: str, arguments: int = 1) -> Callable[..., Any]:
    """A function of the C library: of float32 if all arguments are, else of float64."""
    double, single = getattr(_C, name), getattr(_C, f"{name}f")
    double.restype, double.argtypes = ctypes.c_double, [ctypes.c_double] * arguments
    single.restype, single.argtypes = ctypes.c_float, [ctypes.c_float] * arguments

    def call(*args: Any) -> Any:
        if all(type(x) is Float32 for x in args):
            return Float32(single(*args))
        return Float64(double(*(float(x) for x in args)))

    call.__name__ = name
    return call


def _whole(name: str, rounding: Callable[[float], int]) -> Callable[[Any], Any]:
    """floor, ceil and trunc of `math`, which give an int64."""

    def call(x: Any) -> Any:
        if not isinstance(x, float):
            return int(x)
        if not math.isfinite(x):
            raise fault(f"{name}({float(x)!r}) is no whole number")
        return rounding(float(x))

    return call


def _same(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of numpy that keeps the type of its argument."""
    return lambda x: type(x)(function(float(x))) if isinstance(x, float) else x


def _factor(factor: float) -> Callable[[Any], Any]:
    single = rounded(factor)
    return lambda x: x * Float32(single) if type(x) is Float32 else Float64(float(x) * factor)


def _test(function: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda x: function(float(x))


def _power(x: Any, y: Any) -> Any:
    if type(x) is Float32 and type(y) is Float32:
        return Float32(rounded(raised(float(x), float(y))))
    return Float64(raised(float(x), float(y)))


_C_NAMES = (
    "sqrt exp exp2 log log10 log2 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "lgamma fabs"
).split()
_COMMON = {name: _real(name) for name in _C_NAMES} | {
    "radians": _factor(math.pi / 180), "degrees": _factor(180 / math.pi),
    "isnan": _test(math.isnan), "isinf": _test(math.isinf), "isfinite": _test(math.isfinite),
    "inf": Float64(math.inf), "nan": Float64(math.nan), "pi": Float64(math.pi), "e": Float64(math.e),
}  # fmt: skip
_MATH: dict[str, Any] = _COMMON | {
    "tau": Float64(math.tau), "floor": _whole("floor", math.floor), "ceil": _whole("ceil", math.ceil),
    "trunc": _whole("trunc", math.trunc), "pow": _power,
    **{name: _real(name, 2) for name in ("hypot", "atan2", "copysign", "nextafter")},
}  # fmt: skip


def _smaller(x: Any, y: Any) -> Any:
    return _chosen(x, y, x != x or (y == y and x <= y))


def _larger(x: Any, y: Any) -> Any:
    return _chosen(x, y, x != x or (y == y and x >= y))


def _chosen(x: Any, y: Any, first: bool) -> Any:
    """np.minimum and np.maximum: an integer beside a float32 becomes a float32 here."""
    one = x if first else y
    if type(x) is Float32 or type(y) is Float32:
        return Float64(one) if Float64 in (type(x), type(y)) or float in (type(x), type(y)) else Float32(one)
    make = common((x, y))
    return one if make is None else make(one)


_NUMPY: dict[str, Any] = _COMMON | CASTS | {
    "arcsin": _COMMON["asin"], "arccos": _COMMON["acos"], "arctan": _COMMON["atan"],
    "arctan2": _MATH["atan2"], "hypot": _MATH["hypot"], "nextafter": _MATH["nextafter"],
    "floor": _same(lambda x: float(np.floor(x))), "ceil": _same(lambda x: float(np.ceil(x))),
    "trunc": _same(lambda x: float(np.trunc(x))), "rint": _real("rint"),
    "abs": abs, "absolute": abs, "minimum": _smaller, "maximum": _larger,
    "sum": lambda array: array.sum(), "mean": lambda array: array.mean(),
}  # fmt: skip


class Namespace:
    """A module as interpreted kernels see it; what is not listed is the module's own, with its answer converted."""

    def __init__(self, module: ModuleType, known: dict[str, Any]) -> None:
        self._module = module
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return Namespace(value, {})
        if not callable(value):
            return lifted(value)

        def call(*args: Any, **named: Any) -> Any:
            return lifted(value(*(np.asarray(a) if isinstance(a, Array) else a for a in args), **named))

        return call


MATH, NUMPY = Namespace(math, _MATH), Namespace(np, _NUMPY)


def lifted(value: Any) -> Any:
    """A number of Python or numpy as interpreted kernels hold it."""
    if isinstance(value, (Float32, Float64, UInt64, Short)):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, np.generic) and value.dtype.name in CASTS:
        return CASTS[value.dtype.name](value.item())
    if type(value) is float:
        return Float64(value)
    if type(value) is tuple:
        return tuple(lifted(item) for item in value)
    return value


# -- builtins -----------------------------------------------------------------------------------------------------


def _range(*ends: int) -> Any:
    """Of uint64 the numbers are uint64 too."""
    numbers = builtins.range(*(e if type(e) is int else _index(e) for e in ends))
    if any(isinstance(e, UInt64) for e in ends[:2]) and all(isinstance(e, UInt64) for e in ends):
        return map(UInt64, numbers)
    return numbers


def _index(value: Any) -> int:
    if isinstance(value, float):
        raise fault(f"range takes whole numbers, not {float(value)!r}")
    return int(value)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        if len(values) == 1:
            values = tuple(values[0])
        one = pick(values)
        make = common(values)
        return one if make is None else make(one)

    return call


def _int(value: Any = 0) -> int:
    return CASTS["int64"](value) if isinstance(value, float) or not isinstance(value, UInt64) else value


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is None:
        return _int(Float64(builtins.round(float(value)))) if math.isfinite(value) else _int(value)
    return lifted(builtins.round(float(value), digits))


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    if isinstance(x, float) or isinstance(y, float):
        step = rounded if isinstance(x, NARROW) and isinstance(y, NARROW) else float
        kind = Float32 if step is rounded else Float64
        whole, rest = floor_and_rest(float(x), float(y), step)
        return kind(whole), kind(rest)
    return x // y, x % y


def _sum(values: Any) -> Any:
    total: Any = 0
    for value in values:
        total = total + value
    return total


BUILTINS: dict[str, Any] = {
    "range": _range, "min": _extreme(builtins.min), "max": _extreme(builtins.max), "int": _int, "round": _round,
    "float": lambda value=0.0: value if type(value) is Float32 else Float64(value), "divmod": _divmod, "sum": _sum,
}  # fmt: skip
