"""Instances of the truck-and-drones world: nodes on a circle, roads, customers in a square, parcels, windows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform, uniform_pair

PLACE, PARCEL, START, WIDTH = range(4)
ANY_TIME, PUBLISHED, BAND = range(3)
TOUCH = 1e-9
"""Tolerance by which a node on a circle counts as outside."""


def route_ring(count: int, radius: float, depot: bool) -> np.ndarray:
    """(count, 2) nodes at equal angles on a circle around (0, 0), after a depot in its middle if there is one."""
    on_ring = count - 1 if depot else count
    angles = [2 * math.pi * i / on_ring for i in range(on_ring)]
    nodes = [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]
    return np.array([(0.0, 0.0), *nodes] if depot else nodes)


def roads_between(nodes: ArrayLike) -> np.ndarray:
    """The Gabriel graph (N, N) of nodes (N, 2): True if a road joins two nodes, and on the diagonal.

    Two nodes are joined unless a third lies inside the circle with their segment as diameter. The graph is connected,
    since it contains the minimum spanning tree, and detours are short.
    """
    places = np.asarray(nodes, np.float64)
    road = np.ones((len(places), len(places)), bool)
    for place in places:
        # The two ends of a road do not close it: from each of them, `to` is 0 and so is the product.
        to = places - place
        road &= to @ to.T >= -TOUCH  # a negative product is an obtuse angle at the third node, which is then inside
    np.fill_diagonal(road, True)
    return road


@kernel
def generate(w, b):
    q = w.instance_row[b]
    for n in range(w.N):
        w.route_nodes[q, n, 0] = w.ring[n, 0]
        w.route_nodes[q, n, 1] = w.ring[n, 1]
    for n in range(w.R):
        for j in range(w.R):
            w.road[q, n, j] = w.ring_road[n, j]
    place, parcel = row_stream(w, b, PLACE), row_stream(w, b, PARCEL)
    start, width = row_stream(w, b, START), row_stream(w, b, WIDTH)
    extent = w.customer_extent
    for c in range(w.C):
        x, y = uniform_pair(place, c)
        w.customer_pos[q, c, 0] = (2 * x - 1) * extent
        w.customer_pos[q, c, 1] = (2 * y - 1) * extent
        w.demand[q, c] = w.demand_low + (w.demand_high - w.demand_low) * uniform(parcel, c)
        w.tw_start[q, c] = 0
        w.tw_end[q, c] = w.length
        if w.tw_law != ANY_TIME:
            w.tw_start[q, c] = integers(start, c, 0, w.start_last + 1)
            wide = integers(width, c, w.width_least, w.width_most + 1)
            w.tw_end[q, c] = min(w.tw_start[q, c] + wide, w.length)
