"""What must not be cut in two: an interrupt from the keyboard waits until a message has been written or read whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

try:  # what `signal.signal` calls: its enums take ten times as long
    from _signal import signal as _swap  # type: ignore[import-not-found]
except ImportError:
    _swap = signal.signal

SIGINT = int(signal.SIGINT)


class Uninterrupted:
    """`with Uninterrupted():` an interrupt that comes meanwhile is delivered afterwards. Only for what is short: the
    block cannot be broken off. Interrupts are the main thread's; in others this does nothing."""

    __slots__ = ("_before", "_came")

    _before: Any
    _came: tuple[int, FrameType | None] | None

    def __enter__(self) -> None:
        self._before = self._came = None
        if threading.get_ident() == threading.main_thread().ident:
            self._before = _swap(SIGINT, self._keep)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._before is not None:
            _swap(SIGINT, self._before)
            if self._came is not None and callable(self._before):
                self._before(*self._came)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
