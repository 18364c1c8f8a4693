"""The laws of drawn instances, as kernels shared by all generators.

Each attribute draws from its own substream: the same seed, row, size and box give the same customers in every world,
and a new attribute does not shift another. Changing a law or an index here changes published instances and requires
new versions of the worlds.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import fill_integers, integers, normal, row_stream, shuffle_from, uniform_pair
from milkrun.routing.distance import MATRIX, travel

# purposes of the streams
LOCS, DEPOT, PRIZE, WEIGHT, DEMAND, AGE, FILL, MUST, NOISE, DAYS, SENSOR, TW, INIT = range(1, 14)
BACKHAUL, LIMIT, VARIANT, SKILL, PENALTY, REAL_PRIZE = range(14, 20)
CENTRES, MEMBERSHIP = 20, 21  # parts of the clustered law
FLEET = 22
COIN = 30  # + a purpose: whether a day brings any waste

UNIFORM, NORMAL, CLUSTERED, MIXED = range(4)
CENTER, CORNER, RANDOM, CUSTOMER = range(4)
DEPOT_TYPES = ("center", "corner", "random", "customer")
PLACED = 9  # of customers or of the depot: places set from Python


@kernel(inline=True)
def draw_customers(w, b, first):
    """Places of the customers, at nodes first, first + 1, ...

    Inline, since its loops vectorise if `first` is known.
    """
    q = w.instance_row[b]
    n = w.N - first
    w.n_nodes[q] = w.N
    if w.loc_law == PLACED:
        return
    if w.K > 0:
        deal_bins(w, b, q, first)
        return
    uniform = n if w.loc_law == UNIFORM else (n + 1) // 2 if w.loc_law == MIXED else 0
    places = row_stream(w, b, LOCS)
    side = w.max_loc - w.min_loc
    # Customer c reads numbers 2c and 2c + 1 of the stream under either law, so the two halves of `mixed` share none.
    for c in range(uniform):
        u, v = uniform_pair(places, c)
        w.locs[q, first + c, 0] = w.min_loc + side * u
        w.locs[q, first + c, 1] = w.min_loc + side * v
    if w.loc_law != UNIFORM and uniform < n:  # the first condition is enough; it lets a uniform world skip this block
        centres, membership = row_stream(w, b, CENTRES), row_stream(w, b, MEMBERSHIP)
        for c in range(uniform, n):
            x, y = off_centre(w, places, c, centres, membership, c)
            w.locs[q, first + c, 0] = x
            w.locs[q, first + c, 1] = y


@kernel
def deal_bins(w, b, q, first):
    """Customers at bins of the map, drawn without replacement; if all are used, in the order of the map.

    `deck` stores the bins.
    """
    for k in range(w.K):
        w.deck[k] = k
    if w.N - first < w.K - 1:
        shuffle_from(row_stream(w, b, LOCS), w.deck, 1)
    # Entry 0 of the deck is the depot of the map; entries 1, 2, ... go to the nodes first, first + 1, ...
    for j in range(first, w.N):
        w.locs[q, j, 0] = w.map_locs[w.deck[j + 1 - first], 0]
        w.locs[q, j, 1] = w.map_locs[w.deck[j + 1 - first], 1]


@kernel
def off_centre(w, places, c, centres, membership, m):
    """Draw c of the places: normal around the middle of the box, or around the centre that member m picks."""
    side = w.max_loc - w.min_loc
    x = y = 0.5 * (w.min_loc + w.max_loc)
    spread = side / 6.0
    if w.loc_law != NORMAL:
        u, v = uniform_pair(centres, integers(membership, m, 0, w.num_clusters))
        x = w.min_loc + side * (0.1 + 0.8 * u)
        y = w.min_loc + side * (0.1 + 0.8 * v)
        spread = side / 10.0
    return clip(w, x + spread * normal(places, 2 * c)), clip(w, y + spread * normal(places, 2 * c + 1))


@kernel
def clip(w, x):
    return min(max(x, w.min_loc), w.max_loc)


@kernel
def draw_depot(w, b):
    """The depot at node 0."""
    if w.depot_law == PLACED:
        return
    q = w.instance_row[b]
    s = row_stream(w, b, DEPOT)
    side = w.max_loc - w.min_loc
    x = y = w.min_loc
    if w.K > 0:
        x, y = np.float64(w.map_locs[0, 0]), np.float64(w.map_locs[0, 1])
    elif w.depot_law == CENTER:
        x = y = 0.5 * (w.min_loc + w.max_loc)
    elif w.depot_law == CUSTOMER and (w.loc_law == NORMAL or w.loc_law == CLUSTERED):
        # Customers are members 0..N - 2; as member N the depot picks its own centre.
        x, y = off_centre(w, s, 0, row_stream(w, b, CENTRES), row_stream(w, b, MEMBERSHIP), w.N)
    elif w.depot_law != CORNER:
        u, v = uniform_pair(s, 0)
        x, y = w.min_loc + side * u, w.min_loc + side * v
    w.locs[q, 0, 0] = x
    w.locs[q, 0, 1] = y


@kernel
def draw_places(w, b):
    """The depot at node 0, the customers after it, and the distance matrix if there is one."""
    draw_customers(w, b, 1)
    draw_depot(w, b)
    fill_matrix(w, b, 1)


@kernel
def fill_matrix(w, b, first):
    """With metric="matrix": the Euclidean distances of the places, or the road distances of the map."""
    if w.metric != MATRIX:
        return
    q = w.instance_row[b]
    if w.D > 0:
        for i in range(w.N):
            for j in range(w.N):
                w.dist[q, i, j] = w.map_dist[w.deck[i + 1 - first], w.deck[j + 1 - first]]
        return
    for i in range(w.N):
        for j in range(w.N):
            dx = np.float64(w.locs[q, i, 0]) - w.locs[q, j, 0]
            dy = np.float64(w.locs[q, i, 1]) - w.locs[q, j, 1]
            w.dist[q, i, j] = math.sqrt(dx * dx + dy * dy)


@kernel
def draw_units(w, b, purpose, low, high, out):
    """Whole numbers U{low..high} for customers 1..N-1 of a per-node field."""
    q = w.instance_row[b]
    out[q, 0] = 0
    fill_integers(row_stream(w, b, purpose), out[q, 1:], low, high + 1)


@kernel
def farthest(w, q):
    """The distance of the customer farthest from the depot."""
    far = 0.0
    for j in range(1, w.N):
        far = max(far, travel(w, q, 0, j))
    return far


@kernel
def share_of(way, far):
    """1..100, growing with the distance from the depot (the `dist` laws; Fischetti et al. 1998)."""
    return 1.0 + math.floor(99.0 * way / far) if far > 0.0 else 1.0
