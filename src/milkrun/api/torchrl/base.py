"""RL4COEnvBase: the base of all TorchRL environments here, with resets and steps of TensorDicts.

All resets follow one table; `step` and `step_and_maybe_reset` return the same as TorchRL's own, with less overhead. A
world in torch alone subclasses this base and defines three methods (`contract.py` runs them); `TorchRLEnv` has the same
calls for compiled worlds.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import step_mdp

from milkrun.api._td import entries, is_plain, make_td, put
from milkrun.api.torchrl import contract
from milkrun.api.torchrl.generators import as_device, draw, get_generator, is_addressable
from milkrun.api.torchrl.mixins import BatchMixin, OpsMixin, as_size
from milkrun.api.torchrl.specs import Specs, specs_of_td
from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean

RESET_KEYWORDS = ("td", "tensordict", "batch_size", "set_state", "select_reset_only")


class RL4COEnvBase(BatchMixin, OpsMixin, EnvBase):
    """Environments that build solutions: instances from a generator, masks, functional steps on TensorDicts."""

    name: str = ""  # of its default generator in GENERATOR_REGISTRY
    mask_true_means: str = "allowed"  # or "forbidden", for code with the opposite convention
    dense_reward: bool = False  # True: `_get_reward` is called at each step, with the action
    records_tour: bool = True  # keep the actions of an episode under `tour`
    group_map: Mapping[str, list[str]] = {}  # the agents of each group, in worlds that have several
    max_steps: int | None = None  # until a row is truncated; None = twice the nodes + 2
    resets: int  # since the seeding
    copies: bool = True  # False: results are views, which the next call overwrites

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
            device=as_device(device),
            batch_size=as_size(batch_size),
            run_type_checks=run_type_checks,
            allow_done_after_reset=allow_done_after_reset,
        )
        self.check_solution = check_solution
        self.allow_done_after_reset = allow_done_after_reset
        self._set_seed(seed)
        self._set_up(generator, {**(generator_params or {}), **kwargs})
        self._make_spec(self._specimen)

    # -- the contract: methods of a world in torch alone ------------------------------------------------------

    def _reset_instance(self, td: TensorDict) -> TensorDict:
        """Adds the dynamic keys of a new episode to instances, td.batch_size = (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must give _reset_instance(td)")

    def _get_action_mask(self, td: TensorDict) -> torch.Tensor:
        """bool (B, n); `mask_true_means` defines the meaning of True."""
        raise NotImplementedError(f"{type(self).__name__} must give _get_action_mask(td)")

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """(B,) for the tours (B, T) of rows that have ended, unused places -1; with `dense_reward` for actions (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must give _get_reward(td, actions)")

    def _step_instance(self, td: TensorDict) -> TensorDict:
        """The state after td["action"]: by default it drives to the node and marks it visited."""
        return contract.drive(td)

    def _check_done(self, td: TensorDict) -> torch.Tensor:
        """Which rows have ended, (B,): those that have visited everything."""
        return td["visited"].flatten(1).all(-1)

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        """Raises BadSolution with row and rule; called by `get_reward` if check_solution is set."""
        raise ConfigError(f"check_solution: {type(self).__name__} has no checker; give it _check_solution(td, actions)")

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
    ) -> TensorDictBase:
        """Begins episodes: of new instances, of the instances in `td`, or in the rows that its `_reset` names.

        td is updated and returned, as in TorchRL's own reset, with two exceptions, which return a shallow copy: td is
        locked, or it gave the instances (so that a data set can be played again).
        """
        given = tensordict if td is None else td
        reads = set_state is not False and not select_reset_only
        fresh = self._reset(
            given, batch_size=batch_size, set_state=set_state, select_reset_only=select_reset_only, **unknown
        )
        return fresh if given is None else self._merge(given, fresh, reads)

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        batch_size: int | Iterable[int] | None = None,
        set_state: bool | None = None,
        select_reset_only: bool = False,
        **unknown: Any,
    ) -> TensorDict:
        """The result of `reset` in a new TensorDict; TransformedEnv and others call this method."""
        for key in unknown:
            raise ConfigError(f"reset has no keyword {key!r}{did_you_mean(key, RESET_KEYWORDS)}")
        resets = self.resets
        try:
            return self._reset_rows(tensordict, self._batch_of(tensordict, batch_size), set_state, select_reset_only)
        except Exception:
            self.resets = resets  # a refused reset does not count
            raise

    def _reset_rows(
        self, tensordict: TensorDictBase | None, batch: torch.Size, set_state: bool | None, select_reset_only: bool
    ) -> TensorDict:
        signal = None if tensordict is None else entries(tensordict).get("_reset")
        if set_state and (signal is not None or select_reset_only):
            raise ConfigError("set_state=True continues every row: it cannot go with `_reset` or select_reset_only")
        if signal is not None:
            return self._begin_some(tensordict, contract.rows_named(signal, batch))
        if set_state:
            return self._continue(tensordict, batch)
        reads = tensordict is not None and set_state is None and not select_reset_only
        instance = self._instance_in(tensordict) if reads and self._holds_instance(tensordict) else None
        return self._begin(self._next_streams(torch.arange(batch.numel())), batch, instance)

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """td with td["next"] set. Input tensors are never written; of a locked td the result is a shallow copy."""
        root = entries(tensordict)
        if "_step" in root:
            return self._step_some(tensordict)
        # TorchRL's own step merges the result into an existing "next", and checks types.
        if "next" in root or self.run_type_checks:
            return super().step(tensordict)
        following = self._step(tensordict)
        if tensordict.is_locked:
            tensordict = tensordict.copy()
        put(tensordict, "next", following)
        return tensordict

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """A step, and the TensorDict to act on next, in which rows that ended have begun a new episode."""
        root = entries(tensordict)
        if not is_plain(tensordict) or "next" in root or "_step" in root or tensordict.device != self.device:
            if self.copies:
                return super().step_and_maybe_reset(tensordict)
            stepped = self._keep_ends(self.step(tensordict))
            return stepped, self.maybe_reset(step_mdp(stepped, exclude_action=False))
        stepped = self.step(tensordict)
        here, there = entries(stepped), entries(entries(stepped)["next"])
        # Keys in both are taken from "next". Keys of the root alone (the action, keys of the caller) are kept.
        onward = {**here, **there}
        for key in ("next", "reward", "_reset"):
            onward.pop(key, None)
        for key, value in onward.items():
            if type(value) is not torch.Tensor and isinstance(value, TensorDictBase):
                # The same one level below: the next of a group lacks inputs such as its action.
                both = {**entries(here.get(key, value)), **entries(value)}
                if key in self.group_map:
                    both.pop("reward", None)
                onward[key] = make_td(both, value.batch_size, value.device)
        if there["done"].any():
            self._keep_ends(stepped)
            self._renew(onward, stepped.batch_size, contract.rows_named(there["done"], stepped.batch_size))
        return stepped, make_td(onward, stepped.batch_size, stepped.device)

    def _keep_ends(self, stepped: TensorDictBase) -> TensorDictBase:
        """Copies the results of a step with ended rows, if they are views: the same call resets these rows."""
        if not self.copies and bool(stepped["next", "done"].any()):
            stepped["next"] = stepped["next"].clone()
        return stepped

    def get_reward(self, td: TensorDictBase, actions: torch.Tensor, check_solution: bool | None = None) -> torch.Tensor:
        """The objective, (*batch), of whole solutions (*batch, T)."""
        if not isinstance(actions, torch.Tensor) or actions.is_meta:
            what = "meta" if isinstance(actions, torch.Tensor) else type(actions).__name__
            raise ShapeError(f"actions must be a tensor with values, (*batch, T), not a {what}")
        batch, axes = td.batch_size, self._plan_axes(td, actions)
        if actions.ndim != len(batch) + axes or actions.shape[: len(batch)] != batch:
            raise ShapeError(f"actions must have the shape {(*batch, 'T')}, not {tuple(actions.shape)}")
        if not batch.numel():
            return torch.zeros(batch, device=actions.device)
        rows, plans = contract.flat(td), actions.reshape(batch.numel(), *actions.shape[len(batch) :])
        if self.check_solution if check_solution is None else check_solution:
            self._check_solution(rows, plans)
        return self._get_reward(rows, plans).reshape(batch)

    def _plan_axes(self, td: TensorDictBase, actions: torch.Tensor) -> int:
        """How many axes the solution of a row has."""
        return 1

    def _set_seed(self, seed: int | None) -> None:
        """Rows are keyed (seed, row, full resets since the seeding); None takes entropy of the operating system."""
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        self.resets = 0
        self._seed_sampler(self.seed)

    # -- a world in torch alone (TorchRLEnv has its own) ------------------------------------------------------

    def _set_up(self, generator: Any, options: dict[str, Any]) -> None:
        if options.get("max_steps") is not None:
            self.max_steps = check_count("max_steps", options["max_steps"], 1)
        options.pop("max_steps", None)
        if not (self.records_tour or self.dense_reward):
            raise ConfigError(
                f"{type(self).__name__}.records_tour is False: a reward at the end is that of the tour; "
                "record it, or pay at each step with `dense_reward`"
            )
        if generator is None:
            if not self.name:
                raise ConfigError(f"{type(self).__name__} needs a generator: give one, or let its `name` name one")
            generator = get_generator(self.name, device=self.device, **options)
        elif options:
            raise ConfigError(f"{type(self).__name__} has no keyword {next(iter(options))!r}: its generator was given")
        self.generator = generator
        with torch.random.fork_rng(devices=[]):  # a third-party generator may draw from torch's global one
            position = generator.position if is_addressable(generator) else 0
            instance = draw(generator, torch.tensor([[self.seed, 0, 0]]), self.device)
            self._specimen = contract.begin(self, instance)
            if is_addressable(generator):
                generator.position = position
        self._instance_keys = list(instance.keys())
        self._own_keys = list(self._specimen.keys())
        changing = self._specimen.keys(include_nested=True, leaves_only=True)
        # The author's reset got a shallow copy, so an entry that is still the same tensor belongs to the instance. All
        # others may change in a step.
        self._dynamic = [key for key in changing if self._specimen[key] is not instance.get(key, None)]

    def _specs(self, td: TensorDictBase | None) -> Specs:
        assert td is not None
        return specs_of_td(td, td["action_mask"].shape[-1], self.batch_size, self.device)

    def _holds_instance(self, td: TensorDictBase) -> bool:
        return any(key in entries(td) for key in self._instance_keys)

    def _instance_in(self, td: TensorDictBase) -> TensorDict:
        if missing := [key for key in self._instance_keys if key not in entries(td)]:
            raise ShapeError(f"the instance lacks {', '.join(map(repr, missing))}")
        return td.select(*self._instance_keys)

    def _layout_in(self, td: TensorDictBase) -> list[str]:
        """Keys of another layout of the instance, which the reset has converted and removes."""
        return []

    def _begin(self, streams: torch.Tensor, batch: torch.Size, instance: TensorDict | None) -> TensorDict:
        made = draw(self.generator, streams, self.device) if instance is None else contract.flat(instance)
        return contract.begin(self, made).reshape(batch)

    def _restart(self, td: TensorDictBase, rows: torch.Tensor) -> TensorDict:
        whole = contract.flat(self._current(td)).clone()
        whole[rows] = self._begin(self._following(td, rows), torch.Size([len(rows)]), None)
        return self._link(whole.reshape(td.batch_size))

    def _following(self, td: TensorDictBase, rows: torch.Tensor) -> torch.Tensor:
        """The keys of the next episodes of these rows."""
        return self._next_streams(rows)

    def _current(self, td: TensorDictBase) -> TensorDict:
        if missing := [key for key in self._own_keys if key not in entries(td)]:
            raise ShapeError(f"the TensorDict lacks {', '.join(map(repr, missing))}")
        return td.select(*self._own_keys)

    def _allowed(self, td: TensorDictBase) -> torch.Tensor:
        rows = contract.flat(td)
        mask = contract.allowed(self, rows)
        ended = rows["terminated"] | rows["truncated"]
        return contract.closed(mask, ended).reshape(*td.batch_size, -1)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        batch = tensordict.batch_size
        rows = contract.flat(self._current(tensordict))
        after = contract.advance(self, rows, entries(tensordict).get("action"), self._dynamic)
        shown = after.select(*self._own_keys, "reward").reshape(batch)
        for key in self._instance_keys:
            if key not in self._dynamic:
                shown.set(key, tensordict.get(key))
        return shown

    def _step_proc_data(self, next_tensordict_out: TensorDictBase) -> TensorDictBase:
        """Skips TorchRL's own version, which requires `batch_size`: the result of `_step` is complete for any batch."""
        if self.run_type_checks and next_tensordict_out.batch_size == self.batch_size:
            return super()._step_proc_data(next_tensordict_out)
        return next_tensordict_out

    @classmethod
    def _complete_done(cls, done_spec: Any, data: TensorDictBase) -> TensorDictBase:
        """A no-op: all flags are always present."""
        return data

    def _assert_tensordict_shape(self, tensordict: TensorDictBase) -> None:
        """Any batch can be stepped and reset."""
