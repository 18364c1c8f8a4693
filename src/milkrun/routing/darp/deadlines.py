"""Dial-a-ride with deadlines only: the published rule, kept for comparison.

Observations: `nodes` (N, 14) and `vehicle` (7), features of the fields in the table; TorchRL shows the fields. Actions:
the node the active vehicle goes to, Discrete(2 requests + 1); 0 is the depot and ends its tour. Mask: pickups that are
reached by their deadline and fit; dropoffs of riders aboard reached by theirs; the depot if the vehicle is empty, or if
no other node is open. Ends: terminated when every node is visited, when all vehicles are back, or by staying at the
depot. The return after the last dropoff is not driven. Reward: 0, and on the last step minus distance and
penalty_unvisited for each node not visited. Time is integer. The mask looks one node ahead, so about half of random
episodes strand a rider."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from milkrun.core.fields import constant, float32, float64, instance, int64, state
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.routing.darp.base import (
    ALLOWED,
    TOO_LATE,
    UNKNOWN,
    DARPBase,
    close_day,
    common_reason,
    serve,
    start_over,
    take_over,
)
from milkrun.routing.darp.config import FARTHEST, DARPConfig
from milkrun.routing.darp.generator import generate_deadlines as generate
from milkrun.routing.darp.observations import describe_node, describe_vehicle, farthest
from milkrun.routing.darp.states import check_count, check_deadlines, check_riders
from milkrun.routing.darp.travel import distance32
from milkrun.routing.darp.travel import whole_travel_time as travel_time
from milkrun.routing.instances.darp import MOST
from milkrun.routing.vehicle import write_down


class DARPDeadlines(DARPBase):
    """Dial-a-ride with deadlines only, on an integer clock."""

    id = "milkrun/DARP-v0"
    solvers: ClassVar[Any] = {}  # the solvers of dial-a-ride use service windows

    min_loc = constant(float64)
    max_loc = constant(float64)
    min_demand = constant(int64)
    max_demand = constant(int64)
    min_pickup_tw = constant(int64)
    max_pickup_tw = constant(int64)
    depot_deadline = constant(int64)

    time_windows = instance(int64, "N", doc="latest arrival; of the depot: the end of the day, never tested")
    current_time = state(int64, low=0, column=True, doc="clock of the active vehicle")
    total_distance = state(float32, low=0, doc="of all vehicles, return legs included")

    @classmethod
    def size_of(cls, config: DARPConfig) -> dict[str, int]:
        return cls.fleet(config)

    def at_depot(self) -> dict[str, Any]:
        return {"demand": 0, "time_windows": self.depot_deadline}

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        self._check_reach(arrays)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        check_riders(arrays, self.true_nodes(arrays))
        check_deadlines(arrays)
        check_count(arrays, self.true_nodes(arrays))

    def _check_reach(self, arrays: dict[str, np.ndarray]) -> None:
        """Checks that vehicles have seats and that the clock can hold every leg."""
        if (wrong := arrays["capacity"] < 1).any():
            refuse("capacity", arrays["capacity"], wrong, "must be at least 1")
        deadlines, locs = arrays["time_windows"], arrays["locs"].astype(np.float64)
        if (wrong := deadlines < 0).any():
            refuse("time_windows", deadlines, wrong, "must be >= 0: no vehicle leaves before that")
        if (wrong := (np.arange(self.sizes["N"]) == 0) & (deadlines > MOST)).any():
            refuse("time_windows", deadlines, wrong, f"the depot's must be <= {MOST:g}")
        out = np.hypot(*np.moveaxis(locs - locs[:, :1], 2, 0)) / self.speed
        if (wrong := out > FARTHEST).any():
            refuse(
                "locs",
                locs,
                wrong,
                f"is {out[wrong][0]:g} units of time from the depot at the speed "
                f"{self.speed:g}, at most {FARTHEST:g} is allowed",
            )


@kernel
def reset(w, b):
    start_over(w, b)
    w.current_time[b] = 0
    for k in range(w.V):
        w.vehicle_finished[b, k] = False
    mark_allowed(w, b, w.instance_row[b])


@kernel
def step(w, b, action):
    q = w.instance_row[b]
    here = w.current_node[b]
    before = np.float64(w.total_distance[b])
    w.total_distance[b] = w.total_distance[b] + distance32(w, q, here, action)
    w.reward_exact[b] = before - np.float64(w.total_distance[b])  # so that the sum equals the float32 distance
    w.current_time[b] += travel_time(w, q, here, action)
    w.illegal_reason[b] = ALLOWED
    write_down(w, b, action)
    if action > 0:
        serve(w, b, q, action)
    elif here > 0:
        come_home(w, b)
    w.current_node[b] = action
    mark_allowed(w, b, q)
    if all_visited(w, b) or all_finished(w, b) or (action == 0 and here == 0):
        close_day(w, b, w.N)


@kernel
def come_home(w, b):
    """Ends a vehicle's tour; if nodes are left, the next vehicle takes over."""
    w.vehicles_used[b] += 1
    w.vehicle_finished[b, w.current_agent[b]] = True
    if not all_visited(w, b):
        for k in range(w.V):
            if not w.vehicle_finished[b, k]:
                take_over(w, b, k)
                w.current_time[b] = 0
                return


