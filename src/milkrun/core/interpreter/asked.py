"""What the interpreter leaves to numba: the methods of arrays, and the functions of `np` and `math` that it does not
know for the numbers given.

Nothing is surer to give the bits of compiled code than compiled code, of whatever version of numba. A call is compiled
when a kernel first makes it, in some tenths of a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import njit, types

from milkrun.core.interpreter.faults import fault
from milkrun.core.interpreter.numbers import Float32, Float64, Literal, Short, UInt8, UInt16, UInt32, UInt64

OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
"""Those of `kernels.KERNEL_OPTIONS` that decide what compiles, and to what."""

_GIVEN = {
    bool: types.boolean,
    Short: types.int16,
    int: types.int64,
    UInt8: types.uint8,
    UInt16: types.uint16,
    UInt32: types.uint32,
    UInt64: types.uint64,
    Float32: types.float32,
    Float64: types.float64,
    Literal: types.float64,
    float: types.float64,
}
_MADE = {kind: make for make, kind in _GIVEN.items() if make not in (Literal, float)} | {
    types.float64: Float64,
    types.int8: Short,
    types.int32: int,
}


def asked(call: str, shown: str, field: str, *args: Any, **named: Any) -> Any:
    """What numba makes of a call such as "np.cbrt({})" or "{}.sum({})", of numbers and of numpy's arrays. `shown` is
    what an error calls it, `field` whose row it is, if any."""
    try:
        entry, result = _compiled(call, tuple(named), tuple(_kind(a) for a in (*args, *named.values())))
    except Exception as e:
        raise fault(
            f"{shown} cannot be interpreted: numba makes no number of it without allocating memory; write a loop",
            field=field,
        ) from e
    return _number(entry(*args, *named.values()), result)


def _kind(value: Any) -> types.Type:
    return _GIVEN.get(type(value)) or numba.typeof(value)


@cache
def _compiled(call: str, named: tuple[str, ...], kinds: tuple[types.Type, ...]) -> tuple[Callable[..., Any], Any]:
    """The machine code of a call for numbers of these types, and the type of its result."""
    letters = [f"a{k}" for k in range(len(kinds))]
    plain = len(kinds) - len(named)
    given = [*letters[:plain], *(f"{name}={letter}" for name, letter in zip(named, letters[plain:]))]
    first, rest = (given[:1], given[1:]) if call.startswith("{}") else ([], given)
    text = call.format(*first, ", ".join(rest))
    function = njit(**OPTIONS)(eval(f"lambda {', '.join(letters)}: {text}", {"np": np, "math": math}))
    return function.compile(kinds), function.overloads[kinds].signature.return_type


def _number(value: Any, kind: types.Type) -> Any:
    """What compiled code gave, as interpreted kernels hold it."""
    if isinstance(kind, types.BaseTuple):
        return tuple(_number(item, inner) for item, inner in zip(value, kind.types))
    return _MADE[types.unliteral(kind)](value)
