"""TS_Collector: tianshou's collector for environments in lockstep.

It steps all environments every time and does not reset those that ended: `SubprocVecEnv_TS` does so in the next step.
Reset steps are no transitions, so they reach neither the buffer nor the hooks nor the statistics.
"""

from __future__ import annotations

import time
from copy import copy
from typing import Any

import numpy as np
from tianshou.data import Batch, Collector, CollectStats, ReplayBuffer
from tianshou.env.venv_wrappers import VectorEnvWrapper

from milkrun.api.tianshou.subproc import SubprocVecEnv_TS
from milkrun.core.errors import ConfigError, ResetNeeded


class TS_Collector(Collector[CollectStats]):
    """Collects from a `SubprocVecEnv_TS`.

    `collect(n_step=...)` counts the transitions stored. Under `collect(n_episode=...)` environment i of n gives exactly
    n_episode // n episodes, one more if i < n_episode % n, so short episodes are not favoured; further steps are not
    stored, and all environments are reset afterwards. Other keywords are those of tianshou's Collector.
    """

    def __init__(
        self, policy: Any, env: Any, buffer: ReplayBuffer | None = None, exploration_noise: bool = False, **kwargs: Any
    ) -> None:
        inner = env
        while isinstance(inner, VectorEnvWrapper):
            inner = inner.venv
        if not isinstance(inner, SubprocVecEnv_TS):
            raise ConfigError(
                f"TS_Collector is for SubprocVecEnv_TS: with a {type(inner).__name__} use tianshou's Collector"
            )
        super().__init__(policy, env, buffer, exploration_noise, **kwargs)

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        if n_step and n_episode:
            raise ConfigError(f"n_step={n_step} and n_episode={n_episode}: give one of them")
        if self._pre_collect_obs_RO is None:
            raise ResetNeeded("reset the collector before it collects, or collect with reset_before_collect=True")
        stats = self.collect_stats_class()
        n, everywhere = self.env_num, np.arange(self.env_num)
        left = np.full(n, np.iinfo(np.int64).max)
        if n_episode:
            left = n_episode // n + (everywhere < n_episode % n)
        while stats.n_collected_steps < n_step if n_step else left.any():
            action, turn, begun = self._turn(random, everywhere)
            if render:
                self.env.render()
                time.sleep(render)
            kept = np.flatnonzero(~begun & (left > 0))
            if len(kept):
                ended = self._store(stats, action, turn, kept, whole_episodes=bool(n_episode))
                left[ended] -= 1
        self.collect_step += stats.n_collected_steps
        self.collect_episode += stats.n_collected_episodes
        if n_episode:
            self.reset_env(gym_reset_kwargs)
        return stats

    def _turn(self, random: bool, everywhere: np.ndarray) -> tuple[Any, dict[str, Any], np.ndarray]:
        """One step of all environments: the action of the policy, the transitions, and which were reset instead."""
        obs: Any = self._pre_collect_obs_RO
        info: Any = self._pre_collect_info_R
        action = self._compute_action_policy_hidden(random, everywhere, obs, info, self._pre_collect_hidden_state_RH)
        obs_next, rew, terminated, truncated, infos = self.env.step(action.act_normalized, everywhere)
        begun = np.array(["reset_turn" in info for info in infos])
        self._pre_collect_obs_RO = obs_next
        self._pre_collect_info_R = infos
        self._pre_collect_hidden_state_RH = _without(copy(action.hidden_state), np.flatnonzero(begun))
        turn = {
            "obs": obs,
            "act": action.act,
            "policy": action.policy_entry,
            "dist": action.dist,
            "obs_next": obs_next,
            "rew": rew,
            "terminated": terminated,
            "truncated": truncated,
            "done": terminated | truncated,
            "info": infos,
        }
        return action, turn, begun

    def _store(
        self, stats: CollectStats, action: Any, turn: dict[str, Any], kept: np.ndarray, *, whole_episodes: bool
    ) -> np.ndarray:
        """Stores the transitions of these environments; returns which of them have ended an episode."""
        infos = turn.pop("info")[kept]
        batch: Any = Batch(turn)
        if len(kept) < self.env_num:
            action, batch = action[kept], batch[kept]
        batch.info = infos
        self.run_on_step_hook(action, batch)
        stats.update_at_step_batch(batch)
        stored = copy(batch)
        stored.pop("dist")
        last, returns, _, first = self.buffer.add(stored, buffer_ids=kept)
        ended = np.flatnonzero(batch.done)
        for k in ended:
            indices = self.buffer.get_buffer_indices(int(first[k]), int(last[k]) + 1)
            episode: Any = self.buffer[indices]
            for key, values in (self.run_on_episode_done(episode) or {}).items():
                if not whole_episodes:
                    raise ConfigError(f"the episode hook adds {key!r}, which n_step cannot: collect by n_episode")
                self.buffer.set_array_at_key(values, key, index=indices)
                episode.set_array_at_key(values, key)
            stats.update_at_episode_done(episode_batch=episode, episode_return=returns[k])
        return kept[ended]


def _without(hidden: Any, rows: np.ndarray) -> Any:
    """The hidden state, with that of rows that begin an episode cleared."""
    if hidden is None or not len(rows):
        return hidden
    if isinstance(hidden, Batch):
        return hidden.empty_(rows)
    hidden[rows] = None if isinstance(hidden, np.ndarray) and hidden.dtype.hasobject else 0
    return hidden
