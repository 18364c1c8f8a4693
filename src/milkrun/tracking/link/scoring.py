"""Rewards and ends of an environment whose simulator leaves them to its client.

The rules are those of `flight.py`, computed from the numbers that came through the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from milkrun.tracking import rewards
from milkrun.tracking.config import REASONS, TrackingConfig

LOST, NAN, RANGE, TIME = (REASONS.index(name) for name in ("lost", "nan", "range", "time"))


class Score(NamedTuple):
    reward: float
    r_c: float
    r_d: float
    reason: int


class Scorer:
    """Scores the steps of one environment. `caps`: what its simulator computes itself."""

    def __init__(self, config: TrackingConfig, caps: frozenset[str]) -> None:
        self._config = config
        self._applies_ends = "ends" in caps
        max_steps = config.max_agent_steps if config.max_steps == "auto" else config.max_steps
        self._max_steps = math.inf if max_steps is None else int(max_steps)
        self._d_ref = 0.0
        self._steps = self._sim_step = self._lost_steps = 0

    def reset(self, params: np.ndarray, visible: bool, scores: np.ndarray | None) -> Score:
        """The score at the start of an episode."""
        self._steps = self._sim_step = self._lost_steps = 0
        r_c, r_d = self._scores(params, visible) if scores is None else scores.tolist()
        return Score(0.0, r_c, r_d, 0)

    def step(
        self,
        sim_step: int,
        params: np.ndarray,
        visible: bool,
        cmd: Sequence[float],
        reason: int,
        reward: float,
        scores: np.ndarray | None,
    ) -> Score:
        """The score of a step. `reason` is the simulator's; so are `reward` and `scores`, unless `scores` is None."""
        flown = sim_step - self._sim_step
        self._sim_step = sim_step
        self._steps += 1
        if self._steps == 1:
            self._set_reference(params)
        if scores is None:
            r_c, r_d = self._scores(params, visible)
            reward = self._reward(params, visible, cmd)
        else:
            r_c, r_d = scores.tolist()
        own_reason = 0
        if not self._applies_ends:
            self._lost_steps = self._lost_steps + flown if r_c <= self._config.cut_off else 0
            own_reason = self._end(params)
        # The lowest of several reasons counts, as in the world.
        first = min(filter(None, (reason, own_reason)), default=0)
        if first and (scores is None or not reason):
            reward += self._end_reward(reward)
        if not (math.isfinite(reward) and math.isfinite(r_c) and math.isfinite(r_d)):
            return Score(0.0, 0.0, 0.0, NAN)
        return Score(reward, r_c, r_d, first)

    def _end_reward(self, reward: float) -> float:
        """What the end of an episode adds. A simulator that computes rewards has added it at the ends it reports."""
        c = self._config
        if not c.end_reward or c.reward != "default":
            return 0.0
        return c.end_reward_list[0] if reward <= 0.0 else c.end_reward_list[1]

    def _set_reference(self, params: np.ndarray) -> None:
        c = self._config
        with np.errstate(all="ignore"):
            self._d_ref = float(rewards.reference(params, reward=c.reward, constants=c.constants))

    def _end(self, params: np.ndarray) -> int:
        """The reason by which the options end the episode; 0: it goes on."""
        c = self._config
        settled = self._sim_step >= c.init_no_done
        if settled and self._lost_steps > c.no_reward_done:
            return LOST
        if settled and c.reward == "D-VAT" and c.constants == rewards.PUBLISHED:
            if rewards.out_of_range(params, self._d_ref):
                return RANGE
        return TIME if self._sim_step >= c.max_sim_steps or self._steps >= self._max_steps else 0

    def _scores(self, params: np.ndarray, visible: bool) -> tuple[float, float]:
        c = self._config
        with np.errstate(all="ignore"):
            r_c, r_d = rewards.scores(
                params, view_range=c.view_range, view_scale=c.view_scale, occlusion=c.occlusion, visible=visible
            )
        return float(r_c), float(r_d)

    def _reward(self, params: np.ndarray, visible: bool, cmd: Sequence[float]) -> float:
        c = self._config
        scale = c.reward_scale
        with np.errstate(all="ignore"):
            if c.reward == "E2E":
                reward = rewards.e2e(params, self._d_ref, constants=c.constants, scale=scale)
            elif c.reward == "D-VAT":
                reward = rewards.dvat(params, self._d_ref, cmd, constants=c.constants, scale=scale)
            elif c.reward_kind == "distance":
                reward = rewards.distance(
                    params,
                    mode=c.reward_mode,
                    distance_range=c.distance_range,
                    distance_scale=c.distance_scale,
                    scale=scale,
                )
            else:
                reward = rewards.view(
                    params,
                    mode=c.reward_mode,
                    view_range=c.view_range,
                    view_scale=c.view_scale,
                    occlusion=c.occlusion,
                    visible=visible,
                    scale=scale,
                )
        return float(reward)
