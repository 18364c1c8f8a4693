"""Where the fields of a world stand in a TensorDict: key, dtype and shape, and the place in the kernels' table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.fields import Field, Role, raw_fields
from milkrun.core.world import World

DTYPES = {
    np.dtype(np.bool_): torch.bool, np.dtype(np.uint8): torch.uint8, np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16, np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64,
    np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64,
}  # fmt: skip

FLAGS = ("terminated", "truncated")
TOLD = ("reward", "done")  # what a step tells beside the state
COLUMNS = (*FLAGS, *TOLD)  # (*batch, 1), as TorchRL has them


def shown_fields(world: World, features: bool) -> list[Field]:
    """What stands at the root of a TensorDict: what agents see; where that is features, the raw fields they are made
    of, and themselves only when asked for."""
    made = [f for f in world.observed if f.feature]
    if features and not made:
        raise ConfigError(f"features=True: {type(world).__name__} has none beside its fields")
    return [*raw_fields(world.fields, world.sizes), *(made if features else ())] if made else world.observed


class Slot:
    """One field. What no agent may see, or need not, stands under "hidden", and so does the joint mask of a team."""

    __slots__ = ("column", "dtype", "field", "name", "root", "shape", "where")

    def __init__(self, f: Field, world: World, shown: list[Field]) -> None:
        self.field, self.name, self.dtype = f, f.name, DTYPES[f.dtype]
        self.where = world._launcher_layout.slots[f.name]
        self.shape = f.shape(world.sizes)
        self.column = f.column or f.name in COLUMNS
        self.root = f in shown or f.name in COLUMNS or (f.role is Role.MASK and not world.groups)

    @property
    def key(self) -> str | tuple[str, str]:
        """Its key in a TensorDict."""
        return self.name if self.root else ("hidden", self.name)

    def tail(self) -> tuple[int, ...]:
        """The shape behind the batch in a TensorDict."""
        return self.shape or ((1,) if self.column else ())

    def checked(self, tensor: Any, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
        """The tensor, if a kernel can read it as this field."""
        if (
            not isinstance(tensor, torch.Tensor)
            or tensor.dtype is not dtype
            or tensor.shape != shape
            or not tensor.is_cpu
            or tensor.layout is not torch.strided
            or not tensor.data_ptr()
        ):
            raise self.misfit(tensor, shape)
        return tensor

    def misfit(self, tensor: Any, expected: torch.Size, device: Any = "cpu") -> ShapeError:
        """The sentence about a tensor that cannot be this field."""
        if tensor is None:
            return ShapeError(f"the TensorDict lacks {self.key!r}")
        if not isinstance(tensor, torch.Tensor):
            return ShapeError(f"{self.key!r} must be a tensor, not a {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            return ShapeError(f"{self.key!r} must be a plain tensor, not {tensor.layout}")
        if tensor.is_cpu and not tensor.data_ptr():
            return ShapeError(f"{self.key!r} has no memory: its storage was emptied")
        return ShapeError(f"{self.key!r} must be {self.dtype} of shape {tuple(expected)} on {device}, "
                          f"not {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}")


Wanted = tuple[str, torch.dtype, torch.Size, int, Slot]  # name, dtype, shape, place in the table, slot


class Plan:
    """The tensors of a batch of one shape, worked out once."""

    def __init__(
        self, batch: torch.Size, instance: list[Slot], carried: list[Slot], told: list[Slot], looks: list[Slot],
        stream: Slot, action: tuple[int, ...], order: torch.Tensor, owner: torch.Tensor,
    ) -> None:  # fmt: skip
        def entries(slots: list[Slot]) -> list[Wanted]:
            return [(s.name, s.dtype, torch.Size((*batch, *s.tail())), s.where, s) for s in slots]

        self.batch, self.rows = batch, batch.numel()
        self.order, self.owner = order, owner  # the numbers 0, 1, ... of at least as many rows and instances
        self.order_address = order.data_ptr()
        self.own = (False,) * len(batch)
        self.instance = entries(instance)
        self.root = entries([s for s in carried if s.root])
        self.hidden = entries([s for s in carried if not s.root])
        self.looks = entries(looks)
        self.look_sizes = [shape.numel() for _, _, shape, _, _ in self.looks]
        self.begun = entries([*instance, *carried, *looks])
        self.told = [(s.name, torch.empty((*batch, *s.tail()), dtype=s.dtype), s.where) for s in told]
        self.told_patterns = [pattern for _, pattern, _ in self.told]
        seen, unseen = [s for s in instance if s.root], [*(s for s in instance if not s.root), stream]
        given = [*(s for *_, s in self.root), *seen, *(s for *_, s in self.hidden), *unseen]
        changing = [s for *_, s in (*self.root, *self.hidden)]
        self.read_root = _reader([s.name for *_, s in self.root] + [s.name for s in seen])
        self.read_hidden = _reader([s.name for *_, s in self.hidden] + [s.name for s in unseen])
        self.parts = len(self.root), len(self.root) + len(seen), len(given) - len(unseen)
        """Where in what is read the instances at the root begin, the hidden state, the hidden instances."""
        made = [*((s.name, s.where) for s in changing), *((name, where) for name, _, where in self.told)]
        scope: dict[str, Any] = {}
        exec(_written(made, [(s.name, s.where) for s in given], self.parts), scope)
        self.is_last, self.enter, self.show = (scope[name] for name in ("is_last", "enter", "show"))
        self.stream = torch.Size((*batch, 3))
        self.action = torch.Size((*batch, *action))


def _written(made: list[tuple[str, int]], given: list[tuple[str, int]], parts: tuple[int, int, int]) -> str:
    """Three functions of a plan, name by name: loops over its tensors would take twice as long, and at few rows that is
    most of a step.

    `is_last`: what is given are the tensors of the last result, unchanged, at the addresses in its table. `enter`: puts
    the addresses of fresh tensors into a table. `show`: what stands at the root and under "hidden" after a step, and
    the same tensors in the order in which they would be given.
    """
    seen, secret, unseen = parts
    g, m = [f"g{k}" for k in range(len(given))], [f"m{k}" for k in range(len(made))]
    hidden_made = m[seen : seen + unseen - secret]
    after = [*m[:seen], *g[seen:secret], *hidden_made, *g[unseen:]]
    names = [name for name, _ in given]
    told = [f"{name!r}: {k}" for (name, _), k in zip(made, m, strict=True)][seen + len(hidden_made) :]
    root = [f"{name!r}: {k}" for name, k in zip(names[:secret], after[:secret], strict=True)] + told
    hidden = [f"{name!r}: {k}" for name, k in zip(names[secret:], after[secret:], strict=True)]
    same = " and ".join(f"{k} is b{k}" for k in g)
    there = " and ".join(f"{k}.data_ptr() == table[{where}]" for k, (_, where) in zip(g, given, strict=True))
    puts = "; ".join(f"table[{where}] = {k}.data_ptr()" for k, (_, where) in zip(m, made, strict=True))
    return f"""
def is_last(given, before, versions, table):
    ({", ".join(g)},), ({", ".join(f"b{k}" for k in g)},) = given, before
    try:
        return ({same} and ({", ".join(f"{k}._version" for k in g)},) == versions and {there})
    except RuntimeError:  # made in inference mode, where changes are not counted
        return False

def enter(table, made):
    ({", ".join(m)},) = made
    {puts}

def show(made, given):
    ({", ".join(m)},), ({", ".join(g)},) = made, given
    return {{{", ".join(root)}}}, {{{", ".join(hidden)}}}, ({", ".join(after)},)
"""


def _reader(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What stands under these keys, as a tuple also where there is one or none."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda tensors: tuple(tensors[name] for name in names)
