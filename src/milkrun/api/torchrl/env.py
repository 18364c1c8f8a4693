"""TorchRLEnv: a compiled world as a TorchRL environment, stepped functionally or in place.

Functionally (the default) the environment has no state: the TensorDict holds the whole state, so it can be stepped,
cloned, expanded, sliced and stacked. In place, the environment owns a World of `batch_size` rows and reads the action
only. Both run the world's kernels and return the same bits. Worlds compute on the CPU; tensors of another device are
copied (cuda: untested).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._binding import read_flag
from milkrun.api._instances import load_instances
from milkrun.api._td import entries, make_td, put, step_plain
from milkrun.api.torchrl.agents import Groups
from milkrun.api.torchrl.base import RL4COEnvBase
from milkrun.api.torchrl.checks import Tensors, checked_action
from milkrun.api.torchrl.contract import rows_named
from milkrun.api.torchrl.functional import Rows, Stepper
from milkrun.api.torchrl.generators import draw, draws_as, get_generator
from milkrun.api.torchrl.inplace import Owner
from milkrun.api.torchrl.mixins import blanked, with_others
from milkrun.api.torchrl.objective import Objective
from milkrun.api.torchrl.reader import InstanceReader, as_given
from milkrun.api.torchrl.specs import Specs, specs_of_world
from milkrun.core.arguments import check_count, read_debug
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.registry import world_spec
from milkrun.core.world import World

KEYWORDS = (
    "generator",
    "generator_params",
    "device",
    "batch_size",
    "seed",
    "check_solution",
    "run_type_checks",
    "allow_done_after_reset",
    "stepping",
    "copy",
    "illegal",
    "preset",
    "config",
    "first_row",
    "threads",
    "features",
)


CPU = torch.device("cpu")


class TorchRLEnv(RL4COEnvBase):
    """The world of an id. Further keywords are options of its configuration, and so are `generator_params`.

    copy: with stepping="inplace", whether results are copies. With False they are views of the world's memory: the next
    call overwrites them, so keep what you need by `clone()`; a rollout that collects them would show its last step
    only.
    """

    def __init__(
        self,
        world_id: str,
        generator: Any = None,
        generator_params: Mapping[str, Any] | None = None,
        device: Any = "cpu",
        batch_size: int | Iterable[int] | None = None,
        *,
        seed: int | None = None,
        check_solution: bool = False,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
        stepping: str = "functional",
        copy: bool = True,
        illegal: str = "noop",
        preset: str | None = None,
        config: Any = None,
        first_row: int = 0,
        threads: int | None = None,
        features: bool = False,
        **overrides: Any,
    ) -> None:
        if stepping not in ("functional", "inplace"):
            raise ConfigError(f"stepping={stepping!r}: must be 'functional' or 'inplace'")
        self.copies = read_flag("copy", copy)
        if not (self.copies or stepping == "inplace"):
            raise ConfigError("copy=False is for stepping='inplace': functional steps write to new tensors")
        spec = world_spec(world_id)
        self.world_id = spec.id
        self.name = spec.name.lower()
        self.stepping = stepping
        self.illegal = illegal
        self.first_row = check_count("first_row", first_row, 0)
        self.threads = threads
        self._debug = read_debug(None)
        self.features = features
        self._base = preset, config
        super().__init__(
            generator,
            generator_params,
            device,
            batch_size,
            seed=seed,
            check_solution=check_solution,
            run_type_checks=run_type_checks,
            allow_done_after_reset=allow_done_after_reset,
            **overrides,
        )

    def _set_up(self, generator: Any, options: dict[str, Any]) -> None:
        spec, (preset, config) = world_spec(self.world_id), self._base
        cls = spec.load()
        known = {*(f.name for f in dataclasses.fields(cls.Config)), *cls.Config.synonyms}
        for key in options:
            if key not in known:
                hint = did_you_mean(key, known | {*KEYWORDS})
                raise ConfigError(f"{type(self).__name__} has no keyword {key!r}{hint}")
        laws = getattr(generator, "config", None)
        if preset is None and config is None and generator is not None:
            if isinstance(laws, cls.Config):
                config = laws
            elif isinstance(getattr(generator, "num_loc", None), int):
                options.setdefault("num_loc", generator.num_loc)
        options = {**spec.kwargs, **options}
        self.config = cls.Config.build(preset, config, **options)
        # A generator of Milkrun need not be called, unless the configuration differs from its own.
        ours = draws_as(generator, cls) and self.config == cls.Config.build(None, laws, **options)
        self._asks = generator is not None and not ours
        if hasattr(self.config, "record"):  # every step would copy the record of all previous steps
            self.config = self.config.replace(record=False)
        self._given_generator = generator
        self._compile()
        self._owner: Owner | None = None
        self.batch_locked = self.stepping == "inplace"
        foreign = any(f.strided for f in self.template.fields.values())
        if self.stepping == "functional" and (foreign or spec.nondeterministic):
            raise ConfigError(f"{self.world_id} does not live in arrays alone: use stepping='inplace'")

    def _compile(self) -> None:
        """Builds the objects that depend on compiled code, also in a copy or another process."""
        cls = world_spec(self.world_id).load()
        self.template: World = cls.variant(self.config)(
            1, self.config, autoreset="disabled", illegal=self.illegal, threads=self.threads, debug=self._debug
        )
        self._stepper = stepper = Stepper(self.template, self.features)
        self.reader = InstanceReader(self.template, [slot.name for slot in stepper.instance])
        self.objective = Objective(stepper, self.reader)
        self._seen_instance = [slot.name for slot in stepper.instance if slot.root]
        self._unseen = [*(slot.name for slot in stepper.instance if not slot.root), "stream"]
        self._groups = Groups(self.template) if self.template.groups else None
        self.group_map = self.template.groups
        seen = [slot.name for slot in (*stepper.instance, *stepper.carried) if slot.root]
        self._own_keys = ["hidden", *self.group_map, *seen]
        self._synonyms = stepper.synonyms
        self._draws = not (self._asks or self.template.amends_instances)
        self._raises = self.illegal == "raise"
        self._plain_step = self._find_plain_step()

    @property
    def generator(self) -> Any:
        """The given generator, or one with the laws of this world."""
        if self._given_generator is not None:
            return self._given_generator
        spec = world_spec(self.world_id)
        if not spec.load().generator:
            raise ConfigError(f"{self.world_id} has no generator apart from its world")
        return get_generator(spec.problem, seed=self.seed, device=self.device, **self.config.as_dict())

    # -- resets: how episodes begin ---------------------------------------------------------------------------

    def _batch_of(self, td: TensorDictBase | None, batch_size: Any) -> torch.Size:
        batch = super()._batch_of(td, batch_size)
        self.template.check_memory(batch.numel())
        return batch

    def _next_streams(self, rows: torch.Tensor) -> torch.Tensor:
        return super()._next_streams(rows + self.first_row)

    def _begin(self, streams: torch.Tensor, batch: torch.Size, instance: TensorDictBase | None) -> TensorDict:
        # An empty batch needs no generator call.
        if self.stepping == "functional" and ((instance is None and self._draws) or not batch.numel()):
            return self._show(self._stepper.begin(streams, batch), batch)
        source = draw(self._given_generator, streams, CPU) if instance is None and self._asks else instance
        arrays = None if source is None else self.reader.arrays(source)
        if self.stepping == "inplace":
            self._refuse_other(batch)
            return self._show(self._owned().begin(streams.numpy(), arrays), batch)
        # Instances from Python are read and validated by a temporary World, whose rows are copied.
        shown = self._show(Owner(self._stepper, batch, self.illegal).begin(streams.numpy(), arrays), batch)
        if instance is not None:
            for slot in self._stepper.instance:
                # The caller's own tensors: they stay shared, and expanded ones stay small.
                shown.set(slot.key, as_given(self.reader.find(instance, slot.name), shown.get(slot.key)))
        if self.device.type == "cpu":  # validates at the reset instead of the first step
            self._stepper.check(*self._fields(shown), batch)
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
            streams = torch.from_numpy(owner.next_keys(rows.numpy()))
            arrays = self.reader.arrays(draw(self._given_generator, streams, CPU))
        return self._show(owner.restart(rows.numpy(), arrays), td.batch_size)

    def _restart(self, td: TensorDictBase, rows: torch.Tensor) -> TensorDict:
        if not self._draws or self.device.type != "cpu":
            return super()._restart(td, rows)
        root, hidden = self._fields(td)
        return self._show(self._stepper.restart(root, hidden, td.batch_size, rows), td.batch_size)

    def _following(self, td: TensorDictBase, rows: torch.Tensor) -> torch.Tensor:
        """The keys of these rows with the next episode."""
        streams = self._current(td)["hidden", "stream"].reshape(-1, 3)[rows.to(self.device)].to(CPU)
        streams[:, 2] += 1
        return streams

    def _current(self, td: TensorDictBase) -> TensorDict:
        """The rows of `td`, validated field by field."""
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
            self._owned().load_rows(root, hidden, self.reader.arrays(shown))
        return shown

    def _holds_instance(self, td: TensorDictBase) -> bool:
        return self.reader.is_in(td)

    def _instance_in(self, td: TensorDictBase) -> TensorDictBase:
        return td

    def _layout_in(self, td: TensorDictBase) -> list[str]:
        unseen = [slot.name for slot in self._stepper.instance if not slot.root and slot.name in entries(td)]
        return [*self.reader.layout(td), *unseen]

    def rewind(self, td: TensorDictBase) -> TensorDict:
        """The rows of `td` at the beginning of their episodes: the same instances and random streams."""
        stream = self.reader.find(td, "stream")
        if stream is None:
            raise ShapeError("the TensorDict lacks 'stream', the keys of its random streams")
        return self._begin(stream.reshape(-1, 3).to(CPU), td.batch_size, td)

    def load_data(self, fpath: str | os.PathLike[str]) -> TensorDict:
        """The instances in a file, for `reset` to take: a folder that `milkrun dataset` wrote, an npz file of it or of
        RL4CO, or a file of the literature (.vrp, .tsp, .atsp, Solomon's .txt), whose rules must be this environment's.
        """
        arrays, options = load_instances(fpath, self.world_id)
        if wrong := [key for key, value in options.items() if getattr(self.config, key) != value]:
            needed = ", ".join(f"{key}={options[key]!r}" for key in wrong)
            has = ", ".join(f"{key}={getattr(self.config, key)!r}" for key in wrong)
            raise ConfigError(f"{os.fspath(fpath)}: needs an environment with {needed}; this one has {has}")
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return TensorDict(tensors, len(next(iter(arrays.values())))).to(self.device)

    # -- steps ------------------------------------------------------------------------------------------------

    def _find_plain_step(self) -> Callable[[Any], TensorDict | None] | None:
        """The fast path, if a step is only a call of the stepper."""
        usual = self.stepping == "functional" and not self.group_map and not self._synonyms
        if not usual or self.device.type != "cpu" or type(self)._step is not TorchRLEnv._step:
            return None
        return partial(step_plain, self._stepper.step, self._raises)

    def to(self, device: Any) -> TorchRLEnv:
        """This environment, with its TensorDicts on another device."""
        super().to(device)
        self._plain_step = self._find_plain_step()
        return self

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """td with td["next"] set. Input tensors are never written; of a locked td the result is a shallow copy."""
        plain_step = self._plain_step
        if plain_step is not None and not self.run_type_checks:
            stepped = plain_step(tensordict)
            if stepped is not None:
                return stepped
        return super().step(tensordict)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        batch, device, groups, root = tensordict.batch_size, self.device, self._groups, entries(tensordict)
        action = root.get("action") if groups is None else groups.joint_action(root, batch)
        if self.stepping == "inplace":
            return self._show(self._step_in_place(action, root.get("_step"), batch), batch)
        nested = root.get("hidden")
        hidden = {} if nested is None else entries(nested)
        if device == CPU or device.type == "cpu":  # the first test is eight times as fast
            given = root if groups is None else groups.fields(root)
            fresh, kept = self._stepper.step(given, hidden, batch, action, self._raises)
        else:
            rows = self._stepper.step(_down(root), _down(hidden), batch, on_cpu(action), self._raises)
            fresh, kept = (_up(part, device) for part in rows)
            fresh.update((name, root[name]) for name in self._seen_instance)
            kept.update((name, hidden[name]) for name in self._unseen)
        if groups is not None:
            fresh = groups.split(fresh, kept, batch, device)
        if self._synonyms:
            fresh.update((alias, fresh[name]) for alias, name in self._synonyms)
        fresh["hidden"] = make_td(kept, batch, device)
        return make_td(fresh, batch, device)

    def _step_in_place(self, action: torch.Tensor | None, wanted: torch.Tensor | None, batch: torch.Size) -> Rows:
        self._refuse_other(batch)
        tail = self.template.action.shape(self.template.sizes)
        action = checked_action(on_cpu(action), self._stepper.action_dtype, torch.Size((*batch, *tail)))
        rows = None if wanted is None else rows_named(wanted, batch).numpy()
        return self._owned().step(action.reshape(-1, *tail).numpy(), rows)

    def _step_some(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.stepping == "functional":
            return super()._step_some(tensordict)
        out = tensordict.copy()
        following = self._step(out)
        out.pop("_step")
        return out.set("next", following)

    # -- specs ------------------------------------------------------------------------------------------------

    def _specs(self, td: TensorDictBase | None) -> Specs:
        self._owner = None
        self.template.check_memory(self.batch_size.numel())
        return specs_of_world(self._stepper, self._groups, self.batch_size, self.device)

    # -- masks and actions ------------------------------------------------------------------------------------

    def _allowed(self, td: TensorDictBase) -> torch.Tensor:
        mask = self._fields(td)[self._groups is not None].get("action_mask")
        if mask is None:
            raise ShapeError("the TensorDict lacks its action mask")
        return mask

    def sample_actions(self, td: TensorDictBase) -> Any:
        """Actions drawn uniformly among the allowed ones, from a stream of the environment's own; for several agents
        a TensorDict of them, to update `td` with."""
        if self._groups is not None:
            acts = self._groups.sample(self.get_action_mask(td), self._sampler, self.device)
            return make_td(acts, td.batch_size, self.device)
        if self.template.action.kind == "box":
            shape = (*td.batch_size, *self.template.action.shape(self.template.sizes))
            return torch.from_numpy(self._sampler.uniform(-1, 1, shape).astype(np.float32)).to(self.device)
        self._turn += 1
        drawn = self._stepper.sample(self.get_action_mask(td).to(CPU), self.seed, self._turn)
        return (drawn if self.template.mask_lists_all else self._completed(drawn, td)).to(self.device)

    def _completed(self, drawn: torch.Tensor, td: TensorDictBase) -> torch.Tensor:
        """Complete actions from draws of masks that list only the first part of an action."""

        def field(name: str) -> np.ndarray:
            found = self.reader.find(td, name)
            if found is None:
                raise ShapeError(f"the TensorDict lacks {name!r}")
            return found.reshape(-1, *self.template.fields[name].shape(self.template.sizes)).numpy(force=True)

        flat = drawn.reshape(-1).numpy()
        key = np.random.Philox(key=[self.seed % 2**64, self._turn], counter=[0, 0, 0, 60])
        chances = np.random.Generator(key).random((2, len(flat)))
        whole = self.template.complete_actions(flat, field, chances.__getitem__)
        return torch.from_numpy(whole).reshape(drawn.shape)

    def _set_seed(self, seed: int | None) -> None:
        super()._set_seed(seed)
        self._turn = 0

    # -- whole solutions --------------------------------------------------------------------------------------

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        return self.objective.reward(td, self._plans(td, actions))

    def _check_solution(self, td: TensorDict, actions: torch.Tensor) -> None:
        self.objective.check(td, self._plans(td, actions))

    def _plan_axes(self, td: TensorDictBase, actions: torch.Tensor) -> int:
        return self.objective.plan_axes(td, actions)

    def _plans(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        """Solutions in the shape of the task."""
        if actions.ndim == self.objective.task.plan_axes:
            return actions
        return self.objective.plans(self._rows_of(td), actions)

    def _rows_of(self, td: TensorDictBase) -> Rows:
        """The validated rows of `td`, on the CPU."""
        root, hidden = self._fields(self._current(td).cpu())
        return dict(root), dict(hidden)

    def get_num_starts(self, td: TensorDictBase) -> int:
        """The number of nodes at which a solution may start, without the depot."""
        return self.objective.num_starts()

    def select_start_nodes(self, td: TensorDictBase, num_starts: int) -> torch.Tensor:
        """The first action of every copy, start-major: that of start s of row b is at s * B + b."""
        return self.objective.start_nodes(td, num_starts)

    # -- rows as TensorDicts ----------------------------------------------------------------------------------

    def _fields(self, td: TensorDictBase) -> tuple[Tensors, Tensors]:
        """The fields of the rows in `td` by name: at the root, under "hidden"."""
        root = entries(td)
        hidden = entries(root["hidden"]) if "hidden" in root else {}
        return root if self._groups is None else self._groups.fields(root), hidden

    def _owned(self) -> Owner:
        if self._owner is None:
            self._owner = Owner(self._stepper, self.batch_size, self.illegal, self.copies)
        return self._owner

    def _refuse_other(self, batch: torch.Size) -> None:
        if batch != self.batch_size:
            raise ShapeError(f"stepping='inplace' has a batch of {list(self.batch_size)}, not {list(batch)}")

    def _show(self, rows: Rows, batch: torch.Size) -> TensorDict:
        root, hidden = rows if self.device.type == "cpu" else (_up(part, self.device) for part in rows)
        root = root if self._groups is None else self._groups.split(root, hidden, batch, self.device)
        return self._link(make_td({**root, "hidden": make_td(hidden, batch, self.device)}, batch, self.device))

    def _link(self, td: TensorDict) -> TensorDict:
        for alias, name in self._synonyms:
            put(td, alias, td.get(name))
        return td

    # -- copies, other processes ------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        rebuilt = ("template", "_stepper", "_plain_step", "reader", "objective", "_groups", "_owner")
        state = {key: value for key, value in self.__dict__.items() if key not in rebuilt}
        return {**state, "_rows": None if self._owner is None else self._owner.save()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in state.items() if key != "_rows"})
        self._compile()
        self._owner = None
        if state["_rows"] is not None:
            self._owned().load(state["_rows"])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).__new__, (type(self),), self.__getstate__()

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        if self._owner is not None:
            self._owner.world.close()

    def __repr__(self) -> str:
        device = f"device={self.device}" + ("" if self.device.type == "cpu" else " (cuda: untested)")
        return (
            f"{type(self).__name__}({self.world_id!r}, batch_size={list(self.batch_size)}, "
            f"stepping={self.stepping!r}, seed={self.seed}, {device})"
        )


def on_cpu(value: Any) -> Any:
    """A tensor on the CPU. Other values and meta tensors are returned as they are, for later validation."""
    return value.to(CPU) if isinstance(value, torch.Tensor) and not value.is_meta else value


def _down(tensors: Tensors) -> dict[str, Any]:
    return {name: on_cpu(value) for name, value in tensors.items()}


def _up(tensors: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: value.to(device) for name, value in tensors.items()}
