"""Compiled modules, and the fingerprint of everything that they depend on.

Two facts about numba's own disk cache shape this file (measured, version 0.68): it never hits for a closure over a
kernel, and a change in a callee's file does not invalidate its callers. So launchers are generated as modules whose
names hold a hash of everything they compile, and `disk_cache` keeps their machine code.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
import types as pytypes
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import is_jitted

from milkrun.core.disk_cache import CachedFunction
from milkrun.core.kernels import KERNEL_OPTIONS

BUILDING = threading.RLock()
"""Held while code is compiled: one thread at a time."""


def compile_module(name: str, source: str, names: Mapping[str, Any]) -> pytypes.ModuleType:
    """Runs `source` as a module with `names` in its globals; the code of its `@njit` functions is cached on disk.

    The cache key is a fingerprint of the text and of every kernel it reaches, in any file: the code is compiled again
    if and only if one of these changes.
    """
    fingerprint = hashlib.sha256(source.encode())
    seen: set[int] = set()
    for label in sorted(names):
        fingerprint.update(label.encode())
        _digest(names[label], fingerprint, seen)
    fingerprint.update(f"{numba.__version__} {np.__version__} {sys.version} {KERNEL_OPTIONS}".encode())
    unique = f"{name}_{fingerprint.hexdigest()[:20]}"
    module_name = f"milkrun_launcher_{unique}"
    with BUILDING:
        if module_name in sys.modules:
            return sys.modules[module_name]
        file = f"<milkrun launcher {unique}>"
        module = pytypes.ModuleType(module_name)

        def njit(**options: Any) -> Any:
            key = fingerprint.hexdigest()
            return lambda function: CachedFunction(function, options, key, f"{unique}.{function.__name__}")

        module.__dict__.update(names, njit=njit)
        exec(compile(source, file, "exec"), module.__dict__)
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file  # for error messages
        sys.modules[module_name] = module  # numba's cached code looks its module up by name; last, so it is whole
        return module


def _digest(value: Any, digest: Any, seen: set[int]) -> None:
    """Adds all that compiling `value` depends on: the code of kernels, the constants and kernels they name."""
    if is_jitted(value):
        digest.update(repr(sorted(value.targetoptions.items(), key=str)).encode())
        _digest_function(value.py_func, digest, seen)
    elif isinstance(value, pytypes.FunctionType):
        _digest_function(value, digest, seen)
    elif isinstance(wrapped := getattr(value, "__wrapped__", None), pytypes.FunctionType):  # a numba intrinsic
        _digest_function(wrapped, digest, seen)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    elif isinstance(value, tuple):
        digest.update(f"{type(value).__name__} of {len(value)}".encode())
        for item in value:
            _digest(item, digest, seen)
    elif isinstance(value, type):
        members = [(m.name, m.value) for m in value] if issubclass(value, Enum) else ""
        digest.update(f"{value.__name__} {getattr(value, '_fields', '')} {members}".encode())
    elif isinstance(value, (int, float, str, bytes, bool, np.generic, np.dtype, types.Type, type(None))):
        digest.update(repr(value).encode())


def _digest_function(function: pytypes.FunctionType, digest: Any, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    digest.update(f"{function.__module__} {function.__qualname__}".encode())  # cached code finds its functions by these
    for default in (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
        _digest(default, digest, seen)
    for code in _codes(function.__code__):
        digest.update(code.co_code)
        consts = [c for c in code.co_consts if not isinstance(c, pytypes.CodeType)]
        # A set of strings has another order in every process.
        digest.update(repr([sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in consts]).encode())
        digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
        # Names of attributes stand here too. A global of such a name at worst causes a needless compile.
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, pytypes.ModuleType):
                _digest_module(value, code.co_names, digest, seen)
            else:
                _digest(value, digest, seen)
    for cell in function.__closure__ or ():
        _digest(cell.cell_contents, digest, seen)


def _digest_module(module: pytypes.ModuleType, names: tuple[str, ...], digest: Any, seen: set[int]) -> None:
    """What a function may use of a module or package: each value in it that the function's code names."""
    if module.__name__.split(".")[0] in ("numpy", "math", "numba") or id(module) in seen:
        return
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, pytypes.ModuleType):
            if value is not module:
                _digest_module(value, names, digest, seen | {id(module)})
        else:
            _digest(value, digest, seen)


def _codes(code: pytypes.CodeType) -> Iterable[pytypes.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, pytypes.CodeType):
            yield from _codes(inner)
