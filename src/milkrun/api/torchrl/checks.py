"""Validates a caller's tensors before a kernel reads their memory.

Key, dtype, shape, device and strides are validated before an address is taken, then every value for which a rule is
declared. Errors name row, field, value and bound.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.batch_spec import BatchSpec, SlotGroups
from milkrun.core.bounds import Bounds, may_index
from milkrun.core.errors import ShapeError
from milkrun.core.fields import Field, Role
from milkrun.core.instances import check_mask, check_values, refuse_fault
from milkrun.core.world import World

SHARED = 64  # cached patterns of expanded batches

WHOLE = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32))
FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))

Tensors = Mapping[str, Any]


class Checks:
    """Validates the tensors of one world."""

    def __init__(self, world: World, groups: SlotGroups) -> None:
        self._world = world
        self._stream = groups.stream
        self._instance_row = world._launcher_layout.slots["instance_row"]
        self._shared: dict[Any, torch.Tensor] = {}

        state = [s.field for s in (*groups.state, groups.stream)]
        indices = [s.field for s in groups.instance if may_index(s.field)]
        rest = [s.field for s in groups.instance if not may_index(s.field)]
        each_step, all_rules = (
            Bounds(world._launcher_layout, fields, world.sizes, world.action.nvec(world.sizes))
            for fields in (state + indices, state + indices + rest)
        )
        self.rules = all_rules
        self.of_state = len(each_step)
        self.of_all = len(all_rules)
        """The number of rules that each step checks, and of those that it checks for new instances. Instance values
        that kernels use as indices are checked at each step, since numpy can change them without torch's version
        counter."""

    # -- values ----------------------------------------------------------------------------------------------

    def values(self, table: array[int], count: int, root: Tensors, hidden: Tensors, spec: BatchSpec) -> None:
        """Raises for the first value that breaks one of the first `count` rules."""
        broken = self.rules.first_broken(table.buffer_info()[0], count)
        if broken is not None:
            self._refuse(broken, root, hidden, spec)

    def states(self, table: int, root: Tensors, hidden: Tensors, spec: BatchSpec, chunks: int) -> None:
        """Raises for the first row whose state the world's kernel `fault` refuses: valid values in an impossible
        combination. To be called after `values`."""
        found = self._world._launcher.first_fault(table, spec.order_address, spec.rows, chunks)
        if found is not None:
            row, code = found
            refuse_fault(self._world, row, code, lambda name: self.rows(name, root, hidden, spec)[row])

    def _refuse(self, f: Field, root: Tensors, hidden: Tensors, spec: BatchSpec) -> None:
        """Raises for the first value that breaks the rule of a field: row, field, value, bound."""
        rows = self.rows(f.name, root, hidden, spec)
        if f.role is Role.MASK:
            check_mask(f.name, rows, self._world.action.nvec(self._world.sizes), self.live(root, hidden, spec))
        check_values(f, rows, self._world.sizes)

    def rows(self, name: str, root: Tensors, hidden: Tensors, spec: BatchSpec) -> np.ndarray:
        """A field of all rows, with one row axis."""
        tensor = root[name] if name in root else hidden[name]
        shape = self._world.fields[name].shape(self._world.sizes)
        rows: np.ndarray = tensor.reshape(spec.rows, *shape).numpy(force=True)
        return rows

    def live(self, root: Tensors, hidden: Tensors, spec: BatchSpec) -> np.ndarray:
        """Which rows are live. Without a step limit there is no `truncated`."""
        flags = [flag for flag in ("terminated", "truncated") if flag in root or flag in hidden]
        ended: np.ndarray = np.logical_or.reduce([self.rows(flag, root, hidden, spec) for flag in flags])
        return ~ended

    def instances(self, root: Tensors, hidden: Tensors, spec: BatchSpec) -> dict[str, np.ndarray]:
        """The instance fields, each instance once: dimensions over which all fields are expanded are left out."""
        tensors = {name: (root if slot.root else hidden)[name] for name, _, _, _, slot in spec.instance}
        shared = [all(tensor.stride(k) == 0 for tensor in tensors.values()) for k in range(len(spec.batch))]
        once = tuple(0 if s else slice(None) for s in shared)
        return {
            name: tensor[once].reshape(-1, *self._world.fields[name].shape(self._world.sizes)).numpy(force=True)
            for name, tensor in tensors.items()
        }

    # -- tensors ---------------------------------------------------------------------------------------------

    def enter(
        self, table: array[int], root: Tensors, hidden: Tensors, spec: BatchSpec, keep: list[torch.Tensor]
    ) -> array[int]:
        """A copy of the table with the addresses of all input tensors, after validation. Tensors that are not
        contiguous are copied; `keep` holds the tensors that must live until the kernel has run."""
        source = table[:]
        # The first words of a table: rows and instance rows. Each row plays the instance of its own number here.
        source[0] = source[1] = spec.rows
        source[self._instance_row] = spec.owner.data_ptr()
        for name, dtype, shape, where, slot in spec.instance:
            tensor = slot.checked((root if slot.root else hidden).get(name), dtype, shape)
            if not tensor.is_contiguous():
                self._enter_strided(source, root, hidden, spec, keep)
                break
            source[where] = tensor.data_ptr()
        stream = self._stream.checked(hidden.get("stream"), torch.int64, spec.stream)
        source[self._stream.where] = _in_order(stream, keep).data_ptr()
        for given, state in ((root, spec.root), (hidden, spec.hidden)):
            for name, dtype, shape, where, slot in state:
                source[where] = _in_order(slot.checked(given.get(name), dtype, shape), keep).data_ptr()
        return source

    def _enter_strided(
        self, table: array[int], root: Tensors, hidden: Tensors, spec: BatchSpec, keep: list[torch.Tensor]
    ) -> None:
        """Enters instance tensors of which some are not contiguous: those expanded over whole batch dimensions are
        shared, others are copied."""
        expanded: tuple[bool, ...] | None = None
        for name, dtype, shape, where, slot in spec.instance:
            tensor = slot.checked((root if slot.root else hidden).get(name), dtype, shape)
            pattern = spec.own
            if not tensor.is_contiguous():
                strides = tensor.stride()
                # `expand` gives a dimension the stride 0; the stride of a dimension of size 1 is arbitrary. Index 0
                # along the expanded ones leaves each instance once.
                pattern = tuple(strides[k] == 0 and size > 1 for k, size in enumerate(spec.batch))
                tensor = tensor[tuple(0 if p else slice(None) for p in pattern)].contiguous()
                keep.append(tensor)
            if expanded is not None and pattern != expanded:  # some fields expanded, others not: copy them all
                whole = {
                    name: slot.checked((root if slot.root else hidden).get(name), dtype, shape).contiguous()
                    for name, dtype, shape, _, slot in spec.instance
                }
                keep.extend(whole.values())
                # All are contiguous now, so the recursion ends. Names are unique, so one mapping serves as both parts.
                self._enter_strided(table, whole, whole, spec, keep)
                return
            expanded = pattern
            table[where] = tensor.data_ptr()
        if expanded is not None and any(expanded):
            owner, table[1] = self._owners(spec.batch, expanded)
            keep.append(owner)
            table[self._instance_row] = owner.data_ptr()

    def _owners(self, batch: torch.Size, expanded: tuple[bool, ...]) -> tuple[torch.Tensor, int]:
        """The instance index of each row, for a batch expanded along some dimensions."""
        kept = [1 if e else b for b, e in zip(batch, expanded, strict=True)]
        count = int(np.prod(kept))
        owner = self._shared.get((batch, expanded))
        if owner is None:
            if len(self._shared) > SHARED:
                self._shared.clear()
            owner = torch.arange(count, dtype=torch.int32).reshape(kept).expand(batch).reshape(-1).contiguous()
            self._shared[(batch, expanded)] = owner
        return owner, count


def checked_action(action: Any, wanted: torch.dtype, expected: torch.Size, name: Any = "action") -> torch.Tensor:
    """Actions of the wanted dtype, contiguous; other integers (or other floats) are converted."""
    if action is None:
        raise ShapeError(f"the TensorDict lacks {name!r}")
    if not isinstance(action, torch.Tensor):
        raise ShapeError(f"{name!r} must be a tensor, not a {type(action).__name__}")
    if action.shape != expected:
        raise ShapeError(f"{name!r} must have the shape {tuple(expected)}, not {tuple(action.shape)}")
    if action.dtype is wanted and action.is_cpu and action.layout is torch.strided and action.is_contiguous():
        return action.detach() if action.requires_grad else action
    same_kind = action.dtype in (FLOATS if wanted.is_floating_point else WHOLE)
    if not same_kind or not action.is_cpu or action.layout is not torch.strided:
        layout = "" if action.layout is torch.strided else f", {action.layout}"
        raise ShapeError(f"{name!r} must be {wanted} on the cpu, not {action.dtype} on {action.device}{layout}")
    return action.detach().to(wanted).contiguous()


def _in_order(tensor: torch.Tensor, keep: list[torch.Tensor]) -> torch.Tensor:
    """The same values in C order; a copy is kept alive."""
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
        keep.append(tensor)
    return tensor
