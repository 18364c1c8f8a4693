"""Kernels compiled with checked indices, for `debug="bounds"`.

Each kernel gets a copy that numba compiles with `boundscheck=True`, and that calls such copies. An index beyond the end
of an array raises KernelFault; a step takes 1.1 to 1.8 times as long. Interpreted kernels (`core/interpreter`) check
more and name the place. Like Python, and unlike other compiled kernels, these count a negative index from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from numba.extending import is_jitted

from milkrun.core.cache import compile_module
from milkrun.core.errors import KernelFault
from milkrun.core.kernels import KERNEL_OPTIONS, Kernel, kernel
from milkrun.core.rebinding import Rebinder
from milkrun.core.threads import Entry

CHECKED = {"boundscheck": True}


def compile_checked(name: str, source: str, names: Mapping[str, Any], owner: str) -> SimpleNamespace:
    """The counterpart of `cache.compile_module`; its entries are Python functions, which run on one thread."""
    given = {label: _meaning(value) for label, value in names.items()}
    given |= {"kernel": _checked_kernel, "OPTIONS": {**KERNEL_OPTIONS, **CHECKED}, "INDICES": "checked"}
    module = compile_module(f"{name}_checked", source, given)
    entries = {
        label: _entry(value, owner)
        for label, value in vars(module).items()
        if is_jitted(value) and not isinstance(value, Kernel) and label not in given
    }
    return SimpleNamespace(**entries)


def _entry(function: Any, owner: str) -> Callable[..., int]:
    compiled = Entry(function)

    def run(*args: int) -> int:
        try:
            return compiled.serial(*args)
        except IndexError as error:
            raise KernelFault(
                f"{owner}: an index is beyond the end of an array in {function.py_func.__name__}; "
                f"repeat the call with debug=True, which names kernel, line, field and row"
            ) from error

    return run


def _checked_kernel(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """`kernel` of a launcher's text."""
    if function is None:
        return lambda f: _checked_kernel(f, inline=inline)
    return Kernel(function, targetoptions={**kernel(function, inline=inline).targetoptions, **CHECKED})


def _meaning(value: Any) -> Any:
    if isinstance(value, Kernel):
        return _copy(value)
    if isinstance(value, ModuleType) and any(isinstance(v, Kernel) for v in vars(value).values()):
        copy = ModuleType(value.__name__)
        vars(copy).update({k: _copy(v) if isinstance(v, Kernel) else v for k, v in vars(value).items()})
        return copy
    return value


@cache
def _copy(original: Kernel) -> Kernel:
    return Kernel(_rebinder.copy(original.py_func), targetoptions={**original.targetoptions, **CHECKED})


_rebinder = Rebinder(_meaning)
