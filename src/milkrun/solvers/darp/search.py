"""Large neighbourhood search for the dial-a-ride problem: removes requests, reinserts them, and accepts by annealing.

Ropke and Pisinger, "An adaptive large neighborhood search heuristic for the pickup and delivery problem with time
windows" (2006), without adaptive weights: operators are drawn uniformly. Plans are accepted by simulated
annealing. Every draw is a function of seed and iteration, so the same iterations give the same plan.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from milkrun.core.clock import Clock
from milkrun.core.fields import constant, float64, int32, int64, named, scratch
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import RecordLayout
from milkrun.core.rng import stream, uniform
from milkrun.core.threads import Entry
from milkrun.routing.instances.darp import DARPInstance
from milkrun.solvers.darp.construct import Routes, allocate, routes_of
from milkrun.solvers.darp.places import SIZES, WORK, find_place, place, prepare, trace

RANDOM, RELATED, WORST, ROUTE = range(4)  # removal operators
GREEDY, REGRET, FAR_REGRET = range(3)  # insertion operators: cheapest first, or largest regret first
SHARE, MOST = 0.4, 24  # of requests removed at once
NOISE = 0.1  # relative to the cost of a place, in half of the iterations
HOT, COLD = 0.012, 0.0001  # temperature at the start and at the end, as a share of the plan's length
HOPELESS = 1e6  # regret of a request without a second vehicle
CHUNK_SECONDS = 0.05
STATE = {
    "penalty": constant(float64, doc="of an unserved request"),
    "share": constant(float64, doc="of the search already done"),
    "now_route": scratch(int32, "V", "K", doc="the current plan"),
    "now_stops": scratch(int64, "V"),
    "best_route": scratch(int32, "V", "K"),
    "best_stops": scratch(int64, "V"),
    "value": scratch(float64, 2, doc="cost of the current plan, and of the best"),
    "draws": scratch(int64, 1, doc="random numbers used in this iteration"),
}
NOW, BEST = range(2)
LAYOUT = RecordLayout({**WORK, **named(STATE)}, SIZES)


def search(
    instance: DARPInstance,
    routes: Routes,
    seconds: float,
    seed: int,
    iterations: int | None,
    speed: float,
    penalty: float,
) -> Routes:
    """The best routes found from a start, in `iterations` if given, else in `seconds`."""
    table, kept = allocate(LAYOUT, instance.fields(), speed, None, 1)
    LAYOUT.put(table, "penalty", penalty)
    for v, route in enumerate(routes):
        kept["plan"][0, v, : len(route)] = route
        kept["visits"][0, v] = len(route)
    entry, done, chunk = _entry(), 0, 16
    clock = Clock()
    while True:
        spent = clock.seconds
        share = spent / seconds if iterations is None else done / iterations
        if share >= 1:
            break
        if iterations is not None:
            # The temperature changes with each call. With `iterations` the sizes of calls must not depend on the clock,
            # so that the plan does not either.
            chunk = min(max(1, iterations // 200), iterations - done)
        LAYOUT.put(table, "share", share)
        entry.run((table.ctypes.data, seed, done, chunk), 1, 1)
        done += chunk
        took = clock.seconds - spent
        # The clock is read only between compiled calls, which grow until each takes CHUNK_SECONDS.
        chunk = max(1, min(2 * chunk, int(chunk * CHUNK_SECONDS / max(took, 1e-9))))
    return routes_of(kept, 0)


@kernel
def improve_row(w, b, seed, first, count):
    """Runs `count` iterations from `first` on and writes the best plan; the first call reads the start."""
    if first == 0:
        read_start(w, b)
    heat = HOT * (COLD / HOT) ** w.share
    for iteration in range(first, first + count):
        s = stream(seed, 0, iteration, 0)
        w.draws[0] = 0
        remove(w, b, s)
        insert(w, b, s)
        accept(w, b, heat, draw(w, s))
    for v in range(w.V):
        w.visits[b, v] = w.best_stops[v]
        for k in range(w.best_stops[v]):
            w.plan[b, v, k] = w.best_route[v, k]


@kernel
def draw(w, s):
    """Uniform in [0, 1)."""
    w.draws[0] += 1
    return uniform(s, w.draws[0])


@kernel
def read_start(w, b):
    """Reads the start plan; infeasible routes are emptied."""
    prepare(w, b)
    for v in range(w.V):
        w.stops[v] = w.visits[b, v]
        for k in range(w.stops[v]):
            w.route[v, k] = w.plan[b, v, k]
            w.home[(w.route[v, k] - 1) // 2] = v
        settle(w, b, v)
    w.value[NOW] = w.value[BEST] = cost_of(w, b)
    save(w, w.now_route, w.now_stops)
    save(w, w.best_route, w.best_stops)


@kernel
def settle(w, b, v):
    """Updates route v after removals; without the triangle inequality it may be infeasible and is then emptied."""
    if not trace(w, b, v):
        for r in range(w.n_nodes[b] // 2):
            if w.home[r] == v:
                w.home[r] = -1
        w.stops[v] = 0
        trace(w, b, v)


@kernel
def cost_of(w, b):
    total = 0.0
    for v in range(w.V):
        total += w.way[v]
    for r in range(w.n_nodes[b] // 2):
        if w.home[r] < 0:
            total += w.penalty
    return total


@kernel
def save(w, route, stops):
    for v in range(w.V):
        stops[v] = w.stops[v]
        for k in range(w.stops[v]):
            route[v, k] = w.route[v, k]


@kernel
def remove(w, b, s):
    """Removes the requests with the lowest keys from their routes."""
    requests = w.n_nodes[b] // 2
    how = int(4 * draw(w, s))
    most = min(MOST, max(2, int(SHARE * requests)))
    count = 1 + int(draw(w, s) * most)
    first = int(draw(w, s) * requests)
    for r in range(requests):
        u = draw(w, s)
        if how == RANDOM:
            w.key[r] = u
        elif how == RELATED:
            w.key[r] = apart(w, first, r) * (0.5 + u)
        elif how == WORST:
            w.key[r] = -saving(w, r) * (0.3 + u)
        else:
            # keys below 1 for the requests of one route, which go first; then the most related ones
            w.key[r] = u if w.home[r] == w.home[first] else 1.0 + apart(w, first, r)
    for _ in range(count):
        chosen = -1
        for r in range(requests):
            if w.home[r] >= 0 and (chosen < 0 or w.key[r] < w.key[chosen]):
                chosen = r
        if chosen < 0:
            break
        remove_request(w, chosen)
    for v in range(w.V):
        settle(w, b, v)


@kernel
def apart(w, r, q):
    """The unrelatedness of two requests: distance and time between their pickups and their dropoffs."""
    p, d, i, j = 2 * r + 1, 2 * r + 2, 2 * q + 1, 2 * q + 2
    way = min(w.d[p, i], w.d[i, p]) + min(w.d[d, j], w.d[j, d])
    return way + 0.5 * w.speed * (abs(w.start[p] - w.start[i]) + abs(w.start[d] - w.start[j]))


@kernel
def saving(w, r):
    """The length that a route would save without a request."""
    v = w.home[r]
    if v < 0:
        return 0.0
    saved, kept, here = 0.0, 0, 0
    for k in range(w.stops[v] + 1):
        j = w.route[v, k] if k < w.stops[v] else 0
        saved += w.d[here, j]
        here = j
        if j == 0 or (j - 1) // 2 != r:
            saved -= w.d[kept, j]
            kept = j
    return saved


@kernel
def remove_request(w, r):
    v = w.home[r]
    k = 0
    for t in range(w.stops[v]):
        if (w.route[v, t] - 1) // 2 != r:
            w.route[v, k] = w.route[v, t]
            k += 1
    w.stops[v] = k
    w.home[r] = -1


@kernel
def insert(w, b, s):
    """Reinserts open requests while one fits for less than its penalty."""
    requests = w.n_nodes[b] // 2
    how, noise = int(3 * draw(w, s)), NOISE * (draw(w, s) < 0.5)
    for r in range(requests):
        if w.home[r] < 0:
            for v in range(w.V):
                price(w, b, s, r, v, noise)
    while True:
        chosen, vehicle, most, least = -1, -1, -np.inf, np.inf
        for r in range(requests):
            if w.home[r] >= 0:
                continue
            v, loss = urgency(w, r, how)
            if v >= 0 and (loss > most or (loss == most and w.cost[r, v] < least)):
                chosen, vehicle, most, least = r, v, loss, w.cost[r, v]
        if chosen < 0:
            return
        place(w, b, chosen, vehicle)
        for r in range(requests):
            if w.home[r] < 0:
                price(w, b, s, r, vehicle, noise)


@kernel
def price(w, b, s, r, v, noise):
    """The cost of the best place of request r on route v, inf if not serving it is cheaper.

    Noise varies the order of insertions between iterations.
    """
    find_place(w, b, r, v)
    if w.cost[r, v] >= w.penalty:
        w.cost[r, v] = np.inf
    elif noise > 0:
        w.cost[r, v] += noise * (2 * draw(w, s) - 1) * abs(w.cost[r, v])


@kernel
def urgency(w, r, how):
    """The best vehicle for a request, or -1, and its priority."""
    vehicle, one, two, three = -1, np.inf, np.inf, np.inf
    for v in range(w.V):
        c = w.cost[r, v]
        if c < one:
            vehicle, one, two, three = v, c, one, two
        elif c < two:
            two, three = c, two
        elif c < three:
            three = c
    if how == GREEDY or vehicle < 0:
        return vehicle, -one
    # Not inf: with FAR_REGRET a request without a second vehicle loses this twice, one without a third only once. It
    # exceeds the cost also for large distances, so that no loss is negative.
    most = max(HOPELESS, 2.0 * one)
    loss = min(two, most) - one
    return vehicle, loss + min(three, most) - one if how == FAR_REGRET else loss


@kernel
def accept(w, b, heat, u):
    """Accepts the new plan or restores the current one."""
    cost, length = cost_of(w, b), 0.0
    for v in range(w.V):
        length += w.way[v]
    # Accepted with the probability exp(-(cost - now) / temperature), as one draw of an exponential number.
    if cost < w.value[NOW] - heat * length * np.log(1 - u):
        w.value[NOW] = cost
        save(w, w.now_route, w.now_stops)
        if cost < w.value[BEST] - 1e-9:
            w.value[BEST] = cost
            save(w, w.best_route, w.best_stops)
        return
    for r in range(w.n_nodes[b] // 2):
        w.home[r] = -1
    for v in range(w.V):
        w.stops[v] = w.now_stops[v]
        for k in range(w.stops[v]):
            w.route[v, k] = w.now_route[v, k]
            w.home[(w.route[v, k] - 1) // 2] = v
        trace(w, b, v)


@lru_cache(maxsize=1)
def _entry() -> Entry:
    return build_loop(LAYOUT, improve_row)
