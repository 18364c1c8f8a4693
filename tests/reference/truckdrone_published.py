"""The rule set `published` of the truck-and-drones reference: stages and mask, with their irregularities."""

from __future__ import annotations

from collections.abc import Sequence

from .truckdrone_presets import (
    CRASHED,
    HOVER,
    NEAR,
    ONBOARD,
    PUBLISHED_MARGIN,
    REST,
    RETURN,
    RETURNING,
    Point,
    dist,
    towards,
)
from .truckdrone_state import TruckDroneModel

PUBLISHED_HOVER, PUBLISHED_CHARGE = 0.001, 0.2


class PublishedTruckDrone(TruckDroneModel):
    """Actions outside the mask are executed by the rules, unless `obey_mask` is set."""

    def _start_node(self) -> int:
        return 0

    def _take(self, actions: Sequence[int]) -> None:
        for agent, action in enumerate(actions):
            self.illegal[agent] = not self.allowed(agent, action)
            in_range = 0 <= action < len(self.masks[agent])
            kept = in_range and not (self.obey_mask and self.illegal[agent])
            self.executed[agent] = action if kept else 0
        for d in range(self.D):
            if self.status[d] in (ONBOARD, CRASHED):
                continue
            home = dist(self.drone_pos[d], self.truck_pos)
            if self.battery[d] < home * self.battery_rate * PUBLISHED_MARGIN:
                self.executed[1 + d], self.forced[d] = RETURN, True
                self.onsets += 1

    def _command_drone(self, d: int, recover: bool) -> None:
        onboard = self.status[d] == ONBOARD
        if not recover and onboard:
            self._release(d)
        elif recover and not onboard and dist(self.drone_pos[d], self.truck_pos) <= self.recovery_threshold:
            self._board(d, PUBLISHED_CHARGE)
            self.executed[1 + d] = HOVER

    def _fly(self, d: int) -> None:
        action = self.executed[1 + d]
        if self.status[d] in (ONBOARD, CRASHED):
            if self.status[d] == ONBOARD:
                self.drone_pos[d] = self.truck_pos
                self.tally["onboard_steps"] += 1
            self.drone_vel[d] = REST
            return
        if action == HOVER:
            self.drone_vel[d] = REST
            self.battery[d] -= PUBLISHED_HOVER
            self.battery_used[d] = PUBLISHED_HOVER
            self.tally["drone_wait"] += 1
            return
        if action == RETURN:
            self.status[d] = RETURNING
            goal = self.truck_pos
        else:
            goal = self.customer_pos[action - 2]
            self.target_pos[d], self.has_target[d] = goal, True
            if self.carrying[d] == -1:
                self.carrying[d] = action - 2
        self._move(d, goal)
        if action == RETURN and dist(self.drone_pos[d], self.truck_pos) < self.recovery_threshold:
            self._board(d, PUBLISHED_CHARGE)

    def _move(self, d: int, goal: Point) -> None:
        q = dist(self.drone_pos[d], goal)
        if q <= NEAR:
            self.drone_vel[d] = REST
            self.tally["drone_wait"] += 1
            return
        s = min(self.drone_speed * self.dt, q)
        self.drone_pos[d], self.drone_vel[d] = towards(self.drone_pos[d], goal, s, self.dt)
        self.tally["drone_distance"] += s
        energy = s * self.battery_rate
        self.battery_used[d] = energy
        self.battery[d] -= energy
        if self.battery[d] <= 0.0:
            self.battery[d], self.status[d], self.drone_vel[d] = 0.0, CRASHED, REST

    def _delivers(self, d: int, c: int) -> bool:
        return self.carrying[d] != -1 and dist(self.drone_pos[d], self.customer_pos[c]) < self.delivery_threshold

    def _pay(self) -> float:
        pay = 0.0
        pay -= self.time_penalty
        for served in self.just_served:
            if served:
                pay += self.delivery_bonus
        for used in self.battery_used:
            pay -= self.energy_cost * used
        for forced in self.forced:
            if forced:
                pay -= self.forced_return_penalty
        return pay

    def _end_holds(self) -> bool:
        return True

    def _stuck(self) -> bool:
        return all(status == CRASHED for status in self.status)

    def _live_mask(self) -> list[list[bool]]:
        onboard = [status == ONBOARD for status in self.status]
        near = [dist(p, self.truck_pos) <= self.recovery_threshold for p in self.drone_pos]
        recover = [close and not aboard for close, aboard in zip(near, onboard, strict=True)]
        return [[True] * (1 + self.N) + onboard + recover] + [self._drone_mask(d) for d in range(self.D)]

    def _drone_mask(self, d: int) -> list[bool]:
        if self.status[d] in (ONBOARD, CRASHED):
            return [True, False] + [False] * self.C
        own = self.carrying[d]
        return [True, own == -1] + [not self.served[c] and own in (-1, c) for c in range(self.C)]
