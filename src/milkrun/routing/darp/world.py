"""Dial-a-ride: carry each rider from pickup to dropoff within time windows and a ride time limit.

Observations: `nodes` (N, 14) and `vehicle` (7), features of the fields in the table; TorchRL shows the fields.
Actions: the node the active vehicle goes to, Discrete(2 requests + 1); 0 is the depot and ends its tour.
Mask: pickups and dropoffs after which all riders aboard can still be dropped off within windows, ride and route
    limits, found by exact search; the depot if the vehicle is empty.
Ends: terminated on a return after which no remaining vehicle can serve a remaining request.
Reward: minus the distance of each step; the last step also costs penalty_unvisited for each unvisited node.
References: Cordeau, Laporte 2003 and Cordeau 2006 (the problem); Firat, Woeginger 2011 (feasible schedules).
"""

from __future__ import annotations

import numpy as np

from milkrun.core.fields import float64, int64, scratch, state
from milkrun.core.kernels import kernel
from milkrun.routing.darp.base import (
    ALLOWED,
    STRANDS,
    TOO_LATE,
    TOO_MANY,
    UNKNOWN,
    close_day,
    common_reason,
    serve,
    start_over,
    take_over,
)
from milkrun.routing.darp.base import fault as vehicle_fault
from milkrun.routing.darp.generator import generate_classic as generate
from milkrun.routing.darp.instances import DARPInstances
from milkrun.routing.darp.observations import describe_node, describe_vehicle, farthest
from milkrun.routing.darp.schedule import append, keep, recall, set_off, survives
from milkrun.routing.darp.travel import distance, travel_time
from milkrun.routing.vehicle import write_down

MISLISTED = 2
"""A fault of a loaded state."""


class DARP(DARPInstances):
    """Dial-a-ride with windows, service times, ride times and route durations."""

    id = "milkrun/DARP-v0"

    current_time = state(float64, column=True, doc="earliest possible start of service at the current node")
    total_distance = state(float64, low=0, doc="of all vehicles, return legs included")
    onboard = state(int64, "P", low=-1, high="last request", doc="requests aboard in order of pickup, then -1")
    onboard_latest = state(float64, "P", doc="latest start of service at the pickup of each request aboard")
    onboard_elapsed = state(float64, "P", low=0, doc="least time since the start of service at that pickup")
    departure_latest = state(float64, column=True, doc="latest departure of the active vehicle")
    route_elapsed = state(float64, low=0, column=True, doc="least time since that departure")

    faults = {
        **DARPInstances.faults,
        MISLISTED: (
            "onboard",
            "must list the requests aboard, each once, then -1; aboard are those with "
            "picked_up_by_current whose dropoff is not visited",
        ),
    }

    # Summaries of routes by level; each level is one node longer (see `schedule`). Scratch memory of a thread: the
    # state fields above store the part that a row keeps.
    plan_node = scratch(int64, "L")
    plan_start = scratch(float64, "L")
    plan_leave = scratch(float64, "L")
    plan_spent = scratch(float64, "L")
    plan_aboard = scratch(int64, "L")
    plan_next = scratch(int64, "L")
    plan_request = scratch(int64, "L", "P")
    plan_latest = scratch(float64, "L", "P")
    plan_elapsed = scratch(float64, "L", "P")

    @property
    def mask_is_complete(self) -> np.ndarray:
        """(B,) bool: no vehicle can ever have more requests aboard than `max_onboard`, so the mask omits no action."""
        # The lightest requests, one more than `max_onboard`: if these do not fit into the largest vehicle together,
        # none ever has more aboard. Padding counts as too heavy.
        loads = np.where(self.demand[:, 1::2] > 0, self.demand[:, 1::2], np.iinfo(np.int32).max)
        lightest = np.sort(loads, axis=1)[:, : self.sizes["P"] + 1]
        binds = (lightest.shape[1] > self.sizes["P"]) & (lightest.sum(axis=1) <= self.capacity.max(axis=1))
        return ~binds[self.instance_row]


@kernel
def mark_allowed(w, b, q, level):
    """Opens the next nodes of the vehicle with this summary."""
    n = w.n_nodes[q]
    room = w.capacity[q, w.current_agent[b]] - w.current_load[b]
    m = w.plan_aboard[level]
    for j in range(w.N):
        w.action_mask[b, j] = False
    # `survives` writes above this level only, so this level does not change.
    if m < w.P:
        for p in range(1, n, 2):
            if not w.visited[b, p] and w.demand[q, p] <= room:
                w.action_mask[b, p] = survives(w, q, level, p)
    for k in range(m):
        d = 2 * w.plan_request[level, k] + 2
        w.action_mask[b, d] = survives(w, q, level, d)
    w.action_mask[b, 0] = m == 0 if w.current_node[b] > 0 else may_stay(w, b, q)


@kernel
def may_stay(w, b, q):
    """A vehicle may be left unused if a later one has another capacity."""
    # Vehicles differ in their seats only: leaving one for an equal one changes nothing.
    active = w.current_agent[b]
    if w.vehicle_finished[b, active]:  # from the start no vehicle can take a request: the depot ends the day
        return True
    for k in range(active + 1, w.V):
        if not w.vehicle_finished[b, k] and w.capacity[q, k] != w.capacity[q, active]:
            return True
    return False


