"""Instances of the TSP: places only."""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import draw_customers, fill_matrix


@kernel
def generate(w, b):
    draw_customers(w, b, 0)
    fill_matrix(w, b, 0)


class TSPGenerator(Generator):
    """`locs` (B, n, 2); node 0 is where the tour starts."""

    world = "milkrun.routing.tsp:TSP"
    keys = ("locs",)
