"""The text of a launcher run as Python.

`interpret_module` is the counterpart of `cache.compile_module`: its entries take the same arguments and apply the
same rules. A world with debug=True differs from others only in its launcher, which is made here.
"""

from __future__ import annotations

import linecache
from bdb import BdbQuit
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.extending import is_jitted

from milkrun.core.actions import Action
from milkrun.core.errors import MilkrunError
from milkrun.core.interpreter.checked_record import CheckedRecord
from milkrun.core.interpreter.faults import PLAYING, locate_error, shut_mask, wrong_result
from milkrun.core.interpreter.functions import BUILTINS, meaning
from milkrun.core.record import RecordLayout


def interpret_module(
    name: str, source: str, names: Mapping[str, Any], layout: RecordLayout, action: Action | None = None
) -> ModuleType:
    """Runs the text of a launcher; its entries are Python functions of ints. Given the `action` of a world, a kernel
    that leaves a live row without an allowed action is a fault."""
    module = ModuleType(f"milkrun_interpreted_{name}")
    space = vars(module)
    space.update(BUILTINS)
    space.update({label: meaning(value) for label, value in names.items()})
    kernels = {label for label, value in names.items() if is_jitted(value)}
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

    space.update(kernel=kernel, njit=entry, record=lambda table, slot: CheckedRecord(layout, table, slot))
    file = f"<milkrun launcher of {name}, interpreted>"
    exec(compile(source, file, "exec"), space)
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    # Entries call kernels through `play`, which sets the active row. Kernels call each other directly.
    outside = {**space, **{label: _played(label, space, action) for label in kernels}}
    for label in entries:
        space[label] = FunctionType(space[label].__code__, outside, label)
    return module


LEAVES = {"restart": "reset", "turn": "step", "turn_from": "step", "outcome": "settle"}
"""Functions of a launcher's text after which a live row has an allowed action, and the kernel responsible for it."""


def _played(label: str, space: Mapping[str, Any], action: Action | None) -> Callable[..., Any]:
    """A kernel as an entry calls it: row b is the active row until it returns."""
    function, culprit = space[label], LEAVES.get(label)

    def play(w: CheckedRecord, b: int, *rest: Any) -> Any:
        before = PLAYING.row
        PLAYING.row = b
        w.enter_row(b, generating=label == "generate", validating=label == "fault")
        try:
            if culprit is None or action is None:
                with np.errstate(all="ignore"):
                    result = function(w, b, *rest)
            else:
                source = rest[0] if label == "turn_from" else w
                shut_before = source.shut_agent(b, action) if culprit == "step" else None
                with np.errstate(all="ignore"):
                    result = function(w, b, *rest)
                shut = w.shut_agent(b, action)
                if shut is not None and shut_before is None:
                    raise shut_mask(space["idle" if culprit == "step" and w.illegal[b] else culprit], shut, w.i[b])
            if label == "fault" and not isinstance(result, int):
                raise wrong_result(function, f"it gives {result}: a whole number is needed, 0 where nothing is wrong")
            return result
        except (MilkrunError, BdbQuit):
            raise
        except Exception as error:
            raise locate_error(error) from error
        finally:
            w.leave_row()
            PLAYING.row = before

    return play
