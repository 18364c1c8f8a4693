"""TorchRLEnv: a compiled world as a TorchRL environment, stepped functionally or in place.

Functionally (the default) the environment keeps nothing between calls: all that a step needs is in the TensorDict, so
any TensorDict can be stepped, cloned, expanded, cut and stacked. In place it owns a World of `batch_size` rows and
reads the action only. Both run the world's kernels and give the same bits. Worlds compute on the CPU; another device
is served by plain copies (cuda: untested).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.api._td import entries, make_td, put
from milkrun.api.torchrl.agents import Groups
from milkrun.api.torchrl.base import RL4COEnvBase
from milkrun.api.torchrl.beginning import CPU, BeginMixin
from milkrun.api.torchrl.contract import told
<<<<<<< HEAD
from milkrun.api.torchrl.checks import Tensors, checked_action
from milkrun.api.torchrl.functional import Rows, Stepper
from milkrun.api.torchrl.generators import draws_as, get_generator, problem_of
=======
from milkrun.api.torchrl.functional import Rows, Stepper, Tensors
from milkrun.api.torchrl.generators import draws_as, get_generator
>>>>>>> 23fd5ccc6c374fb4d059f114977fc17204855b7b
from milkrun.api.torchrl.inplace import Owner
from milkrun.api.torchrl.objective import ObjectiveMixin
from milkrun.api.torchrl.reader import InstanceReader
from milkrun.api.torchrl.specs import Specs, specs_of_world
from milkrun.core.arguments import autoreset_name, check_count
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.references import refer
from milkrun.core.registry import world_spec
from milkrun.core.world import World

KEYWORDS = ("generator", "generator_params", "device", "batch_size", "seed", "check_solution", "run_type_checks",
            "allow_done_after_reset", "stepping", "illegal", "preset", "config", "first_row", "threads",
            "features")  # fmt: skip


class TorchRLEnv(ObjectiveMixin, BeginMixin, RL4COEnvBase):
    """The world of an id. Further keywords are options of its configuration, and so are `generator_params`."""

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
        spec = world_spec(world_id)
        self.world_id, self.name, self.stepping, self.illegal = spec.id, spec.name.lower(), stepping, illegal
        self.first_row, self.threads = check_count("first_row", first_row, 0), threads
        self.features = features
        self._base = preset, config
        super().__init__(
            generator, generator_params, device, batch_size, seed=seed, check_solution=check_solution,
            run_type_checks=run_type_checks, allow_done_after_reset=allow_done_after_reset, **overrides,
        )  # fmt: skip

    def _set_up(self, generator: Any, options: dict[str, Any]) -> None:
        spec, (preset, config) = world_spec(self.world_id), self._base
        cls = spec.load()
        known = {*(f.name for f in dataclasses.fields(cls.Config)), *cls.Config.synonyms}
        for key in options:
            if key not in known:
                hint = did_you_mean(key, known | {*KEYWORDS})
                raise ConfigError(f"{type(self).__name__} has no keyword {key!r}{hint}")
        if preset is None and config is None and generator is not None:
            if isinstance(getattr(generator, "config", None), cls.Config):
                config = generator.config
            elif isinstance(getattr(generator, "num_loc", None), int):
                options.setdefault("num_loc", generator.num_loc)
        self.config = cls.Config.build(preset, config, **{**spec.kwargs, **options})
        if hasattr(self.config, "record"):  # every step would copy the record of all steps before it
            self.config = self.config.replace(record=False)
        self._given_generator = generator
        self._compile()
        self._owner: Owner | None = None
        self.batch_locked = self.stepping == "inplace"
        foreign = any(f.strided for f in self.template.fields.values())
        if self.stepping == "functional" and (foreign or spec.nondeterministic):
            raise ConfigError(f"{self.world_id} does not live in arrays alone: use stepping='inplace'")

    def _compile(self) -> None:
        """What hangs on compiled code, and is made anew in a copy or another process."""
        cls = world_spec(self.world_id).load()
        self.template: World = cls.variant(self.config)(
            1, self.config, autoreset="disabled", illegal=self.illegal, threads=self.threads
        )
        self._stepper = stepper = Stepper(self.template, self.features)
        self.reader = InstanceReader(self.template, [slot.name for slot in stepper.instance])
        self._seen_instance = [slot.name for slot in stepper.instance if slot.root]
        self._unseen = [*(slot.name for slot in stepper.instance if not slot.root), "stream"]
        self._groups = Groups(self.template) if self.template.groups else None
        self.group_map = self.template.groups
        seen = [slot.name for slot in (*stepper.instance, *stepper.carried) if slot.root]
        self._own_keys = ["hidden", *self.group_map, *seen]
        self._synonyms = stepper.synonyms
        self._asks = not (self._given_generator is None or draws_as(self._given_generator, cls))
        self._draws = not (self._asks or self.template.amends_instances)

    def _specs(self, td: TensorDictBase | None) -> Specs:
        self._owner = None
        return specs_of_world(self._stepper, self._groups, self.batch_size, self.device)

    @property
    def generator(self) -> Any:
        """The generator given, or one with the laws of this world."""
        if self._given_generator is not None:
            return self._given_generator
        spec = world_spec(self.world_id)
        if not spec.load().generator:
            raise ConfigError(f"{self.world_id} has no generator apart from its world")
        return get_generator(spec.problem, seed=self.seed, device=self.device, **self.config.as_dict())

    # -- stepping ---------------------------------------------------------------------------------------------

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        batch, device, root = tensordict.batch_size, self.device, entries(tensordict)
        action = root.get("action") if self._groups is None else self._groups.joint_action(root, batch)
        if self.stepping == "inplace":
            return self._show(self._step_in_place(action, root.get("_step"), batch), batch)
        nested = root.get("hidden")
        hidden = {} if nested is None else entries(nested)
        if device.type == "cpu":
            given = root if self._groups is None else self._groups.fields(root)
            fresh, kept = self._stepper.step(given, hidden, batch, action, self.illegal == "raise")
        else:
            rows = self._stepper.step(_down(root), _down(hidden), batch, on_cpu(action), self.illegal == "raise")
            fresh, kept = (_up(part, device) for part in rows)
            fresh.update((name, root[name]) for name in self._seen_instance)
            kept.update((name, hidden[name]) for name in self._unseen)
        if self._groups is not None:
            fresh = self._groups.split(fresh, kept, batch, device)
        for alias, name in self._synonyms:
            fresh[alias] = fresh[name]
        fresh["hidden"] = make_td(kept, batch, device)
        return make_td(fresh, batch, device)

    def _step_in_place(self, action: torch.Tensor | None, wanted: torch.Tensor | None, batch: torch.Size) -> Rows:
        self._refuse_other(batch)
        tail = self.template.action.shape(self.template.sizes)
        action = checked_action(on_cpu(action), self._stepper.action_dtype, torch.Size((*batch, *tail)))
        rows = None if wanted is None else told(wanted, batch).numpy()
        return self._owned().step(action.reshape(-1, *tail).numpy(), rows)

    def _step_some(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.stepping == "functional":
            return super()._step_some(tensordict)
        out = tensordict.copy()
        following = self._step(out)
        out.pop("_step")
        return out.set("next", following)

    def _owned(self) -> Owner:
        if self._owner is None:
            self._owner = Owner(self._stepper, self.batch_size, self.illegal)
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
        """Whole actions from what was drawn of masks that list only how actions begin."""

        def field(name: str) -> np.ndarray:
            found = self.reader.find(td, name)
            if found is None:
                raise ShapeError(f"the TensorDict lacks {name!r}")
            return found.reshape(-1, *self.template.fields[name].shape(self.template.sizes)).numpy(force=True)

        whole = self.template.complete_actions(drawn.reshape(-1).numpy(), field, self.seed, self._turn)
        return torch.from_numpy(whole).reshape(drawn.shape)

    def _set_seed(self, seed: int | None) -> None:
        super()._set_seed(seed)
        self._turn = 0

    # -- copies, other processes ------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        made_anew = ("template", "_stepper", "reader", "_groups", "_owner")
        state = {key: value for key, value in self.__dict__.items() if key not in made_anew}
        return {**state, "_rows": None if self._owner is None else self._owner.save()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in state.items() if key != "_rows"})
        self._compile()
        self._owner = None
        if state["_rows"] is not None:
            self._owned().load(state["_rows"])

    def __reduce__(self) -> tuple[Any, ...]:
        cls = type(self)
        return _revive, (self.world_id if cls is _classes.get(self.world_id) else cls,), self.__getstate__()

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        if self._owner is not None:
            self._owner.world.close()

    def __repr__(self) -> str:
        device = f"device={self.device}" + ("" if self.device.type == "cpu" else " (cuda: untested)")
        return (f"{type(self).__name__}({self.world_id!r}, batch_size={list(self.batch_size)}, "
                f"stepping={self.stepping!r}, seed={self.seed}, {device})")


class WorldEnv(TorchRLEnv):
    """The environment of one world; `env_class` makes its subclasses."""

    fixed_id: str

    def __init__(
        self,
        generator: Any = None,
        generator_params: Mapping[str, Any] | None = None,
        device: Any = "cpu",
        batch_size: int | Iterable[int] | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(self.fixed_id, generator, generator_params, device, batch_size, **keywords)


_classes: dict[str, type[WorldEnv]] = {}


def env_class(world_id: str) -> type[WorldEnv]:
    """The class of a world, named after its problem: env_class("milkrun/CVRP-v0") is CVRPEnv."""
    spec = world_spec(world_id)
    if spec.id not in _classes:
        world = spec.load()
        own = refer(world, "environments", "torchrl") if "torchrl" in world.environments else WorldEnv
        name = f"{spec.name}Env"
        about = {"fixed_id": spec.id, "__module__": __name__, "__qualname__": name, "__doc__": spec.title or spec.id}
        made = getattr(own, "fixed_id", None) == spec.id  # else a subclass of the world that it was made for
        _classes[spec.id] = own if made else type(name, (own,), about)
    return _classes[spec.id]


def _revive(of: str | type[TorchRLEnv]) -> TorchRLEnv:
    cls = env_class(of) if isinstance(of, str) else of
    return cls.__new__(cls)


def make(world_id: str, num_envs: int | None = None, *, autoreset: Any = "next_step", **keywords: Any) -> WorldEnv:
    """What milkrun.make(..., api="torchrl") returns. TorchRL's calls say when rows are reset, so `autoreset` cannot."""
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step': under TorchRL, step_and_maybe_reset begins the next episode")
    if num_envs is not None:
        if "batch_size" in keywords:
            raise ConfigError(f"num_envs={num_envs} and batch_size={keywords['batch_size']}: give one of them")
        keywords["batch_size"] = [num_envs]
    return env_class(world_id)(**keywords)


TSPEnv = env_class("milkrun/TSP-v0")
CVRPEnv = env_class("milkrun/CVRP-v0")
VRPPEnv = env_class("milkrun/VRPP-v0")
CVRPPEnv = env_class("milkrun/CVRPP-v0")
WCVRPEnv = env_class("milkrun/WCVRP-v0")
CWCVRPEnv = env_class("milkrun/CWCVRP-v0")
SCWCVRPEnv = env_class("milkrun/SCWCVRP-v0")
SDWCVRPEnv = env_class("milkrun/SDWCVRP-v0")


def on_cpu(value: Any) -> Any:
    """The tensor where kernels can read it; what is none, or has no values, as it is, for others to refuse."""
    return value.to(CPU) if isinstance(value, torch.Tensor) and not value.is_meta else value


def _down(tensors: Tensors) -> dict[str, Any]:
    return {name: on_cpu(value) for name, value in tensors.items()}


def _up(tensors: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: value.to(device) for name, value in tensors.items()}
