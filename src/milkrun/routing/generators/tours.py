"""Instances of the TSP and the CVRP: places, and for the CVRP demands and the capacity.

Demands are whole units, U{1..9} as in Kool et al. 2019.
"""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import DEMAND, draw_customers, draw_places, draw_units, fill_matrix


@kernel
def generate_tsp(w, b):
    draw_customers(w, b, 0)
    fill_matrix(w, b, 0)


class TSPGenerator(Generator):
    """`locs` (B, n, 2); node 0 is where the tour starts."""

    world = "milkrun.routing.tsp:TSP"
    keys = ("locs",)


@kernel
def generate_cvrp(w, b):
    q = w.instance_row[b]
    draw_places(w, b)
    draw_units(w, b, DEMAND, 1, w.max_demand, w.demand_units)
    w.capacity[q] = w.truck
    w.max_length[q] = w.trip_limit
    for j in range(w.V):
        w.service_time[q, j] = 0.0


class CVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `demand_units` (B, n), `capacity` (B,)."""

    world = "milkrun.routing.cvrp:CVRP"
    keys = ("locs", "demand_units", "capacity")
