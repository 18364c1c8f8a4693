"""The numbers of interpreted kernels: Python's own, with the types and the bits that compiled code has.

Compiled code gives every operation the type of its operands. A Python int stands for int64 (what leaves 64 bits is
refused where it is stored) and for int32, and the classes here for the others. They are subclasses of int and float,
so they print, compare and index as these do.

Python divides two ints itself, and raises one to the power of another: no class here is asked. So a division by 0 is a
fault, quotients of ints above 2**53 may differ in the last bit, and a negative power of an int is a fraction.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from ctypes import c_double, c_float
from typing import Any

from milkrun.core.interpreter.faults import fault

C_LIBRARY = ctypes.CDLL(None)
"""The C library with its functions of numbers, as the compiler finds them in this process."""


def c_function(name: str, kind: Any, arguments: int) -> Callable[..., float]:
    """A function of the C library, of arguments and result of one type."""
    function = getattr(C_LIBRARY, name)
    function.restype, function.argtypes = kind, [kind] * arguments
    return function


_pow, _powf, _exp2 = c_function("pow", c_double, 2), c_function("powf", c_float, 2), c_function("exp2", c_double, 1)
WORD = (1 << 64) - 1
_new_int, _new_float = int.__new__, float.__new__


def signed(value: int) -> int:
    """The int64 of the same 64 bits."""
    return ((value + (1 << 63)) & WORD) - (1 << 63)


class Short(int):
    """An element of int8 or int16. As a number it is an int64, but with a float32 it gives a float32."""

    __slots__ = ()

    def __abs__(self) -> Short:
        return _new_int(Short, int.__abs__(self))


class UInt64(int):
    """A uint64. With another it wraps around; with an int64 it gives an int64, as in compiled code."""

    __slots__ = ()
    WORD = WORD  # all bits of the type

    def __lshift__(self, count: int) -> UInt64:
        return _new_int(UInt64, (int(self) << count) & WORD)

    def __rshift__(self, count: int) -> UInt64:
        return _new_int(UInt64, int(self) >> count)

    def __neg__(self) -> UInt64:
        return _new_int(UInt64, -int(self) & self.WORD)

    def __invert__(self) -> UInt64:
        return _new_int(UInt64, int(self) ^ self.WORD)

    def __abs__(self) -> UInt64:
        return self

    def __pos__(self) -> UInt64:
        return _new_int(UInt64, self)

    def __pow__(self, other: Any, _: None = None) -> Any:  # type: ignore[override]
        return _new_int(UInt64, pow(int(self), int(other), 1 << 64)) if isinstance(other, UInt64) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return Float64(quotient(float(self), float(other))) if isinstance(other, int) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return Float64(quotient(float(other), float(self)))


class UInt8(UInt64):
    """An element of uint8. With other numbers it is a uint64, but with a float32 it gives a float32."""

    __slots__ = ()
    WORD = (1 << 8) - 1


class UInt16(UInt64):
    """An element of uint16. With other numbers it is a uint64, and with a float32 it gives a float64."""

    __slots__ = ()
    WORD = (1 << 16) - 1


class UInt32(UInt64):
    """An element of uint32. With other numbers it is a uint64."""

    __slots__ = ()
    WORD = (1 << 32) - 1


def _unsigned(name: str) -> None:
    """Gives UInt64 an operation of integers and its mirror."""
    plain = getattr(int, name)

    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, UInt64):
            return _new_int(UInt64, plain(self, other) & WORD)
        return signed(plain(signed(int(self)), other)) if isinstance(other, int) else NotImplemented

    def mirrored(self: Any, other: Any) -> Any:
        return signed(plain(int(other), signed(int(self)))) if isinstance(other, int) else NotImplemented

    setattr(UInt64, name, operate)
    setattr(UInt64, name.replace("__", "__r", 1), mirrored)


for _name in "__add__ __sub__ __mul__ __floordiv__ __mod__ __and__ __or__ __xor__".split():
    _unsigned(_name)


def rounded(value: float) -> float:
    """The nearest float32."""
    return c_float(value).value


def quotient(x: float, y: float) -> float:
    """x / y by IEEE: no division is an error."""
    try:
        return float(x) / float(y)
    except ZeroDivisionError:
        if x == 0 or x != x:
            return math.nan
        return math.copysign(math.inf, x) * math.copysign(1.0, y)


def power(x: float, n: int, step: Callable[[float], float]) -> float:
    """x to a whole power by repeated squaring, every product rounded by `step`: as numba writes it out."""
    # Where numba stops multiplying too, and calls pow.
    if abs(n) > 0x10000:
        return step(raised(x, float(n), float))
    result, left = 1.0, abs(n)
    while left:
        if left & 1:
            result = step(result * x)
        left >>= 1
        x = step(x * x)
    if n >= 0:
        return result
    if result == 0:  # compiled code, too, raises an error here, and only here
        raise fault(f"a number to the power of {n} divides by 0")
    return step(1.0 / result)


def raised(x: float, y: float, step: Callable[[float], float]) -> float:
    """x ** y by the C library, in float32 if `step` is `rounded`. Compiled code writes out some powers of numbers that
    it knows, which may differ from that in the last bit."""
    if step is rounded:
        return _powf(x, y)
    if isinstance(y, Literal):
        if y == 2.0:
            return float(x) * float(x)
        if y == 0.5 and x != -math.inf:
            return math.sqrt(x) + 0.0 if x >= 0 else math.nan
        if y == -1.0:
            return quotient(1.0, x)
    elif isinstance(x, Literal) and x != 1.0 and math.frexp(x)[0] == 0.5:  # a power of two
        return _exp2((math.frexp(x)[1] - 1) * float(y))
    return _pow(x, y)


def floor_and_rest(x: float, y: float, step: Callable[[float], float]) -> tuple[float, float]:
    """(x // y, x % y), in the order of operations of Python's and numba's float_divmod."""
    if y == 0:
        return quotient(x, y), math.nan
    if math.isinf(x) or x != x or y != y:
        return math.nan, math.nan
    rest = math.fmod(x, y)
    ratio = step(step(x - rest) / y)
    if rest:
        if (y < 0) != (rest < 0):
            rest, ratio = step(rest + y), step(ratio - 1.0)
    else:
        rest = math.copysign(0.0, y)
    if not ratio:
        return math.copysign(0.0, quotient(x, y)), rest
    whole = float(math.floor(ratio)) if math.isfinite(ratio) else ratio
    return (step(whole + 1.0) if ratio - whole > 0.5 else whole), rest


class Float64(float):
    """A float64 whose divisions and powers follow IEEE instead of raising."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return _new_float(Float64, float.__add__(self, other))

    def __sub__(self, other: Any) -> Any:
        return _new_float(Float64, float.__sub__(self, other))

    def __rsub__(self, other: Any) -> Any:
        return _new_float(Float64, float.__rsub__(self, other))

    def __mul__(self, other: Any) -> Any:
        return _new_float(Float64, float.__mul__(self, other))

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Any:
        return _new_float(Float64, float.__truediv__(self, other) if other else quotient(self, other))

    def __rtruediv__(self, other: Any) -> Any:
        return _new_float(Float64, float.__rtruediv__(self, other) if self else quotient(other, self))

    def __floordiv__(self, other: Any) -> Any:
        return _new_float(Float64, floor_and_rest(float(self), float(other), float)[0])

    def __rfloordiv__(self, other: Any) -> Any:
        return _new_float(Float64, floor_and_rest(float(other), float(self), float)[0])

    def __mod__(self, other: Any) -> Any:
        return _new_float(Float64, floor_and_rest(float(self), float(other), float)[1])

    def __rmod__(self, other: Any) -> Any:
        return _new_float(Float64, floor_and_rest(float(other), float(self), float)[1])

    def __pow__(self, other: Any, _: None = None) -> Any:
        if isinstance(other, int):
            return _new_float(Float64, power(float(self), int(other), float))
        return _new_float(Float64, raised(self, other, float))

    def __rpow__(self, other: Any, _: None = None) -> Any:
        return _new_float(Float64, raised(_base(other), self, float))

    def __neg__(self) -> Float64:
        return _new_float(Float64, float.__neg__(self))

    def __abs__(self) -> Float64:
        return _new_float(Float64, float.__abs__(self))

    def __pos__(self) -> Float64:
        return self


class Literal(Float64):
    """A float64 that stands in the code, so that the compiler knows its value."""

    __slots__ = ()


_TWO = Literal(2.0)


def _base(x: Any) -> Any:
    """What is raised to a power with a fraction: a 2 there is hardly ever anything but a literal."""
    return _TWO if type(x) is int and x == 2 else x


class Float32(float):
    """A float32. With another, a bool, an int8, int16 or uint8 it gives a float32: computed in float64 and
    rounded once, which is exact, as that has more than twice the digits. With all else, a literal too, it gives a
    float64."""

    __slots__ = ()

    def __pow__(self, other: Any, _: None = None) -> Any:
        if isinstance(other, int):
            return _new_float(Float32, power(float(self), int(other), rounded))
        if type(other) is Float32:
            return _new_float(Float32, raised(self, other, rounded))
        return _new_float(Float64, raised(self, other, float))

    def __rpow__(self, other: Any, _: None = None) -> Any:
        if isinstance(other, NARROW):
            return _new_float(Float32, raised(other, self, rounded))
        return _new_float(Float64, raised(_base(other), self, float))

    def __neg__(self) -> Float32:
        return _new_float(Float32, float.__neg__(self))

    def __abs__(self) -> Float32:
        return _new_float(Float32, float.__abs__(self))

    def __pos__(self) -> Float32:
        return self


NARROW = (Float32, bool, Short, UInt8)
"""What leaves a float32 a float32."""


def _single(name: str, operate: Callable[[float, float, Callable[[float], float]], float]) -> None:
    """Gives Float32 an operation and its mirror; `operate` rounds its steps."""

    def forward(self: Any, other: Any) -> Any:
        if isinstance(other, NARROW):
            return _new_float(Float32, rounded(operate(float(self), float(other), rounded)))
        return _new_float(Float64, operate(float(self), float(other), float))

    def mirrored(self: Any, other: Any) -> Any:
        if isinstance(other, NARROW):
            return _new_float(Float32, rounded(operate(float(other), float(self), rounded)))
        return _new_float(Float64, operate(float(other), float(self), float))

    setattr(Float32, f"__{name}__", forward)
    setattr(Float32, f"__r{name}__", mirrored)


_single("add", lambda x, y, step: x + y)
_single("sub", lambda x, y, step: x - y)
_single("mul", lambda x, y, step: x * y)
_single("truediv", lambda x, y, step: quotient(x, y))
_single("floordiv", lambda x, y, step: floor_and_rest(x, y, step)[0])
_single("mod", lambda x, y, step: floor_and_rest(x, y, step)[1])


def common(values: tuple[Any, ...]) -> Callable[[Any], Any] | None:
    """What makes values the one type that compiled code would hold them in; None if they are that already."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        return None
    if any(issubclass(kind, float) for kind in kinds):
        # A uint16 beside a float32 becomes one here, though their sum would be a float64.
        return Float32 if kinds.issubset({*NARROW, UInt16}) else Float64
    unsigned = [kind for kind in kinds if issubclass(kind, UInt64)]
    if len(unsigned) == len(kinds - {bool}):
        return max(unsigned, key=lambda kind: kind.WORD)
    if UInt64 in kinds:
        return Float64  # no integer has room for uint64 and for a sign
    return Short if kinds.issubset(NARROW) else int
