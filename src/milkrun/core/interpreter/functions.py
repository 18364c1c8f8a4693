"""Kernels as Python functions: the same code, with interpreted meanings for the names it uses.

The code keeps its file and lines, so breakpoints, prints, tracebacks and coverage work. Exchanged are only its global
names and its float literals, which become float64: beside a float32, Python's float would be rounded to float32.
"""

from __future__ import annotations

import math
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.extending import is_jitted
from numba.np.numpy_support import as_dtype

from milkrun.core.interpreter.checked_array import CONSTANT, ActiveRow, CheckedArray, as_scalar
from milkrun.core.interpreter.scalars import MATH, NUMPY, Namespace, math_meaning, number_type, numpy_meaning
from milkrun.core.kernels import IN_PYTHON
from milkrun.core.rebinding import Rebinder


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


BUILTINS: dict[str, Any] = {"float": np.float64}
"""Builtins that mean something else in interpreted kernels: Python's float raises where it is divided by 0."""

interpret = Rebinder(meaning, code=_with_float64, names=BUILTINS).copy
"""The function that runs a kernel's code in Python; the same one for the same kernel."""
