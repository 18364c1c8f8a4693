"""RL4CO's TSPEnv and CVRPEnv with Milkrun's compiled step, and the base of these environments.

A TensorDict of these environments has RL4CO's keys; further fields are nested under "_w", so cloning, indexing and
`batchify` apply to both. As in RL4CO a step replaces entries of its TensorDict and returns it; no tensor is written in
place. The kernel reads the keys at the root where they are complete (`locs`, so augmented coordinates are used) and the
units of demand under "_w", so demand must be changed before the reset. Steps run on the CPU; tensors on another device
are copied there and back (untested without a GPU).
"""

from __future__ import annotations

import inspect
import math
import os
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from rl4co.envs import CVRPEnv as TheirCVRPEnv
from rl4co.envs import TSPEnv as TheirTSPEnv
from rl4co.envs.common.base import RL4COEnvBase
from rl4co.utils.ops import gather_by_index, get_tour_length
from tensordict import TensorDict
from torchrl.data import Binary, Categorical, Composite, Unbounded

from milkrun.api._instances import load_instances
from milkrun.api._td import entries, make_td, put
from milkrun.api.rl4co.generator import RL4COGenerator, from_params
from milkrun.api.rl4co.views import CVRPView, TSPView
from milkrun.api.torchrl.functional import Stepper
from milkrun.core.arguments import check_seed, read_debug
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.routing import tasks
from milkrun.routing.generators import Generator

OWN = "_w"

THEIR_KEYWORDS = {"name", *inspect.signature(RL4COEnvBase.__init__).parameters} - {"self", "kwargs"}


