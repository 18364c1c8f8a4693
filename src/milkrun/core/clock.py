"""Time without that of the compiler: a method has the same seconds whether it was compiled before or is compiled now.

Whoever has so many seconds, or tells how many it took, reads them from a `Clock`. Compiled code is made when first
needed, in the middle of anything, so it is the compiler that notes its own time here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Notes(threading.local):
    """Of one thread: seconds spent on compiling, how many compiles it is inside of now, and who wants to know."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.depth = 0
        self.listeners: list[Callable[[bool], object]] = []


_notes = _Notes()


class Clock:
    """Seconds since it was made, in the thread that made it."""

    def __init__(self) -> None:
        self._start, self._spent = time.perf_counter(), _notes.spent

    @property
    def seconds(self) -> float:
        """Without those of the compiler."""
        return time.perf_counter() - self._start - self.compiling

    @property
    def compiling(self) -> float:
        """Those of the compiler, or spent waiting for it."""
        return _notes.spent - self._spent


@contextmanager
def compiling() -> Iterator[None]:
    """Around a compile: its time is nobody's, and whoever listens is told when it begins and ends."""
    _notes.depth += 1
    start = time.perf_counter()
    try:
        if _notes.depth == 1:
            _tell(True)
        yield
    finally:
        _notes.depth -= 1
        if _notes.depth == 0:
            _notes.spent += time.perf_counter() - start
            _tell(False)


@contextmanager
def listening(listener: Callable[[bool], object]) -> Iterator[None]:
    """Has a function called with True when this thread begins to compile, and with False when it is done."""
    _notes.listeners.append(listener)
    try:
        yield
    finally:
        _notes.listeners.remove(listener)


def _tell(busy: bool) -> None:
    for listener in _notes.listeners:
        listener(busy)
