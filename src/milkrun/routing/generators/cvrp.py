"""Instances of the CVRP: places, a depot, demands in whole units (Kool et al. 2019: U{1..9}) and the capacity."""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import DEMAND, draw_places, draw_units


@kernel
def generate(w, b):
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
