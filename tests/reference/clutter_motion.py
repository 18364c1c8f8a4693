"""The clutter reference with a cup that the policy moves: four numbers a tick instead of an object's id.

An attempt begins when the cup grips an object and ends when the pile is at rest after its release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .clutter import ClutterRow
from .clutter_physics import Vector, norm, plus, turned_back
from .clutter_rays import Solid, first_hit
from .clutter_state import DROPPED, IDLE, LIFT, NONE, SETTLE, SUCCESS, straight

STRIDE = 0.02  # largest displacement of the cup in a tick along each axis, metres
LOW = 0.02
GAP, GRASP = 0.002, 0.01  # least distance to the surface under the tip; distance at which suction grips


class ClutterMotionRow(ClutterRow):
    """One row with `use_discrete_action=False`: displacement of the cup / .02 m, and suction (> 0 on)."""

    def step(self, action: Sequence[float]) -> float:  # type: ignore[override]
        if self.done:
            raise ValueError("the episode is over")
        self.reward_exact = 0.0
        self.last_disturbance, self.last_ticks, self.last_lost = 0.0, 0, 0
        self.illegal = any(not math.isfinite(x) or abs(x) > 1 for x in action)
        start = self.cup_pos
        on = self.current_suction_object >= 0
        if not self.illegal:
            self._move(action)
            on = action[3] > 0
        if self.current_suction_object >= 0 and not on:
            self._let_go(self._banks())
        elif self.env_stage == IDLE and on:
            start = self._take_hold(start)
        self._play(start)
        self.is_suction_active = self.current_suction_object >= 0
        return self._close(limited=True)

    def _move(self, action: Sequence[float]) -> None:
        places = self.o["home_pos"], self.o["drop_pos"]
        far = max(0.6, self.side / 2, *(abs(place[k]) for place in places for k in (0, 1)))
        high = max(0.8, *(place[2] for place in places))
        bounds = (-far, far), (-far, far), (LOW, high)
        x, y, z = (min(bounds[k][1], max(bounds[k][0], self.cup_pos[k] + STRIDE * float(action[k]))) for k in range(3))
        _, surface = self._under(x, y)
        self.cup_pos = self.cup_goal = (x, y, max(z, surface + GAP))

    def _under(self, x: float, y: float) -> tuple[int, float]:
        """The first surface below, without the object on the cup."""
        solids = self._solids()
        if self.current_suction_object >= 0:
            solids[self.current_suction_object] = None
        return first_hit(x, y, solids, self._fixed())

    def _take_hold(self, start: Vector) -> Vector:
        """Begin an attempt if an object is close enough under the tip; returns the cup's position at the start of the
        tick."""
        x, y, z = self.cup_pos
        i, surface = self._under(x, y)
        if i < 0 or z - surface > GRASP:
            return start
        local = turned_back(self.solid(i).turn, plus((x, y, surface), [-c for c in self.solid(i).centre]))
        if normal_z(self.solid(i), local) < self.o["max_tilt_cos"]:
            return start
        self.env_target, self.grip_local = i, local
        self.blocked_at_choice = self.is_blocked(i)
        self.pos_at_choice = [self.centre(j) for j in range(self.N)]
        self.playing_at_choice = [self.in_play(j) for j in range(self.N)]
        self.ticks_at_choice = self.tick_count
        self.pick_load, self.result, self.settle_tick = 0.0, NONE, 0
        self._enter(LIFT)
        self.cup_goal = self.cup_pos
        return self.cup_pos

    def _banks(self) -> bool:
        way = [a - b for a, b in zip(self.cup_pos, self.o["drop_pos"], strict=True)]
        return norm(way) <= self.o["goal_thresh"]

    def _let_go(self, banked: bool) -> None:
        target = self.env_target
        self.engine.detach(target)
        self.current_suction_object = -1
        if banked:
            self.engine.park(target)
            self.grasp_order[target] = sum(self.grasped)
            self.grasped[target] = True
        else:
            self.fails[target] += 1
        self.result, self.rest_count = (SUCCESS, 1) if banked else (DROPPED, 0)
        self._enter(SETTLE)

    def _play(self, start: Vector) -> None:
        self.tick_count += 1
        self.stage_tick += self.env_stage != IDLE
        self.settle_tick += self.env_stage == SETTLE
        held = self.current_suction_object >= 0
        shares = [(k + 1) / self.K for k in range(self.K)]
        path = [straight(start, self.cup_pos, share) for share in shares] if held else [self.engine.cup()] * self.K
        if self.at_rest:
            return
        forces, fault = self.engine.run(path)
        if fault:
            self._fail()
        elif held:
            load = sum(norm(force) for force in forces) / self.K / self.suction_limit
            self.pick_load = max(self.pick_load, load)
            if load > 1:
                self._let_go(banked=False)
        else:
            self._count_rest()
            if self.env_stage == SETTLE and (self.at_rest or self.settle_tick >= self.o["settle_max"]):
                self._end_pick()

    def _mask(self) -> list[bool]:
        return [True] * self.N


def normal_z(solid: Solid, local: Vector) -> float:
    """z of the outward normal at a point of the surface, given in the solid's frame."""
    up = solid.turn[2]
    if solid.shape == "box":
        axis = min(range(3), key=lambda k: abs(solid.half[k] - abs(local[k])))
        return up[axis] if local[axis] >= 0 else -up[axis]
    radius = math.hypot(local[0], local[1])
    if abs(solid.half[2] - abs(local[2])) <= abs(solid.half[0] - radius):
        return up[2] if local[2] >= 0 else -up[2]
    return (up[0] * local[0] + up[1] * local[1]) / radius
