"""Worlds as PettingZoo environments: `MilkrunParallelEnv` is one row, with a dict entry for each agent.

No rules of worlds are here. Agents are named by group and index (`truck_0`, `drone_0`, ...), a world of one
agent has `agent_0`. All agents earn the team's reward and end together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from milkrun.api._agents import TeamRow
from milkrun.api._binding import METADATA, check_render_mode, may_render, metadata_of, refuse_rows
from milkrun.core.errors import ConfigError, UnknownName, did_you_mean, missing_extra
from milkrun.core.fields import mask_field
from milkrun.core.world import World, autoreset_name

try:
    from pettingzoo import AECEnv, ParallelEnv  # type: ignore[import-untyped]
    from pettingzoo.utils.conversions import parallel_to_aec  # type: ignore[import-untyped]
except ImportError as e:
    raise missing_extra(str(e.name), "pettingzoo") from e

Observation = dict[str, np.ndarray]
Infos = dict[str, dict[str, Any]]


def make(
    world_id: str,
    num_envs: int | None = None,
    *,
    autoreset: Any = "next_step",
    threads: int | None = None,
    **keywords: Any,
) -> MilkrunParallelEnv:
    """`milkrun.make(api="pettingzoo")`: one row, which the caller resets."""
    refuse_rows(num_envs, "a PettingZoo environment is one row")
    if autoreset_name(autoreset) == "same_step":
        raise ConfigError("autoreset='same_step' is for a batch: under PettingZoo the caller resets")
    return MilkrunParallelEnv(world_id, **keywords)


def parallel_env(world_id: str | None = None, **keywords: Any) -> MilkrunParallelEnv:
    """The environment in which all agents act at once."""
    return MilkrunParallelEnv(world_id, **keywords)


def env(world_id: str | None = None, **keywords: Any) -> AECEnv[str, Observation, Any]:
    """The same with agents acting in turn; the world steps when the last one has acted."""
    return parallel_to_aec(MilkrunParallelEnv(world_id, **keywords))


class MilkrunParallelEnv(ParallelEnv[str, Observation, Any]):
    """One row of a world, agent by agent.

    settings: keywords of `milkrun.make` (preset, config, seed, first_row, illegal) and options of the world.
    """

    metadata = METADATA

    def __init__(
        self,
        world_id: str | None = None,
        *,
        world: World | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        self._row = TeamRow(self, world_id, world, settings)
        self.world, team = self._row.world, self._row.team
        self.render_mode = check_render_mode(render_mode)
        self.metadata = {**metadata_of(self.world), "name": self.world.id or type(self.world).__name__}
        self.possible_agents = list(self._row.names)
        self.state_space = team.state_box()
        self.action_spaces = dict(zip(self._row.names, team.action_spaces()))
        self.observation_spaces = {}
        for name, box in zip(self._row.names, team.observation_boxes()):
            seen: dict[str, spaces.Space[Any]] = {"observation": box}
            if mask_field(self.world.fields, self.world.sizes) is not None:
                choices: Any = self.action_spaces[name]
                seen["action_mask"] = spaces.Box(0, 1, (int(choices.n),), np.int8)
            self.observation_spaces[name] = spaces.Dict(seen)

    @property
    def agents(self) -> list[str]:
        """The agents that act: all, and none between the end of an episode and the next."""
        return [] if self.world.done.item(0) else list(self._row.names)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The space of an agent's `observation` and `action_mask`."""
        return _of_agent(self.observation_spaces, agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return _of_agent(self.action_spaces, agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], Infos]:
        """Begins an episode: with a seed the one of key (seed, 0, 0), else the next one of this row.

        options: `instance`, a mapping of instance fields (without a row axis) to play instead of a drawn one.
        """
        self._row.begin(seed, options)
        return self._observe()

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Plays one action an agent; the default action is number 0, idle."""
        row = self._row
        row.play(actions)
        obs, infos = self._observe()
        reward, terminated, truncated = row.outcome()
        ended = terminated or truncated
        for place, info in enumerate(infos.values()):
            row.add_info(info, place, ended)
        each = row.names
        return (
            obs,
            dict.fromkeys(each, reward),
            dict.fromkeys(each, terminated),
            dict.fromkeys(each, truncated),
            infos,
        )

    def state(self) -> np.ndarray:
        """The state for a central critic, float32."""
        return self._row.state()

    def render(self) -> np.ndarray | None:
        """The picture of the row, uint8 (H, W, 3), under render_mode="rgb_array"."""
        return self.world.render(0) if may_render(self.render_mode) else None

    def close(self) -> None:
        self.world.close()

    def _observe(self) -> tuple[dict[str, Observation], Infos]:
        obs: dict[str, Observation] = {}
        infos: Infos = {}
        for name, seen, mask, info in self._row.observations():
            obs[name] = {"observation": seen}
            if mask is not None:
                obs[name]["action_mask"] = info["action_mask"] = mask
            infos[name] = info
        return obs, infos


def _of_agent(spaces_of: Mapping[str, spaces.Space[Any]], agent: str) -> spaces.Space[Any]:
    if agent not in spaces_of:
        raise UnknownName(f"there is no agent {agent!r}{did_you_mean(str(agent), spaces_of)}")
    return spaces_of[agent]
