"""Instances of pickups and deliveries: uniform places in pairs, as RL4CO draws them."""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform_pair
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import DEMAND, DEPOT, FLEET, draw_customers, draw_depot, fill_matrix
from milkrun.routing.pdp.search import mark_alone


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_customers(w, b, w.depots)
    draw_depots(w, b, q)
    fill_matrix(w, b, w.depots)
    draw_amounts(w, b, q)
    fleet = row_stream(w, b, FLEET)
    w.n_depots[q] = w.depots
    w.open_route[q] = False
    w.has_clock[q] = False
    for k in range(w.depots):
        w.capacity[q, k] = w.truck
        w.vehicles[q, k] = integers(fleet, k, w.smallest_fleet, w.largest_fleet + 1)
    for k in range(w.limited):
        w.distance_limit[q, k] = math.inf
        w.duration_limit[q, k] = math.inf
    for k in range(w.priced):
        w.fixed_cost[q, k] = 0.0
        w.distance_cost[q, k] = 1.0
    for j in range(w.timed):
        w.time_windows[q, j, 0] = 0.0
        w.time_windows[q, j, 1] = math.inf
    for j in range(w.stops):
        w.service_time[q, j] = 0.0
    if w.clock > 0:
        w.speed[q, 0] = 1.0
    mark_alone(w, q)


@kernel
def draw_depots(w, b, q):
    """Depot 0 as in the CVRP, the others uniform in the box; on a map all at its depot."""
    draw_depot(w, b)
    side = w.max_loc - w.min_loc
    for k in range(1, w.depots):
        if w.K > 0:
            w.locs[q, k, 0] = w.locs[q, 0, 0]
            w.locs[q, k, 1] = w.locs[q, 0, 1]
        else:
            u, v = uniform_pair(row_stream(w, b, DEPOT), k)
            w.locs[q, k, 0] = w.min_loc + side * u
            w.locs[q, k, 1] = w.min_loc + side * v


@kernel
def draw_amounts(w, b, q):
    s = row_stream(w, b, DEMAND)
    pairs = (w.N - w.depots) // 2
    for k in range(w.depots):
        w.demand[q, k] = 0
    for j in range(w.depots, w.depots + pairs):
        amount = integers(s, j - w.depots, 1, w.max_demand + 1)
        w.demand[q, j] = amount
        w.demand[q, j + pairs] = -amount


class PDPGenerator(Generator):
    """The instance fields of `PDP-v0`; with one depot `depot` (B, 2) and `locs` (B, n, 2) of the others."""

    world = "milkrun.routing.pdp.world:PDP"
    keys = (
        "locs",
        "n_depots",
        "demand",
        "capacity",
        "vehicles",
        "distance_limit",
        "duration_limit",
        "fixed_cost",
        "distance_cost",
        "time_windows",
        "service_time",
        "speed",
        "open_route",
    )
