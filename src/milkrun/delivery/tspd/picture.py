"""The picture of a row: nodes, the truck's way so far, the drone's flights in another colour, the depot as a square."""

from __future__ import annotations

from typing import Any

from milkrun.core.canvas import CUSTOMER, DEPOT, INK, PALETTE, SERVED, Canvas
from milkrun.delivery.tspd.log import paths


def draw(world: Any, row: int, canvas: Canvas) -> None:
    q = world.instance_row[row]
    nodes = world.locs[q, : world.n_nodes[q]]
    canvas.fit(nodes.min(0), nodes.max(0))
    canvas.caption(f"TSPD  clock {float(world.clock[row]):.3f}  step {int(world.i[row])}")
    way, flights = paths(world, row)
    for flight in flights:
        canvas.polyline(nodes[flight], PALETTE[1], 1.5, arrow=True)
    canvas.polyline(nodes[way], PALETTE[0], 2.5)
    canvas.discs(nodes, 4.0, [SERVED if done else CUSTOMER for done in world.covered[row, : len(nodes)]])
    canvas.square(nodes[0], 6.0, DEPOT)
    canvas.disc(nodes[world.truck[row]], 2.0, INK)
