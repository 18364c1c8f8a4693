"""@kernel, and how compiled code is built, cached on disk and run on several threads.

Facts about numba that shape this file (measured, version 0.68): a launcher that is a closure over a kernel never
hits numba's disk cache; a change in a callee's file does not invalidate its callers; numba's OpenMP layer may be
entered from several Python threads but aborts a forked child that enters it. So launchers are generated as
modules of their own in a folder whose name is a hash of everything they compile (`compile_module`), and a forked
child runs the serial versions only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import types as pytypes
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from milkrun.core.errors import ConfigError

KERNEL_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "nogil": True}
"""Kernels allocate nothing, so numba's reference counting is off (a third faster); x/0 follows IEEE."""


def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Marks a plain scalar function of one row as compiled code. It may call other kernels and must not allocate.

    `inline=True` puts it into its callers whatever the compiler thinks: for small ones in the innermost loops.
    """
    if function is None:
        return lambda f: kernel(f, inline=inline)
    return njit(forceinline=inline, no_cfunc_wrapper=True, **KERNEL_OPTIONS)(function)


@intrinsic
def array_at(typingctx, address, shape, strides, dtype):
    """The array of `shape` at an address; `strides` in bytes, or None for C order."""
    contiguous = isinstance(strides, types.NoneType)
    array_type = types.Array(dtype.dtype, len(shape), "C" if contiguous else "A")

    def codegen(context, builder, signature, args):
        element = context.get_data_type(array_type.dtype)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(element))
        extents = cgutils.unpack_tuple(builder, args[1])
        if contiguous:
            steps = [itemsize]
            for extent in reversed(extents[1:]):
                steps.insert(0, builder.mul(steps[0], extent))
        else:
            steps = cgutils.unpack_tuple(builder, args[2])
        array = make_array(array_type)(context, builder)
        data = builder.inttoptr(args[0], element.as_pointer())
        populate_array(array, data=data, shape=extents, strides=steps, itemsize=itemsize, meminfo=None, parent=None)
        return array._getvalue()

    return array_type(address, shape, strides, dtype), codegen


@intrinsic
def copy_rows(typingctx, target, source, first, count):
    """target[first:first + count] = the same of source, two C-ordered arrays, as one block of bytes."""

    def codegen(context, builder, signature, args):
        addresses = []
        for array_type, value in zip(signature.args[:2], args[:2]):
            array = make_array(array_type)(context, builder, value)
            width = cgutils.unpack_tuple(builder, array.strides)[0]
            start = builder.ptrtoint(array.data, width.type)
            address = builder.add(start, builder.mul(args[2], width))
            addresses.append(builder.inttoptr(address, cgutils.voidptr_t))
        cgutils.raw_memcpy(builder, addresses[0], addresses[1], builder.mul(width, args[3]), 1)
        return context.get_dummy_value()

    return types.void(target, source, types.int64, types.int64), codegen


@intrinsic
def eight_flags(typingctx, flags, row, first):
    """flags[row, first:first + 8] of a C-ordered array of booleans as one uint64, the first in its lowest byte."""

    def codegen(context, builder, signature, args):
        array = make_array(signature.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.strides)[0]
        start = builder.ptrtoint(array.data, width.type)
        address = builder.add(builder.add(start, builder.mul(args[1], width)), args[2])
        word = builder.load(builder.inttoptr(address, context.get_value_type(types.uint64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(flags, types.int64, types.int64), codegen


@intrinsic
def fetch(typingctx, array, row, column):
    """Asks for the cache line of array[row, column] and waits for nothing; any index will do."""

    def codegen(context, builder, signature, args):
        found = make_array(signature.args[0])(context, builder, args[0])
        width, step = cgutils.unpack_tuple(builder, found.strides)[:2]
        address = builder.ptrtoint(found.data, width.type)
        for index, stride in ((args[1], width), (args[2], step)):
            address = builder.add(address, builder.mul(index, stride))
        number = context.get_value_type(types.int32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(ask, [builder.inttoptr(address, cgutils.voidptr_t), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen


@intrinsic
def lowest_bit(typingctx, word):
    """The number of the lowest bit set in a uint64 that is not 0."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), codegen


