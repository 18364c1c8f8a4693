"""Kernels as plain Python functions: the same code, with interpreted meanings for the names it uses.

The code keeps its file and lines, so that breakpoints, prints, tracebacks and coverage work. Only its numbers with a
fraction and its global names are exchanged: kernels for interpreted kernels, words of compiled code for what they mean
in Python, `np` and `math` for functions with the bits that compiled code has.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache, wraps
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher

from milkrun.core.interpreter.arrays import CONSTANT, Array, Turn
from milkrun.core.interpreter.numbers import Short, UInt8, UInt16, UInt32
from milkrun.core.interpreter.words import BUILTINS, CASTS, MATH, NUMPY, Namespace, lifted
from milkrun.core.kernels import IN_PYTHON, Kernel

_made: dict[FunctionType, FunctionType] = {}
_MAKING = threading.RLock()


def interpreted(function: FunctionType) -> FunctionType:
    """The function that plays a kernel's code in Python; the same one for the same kernel."""
    with _MAKING:
        if function in _made:
            return _made[function]
        names: dict[str, Any] = dict(function.__globals__)
        cells = tuple(CellType() for _ in function.__closure__ or ())
        play = FunctionType(_with_numbers(function.__code__), names, function.__name__, None, cells)
        play.__module__, play.__doc__, play.__qualname__ = function.__module__, function.__doc__, function.__qualname__
        _made[function] = play  # before what it names: kernels may call each other
        names.update(BUILTINS)
        for name in _names(function.__code__):
            if name in function.__globals__:
                names[name] = meaning(function.__globals__[name])
        play.__defaults__ = meaning(function.__defaults__) if function.__defaults__ else None
        play.__kwdefaults__ = {k: meaning(v) for k, v in (function.__kwdefaults__ or {}).items()} or None
        for cell, given in zip(cells, function.__closure__ or ()):
            cell.cell_contents = meaning(given.cell_contents)
        return play


@cache
def called(function: FunctionType) -> Callable[..., Any]:
    """A kernel as kernels call it: with int64 for all narrower integers, since there is one version for all of them
    (`kernels.Kernel`)."""
    play = interpreted(function)

    @wraps(play)
    def call(*args: Any, **named: Any) -> Any:
        if not _NARROWER.isdisjoint(map(type, args)):
            args = tuple(int(a) if type(a) in _NARROWER else a for a in args)
        return play(*args, **{k: int(a) if type(a) in _NARROWER else a for k, a in named.items()} if named else named)

    return call


_NARROWER = {Short, UInt8, UInt16, UInt32}


def meaning(value: Any) -> Any:
    """What a global name of a kernel stands for when it is interpreted."""
    if isinstance(value, Kernel):
        return called(value.py_func)
    if isinstance(value, Dispatcher):
        return interpreted(value.py_func)
    if isinstance(value, types.Type):
        return CASTS.get({"bool": "boolean"}.get(str(value), str(value)), value)
    if isinstance(value, ModuleType):
        return {np: NUMPY, math: MATH}.get(value) or Module(value)
    if isinstance(value, np.ndarray):
        return Array(value, "a table of the module", Turn(), access=CONSTANT)
    if isinstance(value, tuple):
        items = [meaning(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, type) and issubclass(value, np.generic):
        return CASTS.get(value.__name__, value)
    try:
        if value in IN_PYTHON:
            return IN_PYTHON[value]
    except TypeError:  # not hashable, so neither a word nor a function
        return value
    name = getattr(value, "__name__", "")
    for module, words in (math, MATH), (np, NUMPY):
        if callable(value) and getattr(module, name, None) is value:
            return getattr(words, name)
    return lifted(value)


class Module(Namespace):
    """A module of ours: its kernels interpreted."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module, {})

    def __getattr__(self, name: str) -> Any:
        value = meaning(getattr(self._module, name))
        vars(self)[name] = value
        return value


def _with_numbers(code: CodeType) -> CodeType:
    """The code with its constants as interpreted kernels hold them."""
    consts = tuple(_with_numbers(c) if isinstance(c, CodeType) else lifted(c) for c in code.co_consts)
    return code.replace(co_consts=consts)


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= _names(inner)
    return names
