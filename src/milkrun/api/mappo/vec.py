"""MAPPOVecEnv: a batch of rows in on-policy's masked protocol, one native call a step.

No rules of worlds are here. Agents have the world's order; observations and masks are padded with trailing zeros to the
largest. The world begins the next episode of a row in the step that ends one, so observations, shared observations and
masks of a call belong to the same state; the end of the old episode is described in `infos`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from milkrun.api._agents import BY_AGENT, Parts, Team, shared_info
from milkrun.api._binding import Waiting, batch_behind, end_info, read_flag
from milkrun.api._spaces import Follower
from milkrun.api.mappo.infos import Infos, RowInfo
from milkrun.core.actions import action_array
from milkrun.core.arguments import check_seed, is_list
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.world import World, autoreset_name

Observed = tuple[np.ndarray, np.ndarray, np.ndarray]
StepResult = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Infos, np.ndarray]


def make(world_id: str, num_envs: int | None = None, *, autoreset: Any = "same_step", **keywords: Any) -> MAPPOVecEnv:
    """`milkrun.make(api="mappo")`; rows begin their next episode in the step that ends one."""
    if autoreset_name(autoreset) == "disabled":
        raise ConfigError("autoreset='disabled': on-policy never resets single rows, so MAPPOVecEnv does")
    return MAPPOVecEnv(world_id, num_envs, **keywords)


class MAPPOVecEnv(Follower):
    """A batch of rows of a world. Its `world` is stepped and reset through it only. `n_agents` (also `num_agents`, `n`)
    is the number of agents of a row.

    pad_actions: True gives every agent the largest of the action spaces, for policies that agents share; the padding is
    never available.
    settings: keywords of `milkrun.make` (preset, config, first_row, illegal, threads) and options of the world.
    """

    def __init__(
        self,
        world_or_id: World | str,
        num_envs: int | None = None,
        *,
        pad_actions: bool = False,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        pads = read_flag("pad_actions", pad_actions)
        self.world = batch_behind(self, world_or_id, num_envs, "same_step", seed, settings)
        if self.world.action.kind == "box":
            raise ConfigError(f"{type(self.world).__name__} has no action mask: its actions are numbers")
        self.team = Team(self.world)
        self.num_envs = self.world.num_envs
        self.n = self.n_agents = self.num_agents = len(self.team.names)
        boxes, own, state = self.team.observation_boxes(), self.team.action_spaces(), self.team.state_box()
        self._shapes = [(g.agents, math.prod(boxes[g.agents.start].shape), g.choices) for g in self.team.groups]
        self._seen_width = max(width for _, width, _ in self._shapes)
        self._choices = max(choices for _, _, choices in self._shapes)
        self._state_width = math.prod(state.shape)
        self.observation_space = [_padded(box, self._seen_width) for box in boxes]
        self.share_observation_space = [_padded(state, self._state_width) for _ in boxes]
        self.action_space = [spaces.Discrete(self._choices) for _ in own] if pads else own
        self._joint_actions = (self.num_envs, *self.world.action.shape(self.world.sizes))
        self._joint_rewards = (self.num_envs, self.n_agents, 1)
        self._end_info = end_info(self.world)
        self._step_info = {name: name for name in shared_info(self.world)}
        self._step_info["illegal"] = BY_AGENT if BY_AGENT in self.world.fields else "illegal"
        self._copied = [(key, getattr(self.world, name)) for key, name in self._step_info.items()]
        self._waiting = Waiting()
        self._seed: Any = None
        self.bind()

    def seed(self, seed: Any = None) -> None:
        """The seed of the next reset: an int gives row i the stream (seed, i), a list has one seed a row."""
        self._seed = [check_seed(s) for s in seed] if is_list(seed) else seed if seed is None else check_seed(seed)

    def reset(self, *, instance: Any = None) -> Observed:
        """Begins an episode in every row: obs (B, A, O), share_obs (B, A, S), available_actions (B, A, n), float32.

        instance: instance fields to play instead of drawn ones, with an axis of rows.
        """
        self._waiting.drop()
        self._restart(seed=self._seed, instance=instance)
        self._seed = None
        self.team.refresh()
        return self._arrange(self.team.now, self.num_envs)

    def step(self, actions: Any) -> StepResult:
        """Plays one action an agent, as numbers (B, A) or (B, A, 1), or one-hot (B, A, n).

        Returns obs, share_obs, rewards (B, A, 1), dones (B, A), infos, available_actions; `infos[b][a]` is a dict.
        """
        self._waiting.refuse()
        return self._play(self._read(actions))

    def step_async(self, actions: Any) -> None:
        """Stores the actions of the step that `step_wait` plays."""
        self._waiting.put(self._read(actions))

    def step_wait(self) -> StepResult:
        """Plays the step."""
        return self._play(self._waiting.take())

    def _play(self, actions: np.ndarray) -> StepResult:
        world = self.world
        world.step(actions)
        if self.moved:
            self.bind()
        self.team.refresh()
        obs, share_obs, available = self._arrange(self.team.now, self.num_envs)
        rewards = world.reward.repeat(self.n_agents).reshape(self._joint_rewards)
        dones = world.done.repeat(self.n_agents).reshape(self._joint_rewards[:2])
        shared = {key: array.copy() for key, array in self._copied}
        rows, ends = world.final_rows, None
        if len(rows):
            ends = partial(self._ends, world.final, world.truncated[rows])
        return obs, share_obs, rewards, dones, Infos(self.num_envs, self.n_agents, shared, rows, ends), available

    def render(self, mode: str = "rgb_array") -> np.ndarray:
        """The pictures of all rows, uint8 (B, H, W, 3)."""
        if mode != "rgb_array":
            raise ConfigError(f"mode={mode!r}: must be 'rgb_array'")
        return np.stack([self.world.render(b) for b in range(self.num_envs)])

    def close(self) -> None:
        self.world.close()

    def _bind(self) -> None:
        self.team.bind()

    def _ends(self, final: dict[str, np.ndarray], truncated: np.ndarray) -> list[RowInfo]:
        """The infos of the rows that ended."""
        obs, share_obs, available = self._arrange(self.team.parts_of(final, len(truncated)), len(truncated))
        fields = {key: final[name] for key, name in (self._step_info | self._end_info).items()}
        wrong = fields.pop("illegal")
        columns = {key: array.tolist() if array.ndim == 1 else array for key, array in fields.items()}
        ends: list[RowInfo] = []
        for k, cut in enumerate(truncated.tolist()):
            shared = {key: column[k] for key, column in columns.items()}
            shared["bad_transition"] = cut
            ends.append(
                [
                    {
                        **shared,
                        "illegal": wrong.item(k) if wrong.ndim == 1 else wrong.item(k, a),
                        "episode": {"r": shared["objective"], "l": shared["episode_steps"]},
                        "terminal_obs": obs[k, a],
                        "terminal_share_obs": share_obs[k, a],
                        "terminal_available_actions": available[k, a],
                    }
                    for a in range(self.n_agents)
                ]
            )
        return ends

    def _arrange(self, parts: Parts, rows: int) -> Observed:
        """The padded observation of a team: three new arrays in one block. The allocator reuses a single block of
        constant size; three blocks would be returned to the system, with page faults in every step."""
        seen_end = rows * self.n_agents * self._seen_width
        mask_end = seen_end + rows * self.n_agents * self._choices
        block = np.empty(mask_end + rows * self.n_agents * self._state_width, np.float32)
        obs = block[:seen_end].reshape(rows, self.n_agents, self._seen_width)
        available = block[seen_end:mask_end].reshape(rows, self.n_agents, self._choices)
        share_obs = block[mask_end:].reshape(rows, self.n_agents, self._state_width)
        for (agents, width, choices), seen, mask in zip(self._shapes, parts.seen, parts.masks):
            # Splitting the last axis gives a view, so this writes into `obs`.
            obs[:, agents, :width].reshape(seen.shape)[...] = seen
            available[:, agents, :choices] = mask
            if width < self._seen_width:
                obs[:, agents, width:] = 0
            if choices < self._choices:
                available[:, agents, choices:] = 0
        share_obs[...] = parts.state.reshape(rows, 1, -1)
        return obs, share_obs, available

    def _read(self, actions: Any) -> np.ndarray:
        """The actions in the world's own shape; the world validates their values."""
        given = action_array("actions", actions)
        team = (self.num_envs, self.n_agents)
        if given.shape in (team, (*team, 1)) and given.dtype.kind in "iu":
            return given.reshape(self._joint_actions).astype(np.int64)
        if given.shape == (*team, self._choices) and given.dtype.kind in "biuf":
            chosen = given.argmax(-1)
            if ((given != 0).sum(-1) == 1).all() and (given.max(-1) == 1).all():
                return chosen.reshape(self._joint_actions)
            raise ShapeError("one-hot actions must have a single 1 an agent and 0 elsewhere")
        raise ShapeError(
            f"actions must be integers of shape {team} or {(*team, 1)}, or one-hot {(*team, self._choices)}, "
            f"not {given.dtype} {given.shape}"
        )


def _padded(box: spaces.Box, width: int) -> spaces.Box:
    """The box as a vector of a width; padding lies in [0, 1]."""
    low, high = np.zeros(width, np.float32), np.ones(width, np.float32)
    low[: box.low.size], high[: box.high.size] = box.low.ravel(), box.high.ravel()
    return spaces.Box(low, high)
