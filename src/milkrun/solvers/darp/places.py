"""Routes of the dial-a-ride problem under construction: what is kept of them, and where one more request fits best.

A route stands as the nodes a vehicle visits. Of every beginning of it the exact summary of all schedules that are still
possible is kept, so that a place for a request is judged from there on. The clock of a route is its elapsed time
without any wait; a rider's latest start of service is kept relative to it (`bound`), which makes every update the same
minimum for all aboard. The vehicle itself is rider 0, picked up and set down at the depot.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from milkrun.core.fields import Field, constant, float32, float64, instance, int32, int64, scratch
from milkrun.core.kernels import kernel
from milkrun.routing.darp.windows import TIME_EPS

TIE = 1e-9  # a place is better if it is shorter by more than this
SURE = 1.01 * TIME_EPS  # exceeded by this a limit is broken however sums are rounded
BASE, TRIAL = range(2)  # the two summaries under work

WORK: dict[str, Field] = {
    name: replace(declared, name=name)
    for name, declared in {
        "speed": constant(float64),
        "max_onboard": constant(int64, doc="requests aboard at once"),
        "locs": instance(float32, "L", 2),
        "dist": instance(float64, "M", "M", doc="empty where the coordinates say it"),
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
        "most": scratch(float64, "N", doc="from a pickup to this dropoff; at the depot: of the route"),
        "route": scratch(int32, "V", "K"),
        "stops": scratch(int64, "V"),
        "way": scratch(float64, "V", doc="length of each route"),
        "earliest": scratch(float64, "V", "K", doc="start of service after so many stops"),
        "elapsed": scratch(float64, "V", "K", doc="clock after so many stops"),
        "late": scratch(float64, "V", "K", doc="latest start of service at a stop that keeps the windows behind it"),
        "load": scratch(int64, "V", "K"),
        "count": scratch(int64, "V", "K", doc="aboard after so many stops"),
        "who": scratch(int32, "V", "K", "P", doc="aboard, in order of pickup"),
        "bound": scratch(float64, "V", "K", "P"),
        "since": scratch(float64, "R", doc="clock of the route at a pickup"),
        "start": scratch(float64, "N", doc="earliest start of service at a node that is on a route"),
        "now_earliest": scratch(float64, 2),
        "now_elapsed": scratch(float64, 2),
        "now_count": scratch(int64, 2),
        "now_who": scratch(int32, 2, "P"),
        "now_bound": scratch(float64, 2, "P"),
        "now_since": scratch(float64, 2, "P"),
        "detour": scratch(float64, "K", doc="of a dropoff at a place"),
        "least": scratch(float64, "K", doc="detour at this place or behind"),
        "cost": scratch(float64, "R", "V", doc="of the best place of a request on a route"),
        "up": scratch(int32, "R", "V", doc="the stop before which it picks up"),
        "down": scratch(int32, "R", "V", doc="the stop before which it sets down"),
        "home": scratch(int64, "R", doc="the vehicle that serves a request, or -1"),
        "key": scratch(float64, "R"),
        "order": scratch(int64, "R"),
    }.items()
}
"""What the kernels work on, `w`: instances (first axis: row b) and one thread's space. K = 2 R + 2, P: seats + 1."""

SIZES = ["N", "R", "V", "L", "M", "K", "P"]


