"""Functional stepping: rows of tensors in, fresh rows of tensors out, by the world's own kernels.

A `Stepper` owns no state. It checks every tensor it is given before it takes an address (key, dtype, shape, device,
order in memory) and every value that a declared rule is about before a kernel runs, hands the kernel one table of
addresses for the source and one for the result, and lets it copy a row before stepping it. Instance tensors are shared
by source and result, and stay shared when a TensorDict has been expanded over whole batch dimensions: the strides then
say which instance a row plays. New episodes begin in tensors of their own too: `begin` makes whole batches, `restart`
some rows of a copy. Several threads may use one stepper: what kernels write beside those tensors is a thread's own.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.slots import DTYPES, TOLD, Plan, Slot, shown_fields
from milkrun.api.torchrl.workspace import Workspace, version_of
from milkrun.core.bounds import Bounds
from milkrun.core.errors import IllegalAction, ShapeError
from milkrun.core.fields import Field, Role
from milkrun.core.hooks import kernels_of
from milkrun.core.instances import check_mask, check_values
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_row_map
from milkrun.core.rng import stream
from milkrun.core.sampling import SAMPLING, pick
from milkrun.core.threads import Entry, chunks_for
from milkrun.core.world import World

PLANS = 64  # batch shapes remembered at once

REMEMBERED = 2048  # rows up to which the last result is kept at hand: there checks cost as much as the kernel

WHOLE = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32))
FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))

_empty_like = torch.empty_like  # less than half the cost of torch.empty, and this is most of a small step

Tensors = Mapping[str, Any]
Rows = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]  # what stands at the root, what under "hidden"
Recalled = tuple[tuple[Any, ...], tuple[int, ...], "array[int] | None"]


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
        self.told = [s for s in slots(Role.VIEW) if s.name in TOLD]
        self.looks = [s for s in slots(Role.VIEW) if s.field in shown]  # what a reset shows too
        self._looks_anew = "update_views" in kernels_of(type(world)) and len({s.dtype for s in self.looks}) == 1
        self._paint = world._launcher.observe if any(s.field.on_demand for s in self.looks) else None
        known = (*self.instance, *self.carried, *self.told, *self.looks, self.stream)
        seen = {s.name for s in known if s.root}
        self.synonyms = [(alias, name) for alias, name in world.synonyms.items() if name in seen]  # shown, never read
        self._set_rules()
        kept = {"instance_row", *(s.name for s in known)}
        self._space = Workspace(world, [f for f in fields if f.name not in kept])
        layout = world._launcher_layout
        self._owner = layout.slots["instance_row"]
        self._serial_below = 2 if world.threads is not None else world.parallel_from
        self._mask_place = layout.slots.get("action_mask", 0)
        self._action_dtype = DTYPES[world.action.dtype]
        self._planning = threading.Lock()
        self._shared: dict[Any, torch.Tensor] = {}
        self._plans: dict[torch.Size, Plan] = {}
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._own = torch.zeros(0, dtype=torch.int32)
        self._drawer: Entry | None = None
        self._marker: Entry | None = None

    def _set_rules(self) -> None:
        """What is asked of values, in the order of how often it is: numbers with which kernels index (whole, with a
        highest one) at every step; the rest of the state where it is not what the last step gave; instances once."""

        def indexes(slot: Slot) -> bool:
            f = slot.field
            bounded = f.dtype.kind in "iu" and (f.index is not None or f.high is not None)
            return bounded and (f.role is not Role.INSTANCE or not f.dims)

        always = [s.field for s in (*self.carried, *self.instance) if indexes(s)]
        state = [s.field for s in (*self.carried, self.stream) if not indexes(s)]
        layout, sizes = self.world._launcher_layout, self.world.sizes
        rest = [s.field for s in self.instance if not indexes(s)]
        sets = (always, always + state, always + state + rest)
        every = [Bounds(layout, some, sizes, self.world.action.nvec(sizes)) for some in sets]
        self._always, self._ours, self._rules = len(every[0]), len(every[1]), every[2]

    # -- stepping ---------------------------------------------------------------------------------------------

    def step(self, root: Tensors, hidden: Tensors, batch: torch.Size, action: Any, raises: bool = False) -> Rows:
        """The rows one action later, for the root and for "hidden": fresh tensors, and those of the instances. Nothing
        given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        n = plan.rows
        space, chunks = self._space, 1 if n < self._serial_below else self._chunks(n)
        if n > space.rows or chunks > space.slots:
            space.make_room(n, chunks)
        action = self.checked_action(action, plan.action)
        keep: list[torch.Tensor] = []  # what must live until the kernel has run
        given, versions, source = self._recall(space, plan, root, hidden)
        seen, secret, unseen = plan.parts
        if source is None:
            source, carried = self._enter(root, hidden, plan, space, keep)
            known = self._known(space, given[seen:secret] + given[unseen:])
            count = self._ours if known else len(self._rules)
        else:
            carried, known, count = given[:seen] + given[secret:unseen], True, self._always
        here = source.buffer_info()[0]
        if (broken := self._rules.first_broken(here, count)) is not None:
            self._refuse(broken, root, hidden, plan)
        if not known:
            space.instances = _remembered(given[seen:secret] + given[unseen:])
        made = (*map(_empty_like, carried), *map(_empty_like, plan.told_patterns))
        result = source[:]
        plan.enter(result, made)
        fresh_root, fresh_hidden, after = plan.show(made, given)
        if plan.looks:
            looks = self._fresh_looks(plan) if self._looks_anew else self._last_looks(plan, root)
            for (name, _, _, where, _), look in zip(plan.looks, looks, strict=True):
                fresh_root[name] = look
                result[where] = look.data_ptr()
        if raises:
            self._refuse_illegal(here, action, root, hidden, plan)
        order, there = plan.order_address, result.buffer_info()[0]
        self.world._launcher.step_from.run((there, order, action.data_ptr(), here), n, chunks)
        if self._paint is not None:
            self._paint.run((there, order), n, chunks)
        space.last = None if keep else (plan, _held(after, n), versions, result)
        return fresh_root, fresh_hidden

    def _chunks(self, rows: int) -> int:
        return chunks_for(rows, self.world.parallel_from, self.world.threads)

    def _room(self, rows: int) -> tuple[Workspace, int]:
        """This thread's own memory, enough for so many rows, and into how many pieces they are cut."""
        space, chunks = self._space, self._chunks(rows)
        if rows > space.rows or chunks > space.slots:
            space.make_room(rows, chunks)
        return space, chunks

    def _recall(self, space: Workspace, plan: Plan, root: Tensors, hidden: Tensors) -> Recalled:
        """What is given, and the count of its changes in place if they were those of the last step's result; also that
        result's table, if these are its very tensors, as and where they were: then all was checked. What changes a
        tensor in place, be it values or shape, counts up its version."""
        try:
            given = plan.read_root(root) + plan.read_hidden(hidden)
        except KeyError:  # which is told by whoever checks one after the other
            return (), (), None
        last = space.last
        if last is None or last[0] is not plan:
            return given, _fresh_versions(plan, given), None
        _, before, versions, table = last
        if plan.rows >= REMEMBERED:
            before = tuple(ref() for ref in before)
        if plan.is_last(given, before, versions, table):
            return given, versions, table
        return given, _fresh_versions(plan, given), None

    def _known(self, space: Workspace, shared: tuple[Any, ...]) -> bool:
        """Whether these instances were the last ones that were looked at, and have not been changed since."""
        if space.instances is None:
            return False
        refs, versions = space.instances
        return all(tensor is ref() for tensor, ref in zip(shared, refs, strict=True)) and _unchanged(shared, versions)

    def _enter(
        self, root: Tensors, hidden: Tensors, plan: Plan, space: Workspace, keep: list[torch.Tensor]
    ) -> tuple[array[int], tuple[torch.Tensor, ...]]:
        """Checks every tensor and enters its address into a table; also the state tensors, in order in memory."""
        source = space.table[:]
        source[0] = source[1] = plan.rows
        source[self._owner] = plan.owner.data_ptr()
        for name, dtype, shape, where, slot in plan.instance:
            tensor = slot.checked((root if slot.root else hidden).get(name), dtype, shape)
            if not tensor.is_contiguous():
                self._enter_strided(root, hidden, plan, source, keep)
                break
            source[where] = tensor.data_ptr()
        stream = self.stream.checked(hidden.get("stream"), torch.int64, plan.stream)
        source[self.stream.where] = _in_order(stream, keep).data_ptr()
        carried = []
        for given, entries in ((root, plan.root), (hidden, plan.hidden)):
            for name, dtype, shape, where, slot in entries:
                tensor = _in_order(slot.checked(given.get(name), dtype, shape), keep)
                source[where] = tensor.data_ptr()
                carried.append(tensor)
        return source, tuple(carried)

    def check(self, root: Tensors, hidden: Tensors, batch: torch.Size) -> None:
        """Raises unless these rows can be stepped: tensors as they must be, values within what is declared."""
        plan = self._plans.get(batch) or self._plan(batch)
        keep: list[torch.Tensor] = []
        table, _ = self._enter(root, hidden, plan, self._room(plan.rows)[0], keep)
        self._refuse_broken(table, root, hidden, plan)

    def _refuse_broken(self, table: array[int], root: Tensors, hidden: Tensors, plan: Plan) -> None:
        broken = self._rules.first_broken(table.buffer_info()[0], len(self._rules))
        if broken is not None:
            self._refuse(broken, root, hidden, plan)

    def _refuse(self, f: Field, root: Tensors, hidden: Tensors, plan: Plan) -> None:
        """Raises for the first value that breaks the rule of a field: row, field, value, bound."""

        def rows(name: str) -> np.ndarray:
            tensor = root[name] if name in root else hidden[name]
            shape = self.world.fields[name].shape(self.world.sizes)
            return tensor.reshape(plan.rows, *shape).numpy(force=True)

        if f.role is Role.MASK:
            live = ~(rows("terminated") | rows("truncated"))
            check_mask(f.name, rows(f.name), self.world.action.nvec(self.world.sizes), live)
        check_values(f, rows(f.name), self.world.sizes)

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
        return slot.checked(shown, dtype, shape).detach().clone(memory_format=torch.contiguous_format)

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
        args = (table.buffer_info()[0], plan.order.data_ptr(), out.data_ptr(), seed, turn)
        if self._drawer is None:
            layout = self.world._launcher_layout
            self._drawer = build_row_map(layout, any_allowed, np.dtype(np.int64))
        self._drawer.run(args, plan.rows, chunks)
        return out

    def mark_anew(self, root: Tensors, hidden: Tensors, batch: torch.Size, mark: Any) -> torch.Tensor:
        """The masks (*batch, n) that the kernel mark(w, b, 0, 0) writes for these rows; nothing given is written to."""
        plan = self._plans.get(batch) or self._plan(batch)
        width = self.world.action.nvec(self.world.sizes)[0]
        given = root.get("action_mask")
        mask = torch.zeros((*batch, width), dtype=torch.bool) if given is None else _copied(given)
        keep: list[torch.Tensor] = []
        space, chunks = self._room(plan.rows)
        open_mask = torch.ones_like(mask)  # the one given need not be sound, since it is made anew
        table, _ = self._enter({**root, "action_mask": open_mask}, hidden, plan, space, keep)
        self._refuse_broken(table, root, hidden, plan)
        table[self._mask_place] = mask.data_ptr()
        out = torch.empty(plan.rows, dtype=torch.int64)
        if self._marker is None:
            self._marker = build_row_map(self.world._launcher_layout, mark, np.dtype(np.int64))
        args = (table.buffer_info()[0], plan.order.data_ptr(), out.data_ptr(), 0, 0)
        self._marker.run(args, plan.rows, chunks)
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
            made[name] = _copied(slot.checked(tensor, dtype, shape))
        stream = _copied(self.stream.checked(hidden.get("stream"), torch.int64, plan.stream))
        stream.numpy().reshape(-1, 3)[rows.numpy(), 2] += 1
        return self._begin(made, stream, plan, rows)

    def _begin(self, made: dict[str, torch.Tensor], stream: torch.Tensor, plan: Plan, rows: torch.Tensor) -> Rows:
        """Runs the kernels that draw an instance and set the state to its start, on tensors that are ours."""
        space, chunks = self._room(plan.rows)
        chunks = min(chunks, max(len(rows), 1))
        table = space.table[:]
        table[0] = table[1] = plan.rows
        told = [(_empty_like(pattern), where) for _, pattern, where in plan.told]
        for tensor, where in told:
            table[where] = tensor.data_ptr()
        table[self._owner], table[self.stream.where] = plan.owner.data_ptr(), stream.data_ptr()
        for name, _, _, where, _ in plan.begun:
            table[where] = made[name].data_ptr()
        launcher, address, n = self.world._launcher, table.buffer_info()[0], len(rows)
        args = address, rows.data_ptr()
        launcher.generate(table).run(args, n, chunks)
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
        return checked_action(action, self._action_dtype, expected)

    def _enter_strided(
        self, root: Tensors, hidden: Tensors, plan: Plan, table: array[int], keep: list[torch.Tensor]
    ) -> None:
        """Enters instance tensors of which some do not lie in order: those expanded over whole batch dimensions stay
        as they are, others are copied."""
        expanded: tuple[bool, ...] | None = None
        for name, dtype, shape, where, slot in plan.instance:
            tensor = slot.checked((root if slot.root else hidden).get(name), dtype, shape)
            pattern = plan.own
            if not tensor.is_contiguous():
                strides = tensor.stride()
                pattern = tuple(strides[k] == 0 and size > 1 for k, size in enumerate(plan.batch))
                tensor = tensor[tuple(0 if p else slice(None) for p in pattern)].contiguous()
                keep.append(tensor)
            if expanded is not None and pattern != expanded:  # some fields expanded, others not: copy them all
                whole = {name: slot.checked((root if slot.root else hidden).get(name), dtype, shape).contiguous()
                         for name, dtype, shape, _, slot in plan.instance}  # fmt: skip
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
        said = action.reshape(n, *plan.action[len(plan.batch) :])[first].tolist()
        with self._planning:  # there is one template
            for name, _, shape, _, slot in (*plan.instance, *plan.root, *plan.hidden):
                value = (root if slot.root else hidden)[name].reshape(n, *shape[len(plan.batch) :])[first]
                getattr(self.world, name)[0] = value.reshape(slot.shape).numpy(force=True)
            why = self.world.why_illegal(0, said)
        raise IllegalAction(f"row {first}: action {said}: {why}")

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

    def _grow(self, n: int) -> None:
        """Makes the numbers of rows and instances long enough. Plans made before keep theirs."""
        n = max(n, 64, 2 * len(self._rows))
        self._rows = torch.arange(n, dtype=torch.int64)
        self._own = torch.arange(n, dtype=torch.int32)


