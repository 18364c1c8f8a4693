"""Plan: the tensors of a batch of one shape, worked out once, and the functions that read and make them name by name.

At few rows the kernel takes a microsecond and handling some twenty tensors takes all the others. So a plan writes two
functions as text, without loops: one knows the tensors of the last step again, one gives out those of the next.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from milkrun.api.torchrl.fields import Slot
from milkrun.api.torchrl.lending import Lent
from milkrun.api.torchrl.snapshot import INLINE, Compiled, Snapshot


class Wanted(NamedTuple):
    """One tensor of a plan."""

    name: str
    dtype: torch.dtype
    shape: torch.Size
    where: int  # its place in the kernels' table
    slot: Slot


class Layout(NamedTuple):
    """The fields of a world by what a step does with them."""

    instance: list[Slot]  # read, and handed on as they are
    state: list[Slot]  # read, and made anew
    results: list[Slot]  # made, never read
    views: list[Slot]  # what agents see beside; part of no state
    stream: Slot
    views_anew: bool  # every step writes the views of every row


Tensors = dict[str, torch.Tensor]
State = tuple[Any, tuple[int, ...], "array[int]", int, Lent | Snapshot | None]
"""The state of a result: its tensors and their addresses, the table of all addresses and where that is, and where the
tensors are noted. In a list instead of a tuple stand weak references to them."""
Made = tuple[Tensors, Tensors, State]
Maker = Callable[["array[int]", tuple[Any, ...], tuple[int, ...]], Made]
"""Gives the tensors of a step. It takes the source's table, the tensors that are handed on and their addresses, and
returns what stands at the root and under "hidden", and the state."""


class Plan:
    """What a batch of one shape needs. `order` and `owner` are the numbers 0, 1, ... of at least as many rows."""

    def __init__(
        self, batch: torch.Size, layout: Layout, action: tuple[int, ...], order: torch.Tensor, owner: torch.Tensor
    ) -> None:
        def wanted(slots: list[Slot]) -> list[Wanted]:
            return [Wanted(s.name, s.dtype, torch.Size((*batch, *s.tail())), s.where, s) for s in slots]

        self.batch, self.rows = batch, batch.numel()
        self.order, self.owner, self.order_address = order, owner, order.data_ptr()
        self.own = (False,) * len(batch)
        self.instance = wanted(layout.instance)
        self.root = wanted([s for s in layout.state if s.root])
        self.hidden = wanted([s for s in layout.state if not s.root])
        self.results, self.views = wanted(layout.results), wanted(layout.views)
        self.begun = [*self.instance, *wanted(layout.state), *self.views]
        self.stream = torch.Size((*batch, 3))
        self.action = torch.Size((*batch, *action))
        self.outputs = [*self.root, *self.hidden, *self.results, *(self.views if layout.views_anew else ())]
        self.bytes = sum(w.shape.numel() * w.dtype.itemsize for w in self.outputs)
        """What a step makes, the state first, and how large it is together."""
        self.state = [*self.root, *self.hidden]
        seen = [w for w in self.instance if w.slot.root]
        unseen = [w for w in self.instance if not w.slot.root]
        self.shared = [*seen, *unseen, *wanted([layout.stream])]
        """What a step reads: the state, and what it hands on as it is."""
        self.shapes = tuple(w.shape for w in (*self.state, *self.shared))
        self.dtypes = tuple(w.dtype for w in (*self.state, *self.shared))
        self.is_flat = all(len(w.shape) <= INLINE for w in self.outputs)
        scope: dict[str, Any] = {
            "getrefcount": sys.getrefcount,
            "torch": torch,
            "empty_like": torch.empty_like,
            "wanted": self.outputs,
            "like": None,
        }
        exec(_are_those(self) + _make(self) + _lend(self), scope)
        self.are_those: Callable[..., bool] = scope["are_those"]
        self.make: Maker = scope["make"]
        self._holders = [4 if k < len(self.state) else 3 for k in range(len(self.outputs))]
        """Of what `lend` gives out each is held by its name there, by the entry that is copied and by the copy; those
        of the state by their tuple, too."""
        self._lend: Callable[..., tuple[Maker, Callable[[], bool]]] = scope["lend"]

    def state_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors of the state, in the order of `state`."""
        return tuple([(root if w.slot.root else hidden)[w.name] for w in self.state])

    def shared_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors that a step hands on, in the order of `shared`."""
        return tuple([(root if w.slot.root else hidden)[w.name] for w in self.shared])

    def lend(self, functions: Compiled) -> tuple[Maker, Callable[[], bool]]:
        """A `Maker` that gives out the same tensors again and again, and whether they seem to be free."""
        memory = Lent([(w.dtype, w.shape) for w in self.outputs], self._holders, functions)
        return self._lend(memory, functions.changed)


def _are_those(plan: Plan) -> str:
    """The function that says whether the tensors given are these, of the state and of what is handed on."""
    state = [f"b{k}" for k in range(len(plan.state))]
    shared = [f"c{k}" for k in range(len(plan.shared))]
    both = [*zip(plan.state, state, strict=True), *zip(plan.shared, shared, strict=True)]
    return f"""