@kernel
def prepare(w, b):
    """Distances, times and tightened windows of a row; no route, nobody served."""
    n = w.n_nodes[b]
    for i in range(n):
        for j in range(n):
            if w.M:
                w.d[i, j] = w.dist[b, i, j]
            else:
                dx = np.float64(w.locs[b, i, 0]) - np.float64(w.locs[b, j, 0])
                dy = np.float64(w.locs[b, i, 1]) - np.float64(w.locs[b, j, 1])
                w.d[i, j] = np.sqrt(dx * dx + dy * dy)
            w.tau[i, j] = w.service_time[b, i] + w.d[i, j] / w.speed
    w.opens[0] = w.window_open[b, 0]
    w.closes[0] = w.time_windows[b, 0]
    w.most[0] = w.max_route_duration[b]
    for r in range(n // 2):
        tighten(w, b, 2 * r + 1, 2 * r + 2)
        w.home[r] = -1
    for v in range(w.V):
        w.stops[v] = 0
        trace(w, b, v)


@kernel
def tighten(w, b, p, d):
    """The windows of a request, less what its ride limit, the depot's day and the partner's window rule out."""
    most = w.service_time[b, p] + w.max_ride_time[b, p // 2]
    w.most[d] = most
    w.opens[p] = max(w.window_open[b, p], w.opens[0] + w.tau[0, p], w.window_open[b, d] - most)
    w.closes[d] = min(w.time_windows[b, d], w.closes[0] - w.tau[d, 0], w.time_windows[b, p] + most)
    w.closes[p] = min(w.time_windows[b, p], w.closes[d] - w.tau[p, d])
    w.opens[d] = max(w.window_open[b, d], w.opens[p] + w.tau[p, d])


@kernel
def append(w, s, i, j):
    """Drives summary `s` from node i on to j; False if no schedule is left. A dropoff's request must be aboard."""
    earliest = max(w.opens[j], w.now_earliest[s] + w.tau[i, j])
    clock = w.now_elapsed[s] + w.tau[i, j]
    latest = w.closes[j]
    n = w.now_count[s]
    if j % 2 == 0:
        at = 0
        if j > 0:
            while w.now_who[s, at] != j // 2:
                at += 1
        since = w.now_since[s, at]
        if clock - since > w.most[j] + TIME_EPS:
            return False
        latest = min(latest, w.now_bound[s, at] + since + w.most[j])
        n -= 1
        for q in range(at, n):
            w.now_who[s, q] = w.now_who[s, q + 1]
            w.now_bound[s, q] = w.now_bound[s, q + 1]
            w.now_since[s, q] = w.now_since[s, q + 1]
    if earliest > latest + TIME_EPS:
        return False
    bound = latest - clock
    for q in range(n):
        w.now_bound[s, q] = min(w.now_bound[s, q], bound)
    if j % 2 == 1:
        w.now_who[s, n] = (j + 1) // 2
        w.now_bound[s, n] = bound
        w.now_since[s, n] = clock
        n += 1
    w.now_earliest[s] = earliest
    w.now_elapsed[s] = clock
    w.now_count[s] = n
    return True


@kernel
def begin(w, s):
    """A vehicle that has not left the depot."""
    w.now_earliest[s] = w.opens[0]
    w.now_elapsed[s] = 0.0
    w.now_count[s] = 1
    w.now_who[s, 0] = 0
    w.now_bound[s, 0] = w.closes[0]
    w.now_since[s, 0] = 0.0


@kernel
def trace(w, b, v):
    """Drives route v and keeps the summary at every stop; False if it is not feasible, then nothing kept counts."""
    begin(w, BASE)
    i, load, way = 0, 0, 0.0
    m = w.stops[v]
    for k in range(m + 1):
        w.load[v, k] = load
        keep(w, v, k)
        j = w.route[v, k] if k < m else 0
        way += w.d[i, j]
        load += w.demand[b, j]
        if not append(w, BASE, i, j) or load > w.capacity[b, v] or w.now_count[BASE] > w.max_onboard + 1:
            return False
        if j % 2 == 1:
            w.since[j // 2] = w.now_elapsed[BASE]
        w.start[j] = w.now_earliest[BASE]
        i = j
    w.way[v] = way
    w.late[v, m] = w.closes[0]
    j = 0
    for k in range(m - 1, -1, -1):
        i = w.route[v, k]
        w.late[v, k] = min(w.closes[i], w.late[v, k + 1] - w.tau[i, j])
        j = i
    return True


@kernel
def keep(w, v, k):
    w.earliest[v, k] = w.now_earliest[BASE]
    w.elapsed[v, k] = w.now_elapsed[BASE]
    w.count[v, k] = w.now_count[BASE]
    for q in range(w.now_count[BASE]):
        w.who[v, k, q] = w.now_who[BASE, q]
        w.bound[v, k, q] = w.now_bound[BASE, q]


@kernel
def recall(w, v, k):
    """The summary of route v after k stops, to go on from."""
    w.now_earliest[BASE] = w.earliest[v, k]
    w.now_elapsed[BASE] = w.elapsed[v, k]
    w.now_count[BASE] = w.count[v, k]
    w.now_bound[BASE, 0] = w.bound[v, k, 0]
    w.now_since[BASE, 0] = 0.0
    for q in range(1, w.count[v, k]):
        r = w.who[v, k, q]
        w.now_who[BASE, q] = r
        w.now_bound[BASE, q] = w.bound[v, k, q]
        w.now_since[BASE, q] = w.since[r - 1]


@kernel
def ends_well(w, v, k, i, d):
    """Whether the vehicle at node i can set down at d and then drive the route from stop k on."""
    w.now_earliest[TRIAL] = w.now_earliest[BASE]
    w.now_elapsed[TRIAL] = w.now_elapsed[BASE]
    w.now_count[TRIAL] = w.now_count[BASE]
    for q in range(w.now_count[BASE]):
        w.now_who[TRIAL, q] = w.now_who[BASE, q]
        w.now_bound[TRIAL, q] = w.now_bound[BASE, q]
        w.now_since[TRIAL, q] = w.now_since[BASE, q]
    if not append(w, TRIAL, i, d):
        return False
    i, m = d, w.stops[v]
    for t in range(k, m + 1):
        j = w.route[v, t] if t < m else 0
        if w.now_earliest[TRIAL] + w.tau[i, j] > w.late[v, t] + SURE or not append(w, TRIAL, i, j):
            return False
        i = j
    return True


@kernel
def find_place(w, b, r, v):
    """Enters the cheapest place of request r on route v: scanned by pickup, then by dropoff; inf if there is none."""
    p, d, m = 2 * r + 1, 2 * r + 2, w.stops[v]
    w.cost[r, v] = np.inf
    riders, seats = w.demand[b, p], w.capacity[b, v]
    if riders > seats:
        return
    measure_detours(w, v, d)
    best = np.inf
    for a in range(m + 1):
        i, j = w.route[v, a - 1] if a else 0, w.route[v, a] if a < m else 0
        if w.earliest[v, a] > w.closes[p] + SURE:
            break
        extra = w.d[i, p] + w.d[p, j] - w.d[i, j]
        both = w.d[i, p] + w.d[p, d] + w.d[d, j] - w.d[i, j]
        if min(both, extra + w.least[a + 1]) >= best - TIE or w.opens[p] > w.late[v, a] + SURE:
            continue
        if w.load[v, a] + riders > seats or w.count[v, a] > w.max_onboard:
            continue
        recall(w, v, a)
        if not append(w, BASE, i, p):
            continue
        here = p
        for c in range(a, m + 1):
            cost = both if c == a else extra + w.detour[c]
            if cost < best - TIE and ends_well(w, v, c, here, d):
                best = cost
                w.cost[r, v], w.up[r, v], w.down[r, v] = cost, a, c
            if extra + w.least[c + 1] >= best - TIE:
                break
            j = w.route[v, c]
            if w.load[v, c + 1] + riders > seats or w.count[v, c + 1] > w.max_onboard:
                break
            if w.now_earliest[BASE] + w.tau[here, j] > w.late[v, c] + SURE or not append(w, BASE, here, j):
                break
            here = j


@kernel
def measure_detours(w, v, d):
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
    """Puts request r where `find_place` found its place on route v."""
    m, a, c = w.stops[v], w.up[r, v], w.down[r, v]
    for k in range(m - 1, c - 1, -1):
        w.route[v, k + 2] = w.route[v, k]
    w.route[v, c + 1] = 2 * r + 2
    for k in range(c - 1, a - 1, -1):
        w.route[v, k + 1] = w.route[v, k]
    w.route[v, a] = 2 * r + 1
    w.stops[v] = m + 2
    w.home[r] = v
    trace(w, b, v)