@kernel
def advance(w, b, q):
    """Activates the next vehicle that can serve a request; others become finished. False if there is none."""
    set_off(w, q, 0)
    useless = 0  # a number of seats that fits no request: smaller vehicles need no test
    for k in range(w.V):
        if w.vehicle_finished[b, k]:
            continue
        seats = w.capacity[q, k]
        if seats > useless and can_serve_any(w, b, q, seats):
            # Level 0 is still the route at the depot: the trials above wrote higher levels.
            take_over(w, b, k)
            keep(w, b, 0)
            return True
        useless = max(useless, seats)
        w.vehicle_finished[b, k] = True
    return False


@kernel
def can_serve_any(w, b, q, seats):
    for p in range(1, w.n_nodes[q], 2):
        if not w.visited[b, p] and w.demand[q, p] <= seats and survives(w, q, 0, p):
            return True
    return False


@kernel
def reset(w, b):
    q = w.instance_row[b]
    start_over(w, b)
    for j in range(w.n_nodes[q], w.N):
        w.visited[b, j] = True
    for k in range(w.V):
        w.vehicle_finished[b, k] = w.capacity[q, k] == 0
    if advance(w, b, q):
        mark_allowed(w, b, q, 0)
    else:  # no request can be served, although all pass the checks within the tolerance
        keep(w, b, 0)
        for j in range(w.N):
            w.action_mask[b, j] = j == 0


@kernel
def step(w, b, action):
    q = w.instance_row[b]
    here = w.current_node[b]
    if action > 0:
        recall(w, b, 0)
        full = action & 1 == 1 and w.plan_aboard[0] >= w.P
        if full or not append(w, q, 0, action):  # a loaded mask may allow an action that has no schedule
            w.illegal[b] = True
            w.illegal_reason[b] = TOO_LATE
            return
    leg = distance(w, q, here, action)
    w.total_distance[b] += leg
    w.reward_exact[b] = -leg
    w.illegal_reason[b] = ALLOWED
    write_down(w, b, action)
    if action > 0:
        serve(w, b, q, action)
        keep(w, b, 1)
        w.current_node[b] = action
        mark_allowed(w, b, q, 1)
        return
    w.current_node[b] = 0
    w.vehicles_used[b] += here > 0
    w.vehicle_finished[b, w.current_agent[b]] = True
    if advance(w, b, q):
        mark_allowed(w, b, q, 0)
    else:
        close_day(w, b, w.n_nodes[q])


@kernel
def idle(w, b, action):
    w.illegal_reason[b] = reason(w, b, action)


@kernel
def reason(w, b, action):
    """The reasons of both rules, then those of the schedule."""
    known = common_reason(w, b, action)
    if known != UNKNOWN:
        return known
    recall(w, b, 0)
    if action & 1 == 1 and w.plan_aboard[0] >= w.P:
        return TOO_MANY
    return STRANDS if append(w, w.instance_row[b], 0, action) else TOO_LATE


@kernel
def reason_of_row(w, b, action, row):
    return reason(w, b, action) if b == row else ALLOWED


@kernel
def mark(w, b):
    """The mask from the state alone."""
    recall(w, b, 0)
    mark_allowed(w, b, w.instance_row[b], 0)


DARP.reason_kernel = reason_of_row


@kernel
def observe(w, b):
    q = w.instance_row[b]
    here = w.current_node[b]
    began = w.window_open[q, 0]
    day = max(w.time_windows[q, 0] - began, 1e-9)
    far = farthest(w, q)
    for j in range(w.N):
        way = travel_time(w, q, here, j)
        # Summed in the order of `time_to` and `extend`, so that the start equals that of a step bit by bit.
        start = max(w.tight_open[q, j], w.current_time[b] + (w.service_time[q, here] + way))
        describe_node(
            w, b, q, j, far, day, w.service_time[q, j], w.tight_open[q, j], w.tight_close[q, j], way, start, began
        )
    aboard = 0
    while aboard < w.P and 0 <= w.onboard[b, aboard] < w.R:
        aboard += 1
    describe_vehicle(
        w,
        b,
        q,
        w.n_nodes[q],
        (w.current_time[b] - began) / day,
        aboard / w.P,
        w.route_elapsed[b] / w.max_route_duration[q],
    )


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none: `onboard` must list the requests aboard, each once."""
    code = vehicle_fault(w, b)
    if code != 0:
        return code
    # Each listed request is aboard, none is listed twice and none after a gap (k > listed). The list is complete if its
    # length is the number of requests aboard.
    listed = 0
    for k in range(w.P):
        r = w.onboard[b, k]
        if r < 0:
            continue
        if k > listed or not is_aboard(w, b, r):
            return MISLISTED
        for earlier in range(k):
            if w.onboard[b, earlier] == r:
                return MISLISTED
        listed += 1
    for p in range(1, w.N, 2):
        listed -= is_aboard(w, b, p >> 1)
    return MISLISTED if listed != 0 else 0


@kernel(inline=True)
def is_aboard(w, b, r):
    return w.picked_up_by_current[b, 2 * r + 1] and not w.visited[b, 2 * r + 2]


DARP.bind(generate=generate, reset=reset, step=step, idle=idle, observe=observe, derive_mask=mark, fault=fault)

__all__ = ["DARP", "generate", "idle", "observe", "reset", "step"]
