"""Instances of WCVRP and CWCVRP: places, a depot, levels of the bins, mandatory ones, and the truck."""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.fills import draw_levels, draw_must_go
from milkrun.routing.generators.laws import draw_places


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_bins(w, b, q)
    draw_levels(w, b, w.waste, q)
    draw_must_go(w, b, q, w.waste)


@kernel
def draw_bins(w, b, q):
    """What all waste worlds have: places, the truck, the size of a bin."""
    draw_places(w, b)
    w.max_waste[q] = w.bin_size
    w.capacity[q] = w.truck
    w.max_length[q] = w.trip_limit


class WCVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `waste` = `demand` (B, n), `max_waste` (B,), `capacity` (B,), `must_go`."""

    world = "milkrun.routing.wcvrp:WCVRP"
    keys = ("locs", "waste", "max_waste", "capacity", "must_go", "max_length")
    aliases = {"demand": "waste"}
