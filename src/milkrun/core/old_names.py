"""Names that were given up: they still work, and say at the line of the user who wrote them what to write instead."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def warn_outdated(text: str) -> None:
    """A DeprecationWarning at the caller: Python shows no other by default."""
    warn_caller(text, DeprecationWarning)


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points at the first caller outside this library."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "milkrun":
        frame = frame.f_back
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
    warnings.warn_explicit(text, category, *where, frame.f_globals.setdefault("__warningregistry__", {}))


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names have changed: the new name of each old one."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_outdated(f"{module}.{name} is now {names[name]}")
        return getattr(sys.modules[module], names[name])

    return find