# -- building ---------------------------------------------------------------------------------------------------

_building = threading.RLock()


def cache_root() -> Path:
    """Where compiled code is kept: MILKRUN_CACHE_DIR, else the user's cache folder, else a temporary one."""
    if override := os.environ.get("MILKRUN_CACHE_DIR"):
        return Path(override)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "milkrun"


def compile_module(name: str, source: str, names: Mapping[str, Any]) -> pytypes.ModuleType:
    """Imports `source` as a module of its own with `names` in its globals, so that numba's disk cache serves it.

    The folder is keyed by a fingerprint of the text and of every kernel it reaches, so a change of any of them,
    also in another file, compiles anew, and nothing else does.
    """
    fingerprint = hashlib.sha256(source.encode())
    seen: set[int] = set()
    for label in sorted(names):
        fingerprint.update(label.encode())
        _digest(names[label], fingerprint, seen)
    fingerprint.update(f"{numba.__version__} {np.__version__} {sys.version} {KERNEL_OPTIONS}".encode())
    unique = f"{name}_{fingerprint.hexdigest()[:20]}"
    module_name = f"milkrun_launcher_{unique}"
    with _building:
        if module_name in sys.modules:
            return sys.modules[module_name]
        path = _write_once(unique, source)
        module = pytypes.ModuleType(module_name)
        module.__file__ = str(path)
        module.__dict__.update(names)
        sys.modules[module_name] = module  # numba's cached code looks its module up by name
        exec(compile(source, str(path), "exec"), module.__dict__)
        return module


def _write_once(unique: str, source: str) -> Path:
    """The launcher's file. Numba trusts its modification time, so that is a constant: processes cannot race."""
    try:
        folder = cache_root() / unique
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(folder)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"milkrun-cache-{os.getuid() if hasattr(os, 'getuid') else 0}" / unique
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "launcher.py"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".py")
        with os.fdopen(handle, "w") as file:
            file.write(source)
        os.utime(temporary, (1, 1))
        os.replace(temporary, path)
    return path


def _digest(value: Any, digest: Any, seen: set[int]) -> None:
    """Feeds all that compiling `value` depends on: the code of kernels, the constants and kernels they name."""
    if isinstance(value, Dispatcher):
        digest.update(repr(sorted(value.targetoptions.items(), key=str)).encode())
        _digest_function(value.py_func, digest, seen)
    elif hasattr(value, "_defn") and callable(value._defn):  # a numba intrinsic
        _digest_function(value._defn, digest, seen)
    elif isinstance(value, pytypes.FunctionType):
        _digest_function(value, digest, seen)
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
    for default in (*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())):
        _digest(default, digest, seen)
    for code in _codes(function.__code__):
        digest.update(code.co_code)
        digest.update(repr([c for c in code.co_consts if not isinstance(c, pytypes.CodeType)]).encode())
        digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, pytypes.ModuleType):
                _digest_module(value, code.co_names, digest, seen)
            else:
                _digest(value, digest, seen)
    for cell in function.__closure__ or ():
        _digest(cell.cell_contents, digest, seen)


def _digest_module(module: pytypes.ModuleType, names: tuple[str, ...], digest: Any, seen: set[int]) -> None:
    """What a function may take from a module, also through a package: all in it that has one of the names it uses."""
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


