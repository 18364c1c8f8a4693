"""Deferred signals: a signal that arrives inside `undisturbed` is delivered at its end.

A Python signal handler runs between any two bytecodes of the main thread and mostly raises: KeyboardInterrupt for
Ctrl-C, any exception for a user's alarm. Inside numba's compiler such an exception is swallowed by a C callback or
leaves half an object; between an array and its entry in the table of the kernels it leaves a dangling address; inside a
message it leaves a pipe out of step. Elsewhere an interrupt is allowed to end a call: see `episodes`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

WAITING = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""The signals that usually have handlers in Python."""
KEYBOARD = (int(signal.SIGINT),)
"""Ctrl-C alone, for blocks that are short and frequent."""


class undisturbed:
    """A block in which no Python handler of these signals runs; pending ones run at its end.

    The block cannot be interrupted, so it must end by itself. Blocking the signals would not help: the system delivers
    a blocked one to another thread, and Python still runs the handler in the main thread. Other threads run no
    handlers; there the block does nothing. It takes some microseconds.
    """

    __slots__ = ("_handlers", "_pending", "_signals")

    _handlers: dict[int, Callable[..., Any]]
    _pending: list[int]

    def __init__(self, signals: tuple[int, ...] = WAITING) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        self._handlers = {}
        self._pending = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in self._signals:
                handler = signal.getsignal(number)
                if callable(handler):
                    # stored before it is replaced, so that an interrupt in between restores it
                    self._handlers[number] = handler
                    signal.signal(number, self._defer)
        except ValueError:  # an embedded interpreter must not set signal handlers
            self._handlers.clear()
        except BaseException:
            self._end()
            raise

    def __exit__(self, *error: object) -> None:
        self._end()

    def _defer(self, number: int, frame: Any) -> None:
        self._pending.append(number)

    def _end(self) -> None:
        """Restores all handlers, then delivers; each step runs even if the one before it raises."""
        try:
            if self._handlers:
                number, handler = next(iter(self._handlers.items()))
                signal.signal(number, handler)
                del self._handlers[number]  # last: interrupted before, the handler is set again
            elif self._pending:
                signal.raise_signal(self._pending.pop(0))
        finally:
            if self._handlers or self._pending:
                self._end()
