"""The timetable of routes with time windows: a lane for each route, as early as the vehicle may leave."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from milkrun.render.scene import Bar, Chart, Window
from milkrun.routing.collect import STOPS
from milkrun.routing.vrp.instances import leg


def timetable(world: Any, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
    """The bars of all routes and the windows of all customers; None if the row has no time windows."""
    q, depots = int(world.instance_row[row]), world.sizes["depots"]
    if not world.has_clock[q]:
        return None
    windows, service = world.time_windows[q].astype(float), world.service_time[q].astype(float)
    speed = float(world.speed[q, 0])
    bars: list[Bar] = []
    stops: dict[int, tuple[float, str]] = {}
    moves = pairwise(zip(frames["current_node"].tolist(), frames["current_depot"].tolist(), strict=True))
    now, route = float(windows[int(frames["current_depot"][0]), 0]), 1
    for at, ((here, depot), (node, following)) in enumerate(moves, start=1):
        if here < depots and node < depots:  # a vehicle is chosen
            now = float(windows[following, 0])
            continue
        lane, target = f"route {route}", node if node >= depots else depot
        way = 0.0 if node < depots and world.open_route[q] else leg(world, q, here, target)
        there = now + way / speed
        bars.append(Bar(lane, "drive", now, there, f"\u2192{node}" if node >= depots else "", at))
        if node < depots:
            now, route = float(windows[following, 0]), route + 1
            continue
        opens, closes = windows[node].tolist()
        # The mask closes customers after their window; any excess is rounding.
        stops[node] = min(there, closes), lane
        begins = max(there, opens)
        now = begins + service[node]
        bars += [Bar(lane, "wait", there, begins, "", at)] if begins > there else []
        bars += [Bar(lane, "serve", begins, now, str(node), at)] if now > begins else []
    customers = [j for j in range(depots, int(world.n_nodes[q])) if np.isfinite(windows[j, 1])]
    shown = [Window(f"customer {j}", *windows[j].tolist(), *stops.get(j, (None, ""))) for j in customers]
    lanes = tuple(dict.fromkeys(bar.lane for bar in bars))
    return Chart(lanes, tuple(bars), windows=tuple(shown), unit="time", kinds=STOPS)
