"""What a step pays and whether it ends the episode, where a simulator leaves that to its client.

The rules are those of `flight.py`, over numbers that came through the link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from milkrun.tracking import rewards
from milkrun.tracking.config import REASONS, TrackingConfig

LOST, NAN, RANGE, TIME = (REASONS.index(name) for name in ("lost", "nan", "range", "time"))


class Verdict(NamedTuple):
    reward: float
    r_c: float
    r_d: float
    reason: int


class Judge:
    """Of one environment. `caps` says what its simulator does by itself."""

    def __init__(self, config: TrackingConfig, caps: frozenset[str]) -> None:
        self._config, self._ends = config, "ends" in caps
        most = config.max_agent_steps if config.max_steps == "auto" else config.max_steps
        self._most_steps = math.inf if most is None else int(most)
        self._d_ref = 0.0
        self._steps = self._sim_step = self._lost_steps = 0

    def begin(self, params: np.ndarray, visible: bool, scores: np.ndarray | None) -> Verdict:
        """An episode begins."""
        self._steps = self._sim_step = self._lost_steps = 0
        r_c, r_d = self._scores(params, visible) if scores is None else scores.tolist()
        return Verdict(0.0, r_c, r_d, 0)

    def step(
        self,
        sim_step: int,
        params: np.ndarray,
        visible: bool,
        cmd: Sequence[float],
        reason: int,
        paid: float,
        scores: np.ndarray | None,
    ) -> Verdict:
        """After a step: `reason` is the simulator's, `paid` and `scores` too if it computes them."""
        flown, self._sim_step = sim_step - self._sim_step, sim_step
        self._steps += 1
        if scores is None:
            r_c, r_d = self._scores(params, visible)
            if self._steps == 1:
                self._set_reference(params)
            paid = self._reward(params, visible, cmd)
        else:
            r_c, r_d = scores.tolist()
        ours = 0
        if not self._ends:
            if self._steps == 1 and scores is not None:
                self._set_reference(params)
            self._lost_steps = self._lost_steps + flown if r_c <= self._config.cut_off else 0
            ours = self._end(params)
        # Of several ends the lowest reason is told, as in the world.
        first = min(filter(None, (reason, ours)), default=0)
        if first and (scores is None or not reason):
            paid += self._end_reward(paid)
        if not (math.isfinite(paid) and math.isfinite(r_c) and math.isfinite(r_d)):
            return Verdict(0.0, 0.0, 0.0, NAN)
        return Verdict(paid, r_c, r_d, first)

    def _end_reward(self, paid: float) -> float:
        """What the end of an episode adds; a simulator that pays adds it at its own ends."""
        c = self._config
        if not c.end_reward or c.reward != "default":
            return 0.0
        return c.end_reward_list[0] if paid <= 0.0 else c.end_reward_list[1]

    def _set_reference(self, params: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            c = self._config
            self._d_ref = float(rewards.reference(params, reward=c.reward, constants=c.constants))

    def _end(self, params: np.ndarray) -> int:
        """Why the options end the episode, 0 if they do not."""
        c = self._config
        settled = self._sim_step >= c.init_no_done
        if settled and self._lost_steps > c.no_reward_done:
            return LOST
        if settled and c.reward == "D-VAT" and c.constants == rewards.PUBLISHED:
            if rewards.out_of_range(params, self._d_ref):
                return RANGE
        return TIME if self._sim_step >= c.max_sim_steps or self._steps >= self._most_steps else 0

    def _scores(self, params: np.ndarray, visible: bool) -> tuple[float, float]:
        c = self._config
        with np.errstate(all="ignore"):
            r_c, r_d = rewards.scores(
                params, view_range=c.view_range, view_scale=c.view_scale, occlusion=c.occlusion, visible=visible
            )
        return float(r_c), float(r_d)

    def _reward(self, params: np.ndarray, visible: bool, cmd: Sequence[float]) -> float:
        c, scale = self._config, self._config.reward_scale
        with np.errstate(all="ignore"):
            if c.reward == "E2E":
                paid = rewards.e2e(params, self._d_ref, constants=c.constants, scale=scale)
            elif c.reward == "D-VAT":
                paid = rewards.dvat(params, self._d_ref, cmd, constants=c.constants, scale=scale)
            elif c.reward_kind == "distance":
                paid = rewards.distance(
                    params,
                    mode=c.reward_mode,
                    distance_range=c.distance_range,
                    distance_scale=c.distance_scale,
                    scale=scale,
                )
            else:
                paid = rewards.view(
                    params,
                    mode=c.reward_mode,
                    view_range=c.view_range,
                    view_scale=c.view_scale,
                    occlusion=c.occlusion,
                    visible=visible,
                    scale=scale,
                )
        return float(paid)
