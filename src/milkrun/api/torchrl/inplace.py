"""Owner: the World behind stepping="inplace", and its memory as tensors.

With copy=True each call copies the state. Instances and the keys of the rows are copied when a row begins an episode:
until then the same tensors are returned, and they are replaced, never overwritten. With copy=False the tensors returned
are views of the world's memory, which the next call overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from milkrun.api.torchrl.checks import Tensors
from milkrun.api.torchrl.fields import Slot
from milkrun.api.torchrl.functional import Rows, Stepper
from milkrun.core.errors import ResetNeeded
from milkrun.core.world import World


class Owner:
    """One World of as many rows as the environment has."""

    def __init__(self, stepper: Stepper, batch: torch.Size, illegal: str, copy: bool = True) -> None:
        template = stepper.world
        self.stepper = stepper
        self.batch = batch
        self.copy = copy
        self.world: World = type(template)(
            max(batch.numel(), 1),
            template.config,
            autoreset="disabled",
            illegal=illegal,
            threads=template.threads,
            debug=template.debug,
        )
        self._begun = False
        self._episode: dict[str, torch.Tensor] = {}  # copies that stay through an episode; emptied before one begins
        self._memory: dict[str, tuple[np.ndarray, torch.Tensor]] = {}  # arrays of the world, each also as a tensor
        self._views: tuple[int, Rows] | None = None  # what copy=False returns, and `world.instance_version` then
        shown = (*stepper.instance, *stepper.carried, *stepper.views, stepper.stream)
        self._has_foreign = any(slot.field.strided for slot in shown)

    def begin(self, streams: np.ndarray, instance: Mapping[str, Any] | None) -> Rows:
        """Begins episodes in all rows, with these keys."""
        self._episode = {}
        self.world.begin_episodes(streams, None, instance)
        self._begun = True
        return self.show()

    def next_keys(self, rows: np.ndarray) -> np.ndarray:
        """The keys of the next episodes of these rows."""
        self._require_begun()
        # An array as index makes a copy: the world's own keys stay as they are.
        keys: np.ndarray = self.world.stream[rows]
        keys[:, 2] += 1
        return keys

    def restart(self, rows: np.ndarray, instance: Mapping[str, Any] | None = None) -> Rows:
        """Begins the next episode of these rows, on given or newly drawn instances."""
        keys = self.next_keys(rows)
        self._episode = {}
        self.world.begin_episodes(keys, rows, instance, redraw=True)
        return self.show()

    def load_rows(self, root: Tensors, hidden: Tensors, instance: Mapping[str, Any]) -> None:
        """Loads rows from a TensorDict that has been validated."""
        fields: dict[str, np.ndarray] = {}
        for slot in (*self.stepper.instance, *self.stepper.carried, self.stepper.stream):
            shape = getattr(self.world, slot.name).shape
            fields[slot.name] = (root if slot.root else hidden)[slot.name].reshape(shape).numpy(force=True)
        fields["done"] = fields["terminated"] | fields["truncated"]
        self._episode = {}
        self._begun = False  # until both calls are done
        self.world.reset(instance=instance)
        self.world.write_rows(fields, np.arange(self.world.num_envs))
        self._begun = True

    def step(self, action: np.ndarray, wanted: np.ndarray | None) -> Rows:
        """Steps the wanted rows that have not ended; the others do not change, and their reward is 0."""
        self._require_begun()
        world = self.world
        if wanted is None and not world.done.any():
            world.step(action)
        else:
            moves = ~world.done
            if wanted is not None:
                moves &= np.isin(np.arange(len(moves)), wanted)
            # A step of some rows leaves all others alone, also the reward of their last step.
            world.reward[~moves] = 0
            if moves.any():
                world.step(action[moves], rows=moves)
        root, hidden = self.show()
        root["reward"] = self._tensor(self.stepper.reward)
        return root, hidden

    def save(self) -> dict[str, np.ndarray] | None:
        """The state of the rows, to be loaded in another process; None before the first reset."""
        return self.world.state_dict() if self._begun else None

    def load(self, saved: dict[str, np.ndarray]) -> None:
        """Loads the result of `save`."""
        self._episode = {}
        self.world.load_state_dict(saved)
        self._begun = True

    def show(self) -> Rows:
        """The rows as tensors."""
        self.world.observe()
        if self.copy or self._has_foreign:
            return self._rows()
        if self._views is None or self._views[0] != self.world.instance_version:
            self._views = self.world.instance_version, self._rows()
        root, hidden = self._views[1]
        return root.copy(), hidden.copy()

    def _rows(self) -> Rows:
        root: dict[str, torch.Tensor] = {}
        hidden: dict[str, torch.Tensor] = {}
        lasting = (*self.stepper.instance, self.stepper.stream)
        if self.copy and not self._episode:
            self._episode = {slot.name: self._tensor(slot) for slot in lasting}
        for slot in lasting:
            (root if slot.root else hidden)[slot.name] = self._episode[slot.name] if self.copy else self._tensor(slot)
        for slot in (*self.stepper.carried, *self.stepper.views, self.stepper.done):
            (root if slot.root else hidden)[slot.name] = self._tensor(slot)
        return root, hidden

    def _tensor(self, slot: Slot) -> torch.Tensor:
        """A field as a tensor: a copy or a view. Memory of an engine is copied, since torch need not be able to read
        it in place."""
        array, shape = getattr(self.world, slot.name), (*self.batch, *slot.tail())
        if slot.field.strided:
            return torch.from_numpy(array.copy()).view(shape)
        known = self._memory.get(slot.name)
        if known is None or known[0] is not array:  # the world may have reallocated its instances
            known = self._memory[slot.name] = array, torch.from_numpy(array).view(shape)
        return known[1].clone() if self.copy else known[1]

    def _require_begun(self) -> None:
        if not self._begun:
            raise ResetNeeded("stepping='inplace': reset() before the first step")
