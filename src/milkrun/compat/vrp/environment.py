"""`MultiAgentVRPEnv`: a row of the truck-and-drones world, played with lists that have an entry for each agent.

One native call plays a step; all results are copies of the row's buffers (`lists`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from milkrun.compat.vrp.actions import read_actions
from milkrun.compat.vrp.core import Drone, Truck, World
from milkrun.compat.vrp.lists import Info, Lists
from milkrun.compat.vrp.scenarios.truck_drone_basic import WEIGHTS, Scenario
from milkrun.core.arguments import check_seed
from milkrun.core.errors import ConfigError
from milkrun.delivery.truckdrone.world import TruckDrone

Step = tuple[list[np.ndarray], list[list[float]], list[bool], list[Info]]


class MultiAgentVRPEnv:
    """The agents of one row: the truck, then the drones; `n`, `n_agents` and `num_agents` say how many.

    world: the entities of a row whose world leaves resets to its caller (autoreset="disabled").
    scenario: the weights that world was made with; by default they are read from it.
    """

    world: World
    agents: list[Truck | Drone]

    def __init__(self, world: World, scenario: Scenario | None = None) -> None:
        config = world.batch.config
        if world.batch.autoreset != "disabled":
            raise ConfigError(f"the world has autoreset={world.batch.autoreset!r}; here it must be 'disabled'")
        self.scenario = scenario or Scenario(**{name: getattr(config, name) for name in WEIGHTS})
        for name, weight in self.scenario.weights.items():
            if weight != getattr(config, name):
                raise ConfigError(f"the scenario has {name} = {weight}, the world {getattr(config, name)}")
        self._pending: int | None = None
        self._names = [name for group in world.batch.groups.values() for name in group]
        self.n = self.n_agents = self.num_agents = len(self._names)
        self.choices = world.batch.action.nvec(world.batch.sizes)
        self.bind(world)
        reach = np.inf if config.rules == "published" else float(world.batch.sizes["reach of view"])
        self.action_space: list[spaces.Discrete[Any]] = [spaces.Discrete(n) for n in self.choices]
        self.observation_space = [_box(reach, self.max_obs_dim) for _ in self._names]
        self.share_observation_space = [_box(reach, world.batch.sizes["S"]) for _ in self._names]

    def bind(self, world: World) -> None:
        """Makes this environment play another row."""
        batch, row = world.batch, world.row
        self.world = world
        self.agents = world.policy_agents
        self._batch = batch
        self._rows = None if batch.num_envs == 1 else [row]
        self._joint = np.zeros((1, self.n), np.int64)
        self._own_actions = self._joint[0]
        self._reward = batch.reward_exact[row : row + 1]
        self._done = batch.done[row : row + 1]
        self._lists = Lists(batch, slice(row, row + 1))
        self.max_obs_dim = self._lists.width
        self.raw_obs_dims = self._lists.raw_widths

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy plays the copy of the world."""
        vars(self).update(state)
        self.bind(self.world)

    @property
    def world_length(self) -> int:
        """Steps of an episode."""
        return self.world.world_length

    @property
    def current_step(self) -> int:
        """Steps done."""
        return self.world.world_step

    def seed(self, seed: int | None = None) -> None:
        """Makes the next reset begin the episode of the key (seed, 0, 0); None: no-op."""
        self._pending = None if seed is None else check_seed(seed)

    def reset(self) -> list[np.ndarray]:
        """Begins the next episode. Returns the observation of each agent, padded with trailing zeros, float32."""
        seed, self._pending = self._pending, None
        self._batch.reset(rows=[self.world.row], seed=None if seed is None else [seed])
        return self.observations()

    def step(self, action_n: Any) -> Step:
        """Plays one action an agent: integers, arrays of one integer, or one-hot vectors.

        Returns obs_n, reward_n ([[r], ...], the same for all), done_n (all equal), info_n, whose dicts have
        available_actions, policy_id (0 truck, 1 drone), share_obs, customers_served, total_customers, time_step, and of
        the step executed_action, illegal, forced.
        """
        read_actions(action_n, self.choices, self._names, self._own_actions)
        self._batch.step(self._joint, self._rows)
        reward, done = self._reward.item(), self._done.item()
        rewards = [[reward] for _ in self._names]
        return list(self._lists.observations()[0]), rewards, [done] * self.n, self._lists.infos()[0]

    def observations(self) -> list[np.ndarray]:
        """The current observations, as `reset` returns them."""
        return list(self._lists.observations()[0])

    def share_obs(self) -> np.ndarray:
        """The current shared observation, float32."""
        return self._lists.shared()[0, 0].copy()

    def available_actions(self) -> list[np.ndarray]:
        """For each agent its current mask: 1 for an allowed action, else 0, float32."""
        return self._lists.masks()[0]

    def moments(self) -> list[Info]:
        """For each agent the info of the current state, which is all there is after a reset."""
        return self._lists.moments()[0]

    def render(self, mode: str = "human") -> np.ndarray | None:
        """Prints a line for each entity, or with "rgb_array" returns the picture of the row."""
        if mode == "rgb_array":
            return self._batch.render(self.world.row)
        if mode != "human":
            raise ConfigError(f"mode={mode!r}: must be 'human' or 'rgb_array'")
        for line in describe(self.world):
            print(line)
        return None

    def close(self) -> None:
        """Closes the world that this is a row of."""
        self._batch.close()


def share_world(envs: Sequence[Any]) -> TruckDrone | None:
    """Makes environments rows of one new world, each with its own seed, if they are plain, alike and never reset;
    else returns None."""
    if not envs or any(type(env) is not MultiAgentVRPEnv for env in envs):
        return None
    alone = [env.world.batch for env in envs]
    first = alone[0]
    for batch in alone:
        alike = type(batch) is type(first) and batch.config == first.config and batch.illegal_rule == first.illegal_rule
        # An episode number of 0 or more: it has been reset, and the new world would not have its state.
        if not alike or batch.num_envs > 1 or batch.stream[0, 2] >= 0:
            return None
    shared = type(first)(len(envs), first.config, seed=first.seed, autoreset="disabled", illegal=first.illegal_rule)
    for b, env in enumerate(envs):
        shared.stream[b] = alone[b].stream[0]
        env.bind(World.of(shared, b))
    return shared


def describe(world: World) -> list[str]:
    """A line for each entity."""
    truck = world.truck.state
    lines = [
        f"step {world.world_step} truck_0 at {_place(truck.p_pos)} node {truck.current_node} "
        f"bound for {truck.target_node}"
    ]
    for drone in world.drones:
        own = drone.state
        lines.append(
            f"{drone.name} {own.status} at {_place(own.p_pos)} battery {own.battery:.3f} "
            f"carrying {own.carrying_package}"
        )
    for customer in world.customers:
        own_state = customer.state
        fate = f"served at step {own_state.arrival_step}" if own_state.served else "waiting"
        window = f"[{own_state.time_window_start}, {own_state.time_window_end}]"
        lines.append(f"{customer.name} at {_place(own_state.p_pos)} window {window} {fate}")
    return lines


def _place(p: np.ndarray) -> str:
    return f"({p[0]:.3f}, {p[1]:.3f})"


def _box(reach: float, width: int) -> spaces.Box:
    return spaces.Box(-reach, reach, (width,), np.float32)
