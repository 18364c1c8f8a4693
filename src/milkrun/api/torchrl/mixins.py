"""The two mixins of the base: batch sizes, and the common operations on TensorDicts.

Resets follow one table: new instances, the instances in a TensorDict, its state, or the rows that its `_reset` names.
The parts that compiled worlds and worlds in torch alone share are here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries, make_td, put
from milkrun.api.torchrl import contract
from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError

if TYPE_CHECKING:
    from torchrl.envs import EnvBase as Host
else:
    Host = object  # the mixins precede EnvBase and use its attributes

SAMPLER = 0x5EED  # keeps the sampler's stream apart from anything else keyed by the same seed


def as_size(batch_size: int | Iterable[int] | None) -> torch.Size:
    """A batch size from an int, a list, a tuple or a torch.Size; None is the empty one."""
    listed = batch_size if isinstance(batch_size, (list, tuple)) else () if batch_size is None else (batch_size,)
    sizes = tuple(listed)
    if any(isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < 2**31 for k in sizes):
        raise ConfigError(f"batch_size={batch_size!r}: must be one integer >= 1, or a list of them")
    return torch.Size(sizes)


class BatchMixin(Host):
    """`batch_size` accepts integers and lists and returns a torch.Size; setting it rebuilds the specs."""

    batch_locked = False
    _specimen: TensorDict | None = None  # rows of a world in torch alone, for its specs
    _has_specs = False
    _batch = torch.Size([])

    @property
    def batch_size(self) -> torch.Size:
        return self._batch

    @batch_size.setter
    def batch_size(self, value: int | Iterable[int] | None) -> None:
        self._batch = as_size(value)
        if self._has_specs:
            self._make_spec(self._specimen)


class OpsMixin(Host):
    """Specs, masks, draws among allowed actions, copies with streams of their own."""

    def _make_spec(self, td: TensorDictBase | None = None) -> None:
        """Builds all specs: from the declared fields, or for a world in torch alone from the tensors of `td`."""
        locked = self.is_spec_locked
        self.set_spec_lock_(False)
        for whole in (self.output_spec, self.input_spec):  # only an empty spec can change its shape
            for key in list(whole.keys()):
                del whole[key]
            whole.shape = self.batch_size
        specs = self._specs(td)
        self.observation_spec = specs.observation
        self.state_spec = specs.state
        self.action_spec = specs.action
        self.reward_spec = specs.reward
        self.done_spec = specs.done
        self._has_specs = True
        self.set_spec_lock_(locked)

    def get_action_mask(self, td: TensorDictBase) -> torch.Tensor:
        """The actions allowed now, (*batch, n), True = allowed, on the environment's device."""
        mask = self._allowed(td)
        if mask.dtype is not torch.bool or mask.is_meta:
            raise ShapeError(f"an action mask must be bool, with values, not {mask.dtype} on {mask.device}")
        return mask.to(self.device)

    def sample_actions(self, td: TensorDictBase) -> torch.Tensor:
        """Actions drawn uniformly among the allowed ones, from a stream of the environment's own."""
        mask = entries(td).get("action_mask")
        mask = self.get_action_mask(td) if mask is None else mask
        noise = torch.from_numpy(self._sampler.random(tuple(mask.shape), np.float32))
        return torch.where(mask.cpu(), noise, -1.0).argmax(-1).to(self.device)

    def fork(self, td: TensorDictBase, n: int) -> TensorDict:
        """The rows of `td` n times, (n, *batch), each copy with random streams of its own; instances stay shared."""
        forked = td.expand(check_count("n", n, 1), *td.batch_size)
        stream = forked.get(("hidden", "stream"), None)
        if stream is None:  # worlds in torch alone have none
            return forked
        if forked.is_locked:  # a TensorDict expanded from a locked one is locked, too
            forked = forked.copy()
        # In the expanded one all copies share memory.
        stream = stream.clone()
        seeds = self._sampler.integers(0, 2**63, size=tuple(stream.shape[:-1]), dtype=np.int64)
        stream[..., 0] = torch.from_numpy(seeds).to(stream.device)
        return forked.set(("hidden", "stream"), stream)

    def _batch_of(self, td: TensorDictBase | None, batch_size: Any) -> torch.Size:
        if td is None:
            return self.batch_size if batch_size is None else as_size(batch_size)
        if batch_size is not None and as_size(batch_size) != td.batch_size:
            raise ShapeError(f"batch_size={batch_size} does not go with a TensorDict of batch {list(td.batch_size)}")
        return td.batch_size

    def _merge(self, td: TensorDictBase, fresh: TensorDict, reads: bool) -> TensorDictBase:
        """`td` with the result of a reset; its other entries stay, with 0 in rows that a partial reset has begun."""
        root, shown = entries(td), entries(fresh)
        signal = root.get("_reset")
        gave = signal is None and reads and self._holds_instance(td)
        out = td.copy() if td.is_locked or gave else td
        if gave:
            out = out.exclude(*self._layout_in(td))
        if signal is not None:
            del out["_reset"]
        begun = None if signal is None or signal.all() else signal.reshape(fresh.batch_size)
        if begun is not None:
            for key, value in list(entries(out).items()):
                if key not in shown:
                    put(out, key, blanked(value, begun))
        for key, value in shown.items():
            put(out, key, value if key not in root else with_others(value, root[key], begun))
        return out

    def _renew(self, root: dict[str, Any], batch: torch.Size, rows: torch.Tensor) -> None:
        """Begins the next episode of these rows of a batch, given as the entries of its TensorDict."""
        signal = torch.zeros((batch.numel(), 1), dtype=torch.bool)
        signal[rows] = True
        td = make_td({**root, "_reset": signal.reshape(*batch, 1).to(self.device)}, batch, self.device)
        root.update(entries(self.reset(td, select_reset_only=True)))

    def _begin_some(self, td: TensorDictBase, rows: torch.Tensor) -> TensorDict:
        """The batch with new episodes in these rows. If td only names rows, the others are arbitrary."""
        batch = td.batch_size
        if any(key in entries(td) for key in self._own_keys):
            return self._restart(td, rows) if len(rows) else self._current(td)
        # A result is needed even if no row is named: the same new episode in every row.
        rows = rows if len(rows) else torch.arange(min(batch.numel(), 1))
        begun = self._begin(self._next_streams(rows), torch.Size([len(rows)]), None)
        source = torch.zeros(batch.numel(), dtype=torch.int64)
        source[rows] = torch.arange(len(rows))
        return self._link(begun[source].reshape(batch))

    def _link(self, td: TensorDict) -> TensorDict:
        """`td` with the same tensor under all names of a field, if its world has several."""
        return td

    def _continue(self, td: TensorDictBase | None, batch: torch.Size) -> TensorDict:
        if td is None:
            raise ShapeError("set_state=True needs a TensorDict that holds the state")
        shown = self._current(td)
        ended = shown["done"].reshape(-1)
        if ended.any() and not self.allow_done_after_reset:
            raise ResetNeeded(f"row {int(ended.nonzero()[0])} has ended: set_state=True cannot continue it")
        return shown

    def _next_streams(self, rows: torch.Tensor) -> torch.Tensor:
        """New keys (rows, 3): the seed, the row, the number of the reset."""
        streams = torch.empty((len(rows), 3), dtype=torch.int64)
        streams[:, 0], streams[:, 1], streams[:, 2] = self.seed, rows, self.resets
        self.resets += 1
        return streams

    def _step_some(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Steps the rows that `_step` names; the others do not change and have reward 0. (TorchRL's own fails on a
        batch.)"""
        out = tensordict.copy()
        rows = contract.rows_named(out.pop("_step"), out.batch_size)
        whole = contract.flat(self._current(out)).clone()
        for key in self.reward_keys:
            tail = self.full_reward_spec[key].shape[len(self.batch_size) :]
            whole.set(key, torch.zeros((len(whole), *tail), device=self.device))
        if len(rows):
            whole[rows] = self._step(contract.flat(out)[rows])
        following = self._link(whole.reshape(out.batch_size))
        if "next" in entries(out):
            following.update(out.get("next").exclude(*following.keys(True, True)))
        return out.set("next", following)

    def _seed_sampler(self, seed: int) -> None:
        self._sampler: Any = np.random.Generator(np.random.Philox(key=[seed, SAMPLER]))


def with_others(shown: Any, before: Any, begun: torch.Tensor | None) -> Any:
    """A part of a TensorDict (a group) with its previous other entries, with 0 in rows that have begun."""
    if not isinstance(shown, TensorDictBase) or not isinstance(before, TensorDictBase):
        return shown
    other = {key: value for key, value in entries(before).items() if key not in entries(shown)}
    if not other:
        return shown
    kept = other if begun is None else {key: blanked(value, begun) for key, value in other.items()}
    return make_td({**entries(shown), **kept}, shown.batch_size, shown.device)


def blanked(value: Any, rows: torch.Tensor) -> Any:
    """A copy of an entry with 0 in these rows."""
    if type(value) is not torch.Tensor and isinstance(value, TensorDictBase):
        return value.where(~rows, other=value.empty(), pad=0)
    wide = rows if value.ndim == rows.ndim else rows.reshape(*rows.shape, *(1 for _ in value.shape[rows.ndim :]))
    return value.masked_fill(wide, 0)