def _held(tensors: tuple[torch.Tensor, ...], rows: int) -> tuple[Any, ...]:
    """The tensors to know again; of many rows weak references, so that nothing large is kept alive."""
    return tensors if rows < REMEMBERED else tuple(map(weakref.ref, tensors))


def _remembered(shared: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    try:
        return tuple(map(weakref.ref, shared)), tuple(map(version_of, shared))
    except RuntimeError:  # made in inference mode, where changes are not counted
        return None


def _fresh_versions(plan: Plan, given: tuple[Any, ...]) -> tuple[int, ...]:
    """The counts of changes when instances are as they are now, and state is fresh."""
    seen, secret, unseen = plan.parts
    try:
        shown, others = map(version_of, given[seen:secret]), map(version_of, given[unseen:])
        return (*(0,) * seen, *shown, *(0,) * (unseen - secret), *others)
    except (RuntimeError, TypeError):  # inference mode; no tensors
        return ()


def _unchanged(tensors: tuple[Any, ...], versions: tuple[int, ...]) -> bool:
    try:
        return tuple(map(version_of, tensors)) == versions
    except RuntimeError:
        return False


def _in_order(tensor: torch.Tensor, keep: list[torch.Tensor]) -> torch.Tensor:
    """The same values in C order; a copy is kept alive."""
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
        keep.append(tensor)
    return tensor


def checked_action(action: Any, wanted: torch.dtype, expected: torch.Size, name: Any = "action") -> torch.Tensor:
    """Actions of the wanted dtype, contiguous; other whole numbers (or other floats) are converted."""
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


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in order, in memory of their own."""
    if tensor.requires_grad or not tensor.is_contiguous():
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return tensor.clone()
