"""Instances of the TSP with a drone: the three laws of Agatz, Bouman and Schmidt 2018, and the costs of the places.

Changing a law or an index here changes published instances and requires a new version of the world.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, normal, row_stream, uniform, uniform_pair

LAWS = ("uniform", "singlecenter", "doublecenter")
UNIFORM, SINGLE_CENTER, DOUBLE_CENTER = range(3)

DEPOT, PLACES, RADIUS, ANGLE, CENTER = range(1, 6)  # purposes of the streams

GRID = 100  # uniform: coordinates of customers are whole numbers below this
SPREAD = 50.0  # standard deviation of the radius around a center
APART = 200.0  # from the first center to the second


@kernel
def generate(w, b):
    q = w.instance_row[b]
    if w.law == UNIFORM:
        draw_grid(w, b, q)
    else:
        draw_centers(w, b, q)
    w.n_nodes[q] = w.N
    w.max_fly[q] = w.fly_limit
    for j in range(w.N):
        w.no_visit[q, j] = False
        w.forbid[q, j] = False
    price(w, q)


@kernel
def draw_grid(w, b, q):
    places = row_stream(w, b, PLACES)
    x, y = uniform_pair(row_stream(w, b, DEPOT), 0)
    w.locs[q, 0, 0] = x
    w.locs[q, 0, 1] = y
    for j in range(1, w.N):
        x, y = uniform_pair(places, j)
        w.locs[q, j, 0] = math.floor(GRID * x)
        w.locs[q, j, 1] = math.floor(GRID * y)


@kernel
def draw_centers(w, b, q):
    radii, angles, centers = row_stream(w, b, RADIUS), row_stream(w, b, ANGLE), row_stream(w, b, CENTER)
    for j in range(w.N):
        r, t = SPREAD * normal(radii, j), 2.0 * math.pi * uniform(angles, j)
        shifted = w.law == DOUBLE_CENTER and j > 0 and integers(centers, j, 0, 2) == 1
        w.locs[q, j, 0] = r * math.cos(t) + (APART if shifted else 0.0)
        w.locs[q, j, 1] = r * math.sin(t)


@kernel
def price(w, q):
    """Costs by distance, and the cheapest flight from each node to another; no node is forbidden."""
    factor = 1.0 / w.alpha
    places = w.locs[q]
    for i in range(w.N):
        truck, drone = w.c_truck[q, i], w.c_drone[q, i]
        x, y = places[i, 0], places[i, 1]
        for j in range(w.N):
            dx, dy = x - places[j, 0], y - places[j, 1]
            way = math.sqrt(dx * dx + dy * dy)
            truck[j] = way
            drone[j] = factor * way
        # Two loops skip node i without a branch.
        on = math.inf
        for j in range(i):
            on = min(on, drone[j])
        for j in range(i + 1, w.N):
            on = min(on, drone[j])
        w.fly_on[q, i] = on
