"""Workspace: memory that the kernels of one thread write, apart from the tensors of a call.

Kernels release the GIL, so calls in different threads must not share it: each Python thread has its own.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from milkrun.core.fields import Field, Role
from milkrun.core.memory import address_of
from milkrun.core.world import World


class Workspaces(threading.local):
    """The workspace of the calling thread, as `own`."""

    def __init__(self, world: World, dropped: list[Field]) -> None:
        self.own = Workspace(world, dropped)


class Workspace:
    """A template of the table, with memory of this thread for all fields that are not tensors of a call; and the
    instance tensors that the last call validated."""

    def __init__(self, world: World, dropped: list[Field]) -> None:
        self._world = world
        self._dropped = dropped
        self._scratch = [f for f in world.fields.values() if f.role is Role.SCRATCH]
        self._memory: dict[str, np.ndarray] = {}
        self.rows = self.slots = 0
        self.table = array("q", world._table.tolist())
        self._validated: list[tuple[Callable[[], Any], int]] = []  # weak references and version counters

    def make_room(self, rows: int, slots: int) -> None:
        """Allocates memory for this many rows and scratch slots."""
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

    def is_validated(self, instances: tuple[Any, ...]) -> bool:
        """Whether the last call validated the same tensors, and their version counters are unchanged. Tensors made in
        inference mode have no version counter and are validated by every call."""
        noted = self._validated
        return len(noted) == len(instances) and all(
            ref() is tensor and tensor._version == version
            for tensor, (ref, version) in zip(instances, noted, strict=True)
        )

    def note_validated(self, instances: tuple[Any, ...]) -> None:
        """Records that these instance tensors are valid while they are unchanged."""
        counted = not any(tensor.is_inference() for tensor in instances)
        self._validated = [(weakref.ref(tensor), tensor._version) for tensor in instances] if counted else []
