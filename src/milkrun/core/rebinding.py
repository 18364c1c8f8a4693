"""Copies of kernels whose global names have other meanings: interpreted ones, and ones with checked indices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any


class Rebinder:
    """Makes one copy of each function; `meaning` maps every global name's value to that in the copy.

    `code` may change the code object, `names` adds globals.
    """

    def __init__(
        self,
        meaning: Callable[[Any], Any],
        *,
        code: Callable[[CodeType], CodeType] = lambda code: code,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        self._meaning = meaning
        self._code = code
        self._extra = dict(names or {})
        self._copies: dict[FunctionType, FunctionType] = {}
        self._lock = threading.RLock()

    def copy(self, function: FunctionType) -> FunctionType:
        meaning = self._meaning
        with self._lock:
            if function in self._copies:
                return self._copies[function]
            names: dict[str, Any] = {**function.__globals__, **self._extra}
            cells = tuple(CellType() for _ in function.__closure__ or ())
            copy = FunctionType(self._code(function.__code__), names, function.__name__, None, cells)
            copy.__module__ = function.__module__
            copy.__doc__ = function.__doc__
            copy.__qualname__ = function.__qualname__
            self._copies[function] = copy  # before its names get their meanings: kernels may call each other
            for name in global_names(function.__code__) & function.__globals__.keys():
                names[name] = meaning(function.__globals__[name])
            copy.__defaults__ = meaning(function.__defaults__) if function.__defaults__ else None
            copy.__kwdefaults__ = {k: meaning(v) for k, v in (function.__kwdefaults__ or {}).items()} or None
            for cell, given in zip(cells, function.__closure__ or ()):
                cell.cell_contents = meaning(given.cell_contents)
            return copy


def global_names(code: CodeType) -> set[str]:
    """The global names and attributes in a code object and those nested in it."""
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names |= global_names(inner)
    return names
