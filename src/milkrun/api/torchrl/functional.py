"""Functional stepping: rows of tensors in, fresh rows of tensors out, by the world's own kernels.

A `Stepper` owns no state. It hands the kernel one table of addresses for the source and one for the result, and lets it
copy a row before stepping it. Instance tensors are shared by source and result, and stay shared when a TensorDict has
been expanded over whole batch dimensions: the strides then say which instance a row plays. New episodes begin in
tensors of their own too: `begin` makes whole batches, `restart` some rows of a copy. Several threads may use one
stepper: what kernels write beside those tensors is a thread's own.
"""

from __future__ import annotations

import threading
from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.checks import Checks, Tensors, checked_action
from milkrun.api.torchrl.fields import DTYPES, RESULTS, Slot, shown_fields
from milkrun.api.torchrl.memory import Workspace, Workspaces, version_of
from milkrun.api.torchrl.plan import Layout, Plan
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

PLANS = 64  # batch shapes remembered at once

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
        fields = [f for f in world.fields.values() if f.per_row]
        present = [f for f in fields if 0 not in f.shape(world.sizes)]
        carried = [f for f in present if not f.tally or (f.name == "objective" and world.reward_at_end)]

        def slots(*roles: Role) -> list[Slot]:
            return [Slot(f, world, shown) for f in carried if f.role in roles]

        self.instance = slots(Role.INSTANCE)
        self.carried = slots(Role.STATE, Role.MASK)
        self.stream = Slot(replace(world.fields["stream"], low=0), world, shown)
        self.results = [s for s in slots(Role.VIEW) if s.name in RESULTS]
        self.views = [s for s in slots(Role.VIEW) if s.field in shown]  # what a reset shows too
        self._step_from: Any = getattr(world._launcher, "step_from", None)  # a world on an engine has none
        self._observe = world._launcher.observe if any(s.field.on_demand for s in self.views) else None
        known = (*self.instance, *self.carried, *self.results, *self.views, self.stream)
        seen = {s.name for s in known if s.root}
        self.synonyms = [(alias, name) for alias, name in world.synonyms.items() if name in seen]  # shown, never read
        self._views_anew = "update_views" in kernels_of(type(world)) and self._observe is None
        self._layout = Layout(self.instance, self.carried, self.results, self.views, self.stream, self._views_anew)
        self.checks = Checks(world, self._layout)
        kept = {"instance_row", *(s.name for s in known)}
        self._spaces = Workspaces(world, self._layout, [f for f in fields if f.name not in kept])
        layout = world._launcher_layout
        self._instance_row, self._mask_place = layout.slots["instance_row"], layout.slots.get("action_mask", 0)
        self._mask_width = sum(world.action.nvec(world.sizes))
        self._judge = world._launcher.count_faults
        # Below so many rows `chunks_for` gives 1 in any case, and its call is saved.
        self._serial_below = 2 if world.threads is not None else world.parallel_from
        self.action_dtype = DTYPES[world.action.dtype]
        self._planning = threading.Lock()
        self._plans: dict[torch.Size, Plan] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int32)
        self._drawer: Entry | None = None

    # -- stepping ---------------------------------------------------------------------------------------------

    def step(self, root: Tensors, hidden: Tensors, batch: torch.Size, action: Any, raises: bool = False) -> Rows:
        """The rows one action later, for the root and for "hidden": fresh tensors, and those of the instances. Nothing
        given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        n, space = plan.rows, self._spaces.own
        chunks = 1 if n < self._serial_below else self._chunks(n)
        if n > space.rows or chunks > space.slots:
            space.make_room(n, chunks)
        action = checked_action(action, self.action_dtype, plan.action)
        keep: list[torch.Tensor] = []  # what must live until the kernel has run
        known = space.known(plan, root, hidden)
        if known is not None:
            shared, addresses, versions, source, here, is_ours = known
            # Nothing was changed that torch counts, but numpy may have written. So what kernels index with is looked at
            # all the same, and where numpy has seen memory, what they might index with, too. Without versions nothing
            # is counted, and all is looked at.
            checks = self.checks
            count = (checks.of_indices if is_ours else checks.of_seen) if versions else checks.of_all
            if self.checks.rules.first_broken(here, count) is not None:
                self.checks.values(source, count, root, hidden, plan)
        else:
            source = self.checks.enter(space.table, root, hidden, plan, keep)
            shared = plan.shared_in(root, hidden)
            versions, addresses = _versions(shared), tuple([tensor.data_ptr() for tensor in shared])
            replaced = not space.knows(shared)
            self._check_values(source, shared, root, hidden, plan)
            here, is_ours = source.buffer_info()[0], False
        judge = self._judge
        if judge is not None and not is_ours and judge.run((here, plan.order_address, 0), n, chunks):
            self.checks.states(here, root, hidden, plan, chunks)
        if known is None and replaced:
            self._check_instances(source, root, hidden, plan, chunks)
        space.last = None  # it holds tensors that could be given out
        make = (space.outputs.get(plan) or space.make_outputs(plan)).free()
        fresh_root, fresh_hidden, state = make(source, shared, addresses)
        there = state[3]
        if plan.views and not self._views_anew:
            self._enter_views(state[2], fresh_root, root, plan)
        if raises:
            self._refuse_illegal(here, action, root, hidden, plan)
        if chunks == 1:
            self._step_from.serial(there, plan.order_address, action.data_ptr(), here, 0, n, 0)
        else:
            self._step_from.run((there, plan.order_address, action.data_ptr(), here), n, chunks)
        if self._observe is not None:
            self._observe.run((there, plan.order_address), n, chunks)
        if not keep:
            # Not where copies were made: the table has their addresses, and they are freed now.
            space.remember(plan, state, shared, addresses, versions, known is not None)
        return fresh_root, fresh_hidden

    def _check_values(
        self, source: array[int], shared: tuple[Any, ...], root: Tensors, hidden: Tensors, plan: Plan
    ) -> None:
        """Checks the values of tensors that are not those of the last result; of instances only new ones."""
        space = self._spaces.own
        known = space.knows(shared)
        self.checks.values(source, self.checks.of_state if known else self.checks.of_all, root, hidden, plan)
        if not known:
            space.learn(shared)

    def _check_instances(self, source: array[int], root: Tensors, hidden: Tensors, plan: Plan, chunks: int) -> None:
        """Checks instances that no reset of ours has checked: rules between their fields, and that the state of each
        live row allows an action on its instance."""
        if not plan.rows:
            return
        self.world.check_instances(self.checks.instances(root, hidden, plan))
        if self.world.marker() is None:
            return
        mask, live = self._marked(source[:], root.get("action_mask"), root, hidden, plan, chunks)
        shut = ~mask.reshape(plan.rows, -1).any(1).numpy() & live
        if shut.any():
            raise BadInstance(f"row {int(np.flatnonzero(shut)[0])}: its state allows no action on this instance")

    def check(self, root: Tensors, hidden: Tensors, batch: torch.Size) -> None:
        """Raises unless these rows can be stepped: tensors as they must be, values within what is declared. The next
        step need not check them again."""
        plan = self._plans.get(batch) or self._plan(batch)
        keep: list[torch.Tensor] = []
        space, chunks = self._room(plan.rows)
        table = self.checks.enter(space.table, root, hidden, plan, keep)
        self._check_values(table, plan.shared_in(root, hidden), root, hidden, plan)
        self.checks.states(table.buffer_info()[0], root, hidden, plan, chunks)
        if not keep:
            self._remember(table, root, hidden, plan)

    def _remember(self, table: array[int], root: Tensors, hidden: Tensors, plan: Plan) -> None:
        """Rows that are sound are as good as the result of a step. `table` has the addresses of their tensors."""
        state, shared = plan.state_in(root, hidden), plan.shared_in(root, hidden)
        places, addresses = (tuple([tensor.data_ptr() for tensor in part]) for part in (state, shared))
        made = (state, places, table, table.buffer_info()[0], None)
        self._spaces.own.remember(plan, made, shared, addresses, _versions(shared))

    def _chunks(self, rows: int) -> int:
        return chunks_for(rows, self.world.parallel_from, self.world.threads)

    def _room(self, rows: int) -> tuple[Workspace, int]:
        """This thread's own memory, enough for so many rows, and into how many pieces they are cut."""
        space, chunks = self._spaces.own, self._chunks(rows)
        if rows > space.rows or chunks > space.slots:
            space.make_room(rows, chunks)
        return space, chunks

    def _enter_views(self, table: array[int], fresh: dict[str, torch.Tensor], root: Tensors, plan: Plan) -> None:
        """Where views are written that no step writes in every row: a row that does not move (finished, illegal action)
        keeps what it showed."""
        for name, dtype, shape, where, slot in plan.views:
            before = root.get(name)
            if before is None or slot.field.on_demand:
                view = torch.zeros(shape, dtype=dtype)
            else:
                view = slot.checked(before, dtype, shape).detach().clone(memory_format=torch.contiguous_format)
            fresh[name] = view
            table[where] = view.data_ptr()

    def _refuse_illegal(self, table: int, action: torch.Tensor, root: Tensors, hidden: Tensors, plan: Plan) -> None:
        """Names the first illegal action; its row is shown to the template for the reason."""
        n = plan.rows
        first = self.world._launcher.first_illegal((table, plan.order_address, action.data_ptr(), 0), n)
        if first is None:
            return
        said = action.reshape(n, *plan.action[len(plan.batch) :])[first].tolist()
        with self._planning:  # there is one template
            for name, _, shape, _, slot in (*plan.instance, *plan.root, *plan.hidden):
                value = (root if slot.root else hidden)[name].reshape(n, *shape[len(plan.batch) :])[first]
                getattr(self.world, name)[0] = value.reshape(slot.shape).numpy(force=True)
            why = self.world.why_illegal(0, said)
        raise IllegalAction(f"row {first}: action {said}: {why}")

    # -- masks ------------------------------------------------------------------------------------------------

    def sample(self, mask: torch.Tensor, seed: int, turn: int) -> torch.Tensor:
        """One allowed action for each row of a mask (*batch, n), uniformly."""
        batch, width = mask.shape[:-1], self.world.action.nvec(self.world.sizes)[0]
        if mask.dtype is not torch.bool or mask.shape[-1:] != (width,) or not mask.is_cpu:
            raise ShapeError(f"'action_mask' must be bool (..., {width}), not {mask.dtype} {tuple(mask.shape)}")
        plan = self._plans.get(batch) or self._plan(batch)
        space, chunks = self._room(plan.rows)
        table = space.table[:]
        table[0] = plan.rows
        mask, out = mask.contiguous(), torch.empty(batch, dtype=torch.int64)
        table[self._mask_place] = mask.data_ptr()
        if self._drawer is None:
            self._drawer = build_row_map(
                self.world._launcher_layout, any_allowed, np.dtype(np.int64), debug=self.world.debug
            )
        args = (table.buffer_info()[0], plan.order_address, out.data_ptr(), seed, turn)
        self._drawer.run(args, plan.rows, chunks)
        return out

    def derive_mask(self, root: Tensors, hidden: Tensors, batch: torch.Size) -> torch.Tensor:
        """The masks (*batch, n) that the kernel `derive_mask` writes for the live ones of these rows; nothing given is
        written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        keep: list[torch.Tensor] = []
        space, chunks = self._room(plan.rows)
        # The mask given need not be sound.
        open_mask = torch.ones((*batch, self._mask_width), dtype=torch.bool)
        table = self.checks.enter(space.table, {**root, "action_mask": open_mask}, hidden, plan, keep)
        self.checks.values(table, self.checks.of_all, root, hidden, plan)
        return self._marked(table, root.get("action_mask"), root, hidden, plan, chunks)[0]

    def _marked(
        self, table: array[int], given: torch.Tensor | None, root: Tensors, hidden: Tensors, plan: Plan, chunks: int
    ) -> tuple[torch.Tensor, np.ndarray]:
        """Masks by the kernel `derive_mask` for the rows of a table, which is changed, and which rows are live; the
        others have the mask given, or none allowed."""
        mask = torch.zeros((*plan.batch, self._mask_width), dtype=torch.bool) if given is None else _copied(given)
        table[self._mask_place] = mask.data_ptr()
        live = self.checks.live(root, hidden, plan)
        order, marker = np.flatnonzero(live), self.world.marker()
        assert marker is not None
        marker.run((table.buffer_info()[0], address_of(order)), len(order), chunks)
        return mask, live

    # -- beginning --------------------------------------------------------------------------------------------

    def begin(self, stream: torch.Tensor, batch: torch.Size) -> Rows:
        """New episodes of a whole batch with these keys (rows, 3): instances drawn, state at its start."""
        plan = self._plans.get(batch) or self._plan(batch)
        made = {name: torch.zeros(shape, dtype=dtype) for name, dtype, shape, _, _ in plan.begun}
        return self._begin(made, stream.reshape(plan.stream), plan, plan.order[: plan.rows], True)

    def restart(self, root: Tensors, hidden: Tensors, batch: torch.Size, rows: torch.Tensor) -> Rows:
        """The batch with the next episode begun in these rows: all tensors are new, all other rows keep their bits."""
        plan = self._plans.get(batch) or self._plan(batch)
        known = self._spaces.own.known(plan, root, hidden)
        # Then the rows that go on have been checked, and nobody has written there since.
        sound = known is not None and bool(known[2]) and known[5]
        # Views are no part of the state. A caller may leave them out where they are made anew: where every row begins,
        # or on demand, by a kernel that needs rows that have been checked.
        begins_all = len(rows) == plan.rows
        lacks_views = not begins_all and any(s.name not in root for s in self.views if s.field.on_demand)
        if lacks_views:
            self.check(root, hidden, batch)
        made = {}
        for name, dtype, shape, _, slot in plan.begun:
            tensor = (root if slot.root else hidden).get(name)
            if tensor is None and slot in self.views and (begins_all or slot.field.on_demand):
                tensor = torch.zeros(shape, dtype=dtype)
            made[name] = _copied(slot.checked(tensor, dtype, shape))
        stream = _copied(self.stream.checked(hidden.get("stream"), torch.int64, plan.stream))
        # A copy in order, so that the reshape is a view of it and the sum is written into the tensor itself.
        stream.numpy().reshape(-1, 3)[rows.numpy(), 2] += 1
        return self._begin(made, stream, plan, rows, sound, lacks_views)

    def _begin(
        self,
        made: dict[str, torch.Tensor],
        stream: torch.Tensor,
        plan: Plan,
        rows: torch.Tensor,
        sound: bool,
        lacks_views: bool = False,
    ) -> Rows:
        """Runs the kernels that draw an instance and set the state to its start, on tensors that are ours. `sound`: all
        rows are what kernels made, so that the next step need not check them as it would a stranger's. `lacks_views`:
        rows that go on need theirs too."""
        space, chunks = self._room(plan.rows)
        chunks = min(chunks, max(len(rows), 1))
        table = space.table[:]
        table[0] = table[1] = plan.rows
        # The kernel that begins an episode sets the reward to 0. A reset shows none, so it only needs a place.
        results = [(torch.empty(w.shape, dtype=w.dtype), w.where) for w in plan.results]
        for tensor, where in results:
            table[where] = tensor.data_ptr()
        table[self._instance_row], table[self.stream.where] = plan.owner.data_ptr(), stream.data_ptr()
        for name, _, _, where, _ in plan.begun:
            table[where] = made[name].data_ptr()
        launcher, n = self.world._launcher, len(rows)
        args = table.buffer_info()[0], rows.data_ptr()
        launcher.generate(table).run(args, n, chunks)
        launcher.restart.run(args, n, chunks)
        if lacks_views:
            args, n = (args[0], plan.order_address), plan.rows
        if self._observe is not None:
            self._observe.run(args, n, chunks)
        fresh_root = {name: made[name] for name, _, _, _, slot in plan.begun if slot.root}
        fresh_hidden = {name: made[name] for name, _, _, _, slot in plan.begun if not slot.root}
        fresh_root["done"] = fresh_root["terminated"] | fresh_root["truncated"]
        fresh_hidden["stream"] = stream
        if sound or torch.is_inference_mode_enabled():  # there changes are not counted: every step checks all
            self._remember(table, fresh_root, fresh_hidden, plan)
        return fresh_root, fresh_hidden

    # -- what is worked out once ------------------------------------------------------------------------------

    def _plan(self, batch: torch.Size) -> Plan:
        with self._planning:  # several threads may step at once
            if batch.numel() > len(self._rows):
                self._grow(batch.numel())
            if len(self._plans) > PLANS:
                self._plans.clear()
            action = self.world.action.shape(self.world.sizes)
            plan = self._plans[batch] = Plan(batch, self._layout, action, self._rows, self._own)
        return plan

    def _grow(self, n: int) -> None:
        """Makes the numbers of rows and instances long enough. Plans made before keep theirs."""
        n = max(n, 64, 2 * len(self._rows))
        self._rows = torch.arange(n, dtype=torch.int64)
        self._own = torch.arange(n, dtype=torch.int32)


def _versions(shared: tuple[torch.Tensor, ...]) -> tuple[int, ...]:
    """How often the tensors that a step hands on have been changed in place."""
    try:
        return tuple(map(version_of, shared))
    except RuntimeError:  # made in inference mode, where changes are not counted
        return ()


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in order, in memory of their own."""
    if tensor.requires_grad or not tensor.is_contiguous():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return tensor.clone()
