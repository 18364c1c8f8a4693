"""RL4COEnvBase: what all TorchRL environments here are: reset and step as TensorDicts go in and out.

`reset` follows one table whoever resets (api spec, 5.3); `step` and `step_and_maybe_reset` return what TorchRL's own
return, with less work. A world in torch alone subclasses this base and gives three methods (`contract.py` runs them);
`TorchRLEnv` puts compiled worlds behind the same calls.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.envs import EnvBase

from milkrun.api._td import entries, make_td, put
from milkrun.api.torchrl import contract
from milkrun.api.torchrl.functional import FLAGS, Rows
from milkrun.api.torchrl.generators import draw, get_generator
from milkrun.api.torchrl.mixins import BatchMixin, OpsMixin, as_size
from milkrun.api.torchrl.specs import Specs, specs_of_td
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError, did_you_mean
from milkrun.core.world import check_seed

ENDS = ("done", *FLAGS)
KEYWORDS = ("td", "batch_size", "tensordict", "set_state", "select_reset_only")


class RL4COEnvBase(BatchMixin, OpsMixin, EnvBase):
    """Construction environments on TensorDicts: instances from a generator, masks, functional steps."""

    name: str = ""  # of its generator in GENERATOR_REGISTRY, where the constructor is given none
    mask_true_means: str = "allowed"  # or "forbidden", for code that masks the other way round
    dense_reward: bool = False  # True: `_get_reward` is asked at each step, with the action
    max_steps: int | None = None  # until a row is truncated

    def __init__(
        self,
        generator: Any = None,
        generator_params: Mapping[str, Any] | None = None,
        device: Any = "cpu",
        batch_size: int | Iterable[int] | None = None,
        *,
        seed: int | None = None,
        check_solution: bool = False,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            device=as_device(device), batch_size=as_size(batch_size), run_type_checks=run_type_checks,
            allow_done_after_reset=allow_done_after_reset,
        )  # fmt: skip
        self.check_solution = check_solution
        self._set_seed(seed)
        self._set_up(generator, {**(generator_params or {}), **kwargs})
        self._make_spec(self._specimen)

    # -- the contract: what a world in torch alone gives ------------------------------------------------------

    def _reset_instance(self, td: TensorDict) -> TensorDict:
        """Adds the dynamic keys of a new episode to instances, td.batch_size = (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must give _reset_instance(td)")

    def _get_action_mask(self, td: TensorDict) -> torch.Tensor:
        """bool (B, n), read as `mask_true_means` says."""
        raise NotImplementedError(f"{type(self).__name__} must give _get_action_mask(td)")

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """(B,) for the tours (B, T) of rows that have ended, unused places -1; with `dense_reward` for actions (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must give _get_reward(td, actions)")

    def _step_instance(self, td: TensorDict) -> TensorDict:
        """The state after td["action"]: drives there, marks the node visited, stands on it."""
        return contract.drive(td)

    def _check_done(self, td: TensorDict) -> torch.Tensor:
        """Which rows have ended, (B,): those that have visited everything."""
        return td["visited"].flatten(1).all(-1)

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        """Raises BadSolution with row and rule; asked by `get_reward` where check_solution is set."""
        raise ConfigError(f"check_solution=True: {type(self).__name__} has no checker, give _check_solution(td, actions)")

    # -- calls ------------------------------------------------------------------------------------------------

    def reset(
        self,
        td: TensorDictBase | None = None,
        batch_size: int | Iterable[int] | None = None,
        *,
        tensordict: TensorDictBase | None = None,
        set_state: bool | None = None,
        select_reset_only: bool = False,
        **unknown: Any,
    ) -> TensorDict:
        """New episodes: of new instances, of those in `td`, or of the rows its `_reset` names; see docs and spec.

        A td is updated and returned like TorchRL's own reset does, but for two cases that leave it as it is and
        return a shallow copy: it is locked, or it held the instances (so a data set can be reset from again).
        """
        given = tensordict if td is None else td
        fresh = self._reset(given, batch_size=batch_size, set_state=set_state, select_reset_only=select_reset_only,
                            **unknown)  # fmt: skip
        return fresh if given is None else self._merge(given, fresh, set_state is not False and not select_reset_only)

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        batch_size: int | Iterable[int] | None = None,
        set_state: bool | None = None,
        select_reset_only: bool = False,
        **unknown: Any,
    ) -> TensorDict:
        """What `reset` shows, in a TensorDict of its own; TransformedEnv and the batched environments call this."""
        for key in unknown:
            raise ConfigError(f"reset has no keyword {key!r}{did_you_mean(key, KEYWORDS)}")
        batch = self._batch_of(tensordict, batch_size)
        root = {} if tensordict is None else entries(tensordict)
        signal = root.get("_reset")
        if set_state and (signal is not None or select_reset_only):
            raise ConfigError("set_state=True continues all rows: it cannot go with `_reset` or select_reset_only")
        if signal is not None:
            return self._begin_some(root, batch, _told(signal, batch))
        wanted = tensordict is not None and set_state is not False and not select_reset_only
        instance = self._instance_in(root, batch) if wanted else None
        if set_state:
            return self._continue(root, batch)
        return self._show(*self._begin(self._next_streams(torch.arange(batch.numel())), batch, instance), batch)

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """td with td["next"] set. Input tensors are never written; a locked td gives a shallow copy."""
        root = entries(tensordict)
        if "next" in root or "_step" in root:
            return super().step(tensordict)
        following = self._step(tensordict)
        if tensordict.is_locked:
            tensordict = tensordict.copy()
        put(tensordict, "next", following)
        return tensordict

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """A step, and the TensorDict to act on next, in which rows that ended have begun a new episode."""
        root = entries(tensordict)
        plain = type(tensordict) is TensorDict and not tensordict._has_names() and "next" not in root
        if not plain or "_step" in root or "_compiled_step_and_maybe_reset" in self.__dict__:
            return super().step_and_maybe_reset(tensordict)
        stepped = self.step(tensordict)
        following = entries(entries(stepped)["next"])
        kept = {k: v.copy() if isinstance(v, TensorDictBase) else v for k, v in entries(stepped).items()
                if k not in ("next", "reward", "_reset")}  # fmt: skip
        kept |= {k: v.copy() if isinstance(v, TensorDictBase) else v for k, v in following.items() if k != "reward"}
        onward = make_td(kept, stepped.batch_size, stepped.device)
        if bool(following["done"].any()):
            put(onward, "_reset", following["done"].clone())
            onward = self.reset(onward, select_reset_only=True)
        return stepped, onward

    def get_reward(self, td: TensorDictBase, actions: torch.Tensor, check_solution: bool | None = None) -> torch.Tensor:
        """The objective (*batch,) of whole solutions (*batch, T)."""
        batch = td.batch_size
        if actions.ndim != len(batch) + 1 or actions.shape[:-1] != batch:
            raise ShapeError(f"actions must have the shape {(*batch, 'T')}, not {tuple(actions.shape)}")
        flat, plans = td.reshape(-1) if batch else td.unsqueeze(0), actions.reshape(-1, actions.shape[-1])
        if self.check_solution if check_solution is None else check_solution:
            self._check_solution(flat, plans)
        return self._get_reward(flat, plans).reshape(batch)

    def _set_seed(self, seed: int | None) -> None:
        """Rows are keyed (seed, row, number of full resets since); None takes entropy of the operating system."""
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        self.resets = 0
        self._seed_sampler(self.seed)

    # -- how resets are put together --------------------------------------------------------------------------

    def _merge(self, td: TensorDictBase, fresh: TensorDict, reads: bool) -> TensorDict:
        """`td` with what the reset shows; what else it holds stays, or is 0 in rows that a partial reset began anew."""
        root, shown = entries(td), entries(fresh)
        signal = root.get("_reset")
        given = signal is None and reads and self._instance_in(root, fresh.batch_size) is not None
        apart = self._layout_keys if given else ()
        out = td.copy() if td.is_locked or given else td
        other = [k for k in root if k not in shown and k != "_reset"]
        if signal is not None:
            begun = signal.reshape(*fresh.batch_size, -1).any(-1)
            if other and not bool(begun.all()):
                rest = td.select(*other).where(~begun, other=TensorDict({}, fresh.batch_size), pad=0)
                for key in other:
                    put(out, key, rest.get(key))
            del out["_reset"]
        for key in apart:
            if key in root and key not in shown:
                del out[key]
        for key, value in shown.items():
            put(out, key, value)
        return out

    def _begin_some(self, root: Mapping[str, Any], batch: torch.Size, rows: torch.Tensor) -> TensorDict:
        """The batch with new episodes in these rows; the others keep every value, as far as `root` tells them."""
        known = any(key in root for key in self._shown_keys)
        if known and not len(rows):
            return self._continue(root, batch, allow_done=True)
        begun, hidden = self._begin(self._next_streams(rows), torch.Size([len(rows)]), None)
        if not known:  # all that came is `_reset`: the caller will not look at other rows, so they may be any
            source = torch.zeros(batch.numel(), dtype=torch.int64)
            source[rows] = torch.arange(len(rows))
            return self._show(*({k: v[source] for k, v in part.items()} for part in (begun, hidden)), batch)
        return self._show(overlaid(root, begun, batch, rows), {}, batch)

    def _next_streams(self, rows: torch.Tensor) -> torch.Tensor:
        """New keys (rows, 3) for these rows: seed, row, number of the reset."""
        streams = torch.empty((len(rows), 3), dtype=torch.int64)
        streams[:, 0], streams[:, 1], streams[:, 2] = self.seed, rows, self.resets
        self.resets += 1
        return streams

    def _continue(self, root: Mapping[str, Any], batch: torch.Size, allow_done: bool = False) -> TensorDict:
        """The rows as they stand in `root`, if it has them whole."""
        specs = self.observation_spec
        shown = {}
        for key in self._shown_keys:
            value = root.get(key)
            if value is None:
                raise ShapeError(f"the TensorDict lacks {key!r}")
            shown[key] = value
        del specs
        ended = shown["done"] = shown["terminated"] | shown["truncated"]
        if bool(ended.any()) and not (allow_done or self._allow_done_after_reset):
            row = int(ended.reshape(-1).nonzero()[0])
            raise ResetNeeded(f"row {row} has ended: set_state=True cannot continue it")
        return make_td(shown, batch, self.device)
