"""Worlds as RLlib environments: `MilkrunMultiAgentEnv` is one row, `MilkrunSingleAgentEnv` one row of a world with one
agent, and `register_rllib` registers the ids with Ray.

No rules of worlds are here. Observations have the names that RLlib's action-masking module reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from milkrun.api._agents import TeamRow
from milkrun.api._binding import METADATA, check_render_mode, may_render, metadata_of, refuse_rows
from milkrun.core.arguments import check_seed
from milkrun.core.errors import ConfigError, missing_extra
from milkrun.core.fields import mask_field
from milkrun.core.registry import list_worlds, world_spec
from milkrun.core.world import World, autoreset_name

try:
    from ray.rllib.env.multi_agent_env import MultiAgentEnv
    from ray.tune.registry import register_env
except ImportError as e:
    raise missing_extra(str(e.name), "rllib") from e

ByAgent = dict[Any, Any]


def make(
    world_id: str,
    num_envs: int | None = None,
    *,
    autoreset: Any = "next_step",
    threads: int | None = None,
    **keywords: Any,
) -> MilkrunMultiAgentEnv:
    """`milkrun.make(api="rllib")`: one row, which the caller resets."""
    refuse_rows(num_envs, "an RLlib environment is one row; RLlib makes as many as it needs")
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step' is for a batch: RLlib resets")
    return MilkrunMultiAgentEnv({"world": world_id, **keywords})


def register_rllib() -> list[str]:
    """Registers every world with Ray Tune under its own id, those of one agent as `MilkrunSingleAgentEnv`, those of
    several as `MilkrunMultiAgentEnv`, and returns the ids."""
    ids = list_worlds()
    for id in ids:
        register_env(id, partial(_create, id))
    return ids


def _create(id: str, config: Mapping[str, Any]) -> MilkrunMultiAgentEnv | MilkrunSingleAgentEnv:
    settings = {**config, "world": id}
    return MilkrunMultiAgentEnv(settings) if world_spec(id).agents == "multi" else MilkrunSingleAgentEnv(settings)


class MilkrunMultiAgentEnv(MultiAgentEnv):
    """One row of a world, agent by agent.

    config: `world`, an id (or a World of one row with autoreset "disabled"), and the keywords of `milkrun.make`. RLlib
    seeds its workers itself; a `seed` in the config is the same in all of them.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        if not isinstance(config or {}, Mapping):
            raise ConfigError(f'the environment config must be a dict, {{"world": ...}}, not {config!r}')
        settings = dict(config or {})
        named = settings.pop("world", None)
        if named is None:
            raise ConfigError('the environment config names no world: {"world": "milkrun/TruckDrone-v0", ...}')
        self.render_mode = check_render_mode(settings.pop("render_mode", None))
        world, id = (named, None) if isinstance(named, World) else (None, named)
        self._row = TeamRow(self, id, world, settings)
        self.world, team = self._row.world, self._row.team
        self.possible_agents = list(self._row.names)
        self.agents = list(self._row.names)
        actions = dict(zip(self._row.names, team.action_spaces()))
        seen_by: dict[str, spaces.Space[Any]] = {}
        for name, box in zip(self._row.names, team.observation_boxes()):
            low, high = (bound.astype(np.float32) for bound in (box.low, box.high))
            seen: dict[str, spaces.Space[Any]] = {"observations": spaces.Box(low, high)}
            if mask_field(self.world.fields, self.world.sizes) is not None:
                choices: Any = actions[name]
                seen["action_mask"] = spaces.Box(0, 1, (int(choices.n),), np.float32)
            seen_by[name] = spaces.Dict(seen)
        self.observation_space = spaces.Dict(seen_by)
        self.action_space = spaces.Dict(actions)
        self.observation_spaces = {name: self.observation_space[name] for name in self._row.names}
        self.action_spaces = {name: self.action_space[name] for name in self._row.names}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Begins an episode: with a seed the one of key (seed, 0, 0), else the next one of this row.

        options: `instance`, a mapping of instance fields (without a row axis) to play instead of a drawn one.
        """
        self._row.begin(seed, options)
        super().reset(seed=None if seed is None else check_seed(seed))
        return self._observe()

    def step(  # type: ignore[override]
        self, action_dict: ByAgent
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Plays one action an agent; the default action is number 0, idle."""
        row = self._row
        row.play(action_dict)
        obs, infos = self._observe()
        reward, terminated, truncated = row.outcome()
        for place, info in enumerate(infos.values()):
            row.add_info(info, place, terminated or truncated)
        all_of = [*row.names, "__all__"]
        return (
            obs,
            dict.fromkeys(row.names, reward),
            dict.fromkeys(all_of, terminated),
            dict.fromkeys(all_of, truncated),
            infos,
        )

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """The picture of the row, uint8 (H, W, 3), under render_mode="rgb_array"."""
        return self.world.render(0) if may_render(self.render_mode) else None

    def close(self) -> None:
        self.world.close()

    def _observe(self) -> tuple[ByAgent, ByAgent]:
        obs: ByAgent = {}
        infos: ByAgent = {}
        for name, seen, mask, info in self._row.observations():
            obs[name] = {"observations": seen.astype(np.float32, copy=False)}
            if mask is not None:
                obs[name]["action_mask"] = info["action_mask"] = mask.astype(np.float32)
            infos[name] = info
        return obs, infos


class MilkrunSingleAgentEnv(gymnasium.Env):
    """One row of a world with one agent, as RLlib's single-agent algorithms take it.

    Where the world has a mask, an observation is a dict of `observations` and `action_mask`, which RLlib's
    `ActionMaskingTorchRLModule` reads; else it is the array of `observations` alone. The config is the same as for
    `MilkrunMultiAgentEnv`.
    """

    metadata = METADATA

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._team = cast(Any, MilkrunMultiAgentEnv(config))
        if len(self._team.possible_agents) != 1:
            agents = ", ".join(self._team.possible_agents)
            raise ConfigError(f"the world has several agents ({agents}): MilkrunMultiAgentEnv plays it")
        (self._name,) = self._team.possible_agents
        self.world = self._team.world
        self.render_mode = self._team.render_mode
        self.metadata = metadata_of(self.world)
        seen: Any = self._team.observation_spaces[self._name]
        self._masked = "action_mask" in seen.spaces
        self.observation_space = seen if self._masked else seen["observations"]
        self.action_space = self._team.action_spaces[self._name]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, as `MilkrunMultiAgentEnv.reset` does."""
        obs, infos = self._team.reset(seed=seed, options=options)
        super().reset(seed=None if seed is None else check_seed(seed))
        return self._shown(obs), infos[self._name]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one action."""
        obs, rewards, terminateds, truncateds, infos = self._team.step({self._name: action})
        name = self._name
        return self._shown(obs), rewards[name], terminateds[name], truncateds[name], infos[name]

    def render(self) -> Any:
        """The picture of the row, uint8 (H, W, 3), under render_mode="rgb_array"."""
        return self._team.render()

    def close(self) -> None:
        self._team.close()

    def _shown(self, obs: ByAgent) -> Any:
        return obs[self._name] if self._masked else obs[self._name]["observations"]
