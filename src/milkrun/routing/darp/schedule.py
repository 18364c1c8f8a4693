"""An exact summary of all schedules that a dial-a-ride route still allows, as kernels.

The times of a vehicle are not fixed while its route grows: a pickup may have to be delayed so that a later wait keeps
the ride limit. The summary holds the earliest start at the current node, and for the departure and each request aboard
the latest start and the least time since then. `extend` updates it for one more node. Mask, step and solvers share this
code, so that they always agree.
"""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.routing.darp.travel import travel_time
from milkrun.routing.darp.windows import TIME_EPS


@kernel
def set_off(w, q, level):
    """The summary of a route that has not left the depot."""
    w.plan_node[level] = 0
    w.plan_start[level] = w.window_open[q, 0]
    w.plan_leave[level] = w.time_windows[q, 0]
    w.plan_spent[level] = 0.0
    w.plan_aboard[level] = 0


@kernel
def recall(w, b, level):
    """Reads the summary of the active vehicle's route from the state."""
    w.plan_node[level] = w.current_node[b]
    w.plan_start[level] = w.current_time[b]
    w.plan_leave[level] = w.departure_latest[b]
    w.plan_spent[level] = w.route_elapsed[b]
    m = 0
    while m < w.P and 0 <= w.onboard[b, m] < w.R:
        w.plan_request[level, m] = w.onboard[b, m]
        w.plan_latest[level, m] = w.onboard_latest[b, m]
        w.plan_elapsed[level, m] = w.onboard_elapsed[b, m]
        m += 1
    w.plan_aboard[level] = m


@kernel
def keep(w, b, level):
    """Writes a summary to the state."""
    w.current_time[b] = w.plan_start[level]
    w.departure_latest[b] = w.plan_leave[level]
    w.route_elapsed[b] = w.plan_spent[level]
    m = w.plan_aboard[level]
    for k in range(w.P):
        aboard = k < m
        w.onboard[b, k] = w.plan_request[level, k] if aboard else -1
        w.onboard_latest[b, k] = w.plan_latest[level, k] if aboard else 0.0
        w.onboard_elapsed[b, k] = w.plan_elapsed[level, k] if aboard else 0.0


@kernel(inline=True)
def time_to(w, q, level, node):
    """The time from the start of service at the current node to the arrival at another."""
    return w.service_time[q, w.plan_node[level]] + travel_time(w, q, w.plan_node[level], node)


@kernel(inline=True)
def in_reach(w, q, level, node):
    """True if the node's own window can be met.

    This cheap test runs first and rejects most nodes, so that the longer summary is written only for the others.
    """
    return max(w.tight_open[q, node], w.plan_start[level] + time_to(w, q, level, node)) <= (
        w.tight_close[q, node] + TIME_EPS
    )


@kernel
def append(w, q, level, node):
    """Writes the summary of the route with one more node to the next level; False if no schedule is left."""
    tau = time_to(w, q, level, node)
    return extend(w, q, level, level + 1, node, tau, w.tight_open[q, node], w.tight_close[q, node])


@kernel(inline=True)
def extend(w, q, at, to, node, tau, opens, closes):
    """Writes to level `to` the summary of the route at level `at` with one more node.

    Returns False if no schedule is left; level `to` is then undefined. Both levels may be the same. The request of a
    dropoff must be aboard.

    The summary is exact: start times are constrained by differences (travel, ride and route limits) and by windows, so
    each earlier stop still has one interval of starts. Its upper end shrinks with the latest start of each later stop
    less the least time in between. Its lower end matters only through the earliest start at the current node.
    """
    start = max(opens, w.plan_start[at] + tau)
    latest = closes
    if start > latest + TIME_EPS:
        return False
    spent = w.plan_spent[at] + tau
    leaves = (node - 1) >> 1 if node > 0 and node & 1 == 0 else -1
    kept = 0
    for k in range(w.plan_aboard[at]):  # requests that stay aboard move up, never past the entry read next
        request, since = w.plan_request[at, k], w.plan_elapsed[at, k] + tau
        if request == leaves:
            service, ride = w.service_time[q, node - 1], w.max_ride_time[q, request]
            if since > service + ride + TIME_EPS:
                return False
            latest = min(latest, w.plan_latest[at, k] + service + ride)
        else:
            w.plan_request[to, kept] = request
            w.plan_latest[to, kept] = w.plan_latest[at, k]
            w.plan_elapsed[to, kept] = since
            kept += 1
    if node == 0:
        if kept > 0 or spent > w.max_route_duration[q] + TIME_EPS:
            return False
        latest = min(latest, w.plan_leave[at] + w.max_route_duration[q])
    if start > latest + TIME_EPS:
        return False
    for k in range(kept):
        w.plan_latest[to, k] = min(w.plan_latest[to, k], latest - w.plan_elapsed[to, k])
    if node & 1:
        w.plan_request[to, kept] = node >> 1
        w.plan_latest[to, kept] = latest
        w.plan_elapsed[to, kept] = 0.0
        kept += 1
    w.plan_aboard[to] = kept
    w.plan_node[to] = node
    w.plan_start[to] = start
    w.plan_leave[to] = min(w.plan_leave[at], latest - spent)
    w.plan_spent[to] = spent
    return True


@kernel
def completable(w, q, top):
    """True if some order of the dropoffs is feasible up to the return; orders are tried up to their first fault.

    An iterative depth-first search, since kernels have no recursion: level `top` + k is the summary after k dropoffs,
    and `plan_next` of a level is the next rider to try. Pickups are not tried: with the triangle inequality another
    stop never makes later ones earlier.
    """
    level = top
    w.plan_next[level] = 0
    while level >= top:
        k = w.plan_next[level]
        w.plan_next[level] += 1
        m = w.plan_aboard[level]
        if m == 0:
            if append(w, q, level, 0):
                return True
            level -= 1
        elif k == m:
            level -= 1
        elif append(w, q, level, 2 * w.plan_request[level, k] + 2):
            level += 1
            w.plan_next[level] = 0
    return False


@kernel(inline=True)
def survives(w, q, level, node):
    """True if all riders aboard can still be dropped off in time after this node."""
    return in_reach(w, q, level, node) and append(w, q, level, node) and completable(w, q, level + 1)
