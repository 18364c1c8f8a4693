"""Functional stepping: the world's kernels read input tensors and write new ones.

A `Stepper` has no state. The kernel gets one table of addresses for the source and one for the result, and copies a row
before stepping it. Instance tensors are shared by source and result, also when a TensorDict was expanded over whole
batch dimensions: the strides then determine which instance a row plays. Resets make new tensors too: `begin` for whole
batches, `restart` for some rows of a copy. A stepper is thread-safe: each thread has its own work space.
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.batch_spec import BatchSpec, SlotGroups
from milkrun.api.torchrl.checks import Checks, Tensors, checked_action
from milkrun.api.torchrl.fields import DTYPES, RESULTS, Slot, shown_fields
from milkrun.api.torchrl.workspace import Workspace, Workspaces
from milkrun.core.errors import BadInstance, IllegalAction, ShapeError
from milkrun.core.fields import Role
from milkrun.core.hooks import kernels_of
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_row_map
from milkrun.core.memory import address_of
from milkrun.core.rng import stream
from milkrun.core.sampling import SAMPLING, pick
from milkrun.core.threads import Entry, chunks_for
from milkrun.core.world import World

CACHED_SPECS = 64  # batch shapes

empty_like = torch.empty_like

Rows = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]  # at the root, under "hidden"


@kernel
def any_allowed(w, b, seed, turn):  # type: ignore[no-untyped-def]
    """An allowed action; the draw depends on the place in the batch, since copies of a row share their stream."""
    return pick(w, b, 0, w.action_mask.shape[1], stream(seed, b, turn, SAMPLING), 0)


class Stepper:
    """Steps rows of one world given as tensors. `world` is a template: one row, never stepped."""

    def __init__(self, world: World, features: bool = False) -> None:
        self.world = world
        shown = shown_fields(world, features)
        fields = [f for f in world.fields.values() if f.per_row]
        present = [f for f in fields if 0 not in f.shape(world.sizes)]
        carried = [f for f in present if not f.tally or (f.name == "objective" and world.reward_at_end)]

        def slots(*roles: Role) -> list[Slot]:
            return [Slot(f, world, shown) for f in carried if f.role in roles]

        self.instance = slots(Role.INSTANCE)
        self.carried = slots(Role.STATE, Role.MASK)
        self.stream = Slot(replace(world.fields["stream"], low=0), world, shown)
        self.results = [s for s in slots(Role.VIEW) if s.name in RESULTS]
        self.reward, self.done = (next(s for s in self.results if s.name == name) for name in ("reward", "done"))
        self.views = [s for s in slots(Role.VIEW) if s.field in shown]  # also in the result of a reset
        self._step_from: Any = getattr(world._launcher, "step_from", None)  # a world on an engine has none
        self._observe = world._launcher.observe if any(s.field.on_demand for s in self.views) else None
        known = (*self.instance, *self.carried, *self.results, *self.views, self.stream)
        seen = {s.name for s in known if s.root}
        self.synonyms = [(alias, name) for alias, name in world.synonyms.items() if name in seen]  # outputs only
        self._views_remade = "update_views" in kernels_of(type(world)) and self._observe is None
        self._groups = SlotGroups(
            self.instance, self.carried, self.results, self.views, self.stream, self._views_remade
        )
        self.checks = Checks(world, self._groups)
        kept = {"instance_row", *(s.name for s in known)}
        self._spaces = Workspaces(world, [f for f in fields if f.name not in kept])
        layout = world._launcher_layout
        self._instance_row = layout.slots["instance_row"]
        self._mask_place = layout.slots.get("action_mask", 0)
        self._mask_width = sum(world.action.nvec(world.sizes))
        self._judge = world._launcher.count_faults
        self.action_dtype = DTYPES[world.action.dtype]
        self._lock = threading.Lock()
        self._specs: dict[torch.Size, BatchSpec] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int32)
        self._drawer: Entry | None = None

    # -- stepping ---------------------------------------------------------------------------------------------

    def step(self, root: Tensors, hidden: Tensors, batch: torch.Size, action: Any, raises: bool = False) -> Rows:
        """The rows after one action, for the root and for "hidden": new tensors, and the instance tensors as they are.
        Inputs are never written."""
        spec = self._specs.get(batch) or self._spec(batch)
        n = spec.rows
        space, chunks = self._room(n)
        action = checked_action(action, self.action_dtype, spec.action)
        keep: list[torch.Tensor] = []  # tensors that must live until the kernel has run
        source = self.checks.enter(space.table, root, hidden, spec, keep)
        shared = spec.shared_in(root, hidden)
        known = space.is_validated(shared)
        self.checks.values(source, self.checks.of_state if known else self.checks.of_all, root, hidden, spec)
        here = source.buffer_info()[0]
        if self._judge is not None and self._judge.run((here, spec.order_address, 0), n, chunks):
            self.checks.states(here, root, hidden, spec, chunks)
        if not known:
            self._check_instances(source, root, hidden, spec, chunks)
            space.note_validated(shared)
        if raises:
            self._refuse_illegal(here, action, root, hidden, spec)
        table = source[:]
        fresh_root, fresh_hidden = self._outputs(table, spec)
        for name, at_root in spec.passed_on:
            (fresh_root if at_root else fresh_hidden)[name] = (root if at_root else hidden)[name]
        if spec.views and not self._views_remade:
            self._enter_views(table, fresh_root, root, spec)
        there = table.buffer_info()[0]
        self._step_from.run((there, spec.order_address, action.data_ptr(), here), n, chunks)
        if self._observe is not None:
            self._observe.run((there, spec.order_address), n, chunks)
        return fresh_root, fresh_hidden

    def _outputs(self, table: array[int], spec: BatchSpec) -> Rows:
        """New output tensors of a step, entered in the table. They are normal tensors also under inference mode, so
        that a policy can be trained on them."""
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                return self._outputs(table, spec)
        root: dict[str, torch.Tensor] = {}
        hidden: dict[str, torch.Tensor] = {}
        for name, at_root, where, template in spec.output_templates:
            tensor = empty_like(template)
            (root if at_root else hidden)[name] = tensor
            table[where] = tensor.data_ptr()
        return root, hidden

    def _check_instances(
        self, source: array[int], root: Tensors, hidden: Tensors, spec: BatchSpec, chunks: int
    ) -> None:
        """Validates instances that no reset here has validated: rules between their fields, and that each live row has
        an allowed action."""
        if not spec.rows:
            return
        self.world.check_instances(self.checks.instances(root, hidden, spec))
        if self.world.marker() is None:
            return
        mask, live = self._marked(source[:], root.get("action_mask"), root, hidden, spec, chunks)
        shut = ~mask.reshape(spec.rows, -1).any(1).numpy() & live
        if shut.any():
            raise BadInstance(f"row {int(np.flatnonzero(shut)[0])}: its state allows no action on this instance")

    def check(self, root: Tensors, hidden: Tensors, batch: torch.Size) -> None:
        """Raises unless these rows can be stepped: validates tensors and declared bounds. The rules between instance
        fields were validated by a World."""
        spec = self._specs.get(batch) or self._spec(batch)
        space, chunks = self._room(spec.rows)
        keep: list[torch.Tensor] = []
        table = self.checks.enter(space.table, root, hidden, spec, keep)
        self.checks.values(table, self.checks.of_all, root, hidden, spec)
        self.checks.states(table.buffer_info()[0], root, hidden, spec, chunks)
        space.note_validated(spec.shared_in(root, hidden))

    def _chunks(self, rows: int) -> int:
        return chunks_for(rows, self.world.parallel_from, self.world.threads)

    def _room(self, rows: int) -> tuple[Workspace, int]:
        """The workspace of this thread, with memory for this many rows, and the number of chunks."""
        space, chunks = self._spaces.own, self._chunks(rows)
        if rows > space.rows or chunks > space.slots:
            space.make_room(rows, chunks)
        return space, chunks

    def _enter_views(self, table: array[int], fresh: dict[str, torch.Tensor], root: Tensors, spec: BatchSpec) -> None:
        """Enters copies of views that a step does not write in every row: a row that does not move (finished, illegal
        action) keeps its views."""
        for name, dtype, shape, where, slot in spec.views:
            before = root.get(name)
            if before is None or slot.field.on_demand:
                view = torch.zeros(shape, dtype=dtype)
            else:
                view = slot.checked(before, dtype, shape).detach().clone(memory_format=torch.contiguous_format)
            fresh[name] = view
            table[where] = view.data_ptr()

    def _refuse_illegal(
        self, table: int, action: torch.Tensor, root: Tensors, hidden: Tensors, spec: BatchSpec
    ) -> None:
        """Raises for the first illegal action; its row is copied to the template, which gives the reason."""
        n = spec.rows
        first = self.world._launcher.first_illegal((table, spec.order_address, action.data_ptr(), 0), n)
        if first is None:
            return
        value_of_action = action.reshape(n, *spec.action[len(spec.batch) :])[first].tolist()
        with self._lock:  # threads share one template
            for name, _, shape, _, slot in (*spec.instance, *spec.root, *spec.hidden):
                value = (root if slot.root else hidden)[name].reshape(n, *shape[len(spec.batch) :])[first]
                getattr(self.world, name)[0] = value.reshape(slot.shape).numpy(force=True)
            why = self.world.why_illegal(0, value_of_action)
        raise IllegalAction(f"row {first}: action {value_of_action}: {why}")

    # -- masks ------------------------------------------------------------------------------------------------

    def sample(self, mask: torch.Tensor, seed: int, turn: int) -> torch.Tensor:
        """One allowed action for each row of a mask (*batch, n), uniformly."""
        batch, width = mask.shape[:-1], self.world.action.nvec(self.world.sizes)[0]
        if mask.dtype is not torch.bool or mask.shape[-1:] != (width,) or not mask.is_cpu:
            raise ShapeError(f"'action_mask' must be bool (..., {width}), not {mask.dtype} {tuple(mask.shape)}")
        spec = self._specs.get(batch) or self._spec(batch)
        space, chunks = self._room(spec.rows)
        table = space.table[:]
        table[0] = spec.rows
        mask, out = mask.contiguous(), torch.empty(batch, dtype=torch.int64)
        table[self._mask_place] = mask.data_ptr()
        if self._drawer is None:
            self._drawer = build_row_map(
                self.world._launcher_layout, any_allowed, np.dtype(np.int64), debug=self.world.debug
            )
        args = (table.buffer_info()[0], spec.order_address, out.data_ptr(), seed, turn)
        self._drawer.run(args, spec.rows, chunks)
        return out

    def derive_mask(self, root: Tensors, hidden: Tensors, batch: torch.Size) -> torch.Tensor:
        """The masks (*batch, n) of these rows, for live ones by the kernel `derive_mask`. Inputs are never written."""
        spec = self._specs.get(batch) or self._spec(batch)
        keep: list[torch.Tensor] = []
        space, chunks = self._room(spec.rows)
        # The given mask may be invalid.
        open_mask = torch.ones((*batch, self._mask_width), dtype=torch.bool)
        table = self.checks.enter(space.table, {**root, "action_mask": open_mask}, hidden, spec, keep)
        self.checks.values(table, self.checks.of_all, root, hidden, spec)
        return self._marked(table, root.get("action_mask"), root, hidden, spec, chunks)[0]

    def _marked(
        self,
        table: array[int],
        given: torch.Tensor | None,
        root: Tensors,
        hidden: Tensors,
        spec: BatchSpec,
        chunks: int,
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Masks by the kernel `derive_mask` for the live rows of a table, and which rows are live; changes the table.
        Other rows have the given mask, or no allowed action."""
        mask = torch.zeros((*spec.batch, self._mask_width), dtype=torch.bool) if given is None else _copied(given)
        table[self._mask_place] = mask.data_ptr()
        live = self.checks.live(root, hidden, spec)
        order, marker = np.flatnonzero(live), self.world.marker()
        assert marker is not None
        marker.run((table.buffer_info()[0], address_of(order)), len(order), chunks)
        return mask, live

    # -- beginning --------------------------------------------------------------------------------------------

    def begin(self, stream: torch.Tensor, batch: torch.Size) -> Rows:
        """Begins episodes of a whole batch with these keys (rows, 3)."""
        spec = self._specs.get(batch) or self._spec(batch)
        made = {name: torch.zeros(shape, dtype=dtype) for name, dtype, shape, _, _ in spec.begun}
        return self._begin(made, stream.reshape(spec.stream), spec, spec.order[: spec.rows], validated=True)

    def restart(self, root: Tensors, hidden: Tensors, batch: torch.Size, rows: torch.Tensor) -> Rows:
        """The batch with the next episode begun in these rows: all tensors are new, other rows are equal to the bit."""
        spec = self._specs.get(batch) or self._spec(batch)
        # Views are no part of the state. They may be absent where they are computed again: if every row begins, or on
        # demand, by a kernel that needs validated rows.
        begins_all = len(rows) == spec.rows
        lacks_views = not begins_all and any(s.name not in root for s in self.views if s.field.on_demand)
        if lacks_views:
            self.check(root, hidden, batch)
        made = {}
        for name, dtype, shape, _, slot in spec.begun:
            tensor = (root if slot.root else hidden).get(name)
            if tensor is None and slot in self.views and (begins_all or slot.field.on_demand):
                tensor = torch.zeros(shape, dtype=dtype)
            made[name] = _copied(slot.checked(tensor, dtype, shape))
        stream = _copied(self.stream.checked(hidden.get("stream"), torch.int64, spec.stream))
        validated = self._spaces.own.is_validated(spec.shared_in(root, hidden))
        # A contiguous copy, so that the reshape is a view and the sum is written into the tensor.
        stream.numpy().reshape(-1, 3)[rows.numpy(), 2] += 1
        return self._begin(made, stream, spec, rows, validated or begins_all, lacks_views)

    def _begin(
        self,
        made: dict[str, torch.Tensor],
        stream: torch.Tensor,
        spec: BatchSpec,
        rows: torch.Tensor,
        validated: bool,
        lacks_views: bool = False,
    ) -> Rows:
        """Runs the kernels that draw an instance and set the state to its start. `validated`: the other rows play
        validated instances. `lacks_views`: the other rows need their views computed too."""
        space, chunks = self._room(spec.rows)
        chunks = min(chunks, max(len(rows), 1))
        table = space.table[:]
        table[0] = table[1] = spec.rows
        # The kernel sets the reward to 0. A reset returns no reward, so its memory is temporary.
        results = [(torch.empty(w.shape, dtype=w.dtype), w.where) for w in spec.results]
        for tensor, where in results:
            table[where] = tensor.data_ptr()
        table[self._instance_row], table[self.stream.where] = spec.owner.data_ptr(), stream.data_ptr()
        for name, _, _, where, _ in spec.begun:
            table[where] = made[name].data_ptr()
        launcher, n = self.world._launcher, len(rows)
        args = table.buffer_info()[0], rows.data_ptr()
        launcher.generate(table).run(args, n, chunks)
        launcher.restart.run(args, n, chunks)
        if lacks_views:
            args, n = (args[0], spec.order_address), spec.rows
        if self._observe is not None:
            self._observe.run(args, n, chunks)
        fresh_root = {name: made[name] for name, _, _, _, slot in spec.begun if slot.root}
        fresh_hidden = {name: made[name] for name, _, _, _, slot in spec.begun if not slot.root}
        fresh_root["done"] = fresh_root["terminated"] | fresh_root["truncated"]
        fresh_hidden["stream"] = stream
        if validated:
            space.note_validated(spec.shared_in(fresh_root, fresh_hidden))
        return fresh_root, fresh_hidden

    # -- cached specs -----------------------------------------------------------------------------------------

    def _spec(self, batch: torch.Size) -> BatchSpec:
        with self._lock:  # several threads may step at once
            if batch.numel() > len(self._rows):
                self._grow(batch.numel())
            if len(self._specs) > CACHED_SPECS:
                self._specs.clear()
            action = self.world.action.shape(self.world.sizes)
            spec = self._specs[batch] = BatchSpec(batch, self._groups, action, self._rows, self._own)
        return spec

    def _grow(self, n: int) -> None:
        """Grows the row and instance numbers. Existing specs keep theirs."""
        n = max(n, 64, 2 * len(self._rows))
        self._rows = torch.arange(n, dtype=torch.int64)
        self._own = torch.arange(n, dtype=torch.int32)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy."""
    if tensor.requires_grad or not tensor.is_contiguous():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return tensor.clone()
