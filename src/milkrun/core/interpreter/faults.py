"""The sentence of a KernelFault: what an interpreted kernel does wrong, with kernel, file, line and row."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from inspect import currentframe, unwrap
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy as np

from milkrun.core.errors import KernelFault, ShutMask, no_such_field

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_NO_KERNELS = (
    _PACKAGE + os.sep,
    os.path.join(os.path.dirname(_PACKAGE), "kernels.py"),
    os.path.dirname(np.__file__) + os.sep,
)


class Playing(threading.local):
    """The row that this thread plays, None between rows."""

    row: int | None = None


PLAYING = Playing()


def fault(sentence: str, *, field: str = "") -> KernelFault:
    """The error to raise, at the line of the kernel that is running."""
    frame = _kernel_frame()
    if frame is None:
        return KernelFault(sentence, row=PLAYING.row, field=field)
    return _located(sentence, frame.f_code, frame.f_lineno, field)


def locate_error(error: Exception) -> KernelFault:
    """Python's own error in a kernel, as a fault at the line of the innermost kernel."""
    trace: TracebackType | None = error.__traceback__
    code, line = None, 0
    while trace is not None:
        if _may_be_kernel(trace.tb_frame.f_code):
            code, line = trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
    divided = isinstance(error, ZeroDivisionError)
    what = "a whole number is divided by 0" if divided else f"{type(error).__name__}: {error}"
    return KernelFault(what, row=PLAYING.row) if code is None else _located(what, code, line, "")


def wrong_result(function: Callable[..., Any], sentence: str) -> KernelFault:
    """A kernel returns something that it must not."""
    code = unwrap(function).__code__
    return _located(sentence, code, code.co_firstlineno, "")


def shut_mask(function: Callable[..., Any], part: str, step: int) -> ShutMask:
    """A kernel leaves a live row without an allowed action."""
    sentence = f"it leaves {part} all False at step {step} of a row that has not ended: allow an action, or end the row"
    code = unwrap(function).__code__
    return ShutMask(sentence, place=_place(code, code.co_firstlineno), row=PLAYING.row, field="action_mask")


def unknown_field(owner: str, name: str, known: Iterable[str]) -> KernelFault:
    """A kernel reads a field that its world does not declare."""
    frame = _kernel_frame()
    place = "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return KernelFault(no_such_field(owner, name, known, place), row=PLAYING.row, field=name)


def _kernel_frame() -> FrameType | None:
    """The kernel that is running: the first caller outside this package."""
    frame: FrameType | None = currentframe()
    while frame is not None and not _may_be_kernel(frame.f_code):
        frame = frame.f_back
    return frame


def _may_be_kernel(code: CodeType) -> bool:
    return not code.co_filename.startswith(_NO_KERNELS)


def _located(sentence: str, code: CodeType, line: int, field: str) -> KernelFault:
    return KernelFault(sentence, place=_place(code, line), row=PLAYING.row, field=field)


def _place(code: CodeType, line: int) -> str:
    return f"{code.co_name} ({os.path.basename(code.co_filename)}:{line})"
