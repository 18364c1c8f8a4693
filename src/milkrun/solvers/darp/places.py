"""Routes of the dial-a-ride problem under construction, and the best place for a further request.

A route is the list of nodes of a vehicle. For every prefix the exact summary of its schedules is stored, so that a
place is tested from there on, with `extend` of the world."""

from __future__ import annotations

import numpy as np

from milkrun.core.fields import constant, float32, float64, instance, int32, int64, named, scratch
from milkrun.core.kernels import kernel
from milkrun.routing.darp import windows
from milkrun.routing.darp.schedule import extend
from milkrun.routing.darp.travel import distance

TIE = 1e-9
"""A place must be shorter by more than this, so that ties are broken by order, not by rounding."""
SURE = 1.01 * windows.TIME_EPS  # an excess beyond rounding errors
BASE, TRIAL = range(2)  # levels of the two working summaries

WORK = named(
    {
        "speed": constant(float64),
        "max_onboard": constant(int64, doc="requests aboard at once"),
        "locs": instance(float32, "L", 2),
        "dist": instance(float64, "M", "M", doc="empty if coordinates are used"),
        "n_nodes": instance(int32),
        "demand": instance(int64, "N"),
        "capacity": instance(int64, "V"),
        "time_windows": instance(float64, "N"),
        "window_open": instance(float64, "N"),
        "service_time": instance(float64, "N"),
        "max_ride_time": instance(float64, "R"),
        "max_route_duration": instance(float64),
        "plan": instance(int32, "V", "K", doc="routes, the rest 0"),
        "visits": instance(int32, "V", doc="nodes of each route"),
        "d": scratch(float64, "N", "N"),
        "tau": scratch(float64, "N", "N", doc="from the start of service here to the arrival there"),
        "opens": scratch(float64, "N", doc="tightened"),
        "closes": scratch(float64, "N", doc="tightened"),
        "route": scratch(int32, "V", "K"),
        "stops": scratch(int64, "V"),
        "way": scratch(float64, "V", doc="length of each route"),
        "earliest": scratch(float64, "V", "K", doc="start of service after so many stops"),
        "leave": scratch(float64, "V", "K", doc="latest departure, of the summary after so many stops"),
        "spent": scratch(float64, "V", "K", doc="least time since the departure"),
        "late": scratch(float64, "V", "K", doc="latest start of service at a stop that keeps the windows behind it"),
        "load": scratch(int64, "V", "K"),
        "aboard": scratch(int64, "V", "K", doc="how many requests, after so many stops"),
        "request": scratch(int64, "V", "K", "P", doc="those, in order of pickup"),
        "latest": scratch(float64, "V", "K", "P", doc="latest start of service at the pickup of each"),
        "elapsed": scratch(float64, "V", "K", "P", doc="least time since the start of service at that pickup"),
        "start": scratch(float64, "N", doc="earliest start of service at a node that is on a route"),
        "plan_node": scratch(int64, 2, doc="the two summaries under work, as `extend` writes them"),
        "plan_start": scratch(float64, 2),
        "plan_leave": scratch(float64, 2),
        "plan_spent": scratch(float64, 2),
        "plan_aboard": scratch(int64, 2),
        "plan_request": scratch(int64, 2, "P"),
        "plan_latest": scratch(float64, 2, "P"),
        "plan_elapsed": scratch(float64, 2, "P"),
        "detour": scratch(float64, "K", doc="of a dropoff at a place"),
        "least": scratch(float64, "K", doc="detour at this place or behind"),
        "cost": scratch(float64, "R", "V", doc="of the best place of a request on a route"),
        "up": scratch(int32, "R", "V", doc="the stop before which it picks up"),
        "down": scratch(int32, "R", "V", doc="the stop before which it sets down"),
        "home": scratch(int64, "R", doc="the vehicle that serves a request, or -1"),
        "key": scratch(float64, "R"),
        "order": scratch(int64, "R"),
    }
)
"""The record `w` of the kernels: instances (first axis: row b) and scratch of a thread. K = 2 R + 2, P: most aboard."""

