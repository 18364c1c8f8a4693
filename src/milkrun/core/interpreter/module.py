"""The text of a launcher run as Python.

`interpret_module` does what `cache.compile_module` does, and gives entries that are called in the same way and leave
the same bits. So a world in debug mode is a world whose launcher was made here; nothing else differs.
"""

from __future__ import annotations

import linecache
from bdb import BdbQuit
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from numba.core.dispatcher import Dispatcher

from milkrun.core.errors import MilkrunError
from milkrun.core.interpreter.faults import PLAYING, explained, wrong_result
from milkrun.core.interpreter.functions import meaning
from milkrun.core.interpreter.record import Record
from milkrun.core.interpreter.words import BUILTINS
from milkrun.core.record import Layout


def interpret_module(name: str, source: str, names: Mapping[str, Any], layout: Layout) -> ModuleType:
    """Runs the text of a launcher; its entries are functions of Python over int64, as the compiled ones are."""
    module = ModuleType(f"milkrun_interpreted_{name}")
    space = vars(module)
    space.update(BUILTINS)
    space.update({label: meaning(value) for label, value in names.items()})
    kernels = {label for label, value in names.items() if isinstance(value, Dispatcher)}
    entries: list[str] = []

    def kernel(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
        if function is None:
            return kernel
        kernels.add(function.__name__)
        return function

    def entry(**options: Any) -> Any:
        def keep(function: FunctionType) -> FunctionType:
            entries.append(function.__name__)
            return function

        return keep

    space.update(kernel=kernel, njit=entry, record=lambda table, slot: Record(layout, table, slot))
    file = f"<milkrun launcher of {name}, interpreted>"
    exec(compile(source, file, "exec"), space)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    outside = {**space, **{label: _played(label, space[label]) for label in kernels}}
    for label in entries:
        space[label] = FunctionType(space[label].__code__, outside, label)
    return module


def _played(label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel as an entry calls it: from here on a row is played, until it returns."""

    def play(w: Record, b: int, *rest: Any) -> Any:
        before = PLAYING.row
        PLAYING.row = b
        w.begin_turn(b, generating=label == "generate", judging=label == "fault")
        try:
            result = function(w, b, *rest)
            if label == "fault" and not isinstance(result, int):
                raise wrong_result(function, f"it gives {result!r}: a whole number is needed, 0 where nothing is wrong")
            return result
        except (MilkrunError, BdbQuit):
            raise
        except Exception as error:
            raise explained(error) from error
        finally:
            w.end_turn()
            PLAYING.row = before

    return play

