"""The picture of a row: nodes, the paths of truck and drone so far in two colours, the depot as a square."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.delivery.tspd.log import paths
from milkrun.render.scene import Scene, colours

DRIVEN, FLOWN = 0, 1
"""Colours of the paths of truck and drone."""


def scene(world: Any, row: int) -> Scene:
    q = world.instance_row[row]
    n, size = int(world.n_nodes[q]), world.sizes["N"]
    places, covered = world.locs[q, :n], world.covered[row, :n]
    way, drone, flown = paths(world, row)
    served = np.isin(np.arange(n), flown)
    s = Scene(places.min(0), places.max(0))
    s.points(
        "nodes",
        places,
        shape=["square"] + ["disc"] * (n - 1),
        colour=colours(
            [
                "ink",
                *(
                    ("waiting" if not c else FLOWN if f else DRIVEN)
                    for c, f in zip(covered[1:], served[1:], strict=True)
                ),
            ]
        ),
        label=lambda: ["", *(str(j) for j in range(1, n))],
        text=lambda: ["depot", *(f"node {j}" for j in range(1, n))],
        action=np.array([np.arange(n), size + np.arange(n)]),
    )
    s.route("flights", "nodes", drone, paint=False, colour=FLOWN)
    s.route("tour", "nodes", way, paint=False, colour=DRIVEN)
    s.vehicle("truck", places[world.truck[row]], shape="truck")
    out = int(world.fly[row])
    s.vehicle("drone", places[out if out >= 0 else world.truck[row]], shape="drone", colour=FLOWN, shown=out >= 0)
    s.figure("clock", world.clock[row])
    s.figure("nodes covered", int(covered[1:].sum()))
    for words, colour, shape in (
        ("depot", "ink", "square"),
        ("not yet served", "waiting", "disc"),
        ("served by truck", DRIVEN, "disc"),
        ("served by drone", FLOWN, "disc"),
    ):
        s.legend(words, colour, shape)
    return s
