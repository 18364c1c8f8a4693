"""BatchSpec: names, dtypes and shapes of all tensors of a batch of one shape, computed once per batch shape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch

from milkrun.api.torchrl.fields import Slot


class TensorSpec(NamedTuple):
    """One tensor of a batch."""

    name: str
    dtype: torch.dtype
    shape: torch.Size
    where: int  # its place in the kernels' table
    slot: Slot


class SlotGroups(NamedTuple):
    """The fields of a world, grouped by their use in a functional step."""

    instance: list[Slot]  # read, and returned as they are
    state: list[Slot]  # read, and written to new tensors
    results: list[Slot]  # written, never read
    views: list[Slot]  # further observations, not part of the state
    stream: Slot
    views_remade: bool  # every step writes the views of every row


class BatchSpec:
    """Tensors of a batch of one shape. `order` and `owner` are the numbers 0, 1, ... of at least as many rows."""

    def __init__(
        self, batch: torch.Size, groups: SlotGroups, action: tuple[int, ...], order: torch.Tensor, owner: torch.Tensor
    ) -> None:
        def specs(slots: list[Slot]) -> list[TensorSpec]:
            return [TensorSpec(s.name, s.dtype, torch.Size((*batch, *s.tail())), s.where, s) for s in slots]

        self.batch = batch
        self.rows = batch.numel()
        self.order = order
        self.owner = owner
        self.order_address = order.data_ptr()
        self.own = (False,) * len(batch)
        self.instance = specs(groups.instance)
        self.root = specs([s for s in groups.state if s.root])
        self.hidden = specs([s for s in groups.state if not s.root])
        self.results = specs(groups.results)
        self.views = specs(groups.views)
        self.begun = [*self.instance, *specs(groups.state), *self.views]
        self.stream = torch.Size((*batch, 3))
        self.action = torch.Size((*batch, *action))
        self._outputs = [*self.root, *self.hidden, *self.results, *(self.views if groups.views_remade else ())]
        self._shared = [*self.instance, *specs([groups.stream])]
        self.passed_on = [(s.name, s.slot.root) for s in self._shared]

    @cached_property
    def output_templates(self) -> list[tuple[str, bool, int, torch.Tensor]]:
        """For each output tensor of a step: name, whether it is at the root, place in the table, and a template for
        `empty_like`, which takes half the time of `empty`."""
        with torch.inference_mode(False):
            return [(s.name, s.slot.root, s.where, torch.empty(s.shape, dtype=s.dtype)) for s in self._outputs]

    def shared_in(self, root: Mapping[str, Any], hidden: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """The tensors that a step returns as they are: instances and random streams."""
        return tuple([(root if s.slot.root else hidden)[s.name] for s in self._shared])
