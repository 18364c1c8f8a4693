"""Plan: the tensors of a batch of one shape, worked out once, and the functions that read and make them name by name.

At few rows the kernel takes a microsecond and handling some twenty tensors takes all the others. So a plan writes two
functions as text, without loops: one knows the tensors of the last step again, one makes those of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from milkrun.api.torchrl.fields import Slot
from milkrun.api.torchrl.lending import Lent


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


Makers = tuple[Callable[..., Any], Callable[..., Any], Callable[[], bool]]
"""What makes the tensors of a step in memory that is free, what makes them anew, and whether memory is free."""


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
        scope: dict[str, Any] = {"Lent": Lent, "empty_like": torch.empty_like,
                                 "shapes": tuple(w.shape for w in (*self.state, *self.shared))}  # fmt: skip
        exec(_is_last(self) + _outputs_in(self), scope)
        self.is_last: Callable[..., bool] = scope["is_last"]
        self.outputs_in: Callable[..., Makers] = scope["outputs_in"]

    def state_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors of the state, in the order of `state`."""
        return tuple([(root if w.slot.root else hidden)[w.name] for w in self.state])

    def shared_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors that a step hands on, in the order of `shared`."""
        return tuple([(root if w.slot.root else hidden)[w.name] for w in self.shared])


def _is_last(plan: Plan) -> str:
    """The function that says whether the tensors given are those of the last result, as and where they were: whatever
    changes a tensor in place, be it values or shape, counts up its version or moves it. A state that a kernel made has
    the version 0. In inference mode nothing is counted: without versions it is the shapes that are compared, and the
    caller has to check the values."""
    state = [f"b{k}" for k in range(len(plan.state))]
    shared = [f"c{k}" for k in range(len(plan.shared))]
    both = [*zip(plan.state, state, strict=True), *zip(plan.shared, shared, strict=True)]
    same = " and ".join(f"{_source(w)}[{w.name!r}] is {known}" for w, known in both)
    return f"""
def is_last(root, hidden, state, places, shared, addresses, versions):
    ({", ".join(state)},) = state
    ({", ".join(shared)},) = shared
    try:
        if not ({same}
                and ({", ".join(f"{b}.data_ptr()" for b in state)},) == places
                and ({", ".join(f"{c}.data_ptr()" for c in shared)},) == addresses):
            return False
        if versions:
            return (not ({" or ".join(f"{b}._version" for b in state)})
                    and ({", ".join(f"{c}._version" for c in shared)},) == versions)
        return (({", ".join(f"{known}.shape" for _, known in both)},) == shapes
                and {" and ".join(f"{known}.is_contiguous()" for _, known in both)})
    except (KeyError, RuntimeError):  # one is not there; has no memory, or no version
        return False
"""


def _outputs_in(plan: Plan) -> str:
    """The function that gives out tensors in memory that is lent (`lending.py`).

    The tensor given out is `t0.data`, a new one each time, which takes a quarter of the time of `empty_like`. The table
    of addresses is the source's but for the outputs, so it is made once for all steps on the same instances: their
    addresses are one object, `addresses`, from the first such step to the last. With it come the function that makes
    all tensors anew, for whoever keeps every result, and whether memory is free.
    """
    outputs = range(len(plan.outputs))
    lent, given = ", ".join(f"t{k}" for k in outputs), [f"m{k}" for k in outputs]
    entered = "".join(f"\n{{pad}}table[{w.where}] = {{tensor}}{k}.data_ptr()" for k, w in enumerate(plan.outputs))
    shared = [f"g{k}" for k in range(len(plan.shared))]
    state = len(plan.state)
    held = [*zip(plan.outputs[:state], given, strict=False), *zip(plan.shared, shared, strict=True)]
    entries = {where: [f"{w.name!r}: {m}" for w, m in held if _source(w) == where] for where in ("root", "hidden")}
    entries["root"] += [f"{w.name!r}: {m}" for w, m in zip(plan.outputs[state:], given[state:], strict=True)]
    made = f"""
        ({", ".join(shared)},) = shared
        return ({{{", ".join(entries["root"])}}}, {{{", ".join(entries["hidden"])}}},
                ({", ".join(given[:state])},), places, table)"""
    places = ", ".join(f"table[{w.where}]" for w in plan.state)
    return f"""
def outputs_in({lent}):
    memory = Lent([{lent}])
    read, address, count = memory.reader()
    instances = table = places = None

    def again(source, shared, addresses):
        nonlocal {lent}, instances, table, places
        held = read(address, count)
        if held:
            {lent} = memory.replace(held)
            instances = None
        if instances is not addresses:
            table = source[:]{entered.format(pad="            ", tensor="t")}
            instances, places = addresses, ({places},)
        {"; ".join(f"m{k} = t{k}.data" for k in outputs)}{made}

    def anew(source, shared, addresses):
        table = source[:]
        {"; ".join(f"m{k} = empty_like(t{k})" for k in outputs)}{entered.format(pad="        ", tensor="m")}
        places = ({places},){made}

    return again, anew, memory.first_is_free
"""


def _source(wanted: Wanted) -> str:
    return "root" if wanted.slot.root else "hidden"