class Entry:
    """One compiled function over a range of rows, in a serial and a parallel version that are made when first needed.

    Both take only int64 (addresses and counts): the call costs a fraction of a microsecond, and the compiler can
    never be surprised by a new type.
    """

    def __init__(self, module: pytypes.ModuleType, name: str) -> None:
        self._serial = getattr(module, name)
        self._parallel = getattr(module, name + "_parallel")
        self._arguments = self._serial.py_func.__code__.co_argcount
        self.serial: Callable[..., int] = self._first_serial
        self.parallel: Callable[..., int] = self._first_parallel

    def _first_serial(self, *args: int) -> int:
        self.serial = _compiled(self._serial, self._arguments)
        return self.serial(*args)

    def _first_parallel(self, *args: int) -> int:
        self.parallel = _compiled(self._parallel, self._arguments + 1)
        return self.parallel(*args)

    def run(self, args: tuple[int, ...], rows: int, chunks: int) -> int:
        """The sum of what the rows return; `chunks` > 1 splits them over as many threads."""
        if chunks == 1:
            return self.serial(*args, rows)
        return _in_parallel(self, args, rows, chunks)


def _compiled(dispatcher: Any, arguments: int) -> Any:
    with _building:
        if not dispatcher.signatures:
            dispatcher.compile((types.int64,) * arguments)
            dispatcher.disable_compile()
    return dispatcher


# -- threads ----------------------------------------------------------------------------------------------------

_threads: int | None = None
_forked = False
_settled = False
_one_at_a_time: threading.Lock | None = None  # for threading layers that must not be entered twice at once


def set_num_threads(n: int | None) -> None:
    """How many threads a big batch may use; None: MILKRUN_NUM_THREADS, else all cores. No result depends on it."""
    global _threads
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1):
        raise ConfigError(f"set_num_threads({n!r}): must be an integer >= 1, or None")
    _threads = None if n is None else int(n)


def get_num_threads() -> int:
    """The number of threads a big batch uses now."""
    if _threads is not None:
        return _threads
    if text := os.environ.get("MILKRUN_NUM_THREADS"):
        if not (text.isascii() and text.isdigit()) or int(text) < 1:
            raise ConfigError(f"MILKRUN_NUM_THREADS={text!r}: must be an integer >= 1")
        return int(text)
    return int(numba.config.NUMBA_NUM_THREADS)


def chunks_for(rows: int, parallel_from: int, threads: int | None) -> int:
    """Into how many pieces a batch is cut: one below the threshold and in a forked child, else one a thread."""
    if _forked or rows < 2:
        return 1
    if threads is None:
        if rows < parallel_from:
            return 1
        threads = get_num_threads()
    return min(threads, rows)


def _settle_threading_layer() -> None:
    """OpenMP unless the user chose a layer; whatever cannot be entered by two Python threads gets a lock."""
    global _one_at_a_time, _settled
    with _building:
        if numba.config.THREADING_LAYER == "default":
            try:
                from numba.np.ufunc import omppool  # noqa: F401

                numba.config.THREADING_LAYER = "omp"
            except ImportError:
                pass
        if numba.config.THREADING_LAYER not in ("omp", "tbb", "threadsafe") and _one_at_a_time is None:
            _one_at_a_time = threading.Lock()
        _settled = True


def _in_parallel(entry: Entry, args: tuple[int, ...], rows: int, chunks: int) -> int:
    if not _settled:
        _settle_threading_layer()
    lock = _one_at_a_time
    if lock is not None and not lock.acquire(blocking=False):
        return entry.serial(*args, rows)
    try:
        before = numba.get_num_threads()
        wanted = min(chunks, int(numba.config.NUMBA_NUM_THREADS))
        if wanted == before:
            return entry.parallel(*args, rows, chunks)
        numba.set_num_threads(wanted)
        try:
            return entry.parallel(*args, rows, chunks)
        finally:
            numba.set_num_threads(before)
    finally:
        if lock is not None:
            lock.release()


def _after_fork_in_child() -> None:
    global _forked
    _forked = True
    _building.release()


# A fork waits for a compile that another thread has under way, so that no child inherits a held lock.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_building.acquire, after_in_parent=_building.release, after_in_child=_after_fork_in_child
    )