@kernel
def all_visited(w, b):
    for j in range(1, w.N):
        if not w.visited[b, j]:
            return False
    return True


@kernel
def all_finished(w, b):
    for k in range(w.V):
        if not w.vehicle_finished[b, k]:
            return False
    return True


@kernel(inline=True)
def mark_allowed(w, b, q):
    here, now, load = w.current_node[b], w.current_time[b], w.current_load[b]
    seats = w.capacity[q, w.current_agent[b]]
    some = 0
    for j in range(1, w.N):  # no branch, and 32-bit travel times: the loop vectorises
        in_time = now + travel_time(w, q, here, j) <= w.time_windows[q, j]
        fits = load + w.demand[q, j] <= seats  # always true for a dropoff
        paired = (j & 1 == 1) | w.picked_up_by_current[b, j - 1]
        open_now = (not w.visited[b, j]) & in_time & fits & paired
        w.action_mask[b, j] = open_now
        some |= open_now
    w.action_mask[b, 0] = (load == 0 and here > 0) or not some


@kernel
def idle(w, b, action):
    w.illegal_reason[b] = reason(w, b, action)


@kernel
def reason(w, b, action):
    """The reasons of both rules; what is left is a deadline."""
    known = common_reason(w, b, action)
    return TOO_LATE if known == UNKNOWN else known


@kernel
def reason_of_row(w, b, action, row):
    return reason(w, b, action) if b == row else ALLOWED


@kernel
def mark(w, b):
    """The mask from the state alone."""
    mark_allowed(w, b, w.instance_row[b])


DARPDeadlines.reason_kernel = reason_of_row


@kernel
def observe(w, b):
    q = w.instance_row[b]
    day = max(np.float64(w.time_windows[q, 0]), 1e-9)
    far = farthest(w, q)
    aboard = 0
    for j in range(w.N):
        way = travel_time(w, q, w.current_node[b], j)
        start = np.float64(w.current_time[b] + way)
        describe_node(w, b, q, j, far, day, 0.0, 0.0, np.float64(w.time_windows[q, j]), np.float64(way), start, 0.0)
        aboard += j & 1 == 1 and w.picked_up_by_current[b, j] and not w.visited[b, j + 1]
    clock = w.current_time[b] / day
    describe_vehicle(w, b, q, w.N, clock, aboard / (w.N // 2), clock)


DARPDeadlines.bind(generate=generate, reset=reset, step=step, idle=idle, observe=observe, derive_mask=mark)

__all__ = ["DARPDeadlines", "generate", "idle", "observe", "reset", "step"]
