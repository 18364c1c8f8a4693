"""Workspace: what kernels write beside the tensors of a call, and what a thread remembers of its last call.

Kernels release the GIL, so memory that two calls share would be written by both at once. Each Python thread has its
own: scratch, and the arrays of fields that functional stepping drops.
"""

from __future__ import annotations

import threading
from array import array
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.slots import Plan
from milkrun.core.fields import Field, Role
from milkrun.core.memory import address_of
from milkrun.core.world import World

Result = tuple[Plan, tuple[Any, ...], tuple[int, ...], "array[int]"]
"""What the last step gave: tensors (weak references to large ones), how often each had been changed in place, the table
of their addresses."""
Instances = tuple[tuple[Any, ...], tuple[int, ...]]
"""The instances last found to be fine: weak references, how often each had been changed in place."""

version_of = torch.Tensor._version.__get__  # how often a tensor has been changed in place


class Workspace(threading.local):
    """A table of addresses to copy, with memory of this thread behind all that no tensor of a call will hold."""

    def __init__(self, world: World, dropped: list[Field]) -> None:
        self._world, self._dropped = world, dropped
        self._scratch = [f for f in world.fields.values() if f.role is Role.SCRATCH]
        self._memory: dict[str, np.ndarray] = {}
        self.rows = self.slots = 0
        self.table = array("q", world._table.tolist())
        self.last: Result | None = None
        self.instances: Instances | None = None

    def make_room(self, rows: int, slots: int) -> None:
        """Memory for so many rows, and scratch for so many pieces of a batch."""
        self.last = None  # its table has the addresses of memory that goes now
        if rows > self.rows:
            self.rows = max(rows, 64, 2 * self.rows)
            for f in self._dropped:
                self._put(f, self.rows)
        if slots > self.slots:
            self.slots = slots
            for f in self._scratch:
                self._put(f, slots)

    def _put(self, f: Field, count: int) -> None:
        layout = self._world._launcher_layout
        self._memory[f.name] = memory = np.zeros((count, *f.shape(self._world.sizes)), f.dtype)
        self.table[layout.slots[f.name]] = address_of(memory)
        if f.role is Role.SCRATCH:
            self.table[layout.slots[f.name] + 1] = memory.strides[0]
