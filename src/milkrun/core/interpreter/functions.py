"""Kernels as Python functions: the same code, with interpreted meanings for the names it uses.

The code keeps its file and lines, so breakpoints, prints, tracebacks and coverage work. Exchanged are only its global
names and its float literals, which become float64: beside a float32, Python's float would be rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.extending import is_jitted
from numba.np.numpy_support import as_dtype

from milkrun.core.interpreter.checked_array import CONSTANT, ActiveRow, CheckedArray
from milkrun.core.interpreter.scalars import Float64, as_scalar, number_type
from milkrun.core.kernels import IN_PYTHON
from milkrun.core.rebinding import Rebinder


class Namespace:
    """A module as interpreted kernels see it; `mean` gives each of its names a meaning."""

    def __init__(self, module: ModuleType, mean: Callable[[Any], Any]) -> None:
        self._module = module
        self._mean = mean

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
        if all(isinstance(x, np.float32) for x in args):
            return as_scalar(other(*args))
        try:
            return as_scalar(value(*args))
        except (ValueError, OverflowError):
            return as_scalar(other(*args))

    return call


MATH, NUMPY = Namespace(math, math_meaning), Namespace(np, numpy_meaning)


def meaning(value: Any) -> Any:
    """What a global name of a kernel stands for when the kernel is interpreted."""
    if is_jitted(value):
        return interpret(value.py_func)
    if isinstance(value, types.Type):
        return number_type(as_dtype(value)) if isinstance(value, (types.Number, types.Boolean)) else value
    if isinstance(value, ModuleType):
        return {np: NUMPY, math: MATH}.get(value) or Namespace(value, meaning)
    if isinstance(value, np.ndarray):
        return CheckedArray(value, "a table of the module", ActiveRow(), access=CONSTANT)
    if isinstance(value, tuple):
        items = [meaning(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, type) and issubclass(value, np.generic):
        return number_type(np.dtype(value))
    try:
        if value in IN_PYTHON:
            return IN_PYTHON[value]
    except TypeError:  # not hashable, so neither an intrinsic nor a function
        return value
    name = getattr(value, "__name__", "")
    for module, mean in (math, math_meaning), (np, numpy_meaning):
        if callable(value) and getattr(module, name, None) is value:
            return mean(value)
    return as_scalar(value)


def _with_float64(code: CodeType) -> CodeType:
    consts = tuple(_with_float64(c) if isinstance(c, CodeType) else as_scalar(c) for c in code.co_consts)
    return code.replace(co_consts=consts)


BUILTINS: dict[str, Any] = {"float": Float64}
"""Builtins that mean something else in interpreted kernels: Python's float raises where it is divided by 0."""

interpret = Rebinder(meaning, code=_with_float64, names=BUILTINS).copy
"""The function that runs a kernel's code in Python; the same one for the same kernel."""
