"""Interrupts that wait: a signal that arrives while something must be done whole is delivered when it is done.

A Python signal handler runs between any two bytecodes of the main thread and mostly raises: KeyboardInterrupt for
Ctrl-C, whatever a user's alarm likes. Inside numba's compiler such an exception is swallowed by a C callback or leaves
half an object behind, between two writes that belong together it leaves a world that never was, and in the midst of a
message it leaves a pipe that nobody can read any more.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

try:  # what the functions of `signal` call: their enums take ten times as long
    from _signal import getsignal, raise_signal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:
    from signal import getsignal, raise_signal
    from signal import signal as set_handler

WAITING = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""The signals that people give handlers in Python to."""
KEYBOARD = (int(signal.SIGINT),)
"""Ctrl-C alone, for what is too short and too frequent to ask for all of them."""


class undisturbed:
    """Within it no Python handler of these signals runs; those that were called for run when it ends.

    Only for what ends by itself: the block cannot be broken off. Blocking signals would not do: the system hands a
    blocked one to another thread, and Python still runs the handler in the main thread. Other threads run no handlers,
    so there it does nothing. It takes some microseconds.
    """

    __slots__ = ("_called", "_handlers", "_signals")

    _handlers: dict[int, Callable[..., Any]]
    _called: list[int]

    def __init__(self, signals: tuple[int, ...] = WAITING) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        self._handlers, self._called = {}, []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in self._signals:
                handler = getsignal(number)
                if callable(handler):
                    # kept before it is replaced: an interrupt in between finds it here, and puts it back
                    self._handlers[number] = handler
                    set_handler(number, self._wait)
        except ValueError:  # an interpreter inside another program, which has no say in signals
            self._handlers.clear()
        except BaseException:
            self._end()
            raise

    def __exit__(self, *error: object) -> None:
        self._end()

    def _wait(self, number: int, frame: Any) -> None:
        self._called.append(number)

    def _end(self) -> None:
        """Puts all handlers back, then delivers; each step is taken also if the one before it raises."""
        try:
            if self._handlers:
                set_handler(*self._handlers.popitem())
            elif self._called:
                raise_signal(self._called.pop(0))
        finally:
            if self._handlers or self._called:
                self._end()
