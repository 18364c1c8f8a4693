"""The picture of a dial-a-ride row: stops, routes coloured by vehicle, and dropoffs of riders aboard."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.render.scene import Scene

MOST_LINES = 60  # requests up to which a line leads from each pickup to its dropoff


def scene(world: Any, row: int) -> Scene:
    q, k = world.instance_row[row], int(world.current_agent[row])
    riders = world.demand[q]
    n = 1 + int(np.count_nonzero(riders))
    places, visited = world.locs[q, :n].astype(float), world.visited[row, :n]
    aboard = np.append(world.picked_up_by_current[row, 1:n:2] & ~visited[2::2], [])
    set_down = np.zeros(n, bool)
    set_down[2::2] = aboard
    s = Scene(places.min(0), places.max(0))
    for r in range((n - 1) // 2 if n <= 2 * MOST_LINES else 0):
        s.line(f"request {r + 1}", places[2 * r + 1], places[2 * r + 2], colour="muted", shown=bool(aboard[r]))
    s.points(
        "stops",
        places,
        shape=["square"] + ["disc"] * (n - 1),
        ring=set_down,
        action=np.arange(n),
        size=np.where(np.arange(n) % 2 == 1, 0.6, 0.2),
        label=lambda: ["", *(f"{(j + 1) // 2}{'−+'[j % 2]}" for j in range(1, n))],
        text=lambda: [
            "depot",
            *(
                f"{('dropoff', 'pickup')[j % 2]} of request {(j + 1) // 2}, riders: {abs(int(riders[j]))}"
                for j in range(1, n)
            ),
        ],
    )
    s.route("routes", "stops", world.path(row), cut=0)
    s.vehicle("vehicle", places[world.current_node[row]], shape="car", label=f"vehicle {k + 1}")
    s.gauge("riders aboard", world.current_load[row], max(1, int(world.capacity[q].max())))
    s.figure("distance", world.total_distance[row])
    s.figure("set down", int(visited[2::2].sum()))
    s.legend("depot", "ink", "square")
    s.legend("to do: pickup (+), dropoff (−, small)", "waiting")
    s.legend("done, coloured by vehicle", 0)
    s.legend("dropoff of a rider aboard", "ink", "ring")
    return s
