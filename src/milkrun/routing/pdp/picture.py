"""The picture of a row: depots, pickups, deliveries, and the routes so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.render.scene import Scene, colours
from milkrun.routing.vrp.picture import add_routes


def scene(world: Any, row: int) -> Scene:
    q, depots = world.instance_row[row], world.first_customer
    n, several = int(world.n_nodes[q]), bool(world.n_depots[world.instance_row[row]] > 1)
    pairs, node = (n - depots) // 2, np.arange(n)
    shown = (node < world.n_depots[q]) | (node >= depots)
    places = np.where(shown[:, None], world.locs[q, :n], world.locs[q, :1]).astype(float)
    demand = world.demand[q, :n]
    windows = world.time_windows[q, :n] if world.sizes["timed"] and world.has_clock[q] else None
    visited = world.visited[row, :n]

    def texts() -> list[str]:
        found = [f"depot {k}" for k in range(depots)]
        for j in range(depots, n):
            kind = "pickup" if j < depots + pairs else "delivery"
            window = "" if windows is None else f", open {windows[j, 0]:.4g} to {windows[j, 1]:.4g}"
            other = f", delivery {j + pairs}" if kind == "pickup" else f", pickup {j - pairs}"
            found.append(f"{kind} {j}, {abs(int(demand[j]))} units{other}{window}")
        return found

    s = Scene(places.min(0), places.max(0))
    plain = {} if world.config.record else {"colour": colours(np.where(visited, "muted", "waiting"))}
    s.points(
        "customers",
        places,
        shape=["square"] * depots + ["disc"] * (n - depots),
        size=np.where(node < depots, 0.5, np.abs(demand) / max(1, int(np.abs(demand).max()))),
        ring=world.aboard[row, :n],
        label=lambda: [str(j) if j >= depots or several else "" for j in range(n)],
        text=texts,
        action=node,
        **plain,
    )
    if world.config.record:
        add_routes(world, s, row)
    s.vehicle("truck", places[world.current_node[row]], shape="truck")
    if world.config.capacity is not None:
        s.gauge("load", world.load[row], world.capacity[q, world.current_depot[row]])
    s.figure("length", world.tour_length[row])
    if world.config.objective == "max":
        s.figure("longest", world.longest[row])
    s.legend("depot", "ink", "square")
    s.legend("not visited", "waiting")
    s.legend("delivery whose goods are aboard", "ink", "ring")
    s.legend("visited, a colour a route", 0)
    return s
