"""How episodes of a compiled world begin: on instances that it draws, a generator makes, or a TensorDict holds.

Drawn instances are written by the kernels straight into the tensors handed out. Given ones pass through a World, whose
checks refuse what is wrong with row and reason; the tensors given are handed on where they fit as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries, make_td
from milkrun.api.torchrl.checks import Tensors
from milkrun.api.torchrl.functional import Rows
from milkrun.api.torchrl.generators import draw
from milkrun.api.torchrl.inplace import Owner
from milkrun.api.torchrl.mixins import blanked, with_others
from milkrun.api.torchrl.reader import as_given

if TYPE_CHECKING:
    from milkrun.api.torchrl.base import RL4COEnvBase as Host
else:
    Host = object

CPU = torch.device("cpu")


class BeginMixin(Host):
    """For environments with a stepper (functional) or an owned World (in place)."""

    def _next_streams(self, rows: torch.Tensor) -> torch.Tensor:
        return super()._next_streams(rows + self.first_row)

    def _begin(self, streams: torch.Tensor, batch: torch.Size, instance: TensorDictBase | None) -> TensorDict:
        if self.stepping == "functional" and instance is None and self._draws:
            return self._show(self._stepper.begin(streams, batch), batch)
        source = draw(self._given_generator, streams, CPU) if instance is None and self._asks else instance
        arrays = None if source is None else self.reader.arrays(source)
        if self.stepping == "inplace":
            self._refuse_other(batch)
            return self._show(self._owned().begin(streams.numpy(), arrays), batch)
        shown = self._show(Owner(self._stepper, batch, self.illegal).begin(streams.numpy(), arrays), batch)
        if instance is not None:
            for slot in self._stepper.instance:
                shown.set(slot.key, as_given(self.reader.find(instance, slot.name), shown.get(slot.key)))
        return self._link(shown)

    def _renew(self, root: dict[str, Any], batch: torch.Size, rows: torch.Tensor) -> None:
        if self.stepping != "functional" or not self._draws or self.device.type != "cpu":
            super()._renew(root, batch, rows)
            return
        fields = root if self._groups is None else self._groups.fields(root)
        begun, hidden = self._stepper.restart(fields, entries(root["hidden"]), batch, rows)
        if self._groups is not None:
            begun = self._groups.split(begun, hidden, batch, self.device)
        for alias, name in self._synonyms:
            begun[alias] = begun[name]
        begun["hidden"] = make_td(hidden, batch, self.device)
        n, other, signal = batch.numel(), [key for key in root if key not in begun], None
        if (other or self._groups is not None) and rows.numel() < n:
            signal = torch.zeros(n, dtype=torch.bool).index_fill_(0, rows, True).reshape(batch)
            for key in other:
                root[key] = blanked(root[key], signal)
        for group in self.group_map if self._groups is not None else ():
            begun[group] = with_others(begun[group], root[group], signal)
        root.update(begun)

    def _begin_some(self, td: TensorDictBase, rows: torch.Tensor) -> TensorDict:
        if self.stepping == "functional":
            return super()._begin_some(td, rows)
        self._refuse_other(td.batch_size)
        owner, arrays = self._owned(), None
        if self._asks and rows.numel():
            streams = torch.from_numpy(owner.following(rows.numpy()))
            arrays = self.reader.arrays(draw(self._given_generator, streams, CPU))
        return self._show(owner.restart(rows.numpy(), arrays), td.batch_size)

    def _restart(self, td: TensorDictBase, rows: torch.Tensor) -> TensorDict:
        if not self._draws or self.device.type != "cpu":
            return super()._restart(td, rows)
        root, hidden = self._fields(td)
        return self._show(self._stepper.restart(root, hidden, td.batch_size, rows), td.batch_size)

    def _fields(self, td: TensorDictBase) -> tuple[Tensors, Tensors]:
        """The fields of the rows in `td` by their names: at the root, under "hidden"."""
        root = entries(td)
        hidden = entries(root["hidden"]) if "hidden" in root else {}
        return root if self._groups is None else self._groups.fields(root), hidden

    def _following(self, td: TensorDictBase, rows: torch.Tensor) -> torch.Tensor:
        """The keys of these rows with the next episode."""
        streams = self._current(td)["hidden", "stream"].reshape(-1, 3)[rows.to(self.device)].to(CPU)
        streams[:, 2] += 1
        return streams

    def _current(self, td: TensorDictBase) -> TensorDict:
        """The rows of `td`, checked field by field."""
        batch, stepper, parts = td.batch_size, self._stepper, self._fields(td)
        shown: Rows = {}, {}
        for slot in (*stepper.instance, *stepper.carried, *stepper.views, stepper.stream):
            tensor: Any = parts[not slot.root].get(slot.name)
            expected = torch.Size((*batch, *slot.tail()))
            fits = tensor is not None and tensor.dtype is slot.dtype and tensor.shape == expected
            if not fits or tensor.device != self.device:
                raise slot.misfit(tensor, expected, self.device)
            shown[not slot.root][slot.name] = tensor
        shown[0]["done"] = shown[0]["terminated"] | shown[0]["truncated"]
        return self._show(shown, batch)

    def _continue(self, td: TensorDictBase | None, batch: torch.Size) -> TensorDict:
        shown = super()._continue(td, batch)
        if self.stepping == "inplace":
            self._refuse_other(batch)
            root, hidden = self._fields(shown)
            self._stepper.check(root, hidden, batch)
            self._owned().resume(root, hidden, self.reader.arrays(shown))
        return shown

    def _holds_instance(self, td: TensorDictBase) -> bool:
        return self.reader.is_in(td)

    def _instance_in(self, td: TensorDictBase) -> TensorDictBase:
        return td

    def _layout_in(self, td: TensorDictBase) -> list[str]:
        unseen = [slot.name for slot in self._stepper.instance if not slot.root and slot.name in entries(td)]
        return [*self.reader.layout(td), *unseen]
