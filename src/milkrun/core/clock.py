"""Elapsed time without compile time, so that a time limit means the same on a first run and on later ones.

Time limits and reported times are read from a `Clock`. Compilation is lazy and may happen inside any call, so the
compiler records its own time here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Times(threading.local):
    """Of one thread: seconds spent compiling, the nesting depth of compiles, and listeners."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.depth = 0
        self.listeners: list[Callable[[bool], object]] = []


_times = _Times()


class Clock:
    """Measures time since it was made, in the thread that made it."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent = _times.spent

    @property
    def seconds(self) -> float:
        """Elapsed seconds, without compile time."""
        return time.perf_counter() - self._start - self.compiling

    @property
    def compiling(self) -> float:
        """Seconds of the compiler, or of waiting for it."""
        return _times.spent - self._spent


@contextmanager
def compiling() -> Iterator[None]:
    """A block of compilation: its time is not counted, and listeners are notified when it begins and ends."""
    _times.depth += 1
    start = time.perf_counter()
    try:
        if _times.depth == 1:
            _notify(True)
        yield
    finally:
        _times.depth -= 1
        if _times.depth == 0:
            _times.spent += time.perf_counter() - start
            _notify(False)


@contextmanager
def listening(listener: Callable[[bool], object]) -> Iterator[None]:
    """Calls a function with True when this thread begins to compile, and with False when it is done."""
    _times.listeners.append(listener)
    try:
        yield
    finally:
        _times.listeners.remove(listener)


def _notify(busy: bool) -> None:
    for listener in _times.listeners:
        listener(busy)
