"""Whether all goods aboard can still be delivered in time: the search behind mask and step.

A vehicle may go to a node iff some order of all deliveries aboard afterwards, and the way home, keep windows and
limits. That question is a travelling salesperson with deadlines, so the search is bounded: `plan` holds an order that
works, and most nodes are decided by changing it at one place. The rest is a depth-first search that refuses a node when
it reaches `search_limit`. So a node that is open is always right, and the first node of `plan` is always open.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.routing.distance import fits, travel
from milkrun.routing.routes import NO_BITS, closing, opening, serve

NEVER, GAVE_UP = -1, -2
"""Answers of `find_order` other than a number of deliveries."""


@kernel(inline=True)
def pairs_of(w, q):
    return (w.n_nodes[q] - w.depots) // 2


@kernel(inline=True)
def is_bound(w, q, k):
    """Windows or limits bind the routes of depot k."""
    if w.timed > 0 and w.has_clock[q]:
        return True
    return w.limited > 0 and (w.distance_limit[q, k] < math.inf or w.duration_limit[q, k] < math.inf)


# -- the state of a route: earliest and latest start, least duration, distance ----------------------------------------


@kernel(inline=True)
def state_of(w, b):
    early, late = np.float64(w.start_early[b, 0]), np.float64(w.start_late[b, 0])
    return early, late, np.float64(w.route_duration[b, 0]), np.float64(w.route_length[b])


@kernel(inline=True)
def go(w, q, i, j, route):
    """The state of the route after driving from node i to j and serving it."""
    early, late, passed, driven = route
    leg = travel(w, q, i, j)
    early, late, passed = serve(w, q, j, leg, early, late, passed)
    return early, late, passed, driven + leg


@kernel(inline=True)
def is_in_time(w, q, i, j, route):
    """Node j is reached from i before its window closes."""
    return fits(route[0] + route[2] + travel(w, q, i, j) / w.speed[q, 0], closing(w, q, j))


@kernel
def end_at_home(w, q, k, i, route):
    """The arrival at depot k, or the end of the last service if the route is open; inf if it breaks a rule."""
    early, _, passed, driven = route
    home = 0.0 if w.open_route[q] else travel(w, q, i, k)
    way = home / w.speed[q, 0]
    end = early + passed + way
    if not w.open_route[q] and not fits(end, closing(w, q, k)):
        return math.inf
    if w.limited > 0:
        if not fits(driven + home, w.distance_limit[q, k]) or not fits(passed + way, w.duration_limit[q, k]):
            return math.inf
    return end


@kernel
def end_of_order(w, q, k, i, route, count):
    """The end of the route after the first `count` deliveries of `order`; inf if it breaks a rule."""
    for m in range(count):
        j = w.order[m]
        if not is_in_time(w, q, i, j, route):
            return math.inf
        route = go(w, q, i, j, route)
        i = j
    return end_at_home(w, q, k, i, route)


# -- the question -----------------------------------------------------------------------------------------------------


@kernel
def find_order(w, b, q, j):
    """Writes to `order` an order of the deliveries aboard after node j; their number, NEVER or GAVE_UP."""
    k, here = w.current_depot[b], w.current_node[b]
    count = aboard_after(w, b, q, j)
    if w.plan[b, 0] == j:  # the plan goes on; it was tested when it was made
        return count
    route = state_of(w, b)
    if not is_in_time(w, q, here, j, route):
        return NEVER
    route = go(w, q, here, j, route)
    for m in range(count):
        if not is_in_time(w, q, j, w.order[m], route):
            return NEVER
    if change_plan(w, q, k, j, route, count):
        return count
    return NEVER if count < 2 else search(w, q, k, j, route, count)


@kernel
def aboard_after(w, b, q, j):
    """Writes to `order` the plan without node j, or for a pickup with its delivery at the end; its length."""
    count = 0
    for m in range(w.planned):
        following = w.plan[b, m]
        if following < 0:
            break
        if following != j:
            w.order[count] = following
            count += 1
    pairs = pairs_of(w, q)
    if j < w.depots + pairs:
        w.order[count] = j + pairs
        count += 1
    return count


@kernel
def change_plan(w, q, k, j, route, count):
    """The plan works after node j: without it, or with the delivery of a pickup at the place of the earliest end."""
    if j >= w.depots + pairs_of(w, q):
        return end_of_order(w, q, k, j, route, count) < math.inf
    earliest, place = math.inf, -1
    move(w, count - 1, 0)
    for m in range(count):
        if m > 0:
            move(w, m - 1, m)
        end = end_of_order(w, q, k, j, route, count)
        if end < earliest:
            earliest, place = end, m
    if place < 0:
        return False
    move(w, count - 1, place)
    return True


@kernel
def move(w, source, target):
    """Moves an entry of `order` to another place."""
    j = w.order[source]
    while source > target:
        w.order[source] = w.order[source - 1]
        source -= 1
    while source < target:
        w.order[source] = w.order[source + 1]
        source += 1
    w.order[target] = j


@kernel
def search(w, q, k, j, route, count):
    """Depth first over the orders of the deliveries, the earliest close first; `count`, NEVER or GAVE_UP."""
    sort_by_close(w, q, count)
    depth, tried = 0, 0
    w.choice[0] = -1
    keep(w, 0, route)
    while depth >= 0:
        if depth == count:
            if end_at_home(w, q, k, w.order[depth - 1], stored(w, depth)) < math.inf:
                return count
            depth -= 1
            w.is_used[w.choice[depth]] = False
            continue
        m = next_unused(w, w.choice[depth] + 1, count)
        if m == count:
            depth -= 1
            if depth >= 0:
                w.is_used[w.choice[depth]] = False
            continue
        if tried == w.search_limit:
            return GAVE_UP
        tried += 1
        w.choice[depth] = m
        here = j if depth == 0 else np.int64(w.order[depth - 1])
        node = w.todo[m]
        route = go(w, q, here, node, stored(w, depth))
        w.is_used[m] = True
        if reaches_all(w, q, node, route, count):
            w.order[depth] = node
            depth += 1
            w.choice[depth] = -1
            keep(w, depth, route)
        else:
            w.is_used[m] = False
    return NEVER


@kernel
def sort_by_close(w, q, count):
    """Writes the deliveries of `order` to `todo`, the earliest close first, ties by node."""
    for m in range(count):
        j = w.order[m]
        close = closing(w, q, j)
        p = m
        while p > 0 and later(w, q, w.todo[p - 1], close, j):
            w.todo[p] = w.todo[p - 1]
            p -= 1
        w.todo[p] = j
        w.is_used[m] = False


@kernel(inline=True)
def later(w, q, i, close, j):
    """Node i comes after node j, which closes at `close`."""
    other = closing(w, q, i)
    return other > close or (other == close and i > j)


@kernel
def next_unused(w, m, count):
    while m < count and w.is_used[m]:
        m += 1
    return m


@kernel
def reaches_all(w, q, i, route, count):
    """Each delivery left can be reached in time directly from node i."""
    for m in range(count):
        if not w.is_used[m] and not is_in_time(w, q, i, w.todo[m], route):
            return False
    return True


@kernel(inline=True)
def keep(w, depth, route):
    for m in range(4):
        w.routes[depth, m] = route[m]


@kernel(inline=True)
def stored(w, depth):
    return w.routes[depth, 0], w.routes[depth, 1], w.routes[depth, 2], w.routes[depth, 3]


# -- one pair alone ---------------------------------------------------------------------------------------------------


@kernel
def serves_alone(w, q, k, pickup):
    """A vehicle of depot k can serve a pair in a route of its own."""
    if k >= w.n_depots[q] or w.vehicles[q, k] == 0 or w.demand[q, pickup] > w.capacity[q, k]:
        return False
    if not (w.planned > 0 and is_bound(w, q, k)):
        return True
    delivery = pickup + pairs_of(w, q)
    route = opening(w, q, k), closing(w, q, k), 0.0, 0.0
    if not is_in_time(w, q, k, pickup, route):
        return False
    route = go(w, q, k, pickup, route)
    if not is_in_time(w, q, pickup, delivery, route):
        return False
    return end_at_home(w, q, k, delivery, go(w, q, pickup, delivery, route)) < math.inf


@kernel
def mark_alone(w, q):
    """Writes the depots that can serve each pair alone, to both of its nodes; only with several depots."""
    if w.choices == 0:
        return
    for j in range(w.N):
        w.alone[q, j] = NO_BITS
    pairs = pairs_of(w, q)
    for j in range(w.depots, w.depots + pairs):
        bits = NO_BITS
        for k in range(w.n_depots[q]):
            bits |= np.int64(serves_alone(w, q, k, j)) << k
        w.alone[q, j] = bits
        w.alone[q, j + pairs] = bits
