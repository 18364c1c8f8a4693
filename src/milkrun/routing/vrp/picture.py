"""The picture of a row: depots, customers, backhauls, and the routes so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.render.scene import Scene, colours


def routes_of(world: Any, row: int) -> list[tuple[int, list[int]]]:
    """The routes so far, (depot, customers), from the recorded actions; the last one may be under way."""
    depots = world.first_customer
    several = bool(world.n_depots[world.instance_row[row]] > 1)
    routes: list[tuple[int, list[int]]] = [] if several else [(0, [])]
    for action in world.taken(row):
        if action >= depots:
            routes[-1][1].append(action)
        else:
            routes.append((action, []))
    return routes


def driven(world: Any, row: int) -> list[int]:
    """The nodes in the order driven, each route from and to its own depot."""
    nodes: list[int] = []
    for k, customers in routes_of(world, row):
        nodes += [k, *customers, *([k] if customers else [])]
    return nodes


def scene(world: Any, row: int) -> Scene:
    q, depots = world.instance_row[row], world.first_customer
    n, several = int(world.n_nodes[q]), bool(world.n_depots[world.instance_row[row]] > 1)
    node = np.arange(n)
    shown = (node < world.n_depots[q]) | (node >= depots)
    places = np.where(shown[:, None], world.locs[q, :n], world.locs[q, :1]).astype(float)
    linehaul = world.linehaul[q, :n].astype(float)
    backhaul = world.backhaul[q, :n].astype(float) if world.sizes["pickups"] else np.zeros(n)
    windows = world.time_windows[q, :n] if world.sizes["timed"] and world.has_clock[q] else None
    amount = np.maximum(linehaul, backhaul)
    visited = world.visited[row, :n]

    def texts() -> list[str]:
        found = [f"depot {k}" for k in range(depots)]
        for j in range(depots, n):
            parts = [f"customer {j}", f"deliver {linehaul[j]:g}"]
            if backhaul[j]:
                parts = [parts[0], *parts[1:][: int(linehaul[j] > 0)], f"pick up {backhaul[j]:g}"]
            if windows is not None:
                parts.append(f"open {windows[j, 0]:.4g} to {windows[j, 1]:.4g}")
            found.append(", ".join(parts))
        return found

    s = Scene(places.min(0), places.max(0))
    plain = {} if world.config.record else {"colour": colours(np.where(visited, "muted", "waiting"))}
    s.points(
        "customers",
        places,
        shape=["square"] * depots + ["disc"] * (n - depots),
        size=np.where(node < depots, 0.5, amount / max(1.0, float(amount.max()))),
        ring=(backhaul > 0) & ~visited,
        label=lambda: [str(j) if j >= depots or several else "" for j in range(n)],
        text=texts,
        action=node,
        **plain,
    )
    if world.config.record:
        add_routes(world, s, row)
    s.vehicle("truck", places[world.current_node[row]], shape="truck")
    s.gauge("load", world.peak[row], world.capacity[q, world.current_depot[row]])
    s.figure("length", world.tour_length[row])
    if world.config.objective == "max":
        s.figure("longest", world.longest[row])
    s.legend("depot", "ink", "square")
    s.legend("not visited", "waiting")
    if backhaul.any():
        s.legend("backhaul", "ink", "ring")
    s.legend("visited, a colour a route", 0)
    return s


def add_routes(world: Any, s: Scene, row: int) -> None:
    """One route mark for each depot, its trips one after the other."""
    routes = routes_of(world, row)
    at_home = world.current_node[row] < world.first_customer
    is_open = bool(world.open_route[world.instance_row[row]])
    for k in range(int(world.n_depots[world.instance_row[row]])):
        stops = [k]
        for r, (depot, customers) in enumerate(routes):
            if depot == k and customers:
                under_way = r == len(routes) - 1 and not at_home
                stops += customers if under_way else [*customers, k]
        s.route(f"routes of depot {k}", "customers", stops, cut=k, open=is_open)
