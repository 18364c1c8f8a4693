"""The laws instances are drawn by, as kernels shared by all generators.

Each attribute draws from a substream of its own: the same seed, row, size and box has the same customers in every
world, and a new attribute never shifts another. A change of a law or of an index here changes published instances:
bump the versions of the worlds.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, normal, stream, uniform
from milkrun.routing.distance import MATRIX

# purposes of the streams
LOCS, DEPOT, PRIZE, WEIGHT, DEMAND, AGE, FILL, MUST, NOISE, DAYS, SENSOR, TW, INIT = range(1, 14)
CENTRES, MEMBERSHIP = 20, 21  # parts of the clustered law

UNIFORM, NORMAL, CLUSTERED, MIXED = range(4)
CENTER, CORNER, RANDOM, CUSTOMER = range(4)
DEPOT_TYPES = ("center", "corner", "random", "customer")


@kernel
def row_stream(w, b, purpose):
    """The stream of a purpose in this row's episode."""
    return stream(w.stream[b, 0], w.stream[b, 1], w.stream[b, 2], purpose)


@kernel
def draw_customers(w, b, first):
    """Places of the customers, at nodes first, first + 1, ..."""
    q = w.instance_row[b]
    n = w.N - first
    places = row_stream(w, b, LOCS)
    centres = row_stream(w, b, CENTRES)
    membership = row_stream(w, b, MEMBERSHIP)
    for c in range(n):
        x, y = place(w, places, centres, membership, c, n)
        w.locs[q, first + c, 0] = x
        w.locs[q, first + c, 1] = y
    w.n_nodes[q] = w.N


@kernel
def place(w, places, centres, membership, c, n):
    """Where customer c of n stands under the world's location law."""
    side = w.max_loc - w.min_loc
    if w.loc_law == UNIFORM or (w.loc_law == MIXED and c < (n + 1) // 2):
        return w.min_loc + side * uniform(places, 2 * c), w.min_loc + side * uniform(places, 2 * c + 1)
    x = y = 0.5 * (w.min_loc + w.max_loc)
    spread = side / 6.0
    if w.loc_law != NORMAL:
        k = integers(membership, c, 0, w.num_clusters)
        x = w.min_loc + side * (0.1 + 0.8 * uniform(centres, 2 * k))
        y = w.min_loc + side * (0.1 + 0.8 * uniform(centres, 2 * k + 1))
        spread = side / 10.0
    return clip(w, x + spread * normal(places, 2 * c)), clip(w, y + spread * normal(places, 2 * c + 1))


@kernel
def clip(w, x):
    return min(max(x, w.min_loc), w.max_loc)


@kernel
def draw_depot(w, b):
    """The depot at node 0."""
    q = w.instance_row[b]
    s = row_stream(w, b, DEPOT)
    side = w.max_loc - w.min_loc
    x = y = w.min_loc
    if w.depot_law == CENTER:
        x = y = 0.5 * (w.min_loc + w.max_loc)
    elif w.depot_law == RANDOM:
        x, y = w.min_loc + side * uniform(s, 0), w.min_loc + side * uniform(s, 1)
    elif w.depot_law == CUSTOMER:
        x, y = place(w, s, row_stream(w, b, CENTRES), s, 0, 1)
    w.locs[q, 0, 0] = x
    w.locs[q, 0, 1] = y


@kernel
def fill_matrix(w, b):
    """With metric="matrix" a drawn instance has the Euclidean distances of its places."""
    if w.metric != MATRIX:
        return
    q = w.instance_row[b]
    for i in range(w.N):
        for j in range(w.N):
            dx = np.float64(w.locs[q, i, 0]) - w.locs[q, j, 0]
            dy = np.float64(w.locs[q, i, 1]) - w.locs[q, j, 1]
            w.dist[q, i, j] = math.sqrt(dx * dx + dy * dy)


@kernel
def draw_units(w, b, purpose, low, high, out):
    """Whole numbers U{low..high} for the customers 1..N-1 of a per-node field."""
    q = w.instance_row[b]
    s = row_stream(w, b, purpose)
    out[q, 0] = 0
    for j in range(1, w.N):
        out[q, j] = integers(s, j - 1, low, high + 1)
