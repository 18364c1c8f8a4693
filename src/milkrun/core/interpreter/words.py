"""What `math`, `np`, the builtins and numba's types mean in interpreted kernels: what compiled code makes of them.

Compiled code calls the C library for the functions of `math` and for the scalar functions of numpy, in float32 where
the argument is one, and answers inf or nan where Python raises. So does this for floats. For other numbers, and for
functions that are not listed here, numba itself is asked (`asked.py`): there is no one rule.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from ctypes import c_double, c_float
from types import ModuleType
from typing import Any

import numpy as np

from milkrun.core.interpreter.arrays import Array
from milkrun.core.interpreter.asked import asked
from milkrun.core.interpreter.faults import fault
from milkrun.core.interpreter.numbers import (
    NARROW,
    Float32,
    Float64,
    Literal,
    Short,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    c_function,
    common,
    floor_and_rest,
    rounded,
)

_UNSIGNED = {1: UInt8, 2: UInt16, 4: UInt32, 8: UInt64}


class Cast:
    """A number type: as a function it converts, and arrays at addresses are made of it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.__name__ = self.dtype.name
        self._convert = self._integer if self.dtype.kind in "iu" else _FLOATS.get(self.dtype.name, bool)
        if self.dtype.kind == "u":
            self._kind: Callable[[int], int] = _UNSIGNED[self.dtype.itemsize]
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
CASTS = {name: Cast(name) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()} | {
    "bool_": Cast(np.bool_),
    "boolean": Cast(np.bool_),
    "intp": Cast(np.int64),
}


# -- functions of real numbers ------------------------------------------------------------------------------------


def _asked(name: str) -> Callable[..., Any]:
    """A function of `np` or `math`, as numba computes it."""

    def call(*args: Any, **named: Any) -> Any:
        row = next((a for a in args if isinstance(a, Array)), None)
        shown, field = (f"{name}()", "") if row is None else (f"{name}() of the whole row {row._label}", row._name)
        whole = (a.whole() if isinstance(a, Array) else a for a in args)
        return asked(f"{name}({{}})", shown, field, *whole, **named)

    return call


def _real(name: str, c_name: str, arguments: int = 1) -> Callable[..., Any]:
    """A function of the C library: of float32 if all arguments are, else of float64."""
    double, single = c_function(c_name, c_double, arguments), c_function(f"{c_name}f", c_float, arguments)
    other = _asked(name)

    def call(*args: Any) -> Any:
        if all(type(x) is Float32 for x in args):
            return Float32(single(*args))
        return Float64(double(*args)) if all(isinstance(x, float) for x in args) else other(*args)

    return call


def _whole(name: str, rounding: Callable[[float], int]) -> Callable[[Any], Any]:
    """floor, ceil and trunc of `math`, which give an int64."""
    other = _asked(name)

    def call(x: Any) -> Any:
        if not isinstance(x, float):
            return other(x)
        return rounding(float(x)) if abs(x) < 2.0**63 else _int(x)  # which refuses all but -2**63

    return call


