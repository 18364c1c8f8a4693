"""Functional stepping: rows of tensors in, fresh rows of tensors out, by the world's own kernels.

A `Stepper` owns no state. It checks every tensor it is given before it takes an address (key, dtype, shape, device,
order in memory), hands the kernel one table of addresses for the source and one for the result, and lets it copy a
row before stepping it. Instance tensors are shared by source and result, and stay shared when a TensorDict has
been expanded over whole batch dimensions: the strides then say which instance a row plays. New episodes begin in
tensors of their own too: `begin` makes whole batches, `restart` some rows of a copy.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from operator import is_
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.slots import DTYPES, TOLD, Plan, Slot, shown_fields
from milkrun.core.errors import IllegalAction, ShapeError
from milkrun.core.fields import Role
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_row_map, kernels_of
from milkrun.core.rng import stream
from milkrun.core.sampling import SAMPLING, pick
from milkrun.core.threads import Entry
from milkrun.core.world import World

PLANS = 64  # batch shapes remembered at once

REMEMBERED = 2048  # rows up to which the last result is kept at hand: there checks cost as much as the kernel

_empty_like = torch.empty_like  # less than half the cost of torch.empty, and this is most of a small step
_address = torch.Tensor.data_ptr

Tensors = Mapping[str, Any]
Rows = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]  # what stands at the root, what under "hidden"


@kernel
def any_allowed(w, b, seed, turn):  # type: ignore[no-untyped-def]
    """An allowed action; the draw depends on the place in the batch, for copies of a row share their stream."""
    return pick(w, b, 0, w.action_mask.shape[1], stream(seed, b, turn, SAMPLING), 0)


class Stepper:
    """Steps rows of one world given as tensors. `world` is a template: one row, never stepped."""

    def __init__(self, world: World, features: bool = False) -> None:
        self.world = world
        shown = shown_fields(world, features)
        layout = world._launcher_layout
        fields = [f for f in world.fields.values() if f.per_row]
        present = [f for f in fields if 0 not in f.shape(world.sizes)]
        carried = [f for f in present if not f.tally or (f.name == "objective" and world.reward_at_end)]

        def slots(*roles: Role) -> list[Slot]:
            return [Slot(f, world, shown) for f in carried if f.role in roles]

        self.instance = slots(Role.INSTANCE)
        self.carried = slots(Role.STATE, Role.MASK)
        self.stream = Slot(world.fields["stream"], world, shown)
        self.told = [s for s in slots(Role.VIEW) if s.name in TOLD]
        self.looks = [s for s in slots(Role.VIEW) if s.field in shown]  # what a reset shows too
        self._looks_anew = "look" in kernels_of(type(world), world.kernels) and len({s.dtype for s in self.looks}) == 1
        self._paint = world._launcher.observe if any(s.field.on_demand for s in self.looks) else None
        known = (*self.instance, *self.carried, *self.told, *self.looks, self.stream)
        seen = {s.name for s in known if s.root}
        self.synonyms = [(alias, name) for alias, name in world.synonyms.items() if name in seen]  # shown, never read
        kept = {"instance_row", *(s.name for s in known)}
        self._binned = [f for f in fields if f.name not in kept]
        self._bins: list[np.ndarray] = []
        self._template = array("q", world._table.tolist())
        self._owner = layout.slots["instance_row"]
        self._mask_place = layout.slots.get("action_mask", 0)
        self._action_dtype = DTYPES[world.action.dtype]
        self._planning = threading.Lock()
        self._shared: dict[Any, torch.Tensor] = {}
        self._plans: dict[torch.Size, Plan] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int32)
        self._drawer: Entry | None = None
        self._marker: Entry | None = None
        self._last: tuple[Plan, list[torch.Tensor], list[torch.Tensor], array[int]] | None = None

    # -- stepping ---------------------------------------------------------------------------------------------

    def step(self, root: Tensors, hidden: Tensors, batch: torch.Size, action: Any, raises: bool = False) -> Rows:
        """The rows one action later: fresh tensors for the root and for "hidden". Nothing given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        n, order = plan.rows, plan.order.data_ptr()
        chunks = 1 if n < 2 or (n < self.world.parallel_from and self.world.threads is None) else self._chunks(n)
        action = self.checked_action(action, plan.action)
        keep: list[torch.Tensor] = []  # what must live until the kernel has run
        carried = [*map(root.get, plan.root_names), *map(hidden.get, plan.hidden_names)]
        shared = [*map(root.get, plan.shared_root), *map(hidden.get, plan.shared_hidden)]
        source = self._recall(plan, carried, shared)
        if source is None:
            source, carried = self._enter(root, hidden, plan, keep)
        result = source[:]
        made = [*map(_empty_like, carried), *map(_empty_like, plan.told_patterns)]
        for where, address in zip(plan.fresh_places, map(_address, made), strict=True):
            result[where] = address
        fresh_root = dict(zip(plan.fresh_names, made, strict=True))
        fresh_hidden = {name: fresh_root.pop(name) for name in plan.hidden_names}
        looks = self._fresh_looks(plan) if self._looks_anew else self._last_looks(plan, root)
        for (name, _, _, where, _), look in zip(plan.looks, looks, strict=True):
            fresh_root[name] = look
            result[where] = look.data_ptr()
        here, there = source.buffer_info()[0], result.buffer_info()[0]
        if raises:
            self._refuse_illegal(here, action, root, hidden, plan)
        self.world._launcher.step_from.run((there, order, action.data_ptr(), here), n, chunks)
        if self._paint is not None:
            self._paint.run((there, order), n, chunks)
        self._last = (plan, made, shared, result) if n < REMEMBERED and not keep else None
        return fresh_root, fresh_hidden

    def _recall(self, plan: Plan, carried: list[Any], shared: list[Any]) -> array[int] | None:
        """The table of the last step's result, if these are its very tensors where they were: then all was checked."""
        last = self._last
        if last is None or last[0] is not plan:
            return None
        _, made, kept, table = last
        given = carried + shared
        if not all(map(is_, given, made[: len(carried)] + kept)):
            return None
        return table if tuple(map(_address, given)) == plan.read_places(table) else None

    def _enter(
        self, root: Tensors, hidden: Tensors, plan: Plan, keep: list[torch.Tensor]
    ) -> tuple[array[int], list[torch.Tensor]]:
        """Checks every tensor and enters its address into a table; also the state tensors, in order in memory."""
        source = self._template[:]
        source[0] = source[1] = plan.rows
        source[self._owner] = plan.owner.data_ptr()
        for name, dtype, shape, where, slot in plan.instance:
            tensor = (root if slot.root else hidden).get(name)
            if tensor is None or tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu:
                raise slot.misfit(tensor, shape)
            if not tensor.is_contiguous():
                self._enter_strided(root, hidden, plan, source, keep)
                break
            source[where] = tensor.data_ptr()
        self._enter_stream(hidden.get("stream"), plan, source, keep)
        carried = []
        for given, entries in ((root, plan.root), (hidden, plan.hidden)):
            for name, dtype, shape, where, slot in entries:
                tensor = given.get(name)
                if tensor is None or tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu:
                    raise slot.misfit(tensor, shape)
                if not tensor.is_contiguous():
                    tensor = tensor.contiguous()
                    keep.append(tensor)
                source[where] = tensor.data_ptr()
                carried.append(tensor)
        return source, carried

    def _fresh_looks(self, plan: Plan) -> list[torch.Tensor]:
        """Where the kernel `look` writes the views of every row. They lie in one block: of several large ones freed at
        each step the allocator gives memory back, and faulting it in again takes as long as half a step."""
        block = torch.empty(sum(plan.look_sizes), dtype=plan.looks[0][1])
        return [part.view(shape) for part, (_, _, shape, _, _) in zip(block.split(plan.look_sizes), plan.looks)]

    def _last_looks(self, plan: Plan, root: Tensors) -> list[torch.Tensor]:
        return [self._last_look(root.get(name), dtype, shape, slot) for name, dtype, shape, _, slot in plan.looks]

    def _last_look(self, shown: Any, dtype: torch.dtype, shape: torch.Size, slot: Slot) -> torch.Tensor:
        """Where a view is to be written; a row that does not move (finished, illegal action) keeps what it showed."""
        if shown is None or slot.field.on_demand:
            return torch.zeros(shape, dtype=dtype)
        if shown.dtype is not dtype or shown.shape != shape or not shown.is_cpu:
            raise slot.misfit(shown, shape)
        return shown.detach().clone(memory_format=torch.contiguous_format)

    def sample(self, mask: torch.Tensor, seed: int, turn: int) -> torch.Tensor:
        """One allowed action for each row of a mask (*batch, n), uniformly."""
        batch, width = mask.shape[:-1], self.world.action.nvec(self.world.sizes)[0]
        if mask.dtype is not torch.bool or mask.shape[-1:] != (width,) or not mask.is_cpu:
            raise ShapeError(f"'action_mask' must be bool (..., {width}), not {mask.dtype} {tuple(mask.shape)}")
        plan = self._plans.get(batch) or self._plan(batch)
        table = self._template[:]
        table[0] = plan.rows
        mask, out = mask.contiguous(), torch.empty(batch, dtype=torch.int64)
        table[self._mask_place] = mask.data_ptr()
        args = (table.buffer_info()[0], plan.order.data_ptr(), out.data_ptr(), seed, turn)
        if self._drawer is None:
            layout = self.world._launcher_layout
            self._drawer = build_row_map(layout, any_allowed, np.dtype(np.int64))
        self._drawer.run(args, plan.rows, self._chunks(plan.rows))
        return out

    def remark(self, root: Tensors, hidden: Tensors, batch: torch.Size, mark: Any) -> torch.Tensor:
        """The masks (*batch, n) that the kernel mark(w, b, 0, 0) writes for these rows; nothing given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        width = self.world.action.nvec(self.world.sizes)[0]
        given = root.get("action_mask")
        mask = torch.zeros((*batch, width), dtype=torch.bool) if given is None else _copied(given)
        keep: list[torch.Tensor] = []
        table, _ = self._enter({**root, "action_mask": mask}, hidden, plan, keep)
        out = torch.empty(plan.rows, dtype=torch.int64)
        if self._marker is None:
            self._marker = build_row_map(self.world._launcher_layout, mark, np.dtype(np.int64))
        args = (table.buffer_info()[0], plan.order.data_ptr(), out.data_ptr(), 0, 0)
        self._marker.run(args, plan.rows, self._chunks(plan.rows))
        return mask

    # -- beginning --------------------------------------------------------------------------------------------

    def begin(self, stream: torch.Tensor, batch: torch.Size) -> Rows:
        """New episodes of a whole batch with these keys (rows, 3): instances drawn, state at its start."""
        plan = self._plans.get(batch) or self._plan(batch)
        made = {name: torch.zeros(shape, dtype=dtype) for name, dtype, shape, _, _ in plan.begun}
        return self._begin(made, stream.reshape(plan.stream), plan, plan.order[: plan.rows])

    def restart(self, root: Tensors, hidden: Tensors, batch: torch.Size, rows: torch.Tensor) -> Rows:
        """The batch with the next episode begun in these rows: all tensors are new, all other rows keep their bits."""
        plan = self._plans.get(batch) or self._plan(batch)
        made = {}
        for name, dtype, shape, _, slot in plan.begun:
            tensor = (root if slot.root else hidden).get(name)
            if tensor is None and slot in self.looks:  # no part of the state: a caller may leave it out
                tensor = torch.zeros(shape, dtype=dtype)
            if tensor is None or tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu:
                raise slot.misfit(tensor, shape)
            made[name] = _copied(tensor)
        stream = hidden.get("stream")
        if stream is None or stream.dtype is not torch.int64 or stream.shape != plan.stream or not stream.is_cpu:
            raise self.stream.misfit(stream, plan.stream)
        stream = _copied(stream)
        stream.numpy().reshape(-1, 3)[rows.numpy(), 2] += 1
        return self._begin(made, stream, plan, rows)

    def _begin(self, made: dict[str, torch.Tensor], stream: torch.Tensor, plan: Plan, rows: torch.Tensor) -> Rows:
        """Runs the kernels that draw an instance and set the state to its start, on tensors that are ours."""
        chunks = self._chunks(len(rows))
        table = self._template[:]
        table[0] = table[1] = plan.rows
        told = [(_empty_like(pattern), where) for _, pattern, where in plan.told]
        for tensor, where in told:
            table[where] = tensor.data_ptr()
        table[self._owner], table[self.stream.where] = plan.owner.data_ptr(), stream.data_ptr()
        for name, _, _, where, _ in plan.begun:
            table[where] = made[name].data_ptr()
        launcher, address, n = self.world._launcher, table.buffer_info()[0], len(rows)
        args = address, rows.data_ptr()
        launcher.generate.run(args, n, chunks)
        launcher.restart.run(args, n, chunks)
        if self._paint is not None:
            self._paint.run(args, n, chunks)
        fresh_root = {name: made[name] for name, _, _, _, slot in plan.begun if slot.root}
        fresh_hidden = {name: made[name] for name, _, _, _, slot in plan.begun if not slot.root}
        fresh_root["done"] = fresh_root["terminated"] | fresh_root["truncated"]
        fresh_hidden["stream"] = stream
        return fresh_root, fresh_hidden

    # -- checks -----------------------------------------------------------------------------------------------

    def checked_action(self, action: Any, expected: torch.Size) -> torch.Tensor:
        """Actions as the kernels read them: dtype, shape, contiguous."""
        if action is None:
            raise ShapeError("the TensorDict lacks 'action'")
        if action.shape != expected:
            raise ShapeError(f"'action' must have the shape {tuple(expected)}, not {tuple(action.shape)}")
        wanted = self._action_dtype
        if action.dtype is not wanted or not action.is_cpu or not action.is_contiguous() or action.requires_grad:
            same_kind = action.is_floating_point() == wanted.is_floating_point and action.dtype is not torch.bool
            if not same_kind or not action.is_cpu:
                raise ShapeError(f"'action' must be {wanted} on the cpu, not {action.dtype} on {action.device}")
            action = action.detach().to(wanted).contiguous()
        return action

    def _enter_stream(self, stream: Any, plan: Plan, table: array[int], keep: list[torch.Tensor]) -> None:
        if stream is None or stream.dtype is not torch.int64 or stream.shape != plan.stream or not stream.is_cpu:
            raise self.stream.misfit(stream, plan.stream)
        if not stream.is_contiguous():
            stream = stream.contiguous()
            keep.append(stream)
        table[self.stream.where] = stream.data_ptr()

    def _enter_strided(
        self, root: Tensors, hidden: Tensors, plan: Plan, table: array[int], keep: list[torch.Tensor]
    ) -> None:
        """Enters instance tensors of which some do not lie in order: those expanded over whole batch dimensions stay
        as they are, others are copied."""
        expanded: tuple[bool, ...] | None = None
        for name, dtype, shape, where, slot in plan.instance:
            tensor = (root if slot.root else hidden).get(name)
            if tensor is None or tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu:
                raise slot.misfit(tensor, shape)
            pattern = plan.own
            if not tensor.is_contiguous():
                strides = tensor.stride()
                pattern = tuple(strides[k] == 0 and size > 1 for k, size in enumerate(plan.batch))
                tensor = tensor[tuple(0 if p else slice(None) for p in pattern)].contiguous()
                keep.append(tensor)
            if expanded is not None and pattern != expanded:  # some fields expanded, others not: copy them all
                whole = {s.name: (root if s.root else hidden)[s.name].contiguous() for *_, s in plan.instance}
                keep.extend(whole.values())
                self._enter_strided(whole, whole, plan, table, keep)
                return
            expanded = pattern
            table[where] = tensor.data_ptr()
        if expanded is not None and any(expanded):
            owner, table[1] = self._owners(plan.batch, expanded)
            keep.append(owner)
            table[self._owner] = owner.data_ptr()

    def _owners(self, batch: torch.Size, expanded: tuple[bool, ...]) -> tuple[torch.Tensor, int]:
        """Which instance each row plays, for a batch expanded along some dimensions."""
        kept = [1 if e else b for b, e in zip(batch, expanded, strict=True)]
        count = int(np.prod(kept))
        owner = self._shared.get((batch, expanded))
        if owner is None:
            if len(self._shared) > PLANS:
                self._shared.clear()
            owner = torch.arange(count, dtype=torch.int32).reshape(kept).expand(batch).reshape(-1).contiguous()
            self._shared[(batch, expanded)] = owner
        return owner, count

    def _refuse_illegal(self, table: int, action: torch.Tensor, root: Tensors, hidden: Tensors, plan: Plan) -> None:
        """Names the first illegal action; its row is shown to the template for the reason."""
        n = plan.rows
        first = self.world._launcher.first_illegal((table, plan.order.data_ptr(), action.data_ptr(), 0), n)
        if first is None:
            return
        for name, _, shape, _, slot in (*plan.instance, *plan.root, *plan.hidden):
            value = (root if slot.root else hidden)[name].reshape(n, *shape[len(plan.batch) :])[first]
            getattr(self.world, name)[0] = value.reshape(slot.shape).numpy(force=True)
        said = action.reshape(n, *plan.action[len(plan.batch) :])[first].tolist()
        raise IllegalAction(f"row {first}: action {said}: {self.world.why_illegal(0, said)}")

    # -- what is worked out once ------------------------------------------------------------------------------

    def _plan(self, batch: torch.Size) -> Plan:
        with self._planning:  # several threads may step at once
            if batch.numel() > len(self._rows):
                self._grow(batch.numel())
            if len(self._plans) > PLANS:
                self._plans.clear()
            action = self.world.action.shape(self.world.sizes)
            plan = Plan(batch, self.instance, self.carried, self.told, self.looks, self.stream, action, self._rows,
                        self._own)  # fmt: skip
            self._plans[batch] = plan
        return plan

    def _chunks(self, rows: int) -> int:
        """Into how many pieces the rows are cut; each has scratch of its own, whose place may change the template."""
        slots = self.world._scratch_slots
        chunks = self.world._chunks(rows)
        if self.world._scratch_slots > slots:
            for f in self.world.fields.values():
                if f.role is Role.SCRATCH:
                    where = self.world._launcher_layout.slots[f.name]
                    self._template[where] = int(self.world._table[where])
        return chunks

    def _grow(self, n: int) -> None:
        """Makes the row numbers and the bins long enough: memory for fields that functional stepping drops.
        Old bins stay: another thread may be stepping on them."""
        n = max(n, 64, 2 * len(self._rows))
        self._rows = torch.arange(n, dtype=torch.int64)
        self._own = torch.arange(n, dtype=torch.int32)
        for f in self._binned:
            waste = np.zeros((n, *f.shape(self.world.sizes)), f.dtype)
            self._bins.append(waste)
            self._template[self.world._launcher_layout.slots[f.name]] = waste.__array_interface__["data"][0]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in order, in memory of their own."""
    if tensor.requires_grad or not tensor.is_contiguous():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return tensor.clone()
