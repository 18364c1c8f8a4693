"""The record `w` of interpreted kernels, read from the same table of words as in `core.record`.

A field becomes a checked array over the memory at its address when a kernel first reads it; a constant or a size
becomes its number. A field that the world does not declare is refused, with the nearest name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.actions import Action
from milkrun.core.fields import Role
from milkrun.core.interpreter.checked_array import (
    CONSTANT,
    GENERATE_ONLY,
    INSTANCE,
    NO_ROWS,
    READ_ONLY,
    ROW,
    WRITABLE,
    ActiveRow,
    CheckedArray,
    memory_at,
)
from milkrun.core.interpreter.faults import fault, unknown_field
from milkrun.core.interpreter.scalars import Float64
from milkrun.core.record import INSTANCES, ROWS, RecordLayout

_ACCESS = {Role.INSTANCE: GENERATE_ONLY, Role.KEY: GENERATE_ONLY, Role.CONSTANT: CONSTANT}


class CheckedRecord:
    """What a kernel calls `w`."""

    def __init__(self, layout: RecordLayout, table: int, slot: int) -> None:
        self._layout = layout
        self._slot = slot
        self._words = memory_at(table, (layout.width,), np.dtype(np.int64))
        self._active = ActiveRow()
        self._scratch: list[np.ndarray] = []  # which elements of a scratch field this row has written
        self._instance_row: np.ndarray | None = None
        self._validating = False
        self._masks: list[np.ndarray] | None = None  # that of each agent, made when first needed
        if self._words[layout.slots.get("instance_row", 0)] and "instance_row" in layout.fields:
            self._instance_row = self._memory("instance_row")  # a table may hold only what a function reads

    def enter_row(self, b: int, *, generating: bool, validating: bool = False) -> None:
        """Row b is played from here on; `validating`: by the kernel `fault`, which writes nothing."""
        active = self._active
        self._validating = validating
        q = None if self._instance_row is None or not 0 <= b < len(self._instance_row) else int(self._instance_row[b])
        active.row = b
        active.own = (None, b, q)
        active.generating = generating
        for written in self._scratch:
            written[...] = False

    def leave_row(self) -> None:
        self._active.row = None
        self._active.own = (None, None, None)

    def shut_agent(self, b: int, action: Action) -> str | None:
        """The first part of the mask of a live row that allows its agent no action; None if there is none."""
        if self.terminated[b] or self.truncated[b]:
            return None
        if self._masks is None:
            ends = np.cumsum(action.nvec({name: int(self._words[at]) for name, at in self._layout.sizes.items()}))
            self._masks = np.split(self._memory("action_mask"), ends[:-1], axis=1) if len(ends) else []
        first = 0
        for agent, mask in enumerate(self._masks):
            last = first + mask.shape[1]
            if not mask[b].any():
                return "action_mask" if len(self._masks) == 1 else f"action_mask[{first}:{last}], of agent {agent},"
            first = last
        return None

    def __getattr__(self, name: str) -> Any:
        """Computed at the first read; an attribute afterwards."""
        layout = self._layout
        if name in layout.sizes:
            value: Any = int(self._words[layout.sizes[name]])
        elif name in layout.fields:
            value = self._field(name)
        elif name.startswith("__"):
            raise AttributeError(name)
        else:
            raise unknown_field(layout.owner, name, [*layout.fields, *layout.sizes])
        vars(self)[name] = value
        return value

    def _field(self, name: str) -> Any:
        f, word = self._layout.fields[name], self._words[self._layout.slots[name]]
        if f.role is Role.CONSTANT and not f.dims:
            return Float64(word.view(np.float64)) if f.dtype.kind == "f" else int(word)
        if self._validating and (f.tally or f.role is Role.VIEW):
            kind = "a tally" if f.tally else "a view"
            raise fault(
                f"it reads {name}, {kind}: TensorDicts do not carry it, so `fault` cannot depend on it", field=name
            )
        data = self._memory(name)
        written = None
        if f.role is Role.SCRATCH:
            written = np.zeros(data.shape, bool)
            self._scratch.append(written)
        axis = NO_ROWS if not f.per_row else INSTANCE if f.role is Role.INSTANCE else ROW
        access = _ACCESS.get(f.role, READ_ONLY if self._validating and f.per_row else WRITABLE)
        return CheckedArray(data, name, self._active, axis=axis, access=access, written=written)

    def _memory(self, name: str) -> np.ndarray:
        layout, words = self._layout, self._words
        f, slot = layout.fields[name], layout.slots[name]
        shape = [int(words[layout.sizes[d]]) if isinstance(d, str) else d for d in f.dims]
        address, strides = int(words[slot]), None
        if f.role is Role.SCRATCH:
            address += self._slot * int(words[slot + 1])
        elif f.per_row:
            shape.insert(0, int(words[INSTANCES if f.role is Role.INSTANCE else ROWS]))
        if f.strided:
            strides = tuple(int(s) for s in words[slot + 1 : slot + 1 + len(shape)])
        return memory_at(address, tuple(shape), f.dtype, strides)
