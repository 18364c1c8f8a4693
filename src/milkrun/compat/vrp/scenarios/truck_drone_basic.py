"""`Scenario`: the six weights of the reward, and the methods of a scenario, which read a row.

The rules are compiled, so a scenario can change numbers only: a world reads the weights when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from milkrun.compat.vrp.core import Drone, Truck, World
from milkrun.compat.vrp.lists import Info, Lists
from milkrun.core.arguments import check_seed
from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.registry import make
from milkrun.delivery.truckdrone.config import TruckDroneConfig

WORLD_ID = "milkrun/TruckDrone-v0"
WEIGHTS = (
    "time_penalty",
    "delivery_bonus",
    "completion_bonus",
    "incomplete_penalty",
    "energy_cost",
    "forced_return_penalty",
)
OPTIONS = (
    "num_drones",
    "num_customers",
    "num_route_nodes",
    "episode_length",
    "delivery_threshold",
    "recovery_threshold",
)
"""The attributes read from an argument list, besides the preset, the seed and `road_graph`."""


def preset_weights(args: Any) -> dict[str, float]:
    """The weights of the preset that an argument list names, "published" by default."""
    config = TruckDroneConfig.build(_preset(args))
    return {name: getattr(config, name) for name in WEIGHTS}


class Scenario:
    """The weights of the reward. A subclass may set them; one that overrides a method is refused.

    They can be assigned until a world has been made with them.
    """

    time_penalty: float = 0.1
    delivery_bonus: float = 5.0
    completion_bonus: float = 100.0
    incomplete_penalty: float = 20.0
    energy_cost: float = 0.01
    forced_return_penalty: float = 0.5
    _in_use = False

    def __init__(self, **weights: float) -> None:
        for name, value in weights.items():
            if name not in WEIGHTS:
                raise ConfigError(f"Scenario has no weight {name!r}{did_you_mean(name, WEIGHTS)}")
            setattr(self, name, value)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ANSWERS:
            if getattr(cls, name) is not getattr(Scenario, name):
                raise TypeError(f"{cls.__name__}.{name}: {FIXED}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ANSWERS:
            raise TypeError(f"{type(self).__name__}.{name}: {FIXED}")
        if name not in WEIGHTS:
            raise AttributeError(f"{type(self).__name__} has no weight {name!r}{did_you_mean(name, WEIGHTS)}")
        if self._in_use:
            raise AttributeError(
                f"{type(self).__name__}.{name}: a world was made with this scenario; make another, Scenario({name}=...)"
            )
        object.__setattr__(self, name, value)

    @property
    def weights(self) -> dict[str, float]:
        """The six numbers."""
        return {name: getattr(self, name) for name in WEIGHTS}

    def make_world(self, args: Any) -> World:
        """Makes a row; `args` is that of `VRPEnv`."""
        options: dict[str, Any] = {name: getattr(args, name) for name in OPTIONS if hasattr(args, name)}
        if getattr(args, "road_graph", False):  # a parser sets False for an absent flag
            options["road_graph"] = True
        options |= self.weights
        seed = check_seed(getattr(args, "seed", 0))
        batch = make(WORLD_ID, 1, preset=_preset(args), seed=seed, autoreset="disabled", **options)
        object.__setattr__(self, "_in_use", True)
        return World.of(batch, 0)

    def reset_world(self, world: World) -> None:
        """Begins the next episode."""
        world.batch.reset(rows=[world.row])

    def observation(self, agent: Truck | Drone, world: World) -> np.ndarray:
        """The observation of an agent, without padding."""
        seen = world.batch.truck_obs if isinstance(agent, Truck) else world.batch.drone_obs
        own: np.ndarray = seen[world.row, agent.index]
        return own.copy()

    def get_share_obs(self, world: World) -> np.ndarray:
        """The shared observation."""
        shared: np.ndarray = world.batch.state[world.row]
        return shared.copy()

    def get_available_actions(self, agent: Truck | Drone, world: World) -> np.ndarray:
        """The mask of an agent: 1 for an allowed action, else 0, float32."""
        masks = world.batch.truck_mask if isinstance(agent, Truck) else world.batch.drone_mask
        own: np.ndarray = masks[world.row, agent.index]
        return own.astype(np.float32)

    def compute_share_obs_dim(self, world: World) -> int:
        """The length of the shared observation."""
        return int(world.batch.sizes["S"])

    def is_terminal(self, world: World) -> bool:
        """Whether the episode has ended, also by its length."""
        return bool(world.batch.terminated[world.row] or world.batch.truncated[world.row])

    def compute_global_reward(self, world: World) -> float:
        """The reward of the last step."""
        return float(world.batch.reward_exact[world.row])

    def info(self, agent: Truck | Drone, world: World) -> Info:
        """The info of an agent."""
        infos = Lists(world.batch, slice(world.row, world.row + 1)).infos()[0]
        return infos[0 if isinstance(agent, Truck) else 1 + agent.index]


ANSWERS: dict[str, Callable[..., Any]] = {
    name: value for name, value in vars(Scenario).items() if callable(value) and not name.startswith("_")
}
FIXED = "a scenario sets weights; the rules are compiled, so other rules are a world of their own"


def _preset(args: Any) -> str:
    return str(getattr(args, "preset", "published"))
