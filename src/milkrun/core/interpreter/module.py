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

from milkrun.core.actions import Action
from milkrun.core.errors import MilkrunError
from milkrun.core.interpreter.faults import PLAYING, explained, shut_mask, wrong_result
from milkrun.core.interpreter.functions import meaning
from milkrun.core.interpreter.record import Record
from milkrun.core.interpreter.words import BUILTINS
from milkrun.core.record import Layout


def interpret_module(
    name: str, source: str, names: Mapping[str, Any], layout: Layout, action: Action | None = None
) -> ModuleType:
    """Runs the text of a launcher; its entries are functions of Python over int64, as the compiled ones are. With the
    `action` of a world, a live row must be left an allowed one."""
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
    # Entries call kernels through `play`, which says whose turn it is. Within that turn kernels call each other as they
    # are.
    outside = {**space, **{label: _played(label, space, action) for label in kernels}}
    for label in entries:
        space[label] = FunctionType(space[label].__code__, outside, label)
    return module


LEAVES = {"restart": "reset", "turn": "step", "turn_from": "step", "outcome": "settle"}
"""Words of a launcher's text after which a live row has an allowed action, and the kernel that sees to it."""


def _played(label: str, space: Mapping[str, Any], action: Action | None) -> Callable[..., Any]:
    """A kernel as an entry calls it: from here on a row is played, until it returns."""
    function, culprit = space[label], LEAVES.get(label)

    def play(w: Record, b: int, *rest: Any) -> Any:
        before = PLAYING.row
        PLAYING.row = b
        w.begin_turn(b, generating=label == "generate", judging=label == "fault")
        try:
            if culprit is None or action is None:
                result = function(w, b, *rest)
            else:
                source = rest[0] if label == "turn_from" else w
                before_it = source.shut_agent(b, action) if culprit == "step" else None
                result = function(w, b, *rest)
                shut = w.shut_agent(b, action)
                if shut is not None and before_it is None:  # one that was shut before is not of its making
                    raise shut_mask(space["idle" if culprit == "step" and w.illegal[b] else culprit], shut, w.i[b])
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
