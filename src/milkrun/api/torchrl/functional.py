"""Functional stepping: rows of tensors in, fresh rows of tensors out, by the world's own kernel.

A `Stepper` owns no state. It checks every tensor it is given before it takes an address (key, dtype, shape, device,
order in memory), hands the kernel one table of addresses for the source and one for the result, and lets it copy a
row before stepping it. Instance tensors are shared by source and result, and stay shared when a TensorDict has
been expanded over whole batch dimensions: the strides then say which instance a row plays.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from milkrun.core.errors import ShapeError
from milkrun.core.fields import Field, Role
from milkrun.core.kernels import chunks_for
from milkrun.core.world import World

DTYPES = {
    np.dtype(np.bool_): torch.bool, np.dtype(np.uint8): torch.uint8, np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16, np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64,
}  # fmt: skip

_CPU = torch.device("cpu")
_empty_like = torch.empty_like  # less than half the cost of torch.empty, and this is most of a small step

Tensors = Mapping[str, Any]


class Slot:
    """One field as the stepper handles it: its key in the TensorDict, its shape there, its place in the table."""

    __slots__ = ("column", "dtype", "name", "root", "shape", "where")

    def __init__(self, f: Field, world: World, where: int) -> None:
        self.name, self.dtype, self.where = f.name, DTYPES[f.dtype], where
        self.shape = f.shape(world.sizes)
        self.column = f.column or f.name in ("reward", "terminated", "truncated")
        self.root = f.name in ("terminated", "truncated", "reward") or not (f.hidden or f.observed is False)

    @property
    def key(self) -> str | tuple[str, str]:
        """Its key in a TensorDict: what no agent may see, or need not, is nested under "hidden"."""
        return self.name if self.root else ("hidden", self.name)

    def tail(self) -> tuple[int, ...]:
        """The shape behind the batch in a TensorDict."""
        return self.shape or ((1,) if self.column else ())


class Plan:
    """The shapes of all tensors of a batch."""

    def __init__(self, stepper: Stepper, batch: torch.Size) -> None:
        def shaped(*slots: Slot) -> list[tuple[Slot, torch.Size]]:
            return [(slot, torch.Size((*batch, *slot.tail()))) for slot in slots]

        self.batch, self.rows = batch, batch.numel()
        self.own = (False,) * len(batch)
        self.instance = shaped(*stepper.instance)
        self.carried = shaped(*stepper.state, *stepper.mask)
        self.stream = torch.Size((*batch, 3))
        self.views = [(slot, torch.empty(shape, dtype=slot.dtype)) for slot, shape in shaped(*stepper.views)]
        self.action = torch.Size((*batch, *stepper.world.action.shape(stepper.world.sizes)))


def _misfit(slot: Slot, tensor: Any, shape: torch.Size) -> ShapeError:
    if tensor is None:
        return ShapeError(f"the TensorDict lacks {slot.key!r}")
    return ShapeError(f"{slot.key!r} must be {slot.dtype} of shape {tuple(shape)} on the cpu, "
                      f"not {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}")


class Stepper:
    """Steps rows of one world given as tensors. `world` is a template: one row, never stepped."""

    def __init__(self, world: World) -> None:
        self.world = world
        layout = world._launcher_layout
        fields = [f for f in world.fields.values() if f.per_row and not f.on_demand]
        present = [f for f in fields if 0 not in f.shape(world.sizes)]
        carried = [f for f in present if not f.tally or (f.name == "objective" and world.reward_at_end)]

        def slots(*roles: Role) -> list[Slot]:
            return [Slot(f, world, layout.slots[f.name]) for f in carried if f.role in roles]

        self.instance = slots(Role.INSTANCE)
        self.state = slots(Role.STATE)
        self.mask = slots(Role.MASK)
        self.stream = Slot(world.fields["stream"], world, layout.slots["stream"])
        self.views = [s for s in slots(Role.VIEW) if s.name == "reward" or world.fields[s.name].observed]
        self.written = [*self.state, *self.mask, *self.views]
        kept = {s.name for s in (*self.instance, *self.written, self.stream)} | {"instance_row"}
        self._binned = [f for f in fields if f.name not in kept]
        self._bin_rows = 0
        self._template = world._table.tolist()
        self._owner = layout.slots["instance_row"]
        self._action_tail = world.action.shape(world.sizes)
        self._action_dtype = DTYPES[world.action.dtype]
        self._shared: dict[Any, torch.Tensor] = {}
        self._plans: dict[torch.Size, Plan] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int32)

    def step(
        self, root: Tensors, hidden: Tensors, batch: torch.Size, action: Any, raises: bool = False
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """The rows one action later: fresh tensors for the root and for "hidden". Nothing given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        action_address = self._take(action, plan.action)
        keep: list[torch.Tensor] = []  # what must live until the kernel has run
        source = self._template.copy()
        source[0] = plan.rows
        self._instances(root, hidden, plan, source, keep)
        result = source.copy()
        fresh_root: dict[str, torch.Tensor] = {}
        fresh_hidden: dict[str, torch.Tensor] = {}
        for slot, shape in plan.carried:
            tensor = (root if slot.root else hidden).get(slot.name)
            if tensor is None or tensor.dtype is not slot.dtype or tensor.shape != shape or not tensor.is_cpu:
                raise _misfit(slot, tensor, shape)
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                keep.append(tensor)
            fresh = _empty_like(tensor)
            (fresh_root if slot.root else fresh_hidden)[slot.name] = fresh
            source[slot.where] = tensor.data_ptr()
            result[slot.where] = fresh.data_ptr()
        stream = hidden.get("stream")
        if stream is not None:
            source[self.stream.where] = result[self.stream.where] = self._stream_address(stream, plan, keep)
        for slot, pattern in plan.views:
            fresh = _empty_like(pattern)
            (fresh_root if slot.root else fresh_hidden)[slot.name] = fresh
            result[slot.where] = fresh.data_ptr()
        old, new = array("q", source), array("q", result)
        here, there = old.buffer_info()[0], new.buffer_info()[0]
        if raises:
            self._refuse_illegal(here, action, action_address, plan.rows)
        chunks = chunks_for(plan.rows, self.world.parallel_from, self.world.threads)
        self.world._launcher.step_from.run((there, self._rows.data_ptr(), action_address, here), plan.rows, chunks)
        return fresh_root, fresh_hidden

    def _stream_address(self, stream: torch.Tensor, plan: Plan, keep: list[torch.Tensor]) -> int:
        if stream.dtype is not torch.int64 or stream.shape != plan.stream or not stream.is_cpu:
            raise _misfit(self.stream, stream, plan.stream)
        stream = stream.contiguous()
        keep.append(stream)
        return stream.data_ptr()

    def _take(self, action: Any, expected: torch.Size) -> int:
        """The address of checked actions; `self._action` keeps them alive."""
        if action is None:
            raise ShapeError("the TensorDict lacks 'action'")
        if action.shape != expected:
            raise ShapeError(f"action must have the shape {tuple(expected)}, not {tuple(action.shape)}")
        if action.dtype is not self._action_dtype or not action.is_cpu or not action.is_contiguous() or action.requires_grad:
            if action.dtype == torch.bool or action.is_floating_point() != self._action_dtype.is_floating_point:
                raise ShapeError(f"action must be {self._action_dtype}, not {action.dtype}")
            action = action.detach().to(_CPU, self._action_dtype).contiguous()
        self._action = action
        return action.data_ptr()

    def _instances(self, root: Tensors, hidden: Tensors, plan: Plan, table: list[int], keep: list[torch.Tensor]) -> None:
        """Enters the instance tensors; those expanded over whole batch dimensions stay as they are."""
        expanded: tuple[bool, ...] | None = None
        for slot, shape in plan.instance:
            tensor = (root if slot.root else hidden).get(slot.name)
            if tensor is None or tensor.dtype is not slot.dtype or tensor.shape != shape or not tensor.is_cpu:
                raise _misfit(slot, tensor, shape)
            pattern = plan.own
            if not tensor.is_contiguous():
                strides = tensor.stride()
                pattern = tuple(strides[k] == 0 and size > 1 for k, size in enumerate(plan.batch))
                tensor = tensor[tuple(0 if p else slice(None) for p in pattern)].contiguous()
                keep.append(tensor)
            if expanded is not None and pattern != expanded:  # some fields expanded, others not: copy them all
                whole = {s.name: (root if s.root else hidden)[s.name].contiguous() for s, _ in plan.instance}
                keep.extend(whole.values())
                self._instances(whole, whole, plan, table, keep)
                return
            expanded = pattern
            table[slot.where] = tensor.data_ptr()
        if expanded is None or not any(expanded):
            table[1], table[self._owner] = plan.rows, self._own.data_ptr()
        else:
            owner, table[1] = self._owners(plan.batch, expanded)
            table[self._owner] = owner.data_ptr()

    def _owners(self, batch: torch.Size, expanded: tuple[bool, ...]) -> tuple[torch.Tensor, int]:
        """Which instance each row plays, for a batch expanded along some dimensions."""
        kept = [1 if e else b for b, e in zip(batch, expanded, strict=True)]
        count = int(np.prod(kept))
        owner = self._shared.get((batch, expanded))
        if owner is None:
            if len(self._shared) > 64:
                self._shared.clear()
            owner = torch.arange(count, dtype=torch.int32).reshape(kept).expand(batch).reshape(-1).contiguous()
            self._shared[(batch, expanded)] = owner
        return owner, count

    def _plan(self, batch: torch.Size) -> Plan:
        """What a batch of this shape looks like, worked out once."""
        if batch.numel() > self._bin_rows:
            self._grow(batch.numel())
        if len(self._plans) > 64:
            self._plans.clear()
        plan = self._plans[batch] = Plan(self, batch)
        return plan

    def _grow(self, n: int) -> None:
        """Makes the row numbers and the bin (fields kept for reports only, which functional stepping drops) long enough."""
        self._bin_rows = n = max(n, 64)
        self._rows = torch.arange(n, dtype=torch.int64)
        self._own = torch.arange(n, dtype=torch.int32)
        self._bins = [np.zeros((n, *f.shape(self.world.sizes)), f.dtype) for f in self._binned]
        for f, waste in zip(self._binned, self._bins, strict=True):
            self._template[self.world._launcher_layout.slots[f.name]] = waste.__array_interface__["data"][0]

    def _refuse_illegal(self, table: int, action: torch.Tensor, action_address: int, n: int) -> None:
        from milkrun.core.errors import IllegalAction

        count = self.world._launcher.count_illegal.serial
        rows, width = self._rows.data_ptr(), self._action.element_size() * int(np.prod(self._action_tail, dtype=int))
        if not count(table, rows, action_address, 0, n):
            return
        lo, hi = 0, n
        while hi - lo > 1:
            middle = (lo + hi) // 2
            inside = count(table, rows + 8 * lo, action_address + width * lo, 0, middle - lo)
            lo, hi = (lo, middle) if inside else (middle, hi)
        said = action.reshape(n, *self._action_tail)[lo].tolist()
        raise IllegalAction(f"row {lo}: action {said}: not in the action mask")
