"""The fields of the truck-and-drones world and the common code of both rule sets: one row, float64, plain Python.

Written from the rules alone. `TruckDroneModel` has instance, config, state, views and counters, runs the stages of a
step in order, drives the truck and ends the episode. `truckdrone` and `truckdrone_published` have the rule sets,
`truckdrone_obs` the observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import truckdrone_obs as views
from . import truckdrone_roads as roads
from .truckdrone_presets import CRASHED, FLYING, NEAR, ONBOARD, REST, Point, dist, ring, towards

STATE = (
    "truck_pos",
    "truck_vel",
    "truck_node",
    "truck_target",
    "drone_pos",
    "drone_vel",
    "battery",
    "carrying",
    "status",
    "target_pos",
    "has_target",
    "forced_phase",
    "served",
    "lost",
    "arrival_step",
    "world_step",
    "terminated",
    "truncated",
)
ROAD_STATE = (*STATE, "truck_edge")
COUNTS = (
    "served",
    "on_time",
    "lateness",
    "lateness_max",
    "sorties",
    "aborted",
    "forced_onsets",
    "crashes",
    "truck_wait",
    "drone_wait",
    "onboard_steps",
    "illegal",
    "conflicts",
)
AMOUNTS = ("energy", "truck_distance", "drone_distance", "objective")


class TruckDroneModel:
    """One row under either rule set; the subclasses implement the rules."""

    def __init__(
        self,
        customer_pos: Sequence,
        demand: Sequence[float],
        tw_start: Sequence[int],
        tw_end: Sequence[int],
        route_nodes: Sequence | None = None,
        road: Sequence | None = None,
        **config: Any,
    ) -> None:
        self.config = config
        for key, value in config.items():
            setattr(self, key, value)
        self.customer_pos: list[Point] = [(float(x), float(y)) for x, y in customer_pos]
        self.demand = [float(x) for x in demand]
        self.tw_start = [int(x) for x in tw_start]
        self.tw_end = [int(x) for x in tw_end]
        self.D, self.C = int(self.num_drones), len(self.customer_pos)
        if route_nodes is None:
            route_nodes = ring(self.num_route_nodes, self.route_radius, self.depot_node)
        self.route_nodes: list[Point] = [(float(x), float(y)) for x, y in route_nodes]
        self.N, self.A, self.L = len(self.route_nodes), 1 + self.D, int(self.episode_length)
        self.road = None if road is None else roads.checked(road, self.N, self.depot_node)
        if (road is not None) != config.get("road_graph", False):
            raise ValueError("roads go with road_graph=True, and that needs roads")
        self.limit = self.L if self.max_steps is None else min(self.L, int(self.max_steps))
        self.reset()

    # Methods of a rule set.

    def _start_node(self) -> int:
        raise NotImplementedError

    def _take(self, actions: Sequence[int]) -> None:
        """Stages 1 and 2: `executed`, `illegal`, `forced`."""
        raise NotImplementedError

    def _command_drone(self, d: int, recover: bool) -> None:
        """The truck's RELEASE_d or RECOVER_d."""
        raise NotImplementedError

    def _fly(self, d: int) -> None:
        """Stage 4 for one drone."""
        raise NotImplementedError

    def _delivers(self, d: int, c: int) -> bool:
        """Whether the drone, after executing DELIVER_c, delivers c's parcel now."""
        raise NotImplementedError

    def _pay(self) -> float:
        """The reward of the step without the end reward."""
        raise NotImplementedError

    def _end_holds(self) -> bool:
        """The condition of `end` besides the customers."""
        raise NotImplementedError

    def _stuck(self) -> bool:
        """Whether the episode ends incomplete, apart from the limit."""
        raise NotImplementedError

    def _live_mask(self) -> list[list[bool]]:
        raise NotImplementedError

    # The row.

    def reset(self) -> None:
        drones, customers = range(self.D), range(self.C)
        self.truck_pos, self.truck_vel = REST, REST
        self.truck_node, self.truck_target = self._start_node(), -1
        self.truck_edge = [] if self.road is None else [self.truck_node, self.truck_node]
        self.drone_pos, self.drone_vel = [REST for _ in drones], [REST for _ in drones]
        self.battery = [1.0 for _ in drones]
        self.carrying = [-1 for _ in drones]
        self.status = [ONBOARD for _ in drones]
        self.target_pos, self.has_target = [REST for _ in drones], [False for _ in drones]
        self.forced_phase = [False for _ in drones]
        self.served, self.lost = [False for _ in customers], [False for _ in customers]
        self.arrival_step = [-1 for _ in customers]
        self.world_step = 0
        self.tally: dict[str, Any] = dict.fromkeys(COUNTS, 0) | dict.fromkeys(AMOUNTS, 0.0)
        self._clear_views()
        self.reward_exact, self.reward = 0.0, 0.0
        self.terminated, self.truncated = False, False
        self._renew_masks()

    def put(self, **fields: Any) -> None:
        """Set state fields by name from a world's arrays, and recompute the masks."""
        for name, value in fields.items():
            if name not in (STATE if self.road is None else ROAD_STATE):
                raise ValueError(f"{name!r} is no state field")
            plain = np.asarray(value).tolist()
            if name.endswith(("_pos", "_vel")):
                plain = tuple(plain) if name.startswith("truck") else [tuple(p) for p in plain]
            setattr(self, name, plain)
        self._renew_masks()

    def _renew_masks(self) -> None:
        self.masks = self._live_mask()
        if self.done:
            self.masks = [[action == 0 for action in range(len(mask))] for mask in self.masks]

    def _clear_views(self) -> None:
        self.executed = [0] * self.A
        self.illegal = [False] * self.A
        self.forced, self.conflict = [False] * self.D, [False] * self.D
        self.just_served = [False] * self.C
        self.battery_used, self.truck_step_dist = [0.0] * self.D, 0.0
        self.onsets, self.new_crashes = 0, 0

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def truck_mask(self) -> list[bool]:
        return self.masks[0]

    @property
    def drone_mask(self) -> list[list[bool]]:
        return self.masks[1:]

    @property
    def action_mask(self) -> list[bool]:
        """The masks of all agents concatenated: truck, drone_0, ..."""
        return [allowed for mask in self.masks for allowed in mask]

    def allowed(self, agent: int, action: int) -> bool:
        """Whether the last mask allows the action; an action out of range is not allowed."""
        return 0 <= action < len(self.masks[agent]) and self.masks[agent][action]

    def step(self, actions: Sequence[int]) -> None:
        if self.done:
            raise ValueError("the row has ended: reset it")
        self.world_step += 1
        self._clear_views()
        self._take([int(a) for a in actions])
        self._command_truck(self.executed[0])
        wrecks = self.status.count(CRASHED)
        for d in range(self.D):
            self._fly(d)
        self.new_crashes = self.status.count(CRASHED) - wrecks
        self._drive()
        self._hand_over()
        pay = self._pay()
        complete = all(self.served) and self._end_holds()
        at_limit = self.world_step >= self.limit
        self.terminated = complete or self._stuck() or (at_limit and self.time_limit_terminal)
        self.truncated = at_limit and not self.terminated
        if self.done:
            pay += self.completion_bonus if complete else -self.incomplete_penalty * (self.C - sum(self.served))
        self.reward_exact, self.reward = pay, float(np.float32(pay))
        self._count()
        self._renew_masks()

    def _command_truck(self, action: int) -> None:
        if action == 0:
            self.truck_target = -1
        elif action <= self.N:
            self.truck_target = action - 1
        else:
            recover, d = divmod(action - 1 - self.N, self.D)
            self._command_drone(d, recover == 1)

    def _release(self, d: int) -> None:
        self.status[d], self.drone_pos[d] = FLYING, self.truck_pos
        self.tally["sorties"] += 1

    def _board(self, d: int, charge: float) -> int:
        """The effects of every recovery, by RECOVER or by landing; returns the customer of the returned parcel."""
        self.tally["aborted"] += self.carrying[d] != -1
        self.status[d], self.drone_pos[d], self.drone_vel[d] = ONBOARD, self.truck_pos, REST
        self.has_target[d] = False
        self.battery[d] = min(1.0, self.battery[d] + charge)
        return self.carrying[d]

    def _drive(self) -> None:
        """Stage 5."""
        left = self.truck_node
        self._roll()
        if self.road is not None:
            self.truck_edge = roads.edge(self.truck_edge, left, self.truck_node, self.truck_target)

    def _roll(self) -> None:
        if self.truck_target == -1:
            self.truck_vel = REST
            return
        goal = self.route_nodes[self.truck_target]
        q = dist(self.truck_pos, goal)
        if q <= NEAR:
            self.truck_node, self.truck_target, self.truck_vel = self.truck_target, -1, REST
            return
        s = min(self.truck_speed * self.dt, q)
        self.truck_pos, self.truck_vel = towards(self.truck_pos, goal, s, self.dt)
        self.truck_step_dist = s
        for d in range(self.D):
            if self.status[d] == ONBOARD:
                self.drone_pos[d] = self.truck_pos
        if dist(self.truck_pos, goal) < NEAR:
            self.truck_node, self.truck_target = self.truck_target, -1
        elif self.rules == "sound" and self.truck_speed > 0:
            self.truck_node = -1

    def _hand_over(self) -> None:
        """Stage 6."""
        for d in range(self.D):
            c = self.executed[1 + d] - 2
            if c < 0 or self.served[c] or not self._delivers(d, c):
                continue
            self.served[c], self.just_served[c], self.arrival_step[c] = True, True, self.world_step
            self.carrying[d], self.has_target[d] = -1, False

    def lateness(self, c: int) -> int:
        return max(0, self.arrival_step[c] - self.tw_end[c])

    def _count(self) -> None:
        tally = self.tally
        late = [self.lateness(c) for c in range(self.C) if self.just_served[c]]
        tally["served"] += len(late)
        tally["on_time"] += late.count(0)
        tally["lateness"] += sum(late)
        tally["lateness_max"] = max(tally["lateness_max"], *late, 0)
        for used in self.battery_used:
            tally["energy"] += used
        tally["truck_distance"] += self.truck_step_dist
        tally["truck_wait"] += self.truck_step_dist == 0.0
        tally["forced_onsets"] += self.onsets
        tally["crashes"] += self.new_crashes
        tally["illegal"] += sum(self.illegal)
        tally["conflicts"] += sum(self.conflict)
        tally["objective"] += self.reward_exact

    def kpis(self) -> dict[str, Any]:
        """The counters behind the figures."""
        return {"makespan": self.world_step} | self.tally

    def truck_obs(self) -> list[float]:
        return views.round32(views.truck_v1(self) if self.obs == "v1" else views.truck_v2(self))

    def drone_obs(self) -> list[list[float]]:
        one = views.drone_v1 if self.obs == "v1" else views.drone_v2
        return [views.round32(one(self, d)) for d in range(self.D)]

    def state(self) -> list[float]:
        return views.round32(views.state_v1(self) if self.obs == "v1" else views.state_v2(self))