SIZES = ["N", "R", "V", "L", "M", "K", "P"]

tightened = kernel(windows.tightened)


@kernel
def prepare(w, b):
    """Computes distances, times and tightened windows of a row; clears the routes."""
    n = w.n_nodes[b]
    for i in range(n):
        for j in range(n):
            w.d[i, j] = distance(w, b, i, j)
            w.tau[i, j] = w.service_time[b, i] + w.d[i, j] / w.speed
    w.opens[0] = w.window_open[b, 0]
    w.closes[0] = w.time_windows[b, 0]
    for r in range(n // 2):
        tighten(w, b, 2 * r + 1, 2 * r + 2)
        w.home[r] = -1
    for v in range(w.V):
        w.stops[v] = 0
        trace(w, b, v)


@kernel
def tighten(w, b, p, d):
    """Tightens the windows of a request."""
    out, direct, home = w.d[0, p] / w.speed, w.d[p, d] / w.speed, w.d[d, 0] / w.speed
    w.opens[p], w.closes[p], w.opens[d], w.closes[d] = tightened(
        w.window_open[b, p],
        w.time_windows[b, p],
        w.window_open[b, d],
        w.time_windows[b, d],
        w.opens[0],
        w.closes[0],
        w.service_time[b, p],
        w.service_time[b, d],
        w.max_ride_time[b, p // 2],
        out,
        direct,
        home,
    )


@kernel(inline=True)
def drive(w, b, s, i, j):
    """Extends summary `s` from node i to j; False if no schedule is left."""
    return extend(w, b, s, s, j, w.tau[i, j], w.opens[j], w.closes[j])


@kernel
def begin(w, s):
    """The summary of a vehicle at the depot."""
    w.plan_start[s] = w.opens[0]
    w.plan_leave[s] = w.closes[0]
    w.plan_spent[s] = 0.0
    w.plan_aboard[s] = 0


@kernel
def trace(w, b, v):
    """Replays route v and stores the summary at every stop; False if infeasible, with undefined summaries."""
    begin(w, BASE)
    i, load, way = 0, 0, 0.0
    m = w.stops[v]
    for k in range(m + 1):
        w.load[v, k] = load
        keep(w, v, k)
        j = w.route[v, k] if k < m else 0
        way += w.d[i, j]
        load += w.demand[b, j]
        if not drive(w, b, BASE, i, j) or load > w.capacity[b, v] or w.plan_aboard[BASE] > w.max_onboard:
            return False
        w.start[j] = w.plan_start[BASE]
        i = j
    w.way[v] = way
    # Backwards: the latest starts that keep all later windows. A place that fails this bound is infeasible after one
    # sum; a place that passes still needs the full test.
    w.late[v, m] = w.closes[0]
    j = 0
    for k in range(m - 1, -1, -1):
        i = w.route[v, k]
        w.late[v, k] = min(w.closes[i], w.late[v, k + 1] - w.tau[i, j])
        j = i
    return True


@kernel
def keep(w, v, k):
    w.earliest[v, k] = w.plan_start[BASE]
    w.leave[v, k] = w.plan_leave[BASE]
    w.spent[v, k] = w.plan_spent[BASE]
    w.aboard[v, k] = w.plan_aboard[BASE]
    for m in range(w.plan_aboard[BASE]):
        w.request[v, k, m] = w.plan_request[BASE, m]
        w.latest[v, k, m] = w.plan_latest[BASE, m]
        w.elapsed[v, k, m] = w.plan_elapsed[BASE, m]


@kernel
def recall(w, v, k):
    """Loads the summary of route v after k stops."""
    w.plan_start[BASE] = w.earliest[v, k]
    w.plan_leave[BASE] = w.leave[v, k]
    w.plan_spent[BASE] = w.spent[v, k]
    w.plan_aboard[BASE] = w.aboard[v, k]
    for m in range(w.aboard[v, k]):
        w.plan_request[BASE, m] = w.request[v, k, m]
        w.plan_latest[BASE, m] = w.latest[v, k, m]
        w.plan_elapsed[BASE, m] = w.elapsed[v, k, m]


@kernel
def ends_well(w, b, v, k, i, d):
    """True if the vehicle at node i can serve dropoff d and then the route from stop k on."""
    # to TRIAL, since `find_place` continues from BASE
    if not extend(w, b, BASE, TRIAL, d, w.tau[i, d], w.opens[d], w.closes[d]):
        return False
    i, m = d, w.stops[v]
    for t in range(k, m + 1):
        j = w.route[v, t] if t < m else 0
        # one sum before the extension: after `late` the rest of the route is infeasible
        if w.plan_start[TRIAL] + w.tau[i, j] > w.late[v, t] + SURE or not drive(w, b, TRIAL, i, j):
            return False
        i = j
    return True


@kernel
def find_place(w, b, r, v):
    """Finds the cheapest place of request r on route v, by pickup, then by dropoff; cost inf if there is none."""
    p, d, m = 2 * r + 1, 2 * r + 2, w.stops[v]
    w.cost[r, v] = np.inf
    riders, seats = w.demand[b, p], w.capacity[b, v]
    if riders > seats:
        return
    measure_detours(w, v, d)
    # Bounds that save work: times increase along the route, so the scan ends at the first stop too late for the pickup;
    # no place costs less than the detour of the pickup plus the least detour of a later dropoff. Schedules are
    # computed only for places that would be the new best.
    best = np.inf
    for a in range(m + 1):
        i, j = w.route[v, a - 1] if a else 0, w.route[v, a] if a < m else 0
        if w.earliest[v, a] > w.closes[p] + SURE:
            break
        extra = w.d[i, p] + w.d[p, j] - w.d[i, j]
        both = w.d[i, p] + w.d[p, d] + w.d[d, j] - w.d[i, j]
        # Service at p starts at opens[p] or later, at stop a later still: past `late` no place before a is left.
        if min(both, extra + w.least[a + 1]) >= best - TIE or w.opens[p] > w.late[v, a] + SURE:
            continue
        if w.load[v, a] + riders > seats or w.aboard[v, a] >= w.max_onboard:
            continue
        recall(w, v, a)
        if not drive(w, b, BASE, i, p):
            continue
        here = p
        for c in range(a, m + 1):
            cost = both if c == a else extra + w.detour[c]
            if cost < best - TIE and ends_well(w, b, v, c, here, d):
                best = cost
                w.cost[r, v], w.up[r, v], w.down[r, v] = cost, a, c
            # after the last stop `least` is inf and ends the scan, so stop c below exists
            if extra + w.least[c + 1] >= best - TIE:
                break
            j = w.route[v, c]
            if w.load[v, c + 1] + riders > seats or w.aboard[v, c + 1] >= w.max_onboard:
                break
            if w.plan_start[BASE] + w.tau[here, j] > w.late[v, c] + SURE or not drive(w, b, BASE, here, j):
                break
            here = j


@kernel
def measure_detours(w, v, d):
    """The detour of a dropoff at each place of route v, and its minimum from there on, a bound in `find_place`."""
    m = w.stops[v]
    w.least[m + 1] = np.inf
    j = 0
    for k in range(m, -1, -1):
        i = w.route[v, k - 1] if k else 0
        w.detour[k] = w.d[i, d] + w.d[d, j] - w.d[i, j]
        w.least[k] = min(w.detour[k], w.least[k + 1])
        j = i


@kernel
def place(w, b, r, v):
    """Inserts request r at the place found by `find_place` on route v."""
    m, a, c = w.stops[v], w.up[r, v], w.down[r, v]
    for k in range(m - 1, c - 1, -1):  # from the end, so that entries are moved before they are overwritten
        w.route[v, k + 2] = w.route[v, k]
    w.route[v, c + 1] = 2 * r + 2
    for k in range(c - 1, a - 1, -1):
        w.route[v, k + 1] = w.route[v, k]
    w.route[v, a] = 2 * r + 1
    w.stops[v] = m + 2
    w.home[r] = v
    trace(w, b, v)
