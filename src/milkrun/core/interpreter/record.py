"""The record `w` of interpreted kernels: the same table of words as in `core.record`, read by Python.

When a kernel first asks for a field, it becomes a checked array over the memory that the table names; a constant or a
size becomes its number. A name that the world does not declare is refused with the one that was probably meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.actions import Action
from milkrun.core.fields import Role
from milkrun.core.interpreter.arrays import (
    CONSTANT,
    FREE,
    GENERATED,
    INSTANCE,
    LOOKED_AT,
    OPEN,
    ROW,
    Array,
    Turn,
    memory_at,
)
from milkrun.core.interpreter.faults import fault, unknown_field
from milkrun.core.interpreter.numbers import Float64
from milkrun.core.record import INSTANCES, ROWS, Layout

_ACCESS = {Role.INSTANCE: GENERATED, Role.KEY: GENERATED, Role.CONSTANT: CONSTANT}


class Record:
    """What a kernel calls `w`."""

    def __init__(self, layout: Layout, table: int, slot: int) -> None:
        self._layout, self._slot = layout, slot
        self._words = memory_at(table, (layout.width,), np.dtype(np.int64))
        self._turn = Turn()
        self._scratch: list[np.ndarray] = []  # which elements of a scratch field this row has written
        self._plays: np.ndarray | None = None
        self._judging = False
        self._masks: list[np.ndarray] | None = None  # that of each agent, once somebody looks
        if self._words[layout.slots.get("instance_row", 0)] and "instance_row" in layout.fields:
            self._plays = self._memory("instance_row")  # a table may hold only what a function reads

    def begin_turn(self, b: int, *, generating: bool, judging: bool = False) -> None:
        """From here on row b is played; `judging`: only looked at, by the kernel `fault`."""
        turn = self._turn
        self._judging = judging
        q = None if self._plays is None or not 0 <= b < len(self._plays) else int(self._plays[b])
        turn.row, turn.own, turn.generating = b, (None, b, q), generating
        for written in self._scratch:
            written[...] = False

    def end_turn(self) -> None:
        self._turn.row, self._turn.own = None, (None, None, None)

    def shut_agent(self, b: int, action: Action) -> str | None:
        """Of a row that has not ended: the first part of the mask that allows its agent nothing."""
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
        """Asked for the first time: afterwards it is an attribute."""
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
        if self._judging and (f.tally or f.role is Role.VIEW):
            kind = "a tally" if f.tally else "a view"
            raise fault(
                f"it reads {name}, {kind}: TensorDicts do not carry it, so no state can be judged by it", field=name
            )
        data = self._memory(name)
        written = None
        if f.role is Role.SCRATCH:
            written = np.zeros(data.shape, bool)
            self._scratch.append(written)
        axis = FREE if not f.per_row else INSTANCE if f.role is Role.INSTANCE else ROW
        access = _ACCESS.get(f.role, LOOKED_AT if self._judging and f.per_row else OPEN)
        return Array(data, name, self._turn, axis=axis, access=access, written=written)

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