def are_those(root, hidden, state, shared):
    ({", ".join(state)},) = state
    ({", ".join(shared)},) = shared
    try:
        return ({" and ".join(f"{_source(w)}[{w.name!r}] is {known}" for w, known in both)})
    except KeyError:
        return False
"""


def _make(plan: Plan) -> str:
    """The `Maker` of new tensors. It makes them like some that are never touched, which takes half the time."""
    outputs = range(len(plan.outputs))
    state = len(plan.state)
    return f"""
def make(source, shared, addresses):
    global like
    if torch.is_inference_mode_enabled():  # what is lent is not of that mode either
        with torch.inference_mode(False):
            return make(source, shared, addresses)
    if like is None:
        like = tuple([torch.empty(w.shape, dtype=w.dtype, device="cpu") for w in wanted])
    ({"".join(f"p{k}, " for k in outputs)}) = like
    {"; ".join(f"t{k} = empty_like(p{k})" for k in outputs)}
    root, hidden = {_entries(plan)}
    {_handed_on(plan)}, = shared
    spots = ({"".join(f"t{k}.data_ptr(), " for k in outputs)})
    table = source[:]
    {", ".join(f"table[{w.where}]" for w in plan.outputs)}, = spots
    state = ({"".join(f"t{k}, " for k in range(state))})
    return root, hidden, (state, spots[:{state}], table, table.buffer_info()[0], None)
"""


def _lend(plan: Plan) -> str:
    """The function that makes a `Maker` which gives out lent tensors, and with it one that says whether they seem to
    be free: of many results one is asked before it is taken.

    The maker first takes hold of the tensors for the caller, then looks whether they are noted like that: so nobody can
    come between. A tensor that is not free is replaced. The table of addresses is the source's but for the outputs, so
    it is made once for all steps on the same instances: their addresses are one object, `addresses`, from the first
    such step to the last.
    """
    outputs = [f"t{k}" for k in range(len(plan.outputs))]
    state = len(plan.state)
    return f"""
def lend(memory, changed):
    {" = ".join(outputs)} = None
    address, count, own, noted = memory.address, memory.count, 0, False
    instances = result = spots = state = at_root = at_hidden = None

    def give(source, shared, addresses):
        nonlocal instances, result
        if noted:
            root, hidden = at_root.copy(), at_hidden.copy()
            changes = changed(address, count)
        if not noted or changes:
            settle(changes if noted else 0)
            root, hidden = at_root.copy(), at_hidden.copy()
            if not note():
                return make(source, shared, addresses)
        if instances is not addresses:
            table = source[:]
            {", ".join(f"table[{w.where}]" for w in plan.outputs)}, = spots
            instances, result = addresses, (state, spots[:{state}], table, table.buffer_info()[0], memory)
        {_handed_on(plan)}, = shared
        return root, hidden, result

    def settle(changes):
        nonlocal {", ".join(outputs)}, noted, instances, result, spots, state, at_root, at_hidden
        noted, instances, result = False, None, None
        ({", ".join(outputs)},) = memory.replace(changes) if changes else memory.make()
        at_root, at_hidden = {_entries(plan)}
        state = ({", ".join(outputs[:state])},)
        spots = ({", ".join(f"{t}.data_ptr()" for t in outputs)},)

    def note():
        nonlocal own, noted
        own = getrefcount(t0) - 1  # without the copy
        noted = memory.note()
        return noted

    def seems_free():
        return getrefcount(t0) == own

    return give, seems_free
"""


def _source(wanted: Wanted) -> str:
    return "root" if wanted.slot.root else "hidden"


def _entries(plan: Plan) -> str:
    """Two dictionaries of the outputs t0, t1, ...: at the root, under "hidden"."""
    entries = [
        [f"{w.name!r}: t{k}" for k, w in enumerate(plan.outputs) if _source(w) == where] for where in ("root", "hidden")
    ]
    return ", ".join(f"{{{', '.join(part)}}}" for part in entries)


def _handed_on(plan: Plan) -> str:
    """The places in these dictionaries of what is handed on."""
    return ", ".join(f"{_source(w)}[{w.name!r}]" for w in plan.shared)
