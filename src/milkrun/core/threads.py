"""Entries: compiled functions over the rows of a batch, run by one thread or by several.

Facts about numba that shape this file (measured, version 0.68): its OpenMP layer may be entered from several Python
threads but aborts a forked child that enters it, so a forked child runs on one thread. And a function with a parallel
loop is compiled with everything that it calls: so there is one loop for all entries, which calls them by address.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import njit, prange, types

from milkrun.core.cache import BUILDING, compile_module
from milkrun.core.clock import compiling
from milkrun.core.errors import ConfigError
from milkrun.core.faults import explain_compile_error
from milkrun.core.interrupts import undisturbed
from milkrun.core.kernels import call_at


class Entry:
    """One compiled function (numbers..., first row, last row, scratch slot) -> number, compiled lazily.

    All arguments are int64 (addresses and counts), so a call costs a fraction of a microsecond and never compiles for
    another type.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._address = 0
        self._interpreted = isinstance(function, FunctionType)  # a world in debug mode plays its rows in one thread
        self.serial: Callable[..., int] = function if self._interpreted else self._first

    def run(self, args: tuple[int, ...], rows: int, chunks: int) -> int:
        """The sum of the return values of the rows; `chunks` > 1 splits them over as many threads."""
        if chunks == 1 or self._interpreted:
            return self.serial(*args, 0, rows, 0)
        return _in_parallel(self, args, rows, chunks)

    def parallel(self, *args: int) -> int:
        """The same for (numbers..., rows, chunks), each chunk in a thread of its own."""
        if not self._address:
            with BUILDING:  # a fork waits for this lock, since looking up an address takes the compiler's lock
                # The wrapper has C's calling convention; numba's own would need places for result and error.
                (compiled,) = _compiled(self._function).overloads.values()
                self._address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)
        return _spread(len(args) - 2)(self._address, *args)

    def prepare(self) -> None:
        """Compiles the function, unless it has been compiled."""
        if self.serial == self._first:
            self.serial = _compiled(self._function)

    def _first(self, *args: int) -> int:
        self.prepare()
        return self.serial(*args)


def _compiled(function: Any) -> Any:
    """Compiles the function for int64 arguments."""
    with compiling(), BUILDING:
        if not function.signatures:
            with undisturbed(), _without_collector():
                try:
                    function.compile((types.int64,) * function.py_func.__code__.co_argcount)
                except Exception as e:
                    if (sentence := explain_compile_error(function, e)) is None:
                        raise
                    raise sentence from e
            function.disable_compile()
    return function


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disables the garbage collector. A compile makes a million objects and little garbage; collection takes a tenth of
    the time, and more in a large process."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@cache
def _spread(numbers: int) -> Any:
    """The parallel loop over entries with this many numbers."""
    text = _SPREAD.format(numbers=", ".join(f"x{k}" for k in range(numbers)))
    names = {"njit": njit, "prange": prange, "int64": types.int64, "call_at": call_at}
    return _compiled(compile_module(f"spread_{numbers}", text, names).spread)


_SPREAD = """# Written by milkrun.core.threads; the module's name is a hash of this.

@njit(parallel=True, nogil=True, error_model="numpy")
def spread(entry, {numbers}, n, chunks):
    total = 0
    for c in prange(chunks):
        k = int64(c)
        total += call_at(entry, ({numbers}, k * n // chunks, (k + 1) * n // chunks, k))
    return total
"""

_threads: int | None = None
_forked = False
_layer_chosen = False
_layer_lock: threading.Lock | None = None  # for threading layers that are not thread-safe


def set_num_threads(n: int | None) -> None:
    """Sets the number of threads of big batches; None: MILKRUN_NUM_THREADS, else all cores. No result depends on it."""
    global _threads
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1):
        raise ConfigError(f"set_num_threads({n!r}): must be an integer >= 1, or None")
    _threads = None if n is None else int(n)


def get_num_threads() -> int:
    """The number of threads of big batches."""
    if _threads is not None:
        return _threads
    if text := os.environ.get("MILKRUN_NUM_THREADS"):
        if not (text.isascii() and text.isdigit()) or int(text) < 1:
            raise ConfigError(f"MILKRUN_NUM_THREADS={text!r}: must be an integer >= 1")
        return int(text)
    return int(numba.config.NUMBA_NUM_THREADS)


def chunks_for(rows: int, parallel_from: int, threads: int | None) -> int:
    """The number of chunks of a batch: one below the threshold and in a forked child, else one a thread."""
    if _forked or rows < 2:
        return 1
    if threads is None:
        if rows < parallel_from:
            return 1
        threads = get_num_threads()
    return min(threads, rows)


def _choose_threading_layer() -> None:
    """Chooses OpenMP unless the user chose a layer; a layer that is not thread-safe gets a lock."""
    global _layer_lock, _layer_chosen
    with BUILDING:
        if numba.config.THREADING_LAYER == "default":
            try:
                from numba.np.ufunc import omppool  # noqa: F401

                numba.config.THREADING_LAYER = "omp"
            except ImportError:
                pass
        if numba.config.THREADING_LAYER not in ("omp", "tbb", "threadsafe") and _layer_lock is None:
            _layer_lock = threading.Lock()
        _layer_chosen = True


def _in_parallel(entry: Entry, args: tuple[int, ...], rows: int, chunks: int) -> int:
    if not _layer_chosen:
        _choose_threading_layer()
    lock = _layer_lock
    # Another thread is inside. No result depends on the number of threads, so this one plays the rows alone.
    if lock is not None and not lock.acquire(blocking=False):
        return entry.serial(*args, 0, rows, 0)
    try:
        before = numba.get_num_threads()
        # In Python, not in `spread`: compiled, numba's functions for it need Python's own `print`, which Ray replaces.
        # Restored afterwards, since the user's own parallel code shares the setting.
        wanted = min(chunks, int(numba.config.NUMBA_NUM_THREADS))
        if wanted == before:
            return entry.parallel(*args, rows, chunks)
        try:
            numba.set_num_threads(wanted)
            return entry.parallel(*args, rows, chunks)
        finally:
            numba.set_num_threads(before)
    finally:
        if lock is not None:
            lock.release()


def _after_fork_in_child() -> None:
    global _forked
    _forked = True
    BUILDING.release()


# A fork waits for a compile that another thread has under way, so that no child inherits a held lock.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=BUILDING.acquire, after_in_parent=BUILDING.release, after_in_child=_after_fork_in_child)
