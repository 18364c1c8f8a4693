"""The rules of a route, as kernels: what a vehicle holds, its clock, its limits, and which depots may send a vehicle.

A mask asks of many customers what a step asks of one. So the distances of a row are computed first, into `way` (from
here to each node) and `home` (from each node to the vehicle's depot); the loops of the rules then have no branch and
vectorise.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.routing.distance import EUCLID, MATRIX, fits, travel
from milkrun.routing.routes import NO_BITS, ONE_BIT, closing, of_use, opening, stand_ready, tolerant, with_vehicles

# -- a route ----------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def start_route(w, b, q, k):
    """A vehicle of depot k stands ready: empty, and not yet counted as used."""
    stand_ready(w, b, q, k)
    w.delivered[b] = 0
    w.picked[b] = 0
    w.peak[b] = 0


# -- the mask of the customers ----------------------------------------------------------------------------------------


@kernel(inline=True)
def measure(w, q, here, k, n):
    """Writes the distances from here to all customers, and from them to depot k."""
    if w.metric == EUCLID:
        x, y = np.float64(w.locs[q, here, 0]), np.float64(w.locs[q, here, 1])
        x_k, y_k = np.float64(w.locs[q, k, 0]), np.float64(w.locs[q, k, 1])
        for j in range(w.depots, n):
            x_j, y_j = np.float64(w.locs[q, j, 0]), np.float64(w.locs[q, j, 1])
            w.way[j] = np.sqrt((x - x_j) * (x - x_j) + (y - y_j) * (y - y_j))
            w.home[j] = np.sqrt((x_k - x_j) * (x_k - x_j) + (y_k - y_j) * (y_k - y_j))
    elif w.metric == MATRIX:
        for j in range(w.depots, n):
            w.way[j] = w.dist[q, here, j]
            w.home[j] = w.dist[q, j, k]
    else:
        for j in range(w.depots, n):
            w.way[j] = travel(w, q, here, j)
            w.home[j] = travel(w, q, j, k)
    if w.open_route[q]:
        for j in range(w.depots, n):
            w.home[j] = 0.0


@kernel(inline=True)
def open_by_load(w, b, q, k, n):
    """Opens the unserved customers whose goods the vehicle can take."""
    capacity = w.capacity[q, k]
    if w.parts > 0:
        has_room = w.delivered[b] < capacity
        for j in range(w.depots, n):
            w.action_mask[b, j] = (not w.visited[b, j]) & (has_room | (w.linehaul[q, j] == 0))
    elif w.pickups == 0:
        room = np.int32(capacity - w.delivered[b])
        for j in range(w.depots, n):
            w.action_mask[b, j] = (not w.visited[b, j]) & (w.linehaul[q, j] <= room)
    else:
        # The vehicle leaves with what it will deliver, so a linehaul added at the end was aboard at every stop before.
        room, rest = np.int32(capacity - w.peak[b]), np.int32(capacity - w.picked[b])
        only_pickups = (w.backhaul_class[q, 0] == 1) & (w.picked[b] > 0)
        # A stop with both amounts delivers first.
        no_pickups = (not w.may_begin_with_pickup) and w.delivered[b] == 0 and linehauls_wait(w, b, q, n)
        for j in range(w.depots, n):
            line, back = w.linehaul[q, j], w.backhaul[q, j]
            # Not `and`: the loop has no branch and vectorises.
            ok = (not w.visited[b, j]) & (line <= room) & (back <= rest)
            ok &= (not only_pickups) | (line == 0)
            w.action_mask[b, j] = ok & ((not no_pickups) | (back == 0) | (line > 0))


@kernel
def linehauls_wait(w, b, q, n):
    """Some linehaul is unserved."""
    waiting = 0
    for j in range(w.depots, n):
        waiting += (not w.visited[b, j]) & (w.linehaul[q, j] > 0)
    return waiting > 0


@kernel(inline=True)
def close_forbidden(w, b, q, k, n):
    """Closes the customers that vehicles of depot k may not serve."""
    for j in range(w.depots, n):
        w.action_mask[b, j] &= ((w.serves[q, j] >> k) & ONE_BIT) != NO_BITS


@kernel(inline=True)
def close_late(w, b, q, k, n):
    """Closes the customers that are reached after their window, or from which the depot is reached too late."""
    now, speed = np.float64(w.current_time[b, 0]), np.float64(w.speed[q, 0])
    day = math.inf if w.open_route[q] else tolerant(closing(w, q, k))
    for j in range(w.depots, n):
        arrival = now + w.way[j] / speed
        ready = max(arrival, np.float64(w.time_windows[q, j, 0])) + w.service_time[q, j]
        on_time = arrival <= tolerant(np.float64(w.time_windows[q, j, 1]))
        w.action_mask[b, j] &= on_time & (ready + w.home[j] / speed <= day)


@kernel(inline=True)
def close_far(w, b, q, k, n):
    """Closes the customers via which the route would be over its distance limit."""
    driven, limit = np.float64(w.route_length[b]), tolerant(np.float64(w.distance_limit[q, k]))
    for j in range(w.depots, n):
        w.action_mask[b, j] &= driven + w.way[j] + w.home[j] <= limit


@kernel(inline=True)
def close_long(w, b, q, k, n):
    """Closes the customers via which the route would be over its duration limit."""
    late, passed = np.float64(w.start_late[b, 0]), np.float64(w.route_duration[b, 0])
    speed, limit = np.float64(w.speed[q, 0]), tolerant(np.float64(w.duration_limit[q, k]))
    for j in range(w.depots, n):
        offset = passed + w.way[j] / speed
        wait = max(0.0, opening(w, q, j) - offset - late)
        w.action_mask[b, j] &= offset + wait + w.service_time[q, j] + w.home[j] / speed <= limit


# -- the mask of the depots -------------------------------------------------------------------------------------------


@kernel(inline=True)
def candidates(w, b, q):
    """The depots whose next vehicle has a customer to serve, a bit each. Needs an unserved customer."""
    ready = with_vehicles(w, b, q)
    if w.choices == 0:  # one depot, which serves all customers
        return ready
    n = w.n_nodes[q]
    needed = NO_BITS
    if w.pickups > 0 and not w.may_begin_with_pickup and linehauls_wait(w, b, q, n):
        for j in range(w.depots, n):  # customers that may begin a route
            begins = (not w.visited[b, j]) & ((w.linehaul[q, j] > 0) | (w.backhaul[q, j] == 0))
            needed |= w.alone[q, j] & -np.int64(begins)
        return ready & needed
    return ready & of_use(w, b, q)


@kernel
def serves_alone(w, q, k, j):
    """A vehicle of depot k can serve customer j in a route of its own."""
    if k >= w.n_depots[q] or w.vehicles[q, k] == 0:
        return False
    if w.restrictions > 0 and ((w.serves[q, j] >> k) & ONE_BIT) == NO_BITS:
        return False
    if w.parts == 0 and w.linehaul[q, j] > w.capacity[q, k]:
        return False
    if w.pickups > 0 and w.backhaul[q, j] > w.capacity[q, k]:
        return False
    way = travel(w, q, k, j)
    home = 0.0 if w.open_route[q] else travel(w, q, j, k)
    if w.timed > 0:
        arrival = opening(w, q, k) + way / w.speed[q, 0]
        ready = max(arrival, opening(w, q, j)) + w.service_time[q, j]
        if not fits(arrival, closing(w, q, j)):
            return False
        if not w.open_route[q] and not fits(ready + home / w.speed[q, 0], closing(w, q, k)):
            return False
    if w.limited > 0:
        offset = way / w.speed[q, 0]
        # The vehicle leaves as late as it may, so it waits only for what opens after its latest departure arrives.
        wait = max(0.0, opening(w, q, j) - offset - closing(w, q, k))
        duration = offset + wait + w.service_time[q, j] + home / w.speed[q, 0]
        return fits(way + home, w.distance_limit[q, k]) and fits(duration, w.duration_limit[q, k])
    return True


@kernel
def mark_alone(w, q):
    """Writes the depots that can serve each customer alone; only with several depots."""
    for j in range(w.choices):
        bits = NO_BITS
        if w.depots <= j < w.n_nodes[q]:
            for k in range(w.n_depots[q]):
                bits |= np.int64(serves_alone(w, q, k, j)) << k
        w.alone[q, j] = bits
