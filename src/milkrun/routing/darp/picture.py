"""The picture of a dial-a-ride row: nodes, the routes with a colour a vehicle, a thin line from pickup to dropoff."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from milkrun.core.canvas import CUSTOMER, DEPOT, INK, PALETTE, SERVED, Canvas


def draw(world: Any, row: int, canvas: Canvas) -> None:
    q = world.instance_row[row]
    true = world.demand[q] != 0
    true[0] = True
    places = world.locs[q]
    canvas.fit(places[true].min(0), places[true].max(0))
    canvas.caption(f"DARP  distance {float(world.total_distance[row]):.2f}  step {int(world.i[row])}")
    path = world.path(row)
    home = [k for k, node in enumerate(path) if node == 0]
    for p in np.flatnonzero(true)[1::2]:
        canvas.polyline(places[[p, p + 1]], CUSTOMER, 0.6)
    for route, (a, b) in enumerate(pairwise([*home, len(path)])):
        canvas.polyline(places[path[a : b + 1]], PALETTE[route % len(PALETTE)], 2.0)
    for j in np.flatnonzero(true)[1:]:
        canvas.disc(places[j], 4.0 if j % 2 else 3.0, SERVED if world.visited[row, j] else CUSTOMER)
    canvas.square(places[0], 6.0, DEPOT)
    canvas.disc(places[world.current_node[row]], 2.0, INK)
