"""The scalar reference of the clutter world: one row on one plain `MjData`, written from the rules alone.

`clutter_physics` has the model and the engine, `clutter_rays` the exposure, `clutter_state` the fields and views. This
module has the choice of an object, the ticks of a pick, the reward and the end of an episode. `step` plays a whole pick
or one tick, by the option `step_mode`; `tick` always plays one tick.
"""

from __future__ import annotations

import math
from typing import Any

from .clutter_physics import TRAY_TOP, WALL, Vector, norm, plus, rotation, turned
from .clutter_state import (
    ABOVE,
    CARRY,
    DESCEND,
    DROPPED,
    GRIP,
    IDLE,
    ILLEGAL,
    LIFT,
    NONE,
    PHYSICS_ERROR,
    RELEASE,
    SETTLE,
    SUCCESS,
    ClutterState,
    straight,
)
from .tsp import f32

MOVED = 0.002  # smaller movements of a centre count as none
FLOOR_TO_CLEAR = 0.03  # an object is clear of the tray above this height
OVER_WALL = 0.25  # an object this far above the walls is lost


class ClutterRow(ClutterState):
    """One row with discrete actions: the id of the object to pick next."""

    def step(self, action: int) -> float:
        return self._turn(action, whole=self.o["step_mode"] == "pick")

    def tick(self, action: int) -> float:
        return self._turn(action, whole=False)

    def _turn(self, action: int, whole: bool) -> float:
        if self.done:
            raise ValueError("the episode is over")
        self.reward_exact, self.illegal = 0.0, False
        self.last_disturbance, self.last_ticks, self.last_lost = 0.0, 0, 0
        if self.env_stage == IDLE:
            self.illegal = not (0 <= action < self.N and self.allowed(action))
            if self.illegal:
                self._refuse(action)
            else:
                self._choose(action)
        if not self.illegal:
            self._one_tick()
            while whole and self.env_stage != IDLE:
                self._one_tick()
        return self._close(limited=not whole)

    def _close(self, limited: bool) -> float:
        """Count the call, check for the end, compute the reward, update the views."""
        self.i += 1
        out_of_time = limited and self.tick_count >= self.o["max_ticks"]
        out_of_steps = self.o["max_steps"] is not None and self.i >= self.o["max_steps"]
        if not self.terminated and (self.fault or out_of_time or out_of_steps):
            self.truncated = True
        self.reward = f32(self.reward_exact)
        self.objective += self.reward_exact
        self.update_views()
        return self.reward

    def _refuse(self, action: int) -> None:
        self.last_result = ILLEGAL
        self.reward_exact = -float(self.o["reward_illegal"])
        self._record(action if 0 <= action < self.N else -1, ILLEGAL, blocked=False, load=0.0, shift=[0.0] * self.N)

    def _choose(self, i: int) -> None:
        grip = self.grip(i)
        assert grip is not None
        self.env_target, self.grip_local = i, grip.local
        self.blocked_at_choice = self.is_blocked(i)
        self.pos_at_choice = [self.centre(j) for j in range(self.N)]
        self.playing_at_choice = [self.in_play(j) for j in range(self.N)]
        self.ticks_at_choice = self.tick_count
        self.pick_load, self.result, self.settle_tick = 0.0, NONE, 0
        self._enter(ABOVE)

    def _grip_now(self) -> Vector:
        """The grip point in world coordinates at the target's current pose."""
        turn = rotation(self.engine.pose(self.env_target)[3:])
        return plus(self.centre(self.env_target), turned(turn, self.grip_local))

    def _travel(self, goal: Vector) -> int:
        """Ticks that the cup needs to reach the goal."""
        way = norm([b - a for a, b in zip(self.cup_pos, goal, strict=True)])
        return max(1, math.ceil(way / (self.o["cup_speed"] * self.time_of_tick) - 1e-9))

    def _enter(self, stage: int) -> None:
        """Begin a stage: the cup's goal, and the number of ticks if known in advance."""
        o = self.o
        self.env_stage, self.stage_tick, self.stage_len = stage, 0, 0
        if stage == ABOVE:
            self.cup_goal = plus(self._grip_now(), (0.0, 0.0, o["approach"]))
            self.stage_len = self._travel(self.cup_goal)
        elif stage == DESCEND:
            self.cup_goal = self._grip_now()
            self.stage_len = math.ceil(o["approach"] / (o["descend_speed"] * self.time_of_tick) - 1e-9)
        elif stage == GRIP:
            self.cup_goal, self.stage_len = self.cup_pos, o["grip_ticks"]
        elif stage == LIFT:
            self._grab()
        elif stage == CARRY:
            x, y, z = (float(p) for p in o["drop_pos"])
            self.cup_goal = (x, y, z)
            self.stage_len = self._travel(self.cup_goal)
        elif stage == RELEASE:
            self.cup_goal, self.stage_len = self.cup_pos, o["release_ticks"]
            self.is_suction_active, self.current_suction_object = False, -1
        elif stage == SETTLE:
            self.cup_goal = self.cup_pos

    def _grab(self) -> None:
        self.cup_pos = self._grip_now()
        self.lift_from = self.cup_pos[2]
        self.cup_goal = plus(self.cup_pos, (0.0, 0.0, self.o["lift_height"]))
        self.engine.attach(self.env_target, self.cup_pos, self.grip_local)
        self.is_suction_active, self.current_suction_object = True, self.env_target
        self.at_rest, self.rest_count = False, 0

    def _one_tick(self) -> None:
        """Plan, run, check."""
        self.tick_count += 1
        self.stage_tick += 1
        self.settle_tick += self.env_stage in (CARRY, RELEASE, SETTLE)
        path = self._path()
        moved, fault = not self.at_rest, False
        forces: list[Vector] = []
        if moved:
            forces, fault = self.engine.run(path)
        if fault:
            self._fail()
        elif self.env_stage == LIFT:
            self._check_lift(forces)
        else:
            if moved:
                self._count_rest()
            self._check_stage()

    def _path(self) -> list[Vector]:
        """Positions of the cup in the substeps; outside of LIFT the mocap body does not move."""
        if self.env_stage == LIFT:
            path = []
            for k in range((self.stage_tick - 1) * self.K + 1, self.stage_tick * self.K + 1):
                t = k * self.o["timestep"]
                path.append((self.cup_pos[0], self.cup_pos[1], self.lift_from + self.o["lift_acc"] * t * t / 2))
            self.cup_pos = path[-1]
            return path
        if self.env_stage in (ABOVE, DESCEND, CARRY):
            left = self.stage_len - self.stage_tick
            self.cup_pos = straight(self.cup_pos, self.cup_goal, 1 / (left + 1)) if left else self.cup_goal
        return [self.engine.cup()] * self.K

    def _count_rest(self) -> None:
        o = self.o
        quiet = all(
            all(abs(v) < o["rest_speed"] for v in self.engine.velocity(i)[:3])
            and all(abs(w) < o["rest_spin"] for w in self.engine.velocity(i)[3:])
            for i in self.playing()
        )
        self.rest_count = self.rest_count + 1 if quiet else 0
        self.at_rest = self.rest_count >= o["rest_ticks"]

    def _check_lift(self, forces: list[Vector]) -> None:
        load = sum(norm(force) for force in forces) / self.K / self.suction_limit
        self.pick_load = max(self.pick_load, load)
        longest = math.ceil(math.sqrt(2 * self.o["lift_height"] / self.o["lift_acc"]) / self.time_of_tick - 1e-9)
        target = self.env_target
        if load > 1:
            self.engine.detach(target)
            self.is_suction_active, self.current_suction_object = False, -1
            self.result, self.rest_count = DROPPED, 0
            self.fails[target] += 1
            self._enter(SETTLE)
        elif self._is_clear() or self.stage_tick >= longest:
            self.engine.detach(target)
            self.engine.park(target)
            self.grasp_order[target] = sum(self.grasped)
            self.grasped[target] = True
            self.result, self.rest_count = SUCCESS, 1
            self._enter(CARRY)

    def _is_clear(self) -> bool:
        others = [self.solid(j).top() for j in self.playing() if j != self.env_target]
        return self.solid(self.env_target).bottom() > max([*others, FLOOR_TO_CLEAR]) + self.o["clearance"]

    def _check_stage(self) -> None:
        if self.env_stage != SETTLE and self.stage_tick >= self.stage_len:
            self._enter(self.env_stage + 1)
        if self.env_stage == SETTLE and (self.at_rest or self.settle_tick >= self.o["settle_max"]):
            self._end_pick()

    def _fail(self) -> None:
        """The engine failed: the running pick ends, and the row is restored to its state at the reset."""
        self.fault = True
        self.engine.start(self.init_pose, self.mass, self.friction_factor)
        self.at_rest, self.rest_count, self.asleep = True, 0, False
        if self.env_stage != IDLE:
            if self.result == SUCCESS:  # a carried object does not count as out
                self.grasped[self.env_target], self.grasp_order[self.env_target] = False, -1
            self.result = PHYSICS_ERROR
            self._score(lost=0, shift=[0.0] * self.N)

    def _end_pick(self) -> None:
        lost = 0
        for i in self.playing():
            if self._is_outside(i):
                self.lost[i] = True
                self.engine.park(i)
                lost += 1
        shift = [0.0] * self.N
        for i in self.playing():
            if self.playing_at_choice[i]:
                shift[i] = norm([b - a for a, b in zip(self.pos_at_choice[i], self.centre(i), strict=True)])
        if self.o["canonical"]:
            self.asleep = self.at_rest
            if self.asleep:
                self.engine.put_to_sleep()
            self.engine.place(self.asleep)
        self._score(lost, shift)

    def _is_outside(self, i: int) -> bool:
        x, y, z = self.centre(i)
        beyond = self.side / 2 + WALL
        return abs(x) > beyond or abs(y) > beyond or z > TRAY_TOP + self.wall + OVER_WALL

    def _score(self, lost: int, shift: list[float]) -> None:
        """Reward and log the pick that ends in this tick, and go idle."""
        o = self.o
        disturbance = sum(d for i, d in enumerate(shift) if i != self.env_target and d >= MOVED)
        ticks = self.tick_count - self.ticks_at_choice
        pay = o["reward_success"] * (self.result == SUCCESS) - o["reward_disturb"] * min(disturbance, 0.5)
        pay -= o["reward_blocked"] * self.blocked_at_choice
        pay -= o["reward_drop"] * (self.result == DROPPED)
        pay -= o["reward_lost"] * lost
        pay -= o["reward_time"] * ticks * self.time_of_tick
        pay += o["reward_clear"] * all(self.grasped)
        self.reward_exact = float(pay)
        self.last_disturbance, self.last_ticks, self.last_lost = f32(disturbance), ticks, lost
        self.last_result = self.result
        self._record(self.env_target, self.result, self.blocked_at_choice, self.pick_load, shift, lost, ticks)
        self.log[-1]["disturbance"] = disturbance
        self.env_stage, self.env_target, self.stage_tick, self.stage_len = IDLE, -1, 0, 0
        self.result = NONE
        self.is_suction_active, self.current_suction_object = False, -1

    def _record(
        self, target: int, result: int, blocked: bool, load: float, shift: list[float], lost: int = 0, ticks: int = 0
    ) -> None:
        """Append an entry to the event log, which uses up an attempt."""
        event: dict[str, Any] = {"target": target, "result": result, "blocked": blocked, "lost": lost}
        event |= {"ticks": ticks, "load": f32(load), "shift": [f32(d) for d in shift], "disturbance": 0.0}
        self.log.append(event)
        self.step_count += 1
        over = not self.playing() or self.step_count >= self.T
        self.terminated = over and result != PHYSICS_ERROR
