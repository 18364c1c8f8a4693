"""Routes of a fleet, as kernels that VRP and PDP share: start, legs and clock of a route, and which depots are open."""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.routing.distance import TOL

NO_BITS = np.int64(0)
ONE_BIT = np.int64(1)


@kernel(inline=True)
def tolerant(limit):
    """x <= tolerant(limit) is fits(x, limit)."""
    return limit + min(0.5, TOL * max(1.0, abs(limit)))


# -- a route ----------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def stand_ready(w, b, q, k):
    """A vehicle of depot k stands ready, not yet counted as used."""
    w.has_vehicle[b] = True
    w.current_depot[b] = k
    w.current_node[b] = k
    w.route_length[b] = 0
    if w.clock > 0:
        w.route_duration[b, 0] = 0
        w.start_early[b, 0] = opening(w, q, k)
        w.start_late[b, 0] = closing(w, q, k)
        w.current_time[b, 0] = w.start_early[b, 0]


@kernel(inline=True)
def leave(w, b, q):
    """Counts the vehicle that leaves its depot; returns its fixed cost."""
    k = w.current_depot[b]
    w.vehicles_left[b, k] -= 1
    w.trips[b] += 1
    if w.priced == 0:
        return 0.0
    fixed = np.float64(w.fixed_cost[q, k])
    w.cost[b] = w.cost[b] + fixed
    return fixed


@kernel(inline=True)
def drive(w, b, q, node, leg):
    """Drives a leg; returns its cost."""
    cost = leg * price(w, q, w.current_depot[b])
    w.tour_length[b] = w.tour_length[b] + leg
    w.route_length[b] = w.route_length[b] + leg
    w.cost[b] = w.cost[b] + cost
    w.current_node[b] = node
    return cost


@kernel(inline=True)
def price(w, q, k):
    """The cost of a unit of distance."""
    return np.float64(w.distance_cost[q, k]) if w.priced > 0 else 1.0


@kernel(inline=True)
def drive_on(w, b, q, node, leg):
    """Drives a leg; returns what it adds to the objective: its cost, or the growth of the longest route."""
    before = max(np.float64(w.longest[b]), np.float64(w.route_length[b]))
    cost = drive(w, b, q, node, leg)
    return max(before, np.float64(w.route_length[b])) - before if w.by_longest else cost


# -- the clock --------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def opening(w, q, j):
    return np.float64(w.time_windows[q, j, 0]) if w.timed > 0 else 0.0


@kernel(inline=True)
def closing(w, q, j):
    return np.float64(w.time_windows[q, j, 1]) if w.timed > 0 else math.inf


@kernel(inline=True)
def serve(w, q, node, leg, early, late, passed):
    """(earliest start, latest start, least duration) of a route after a stop at the end of a leg.

    The vehicle may leave at any time from `early` to `late` without a later or a longer route; it leaves later, instead
    of waiting, as long as no window before closes.
    """
    offset = passed + leg / np.float64(w.speed[q, 0])
    opens, closes = opening(w, q, node), closing(w, q, node)
    wait = max(0.0, opens - offset - late)
    return max(opens - offset, early) - wait, min(closes - offset, late), offset + wait + w.service_time[q, node]


@kernel(inline=True)
def advance_clock(w, b, q, node, leg):
    """Serves a customer at the end of a leg."""
    early, late = np.float64(w.start_early[b, 0]), np.float64(w.start_late[b, 0])
    early, late, passed = serve(w, q, node, leg, early, late, np.float64(w.route_duration[b, 0]))
    w.start_early[b, 0] = early
    w.start_late[b, 0] = late
    w.route_duration[b, 0] = passed
    w.current_time[b, 0] = w.start_early[b, 0] + w.route_duration[b, 0]


# -- the depots -------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def with_vehicles(w, b, q):
    """The depots that have a vehicle left, a bit each."""
    bits = NO_BITS
    for k in range(w.n_depots[q]):
        bits |= np.int64(w.vehicles_left[b, k] > 0) << k
    return bits


@kernel(inline=True)
def of_use(w, b, q):
    """The depots whose vehicles can serve some unserved customer alone, a bit each; only with several depots."""
    needed = NO_BITS
    for j in range(w.depots, w.n_nodes[q]):
        needed |= w.alone[q, j] & -np.int64(not w.visited[b, j])
    return needed


@kernel(inline=True)
def is_covered(w, b, q):
    """Each unserved customer can be served by a vehicle that has not left its depot."""
    ready = with_vehicles(w, b, q)
    if w.choices == 0:
        return ready != NO_BITS
    if ready == (ONE_BIT << w.n_depots[q]) - ONE_BIT:
        return True
    for j in range(w.depots, w.n_nodes[q]):
        if not w.visited[b, j] and (w.alone[q, j] & ready) == NO_BITS:
            return False
    return True


@kernel(inline=True)
def must_go_on(w, b, q, n):
    """The vehicle stands ready, where some customer is open, or some customer that it may go to depends on it."""
    if not w.has_vehicle[b]:
        return False
    return w.current_node[b] < w.depots or (w.unserved[b] > 0 and not is_covered(w, b, q) and any_open(w, b, n))


@kernel(inline=True)
def open_depots(w, b, q, ready):
    """Opens the depots of the next vehicle, a bit each; without one, the vehicle's own depot, which ends the row."""
    for a in range(w.n_depots[q]):
        w.action_mask[b, a] = (ready >> a) & ONE_BIT != 0
    if ready == 0:
        w.action_mask[b, w.current_depot[b]] = True


@kernel
def any_open(w, b, n):
    for j in range(w.depots, n):
        if w.action_mask[b, j]:
            return True
    return False
