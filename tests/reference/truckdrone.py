"""The scalar reference of the truck-and-drones world: one row, plain Python, float64, written from the rules alone.

This module has the rule set `sound`: its stages, its mask and its reward, each sum in the order of the rules.
`truckdrone_published` has the rule set `published`; `truck_drone` builds the row of a preset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import truckdrone_roads as roads
from .truckdrone_presets import (
    CRASHED,
    DEFAULT,
    EPS,
    FLYING,
    HOVER,
    NEAR,
    ONBOARD,
    PUBLISHED,
    REST,
    RETURN,
    RETURNING,
    Point,
    dist,
    towards,
)
from .truckdrone_published import PublishedTruckDrone
from .truckdrone_state import TruckDroneModel


class SoundTruckDrone(TruckDroneModel):
    """`rules="sound"`: only actions allowed by the mask are executed."""

    def _start_node(self) -> int:
        return 0 if self.depot_node else -1

    def load(self, d: int) -> float:
        return self.demand[self.carrying[d]] if self.carrying[d] != -1 else 0.0

    def _taken(self, d: int, c: int) -> bool:
        others = (other for other in range(self.D) if other != d and self.status[other] != CRASHED)
        return any(self.carrying[other] == c for other in others)

    def _take(self, actions: Sequence[int]) -> None:
        for agent, action in enumerate(actions):
            self.illegal[agent] = not self.allowed(agent, action)
            self.executed[agent] = self.masks[agent].index(True) if self.illegal[agent] else action
        for d in range(self.D):
            if self.masks[1 + d][HOVER]:
                self.forced_phase[d] = False
            elif self.illegal[1 + d]:
                self.forced[d] = True
                self.onsets += not self.forced_phase[d]
                self.forced_phase[d] = True

    def _command_drone(self, d: int, recover: bool) -> None:
        if recover:
            self._recover(d)
            self.executed[1 + d] = HOVER
        else:
            self._release(d)

    def _recover(self, d: int) -> None:
        k, self.carrying[d] = self._board(d, self.recovery_charge), -1
        self.forced_phase[d] = False
        if k != -1:
            self.lost[k] = any(self.carrying[o] == k and self.status[o] == CRASHED for o in range(self.D))

    def _fly(self, d: int) -> None:
        if self.status[d] == ONBOARD:
            self.drone_pos[d], self.drone_vel[d] = self.truck_pos, REST
            self.battery[d] = min(1.0, self.battery[d] + self.charge_rate * self.dt)
            self.tally["onboard_steps"] += 1
            return
        if self.status[d] == CRASHED:
            self.drone_vel[d] = REST
            return
        c = self.executed[1 + d] - 2
        if c >= 0 and self.carrying[d] == -1 and self.reserve and self._taken(d, c):
            self.conflict[d] = True
            self.executed[1 + d] = HOVER if self.masks[1 + d][HOVER] else RETURN
        action = self.executed[1 + d]
        self.status[d] = RETURNING if action == RETURN else FLYING
        if action == RETURN:
            goal = self.truck_pos
        elif action == HOVER:
            goal = self.drone_pos[d]
        else:
            goal = self.customer_pos[c]
            self.target_pos[d], self.has_target[d] = goal, True
            if self.carrying[d] == -1:
                self.carrying[d] = c
        start = self.drone_pos[d]
        self.drone_pos[d], self.drone_vel[d], s, energy = self._flight(start, goal, action, self.load(d))
        self.tally["drone_distance"] += s
        self.tally["drone_wait"] += s == 0.0
        self._spend(d, energy)
        if action == RETURN and dist(self.drone_pos[d], self.truck_pos) <= self.recovery_threshold + EPS:
            self._recover(d)

    def _flight(self, p: Point, goal: Point, action: int, load: float) -> tuple[Point, Point, float, float]:
        """Position, velocity, distance and energy of stage 4."""
        q = dist(p, goal)
        if action != HOVER and q > NEAR:
            s = min(self.drone_speed * self.dt, q)
            p, v = towards(p, goal, s, self.dt)
            return p, v, s, s * self.battery_rate * (1 + self.payload_factor * load)
        return p, REST, 0.0, 0.0 if action == RETURN else self._hover_energy(load)

    def _hover_energy(self, load: float) -> float:
        return self.hover_rate * self.dt * (1 + self.payload_factor * load)

    def _spend(self, d: int, energy: float) -> None:
        if energy == 0.0:
            return
        self.battery_used[d] = energy
        self.battery[d] -= energy
        if self.battery[d] <= 0.0:
            self.battery[d], self.status[d], self.drone_vel[d] = 0.0, CRASHED, REST
            if self.carrying[d] != -1:
                self.lost[self.carrying[d]] = True

    def _delivers(self, d: int, c: int) -> bool:
        if self.carrying[d] != c or self.status[d] == CRASHED:
            return False
        return self._within(self.drone_pos[d], c) and not self._early(c, self.world_step)

    def _within(self, p: Point, c: int) -> bool:
        return dist(p, self.customer_pos[c]) <= self.delivery_threshold + EPS

    def _early(self, c: int, step: int) -> bool:
        return self.early == "wait" and step < self.tw_start[c]

    def _pay(self) -> float:
        used = 0.0
        for x in self.battery_used:
            used += x
        late = sum(self.lateness(c) for c in range(self.C) if self.just_served[c])
        pay = -self.time_penalty + self.delivery_bonus * sum(self.just_served)
        pay = pay - self.energy_cost * used - self.forced_return_penalty * self.onsets
        return pay - self.late_penalty * late - self.crash_penalty * self.new_crashes

    def _end_holds(self) -> bool:
        if self.end == "served":
            return True
        home = all(status in (ONBOARD, CRASHED) for status in self.status)
        return home and (self.end == "returned" or self.truck_node == 0)

    def _stuck(self) -> bool:
        if all(status == CRASHED for status in self.status):
            return True
        settled = all(served or lost for served, lost in zip(self.served, self.lost, strict=True))
        return settled and self._end_holds()

    def chase(self, gap: float) -> float:
        """K: the maximum number of RETURN steps that a drone needs to reach a fleeing truck."""
        a, u = self.drone_speed * self.dt, self.truck_speed * self.dt
        ahead = gap - u - self.recovery_threshold
        if a <= u:
            return 1 if ahead <= 0.0 else math.inf
        return max(1, math.ceil(ahead / (a - u) - EPS))

    def rho(self, c: int) -> float:
        return self.battery_rate if c == -1 else self.battery_rate * (1 + self.payload_factor * self.demand[c])

    def need(self, gap: float, rho: float) -> float:
        return self.battery_margin * rho * (self.drone_speed * self.dt) * self.chase(gap)

    def _safe_hover(self, d: int, gap: float) -> bool:
        if self.battery_rule == "off":
            return True
        left = self.battery[d] - self._hover_energy(self.load(d))
        return left >= self.need(gap + self.truck_speed * self.dt, self.rho(self.carrying[d])) + EPS

    def _safe_deliver(self, d: int, c: int) -> bool:
        if self.battery_rule == "off":
            return True
        p, _, _, energy = self._flight(self.drone_pos[d], self.customer_pos[c], 2 + c, self.demand[c])
        done = self.reserve and self._within(p, c) and not self._early(c, self.world_step + 1)
        gap = dist(p, self.truck_pos) + self.truck_speed * self.dt
        return self.battery[d] - energy >= self.need(gap, self.rho(-1 if done else c)) + EPS

    def _live_mask(self) -> list[list[bool]]:
        u = self.truck_speed * self.dt
        enough = self.need(u, self.battery_rate) + EPS if self.battery_rule == "safe" else -math.inf
        release = [
            status == ONBOARD and battery - self.hover_rate * self.dt >= enough
            for status, battery in zip(self.status, self.battery, strict=True)
        ]
        recover = [self.status[d] in (FLYING, RETURNING) and self._in_recovery_range(d) for d in range(self.D)]
        move = [True] * self.N if self.road is None else roads.exits(self.road, self.truck_node, self.truck_edge)
        return [[True] + move + release + recover] + [self._drone_mask(d) for d in range(self.D)]

    def _in_recovery_range(self, d: int) -> bool:
        return dist(self.drone_pos[d], self.truck_pos) <= self.recovery_threshold + EPS

    def _drone_mask(self, d: int) -> list[bool]:
        if self.status[d] in (ONBOARD, CRASHED):
            return [True, False] + [False] * self.C
        own = self.carrying[d]
        hover = self._safe_hover(d, dist(self.drone_pos[d], self.truck_pos))
        if own == -1:
            return [hover, True] + [self._may_load(d, c) and self._safe_deliver(d, c) for c in range(self.C)]
        deliver = not self.served[own] and self._safe_deliver(d, own)
        return [hover, not deliver] + [deliver and c == own for c in range(self.C)]

    def _may_load(self, d: int, c: int) -> bool:
        if self.served[c] or self.lost[c] or not (self.pickup == "air" or self._in_recovery_range(d)):
            return False
        return not (self.reserve and self._taken(d, c))


def truck_drone(preset: str, instance: dict[str, Any], **changes: Any) -> TruckDroneModel:
    """The row of a preset with some of its keys changed; the instance gives the number of customers."""
    config = {"published": PUBLISHED, "default": DEFAULT}[preset]
    unknown = set(changes) - set(config)
    if unknown:
        raise ValueError(f"preset {preset!r} has no key {sorted(unknown)}")
    config = config | changes
    build = {"published": PublishedTruckDrone, "sound": SoundTruckDrone}[config["rules"]]
    return build(**instance, **config)
