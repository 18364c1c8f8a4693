"""What a run changes in its process, and restores: threads, precision, and the handlers of interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from milkrun.core.arguments import check_count
from milkrun.core.threads import set_num_threads


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """The number of threads of torch and of the worlds, and float32 products of full precision, which other trainers of
    the same process may have switched off; all are restored."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        if threads is not None:
            torch.set_num_threads(check_count("threads", threads, 1))
            set_num_threads(threads)
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)
        if threads is not None:
            set_num_threads(None)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that the first SIGINT or SIGTERM fills. The second of the same kind stops at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    try:
        for number in before:
            signal.signal(number, stop)
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
