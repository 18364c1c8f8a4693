"""The two mixins of the base: what a batch size may be, and what every environment can do with a TensorDict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries
from milkrun.api.torchrl.specs import Specs
from milkrun.core.errors import ConfigError, ShapeError

SAMPLER = 0x5EED  # keeps the sampler's stream apart from anything else keyed by the same seed


def as_size(batch_size: int | Iterable[int] | None) -> torch.Size:
    """A batch size from an int, a list, a tuple or a torch.Size; None is the empty one."""
    sizes = () if batch_size is None else (batch_size,) if isinstance(batch_size, int) else tuple(batch_size)
    if any(isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1 for k in sizes):
        raise ConfigError(f"batch_size={batch_size!r}: must be one integer >= 1, or a list of them")
    return torch.Size(sizes)


class BatchMixin:
    """`batch_size` takes what people write and gives a torch.Size; setting it rebuilds the specs."""

    batch_locked = False
    _specimen: TensorDict | None = None  # rows of a world in torch alone, from which its specs are read
    _has_specs = False

    @property
    def batch_size(self) -> torch.Size:
        return self.__dict__.get("_batch_size") or torch.Size([])

    @batch_size.setter
    def batch_size(self, value: int | Iterable[int] | None) -> None:
        self.__dict__["_batch_size"] = as_size(value)
        if self._has_specs:
            self._make_spec(self._specimen)


class OpsMixin:
    """Specs, masks, draws among allowed actions, copies with streams of their own."""

    def _make_spec(self, td: TensorDictBase | None = None) -> None:
        """Builds all specs: from the declared fields, or for a world in torch alone from the tensors of `td`."""
        locked = self.is_spec_locked
        self.set_spec_lock_(False)
        for whole in (self.output_spec, self.input_spec):  # their shape cannot change while anything is in them
            for key in list(whole.keys()):
                del whole[key]
            whole.shape = self.batch_size
        specs = self._specs(td)
        self.observation_spec, self.state_spec = specs.observation, specs.state
        self.action_spec, self.reward_spec, self.done_spec = specs.action, specs.reward, specs.done
        self._has_specs = True
        self.set_spec_lock_(locked)

    def _specs(self, td: TensorDictBase | None) -> Specs:
        raise NotImplementedError

    def get_action_mask(self, td: TensorDictBase) -> torch.Tensor:
        """The actions allowed now, (*batch, n), True = allowed, on the environment's device."""
        mask = self._allowed(td)
        if mask.dtype is not torch.bool:
            raise ShapeError(f"an action mask must be bool, not {mask.dtype}")
        return mask.to(self.device)

    def sample_actions(self, td: TensorDictBase) -> torch.Tensor:
        """Actions drawn uniformly among the allowed ones, from a stream of the environment's own."""
        mask = entries(td).get("action_mask")
        mask = self.get_action_mask(td) if mask is None else mask
        noise = torch.from_numpy(self._sampler.random(tuple(mask.shape), np.float32))
        return torch.where(mask.cpu(), noise, -1.0).argmax(-1).to(self.device)

    def fork(self, td: TensorDictBase, n: int) -> TensorDict:
        """The rows of `td` n times, (n, *batch), each copy with random streams of its own; instances stay shared."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ConfigError(f"fork(td, {n!r}): must be an integer >= 1")
        forked = td.expand(int(n), *td.batch_size)
        stream = forked.get(("hidden", "stream"), None)
        if stream is None:  # a world in torch alone has none
            return forked
        stream = stream.clone()
        seeds = self._sampler.integers(0, 2**63, size=tuple(stream.shape[:-1]), dtype=np.int64)
        stream[..., 0] = torch.from_numpy(seeds).to(stream.device)
        return forked.set(("hidden", "stream"), stream)

    def _seed_sampler(self, seed: int) -> None:
        self._sampler: Any = np.random.Generator(np.random.Philox(key=[seed, SAMPLER]))
