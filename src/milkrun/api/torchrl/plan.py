"""Plan: the tensors of a batch of one shape, worked out once, and the functions that read and make them name by name.

At few rows the kernel takes a microsecond and handling some twenty tensors takes all the others. So a plan writes two
functions as text, without loops: one knows the tensors of the last step again, one makes those of the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from milkrun.api.torchrl.fields import Slot


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
        """What a step makes, and how large it is together."""
        seen = [w for w in self.instance if w.slot.root]
        unseen = [w for w in self.instance if not w.slot.root] + wanted([layout.stream])
        self.given = [*self.root, *seen, *self.hidden, *unseen]
        """What a step reads: first what stands at the root, then what stands under "hidden"."""
        self.parts = len(self.root), len(self.root) + len(seen), len(self.given) - len(unseen)
        """Where in `given` the instances at the root begin, the hidden state, the hidden instances."""
        scope: dict[str, Any] = {"holders": holders, "references": sys.getrefcount, "empty_like": torch.empty_like,
                                 "shapes": tuple(w.shape for w in self.given)}  # fmt: skip
        exec(_is_last(self) + _outputs_in(self), scope)
        self.is_last: Callable[..., bool] = scope["is_last"]
        self.outputs_in: Callable[..., Makers] = scope["outputs_in"]

    def given_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors that a step reads, in the order of `given`."""
        seen = self.parts[1]
        return (*(root[w.name] for w in self.given[:seen]), *(hidden[w.name] for w in self.given[seen:]))


def _no_holders(_: int) -> object:
    """Where torch does not count: equal to no answer before, so no memory is ever free."""
    return object()


holders: Callable[[int], Any] = getattr(torch._C, "_storage_Use_Count", _no_holders)
"""How many hold a storage; a private name of torch, and the only one in use here."""


def _is_last(plan: Plan) -> str:
    """The function that says whether the tensors given are those of the last result, as and where they were: whatever
    changes a tensor in place, be it values or shape, counts up its version or moves it. In inference mode nothing is
    counted: without versions it is the shapes that are compared, and the caller has to check the values."""
    known = [f"b{k}" for k in range(len(plan.given))]
    sources = ["root"] * plan.parts[1] + ["hidden"] * (len(known) - plan.parts[1])
    same = " and ".join(f"{s}[{w.name!r}] is {b}" for s, w, b in zip(sources, plan.given, known, strict=True))
    return f"""
def is_last(root, hidden, before, versions, addresses):
    ({", ".join(known)},) = before
    try:
        if not ({same} and ({", ".join(f"{b}.data_ptr()" for b in known)},) == addresses):
            return False
        if versions:
            return ({", ".join(f"{b}._version" for b in known)},) == versions
        return (({", ".join(f"{b}.shape" for b in known)},) == shapes
                and {" and ".join(f"{b}.is_contiguous()" for b in known)})
    except (KeyError, RuntimeError):  # one is not there; has no memory, or no version
        return False
"""


def _outputs_in(plan: Plan) -> str:
    """The function that gives out tensors in the memory of others, `t0`, `t1`, ..., that nobody else ever sees.

    Whoever can read memory holds its storage: a tensor, a view of it, a numpy array, a TensorDict, autograd, another
    thread. So memory is free when its storage has no more holders than at first and nobody has the storage object
    itself, and it is where it was (it moves when it is shared with another process). The tensor given out is `t0.data`,
    a new one each time, which takes a quarter of the time of `empty_like`; memory that is held is left alone.
    With it come the function that makes all of them anew, for whoever keeps every result, and whether memory is free.
    """
    outputs = range(len(plan.outputs))
    t = [f"t{k}" for k in outputs]
    first = "".join(f"""
    s{k} = t{k}.untyped_storage()
    h{k} = s{k}._cdata
    n{k}, r{k}, a{k} = holders(h{k}), references(s{k}), t{k}.data_ptr()""" for k in outputs)
    takes = "".join(f"""
        if holders(h{k}) == n{k} and references(s{k}) == r{k} and t{k}.data_ptr() == a{k}:
            m{k}, p{k} = t{k}.data, a{k}
        else:
            m{k} = empty_like(t{k})
            p{k} = m{k}.data_ptr()
        table[{plan.outputs[k].where}] = p{k}""" for k in outputs)
    seen, secret, unseen = plan.parts
    state = [*range(seen), *range(secret, unseen)]  # where in `given` the outputs go that are state
    after, places = ([f"{letter}{k}" for k in range(len(plan.given))] for letter in "gq")
    read = [k for k in range(len(plan.given)) if k not in state]
    gets = "".join(f"\n        g{k}, q{k} = given[{k}], addresses[{k}]" for k in read)
    for output, place in enumerate(state):
        after[place], places[place] = f"m{output}", f"p{output}"
    anew = "".join(f"""
        m{k} = empty_like(t{k})
        p{k} = table[{plan.outputs[k].where}] = m{k}.data_ptr()""" for k in outputs)
    entries = [f"{w.name!r}: {tensor}" for w, tensor in zip(plan.given, after, strict=True)]
    others = [f"{plan.outputs[k].name!r}: m{k}" for k in outputs[len(state):]]
    made = f"""
        return ({{{", ".join(entries[:secret] + others)}}}, {{{", ".join(entries[secret:])}}},
                ({", ".join(after)},), ({", ".join(places)},))"""
    return f"""
def outputs_in({", ".join(t)}):{first}

    def again(table, given, addresses):{gets}{takes}{made}

    def anew(table, given, addresses):{gets}{anew}{made}

    return again, anew, lambda: holders(h0) == n0
"""
