"""Lazy names of a package: importing it loads none of its modules.

Type checkers cannot see these names. For them a package imports its names under TYPE_CHECKING, as `A as A`, which marks
them as public.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from milkrun.core.errors import did_you_mean

Names = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy(package: str, modules: Mapping[str, str]) -> Names:
    """The `__getattr__`, `__dir__` and `__all__` of a package. `modules` maps modules, absolute or relative, to their
    public names, separated by spaces. A package adds names of its own by `__all__ += [...]`."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}
    public = sorted(module_of)

    def find(name: str) -> Any:
        if name not in module_of:
            close = did_you_mean(name, public, listed=True)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{close}")
        return getattr(importlib.import_module(module_of[name], package), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, list_names, public