def _same(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of numpy that keeps the type of a float."""
    other = _asked(name)
    return lambda x: (Float32 if type(x) is Float32 else Float64)(function(x)) if isinstance(x, float) else other(x)


def _factor(name: str, factor: float) -> Callable[[Any], Any]:
    single, other = Float32(rounded(factor)), _asked(name)

    def call(x: Any) -> Any:
        if type(x) is Float32:
            return x * single
        return Float64(float(x) * factor) if isinstance(x, float) else other(x)

    return call


def _power(name: str) -> Callable[[Any, Any], Any]:
    other = _asked(name)

    def call(x: Any, y: Any) -> Any:
        if not (isinstance(x, float) and isinstance(y, float)):
            return other(x, y)
        return x**y if isinstance(x, (Float32, Float64)) else Float64(x) ** y

    return call


def _chosen(name: str, first: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """np.minimum and np.maximum; of a NaN and a number the NaN."""
    other = _asked(name)

    def call(x: Any, y: Any) -> Any:
        if type(x) is not type(y) or type(x) not in (int, Float32, Float64):
            return other(x, y)
        return x if x != x or (y == y and first(x, y)) else y

    return call


_C_NAMES = (
    "sqrt exp exp2 log log10 log2 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "lgamma fabs"
).split()


def _common(module: str) -> dict[str, Any]:
    """What both modules have."""
    return {name: _real(f"{module}.{name}", name) for name in _C_NAMES if hasattr(_MODULES[module], name)} | {
        "radians": _factor(f"{module}.radians", math.pi / 180),
        "degrees": _factor(f"{module}.degrees", 180 / math.pi),
        "isnan": lambda x: math.isnan(x),
        "isinf": lambda x: math.isinf(x),
        "isfinite": lambda x: math.isfinite(x),
        "inf": Literal(math.inf),
        "nan": Literal(math.nan),
        "pi": Literal(math.pi),
        "e": Literal(math.e),
    }


_MODULES = {"math": math, "np": np}
_MATH: dict[str, Any] = _common("math") | {
    "tau": Literal(math.tau),
    "floor": _whole("math.floor", math.floor),
    "ceil": _whole("math.ceil", math.ceil),
    "trunc": _whole("math.trunc", math.trunc),
    "pow": _power("math.pow"),
    **{name: _real(f"math.{name}", name, 2) for name in ("hypot", "atan2", "copysign", "nextafter")},
}
_NUMPY: dict[str, Any] = (
    _common("np")
    | CASTS
    | {
        "arcsin": _real("np.arcsin", "asin"),
        "arccos": _real("np.arccos", "acos"),
        "arctan": _real("np.arctan", "atan"),
        "arctan2": _real("np.arctan2", "atan2", 2),
        "hypot": _real("np.hypot", "hypot", 2),
        "nextafter": _real("np.nextafter", "nextafter", 2),
        "rint": _real("np.rint", "rint"),
        "power": _power("np.power"),
        **{name: _same(f"np.{name}", getattr(np, name)) for name in ("floor", "ceil", "trunc")},
        "abs": _same("np.abs", abs),
        "absolute": _same("np.abs", abs),
        "minimum": _chosen("np.minimum", lambda x, y: x <= y),
        "maximum": _chosen("np.maximum", lambda x, y: x >= y),
    }
)


_MAKE_ARRAYS = {"zeros", "ones", "empty", "full", "array", "arange", "linspace"}
"""Left to numpy: the compiler refuses them, and says what to write instead."""


class Namespace:
    """A module as interpreted kernels see it; functions that are not listed are left to numba."""

    def __init__(self, module: ModuleType, known: dict[str, Any]) -> None:
        self._module = module
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return Namespace(value, {})
        if not callable(value):
            return lifted(value)
        if isinstance(value, type) or name in _MAKE_ARRAYS:
            return lambda *args, **named: lifted(value(*args, **named))
        call = vars(self)[name] = _asked(f"{self._module.__name__.replace('numpy', 'np', 1)}.{name}")
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
        return Literal(value)
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
        make = common(values)
        return pick(values) if make is None else pick(map(make, values))

    return call


def _int(value: Any = 0) -> int:
    return value if isinstance(value, (UInt64, Short)) else CASTS["int64"](value)


def _round(value: Any, digits: Any = None) -> Any:
    if digits is None and isinstance(value, float):
        return _int(Float64(_NUMPY["rint"](value)))
    return asked("round({})", "round()", "", value, *(() if digits is None else (digits,)))


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
    "range": _range,
    "min": _extreme(builtins.min),
    "max": _extreme(builtins.max),
    "int": _int,
    "round": _round,
    "float": lambda value=0.0: value if type(value) is Float32 else Float64(value),
    "divmod": _divmod,
    "sum": _sum,
}