class Compiled(RL4COEnvBase):
    """The base of the drop-in environments: RL4CO's calls, played by a view world and its stepper."""

    view: ClassVar[Any]  # a world with RL4CO's fields, of which `shown` names those at the root of a TensorDict
    task: ClassVar[type[tasks.BaseProblem]]
    task_keys: ClassVar[tuple[str, ...]]  # the keys that the task reads
    depots: ClassVar[int]  # nodes that are no customers
    files: ClassVar[tuple[str, ...]]  # the arrays that are read from a file
    options: ClassVar[Mapping[str, Any]]  # of the view, besides its size

    def __init__(
        self,
        generator: Any = None,
        generator_params: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        illegal: str = "noop",
        threads: int | None = None,
        **kwargs: Any,
    ) -> None:
        if illegal not in ("noop", "raise"):
            raise ConfigError(f"illegal={illegal!r}: must be 'noop' or 'raise'")
        for key in kwargs:
            if key not in THEIR_KEYWORDS:
                raise ConfigError(f"{type(self).__name__} has no keyword {key!r}{did_you_mean(key, THEIR_KEYWORDS)}")
        if generator is not None and generator_params:
            raise ConfigError("give either generator or generator_params")
        if generator is None:
            generator = from_params(self.name, generator_params or {})
            seed = secrets.randbits(63) if seed is None else seed
        elif isinstance(generator, Generator):
            generator = RL4COGenerator(generator)
        if not callable(generator) or not hasattr(generator, "num_loc"):
            raise ConfigError(f"generator must be callable and have `num_loc`; a {type(generator).__name__} is not")
        if getattr(generator, "vehicle_capacity", 1) != 1:
            raise ConfigError(f"vehicle_capacity = {generator.vehicle_capacity!r}: must be 1")
        if isinstance(generator, RL4COGenerator):
            if seed is not None:
                generator.seed(check_seed(seed))
            seed = generator.laws.seed  # a given generator continues its sequence
        self._raises = illegal == "raise"
        self._threads = threads
        self._debug = read_debug(None)
        self._steppers: dict[int, Stepper] = {}
        self._streams = torch.zeros((0, 3), dtype=torch.int64)
        super().__init__(generator=generator, seed=secrets.randbits(63) if seed is None else seed, **kwargs)

    # -- stepping -----------------------------------------------------------------------------------------------

    def _step(self, td: TensorDict) -> TensorDict:
        shown = entries(td)
        if shown.get(OWN) is None:
            raise ShapeError(f"the TensorDict lacks {OWN!r}: it must come from reset()")
        locs, batch, device = shown["locs"], td.batch_size, td.device
        if not locs.is_cpu:
            return self._step(td.to("cpu")).to(locs.device)
        own = entries(shown[OWN])
        stepper = self._stepper(locs.shape[-2])
        fields = {**shown, **own, "stream": self._no_stream(batch)}
        fresh, rest = stepper.step(fields, fields, batch, shown.get("action"), self._raises)
        fresh.update(rest)
        kept = dict(own)
        for key in self._own_state:
            kept[key] = fresh[key]
        if td.is_locked:
            td = td.copy()
        for key in self._shown_state:
            put(td, key, fresh[key])
        put(td, "reward", torch.zeros_like(fresh["reward"]))  # an in-place change would take longer
        put(td, OWN, make_td(kept, batch, device))
        return td

    def _reset(self, td: TensorDict | None = None, batch_size: Any = None) -> TensorDict:
        assert td is not None  # RL4CO's reset calls the generator first
        batch = torch.Size(batch_size)
        given = {
            key: value.detach().cpu().reshape(batch.numel(), *value.shape[len(batch) :]).numpy()
            for key, value in self._instance(td).items()
        }
        stepper = self._stepper(given["locs"].shape[1])
        # The world is temporary, so the tensors take over its memory.
        world = self.view(batch.numel(), stepper.world.config, threads=self._threads, debug=self._debug)
        world.reset(instance=given)
        made = {
            slot.name: torch.from_numpy(getattr(world, slot.name)).view((*batch, *slot.tail()))
            for slot in (*stepper.instance, *stepper.carried)
        }
        own = {key: made.pop(key) for key in (*self._own_instance, *self._own_state)}
        made["done"], made["reward"] = made["terminated"].clone(), torch.zeros((*batch, 1))
        return TensorDict({**made, OWN: TensorDict(own, batch_size=batch)}, batch_size=batch, device=td.device)

    def _instance(self, td: TensorDict) -> dict[str, torch.Tensor]:
        """The instance in a TensorDict of RL4CO's layout, the depot first among the nodes."""
        return {"locs": _entry(td, "locs")}

    def _stepper(self, nodes: int) -> Stepper:
        """The stepper of a size, made when an instance of that size first comes."""
        stepper = self._steppers.get(nodes)
        if stepper is None:
            options = {"num_loc": nodes - self.depots, "record": False, "max_steps": None, **self.options}
            world = self.view(1, self.view.Config.build(**options), threads=self._threads, debug=self._debug)
            stepper = self._steppers[nodes] = Stepper(world)
            shown = (*self.view.shown, "terminated")
            self._own_instance = [s.name for s in stepper.instance if s.name not in shown]
            self._own_state = [s.name for s in stepper.carried if s.name not in shown]
            self._shown_state = [s.name for s in stepper.carried if s.name in shown] + ["done"]
        return stepper

    def _no_stream(self, batch: torch.Size) -> torch.Tensor:
        """Keys of random streams for the stepper to see; a step of these worlds draws nothing, so none are kept."""
        streams = self._streams
        if streams.shape[:-1] != batch:
            self._streams = streams = torch.zeros((*batch, 3), dtype=torch.int64)
        return streams

    # -- instances of files -------------------------------------------------------------------------------------

    @classmethod
    def load_data(cls, fpath: str | os.PathLike[str], batch_size: Any = ()) -> TensorDict:
        """The instances in a file, for `reset` to take, in RL4CO's layout: an npz file of RL4CO, a folder that
        `milkrun dataset` wrote or a file of it, or a TSPLIB or CVRPLIB file with coordinates in the plane.

        Coordinates are those of the file, and lengths are not rounded, whatever the file says. `batch_size` is an
        argument of RL4CO's own method and has no effect there either.
        """
        arrays, options = load_instances(fpath, cls.view.id)
        metric, file = options.get("metric", "euclid"), os.fspath(fpath)
        if metric not in ("euclid", "round"):
            raise ConfigError(f"{file}: is measured by {metric!r}; RL4CO measures straight lines in the plane")
        # RL4CO's layout lacks these fields, so they must have their defaults.
        plain = {"n_nodes": arrays["locs"].shape[1] if "locs" in arrays else 0, "max_length": math.inf}
        kept = {name: array for name, array in arrays.items() if name not in plain or (array != plain[name]).any()}
        if kept.keys() != {*cls.files}:
            raise ConfigError(f"{file}: has {', '.join(kept)}; {cls.__name__} reads {', '.join(cls.files)}")
        tensors = {name: torch.from_numpy(array) for name, array in cls._lay_out(kept).items()}
        return TensorDict(tensors, batch_size=[len(arrays["locs"])])

    @classmethod
    def _lay_out(cls, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The arrays of a file in RL4CO's layout."""
        return {"locs": arrays["locs"].astype(np.float32)}

    # -- calls of trainers ----------------------------------------------------------------------------------------

    @staticmethod
    def get_action_mask(td: TensorDict) -> torch.Tensor:
        """True = allowed. A TensorDict of these environments always has the mask of its state."""
        return td["action_mask"]

    @classmethod
    def check_solution_validity(cls, td: TensorDict, actions: torch.Tensor) -> None:
        """Raises BadSolution with the row and the rule it breaks, by the independent checker."""
        cls.task.get_costs({key: td[key] for key in cls.task_keys}, actions)

    def _make_spec(self, generator: Any) -> None:
        batch, nodes = self.batch_size, generator.num_loc + self.depots
        stepper = self._stepper(nodes)
        stepper.world.check_memory(batch.numel())
        leaves = {
            slot.name: Unbounded(shape=(*batch, *slot.tail()), dtype=slot.dtype)
            for slot in (*stepper.instance, *stepper.carried)
            if slot.name != "terminated"
        }
        own = {key: leaves.pop(key) for key in (*self._own_instance, *self._own_state)}
        leaves["action_mask"] = Binary(n=nodes, shape=(*batch, nodes), dtype=torch.bool)
        self.observation_spec = Composite({**leaves, OWN: Composite(own, shape=batch)}, shape=batch)
        self.action_spec = Categorical(nodes, shape=batch, dtype=torch.int64)
        self.reward_spec = Unbounded(shape=(*batch, 1))
        self.done_spec = Categorical(2, shape=(*batch, 1), dtype=torch.bool)

    def _set_seed(self, seed: int | None) -> None:
        """Seeds Milkrun's instances. Torch's global state, which RL4CO's generators use, does not change."""
        self.seed = secrets.randbits(63) if seed is None else check_seed(seed)
        if isinstance(generator := self.__dict__.get("generator"), RL4COGenerator):
            generator.seed(self.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steppers": {}}  # they hold addresses and are rebuilt lazily

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class TSPEnv(Compiled, TheirTSPEnv):
    """RL4CO's TSP: `locs` (B, n, 2), `first_node` (B,), `current_node` (B,), `i` (B, 1), `action_mask` (B, n)."""

    view = TSPView
    task = tasks.TSP
    task_keys = ("locs",)
    depots = 0
    files = ("locs",)
    options = {"start": "free"}

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        return -get_tour_length(gather_by_index(td["locs"], actions, squeeze=False))


class CVRPEnv(Compiled, TheirCVRPEnv):
    """RL4CO's CVRP: `locs` (B, n+1, 2), `demand` (B, n), `used_capacity`, `vehicle_capacity`, `current_node` (B, 1),
    `visited` and `action_mask` (B, n+1)."""

    view = CVRPView
    task = tasks.CVRP
    task_keys = ("locs", "demand", "vehicle_capacity")
    depots = 1
    files = ("locs", "demand_units", "capacity")
    options = {}

    def _get_reward(self, td: TensorDict, actions: torch.Tensor) -> torch.Tensor:
        visits = torch.nn.functional.pad(actions, (1, 0))
        return -get_tour_length(gather_by_index(td["locs"], visits, squeeze=False))

    @classmethod
    def _lay_out(cls, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        locs, capacity = arrays["locs"].astype(np.float32), arrays["capacity"][:, None].astype(np.float32)
        demand = arrays["demand_units"][:, 1:].astype(np.float32) / capacity
        return {"locs": locs[:, 1:], "depot": locs[:, 0], "demand": demand, "capacity": capacity}

    def _instance(self, td: TensorDict) -> dict[str, torch.Tensor]:
        locs, capacity = _entry(td, "locs"), td.get("capacity", None)
        if td.get(OWN, None) is None:  # otherwise it was reset before, and the depot is among the nodes
            locs = torch.cat((_entry(td, "depot").unsqueeze(-2), locs), -2)
        if capacity is None:
            capacity = torch.full(td.batch_size, float(getattr(self.generator, "capacity", math.nan)))
        return {"locs": locs, "demand": _entry(td, "demand"), "capacity": capacity}


def _entry(td: TensorDict, key: str) -> torch.Tensor:
    value = td.get(key, None)
    if value is None:
        raise ShapeError(f"the TensorDict lacks {key!r}")
    return value
