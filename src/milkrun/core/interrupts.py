"""Interrupts that wait: a signal that arrives while something must be done whole is delivered when it is done.

A Python signal handler runs between any two bytecodes of the main thread and mostly raises: KeyboardInterrupt for
Ctrl-C, whatever a user's alarm likes. Inside numba's compiler such an exception is swallowed by a C callback or leaves
half an object behind, and between two writes that belong together it leaves a world that never was.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

WAITING = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""The signals that people give handlers in Python to."""


class undisturbed:
    """Within it no Python handler of a signal runs; those that were called for run when it ends.

    Blocking signals would not do: the system hands a blocked one to another thread, and Python still runs the handler
    in the main thread. Other threads run no handlers, so there it does nothing. It takes some ten microseconds.
    """

    def __enter__(self) -> None:
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._called: list[int] = []
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in WAITING:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._wait)
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
                signal.signal(*self._handlers.popitem())
            elif self._called:
                signal.raise_signal(self._called.pop(0))
        finally:
            if self._handlers or self._called:
                self._end()
