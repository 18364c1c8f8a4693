"""The picture of a row: the truck and its target, drones by status, customers by window."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.delivery.truckdrone.flight import CRASHED, DELIVER, FLYING, MOVE, ONBOARD, RETURNING
from milkrun.render.scene import Colour, Scene, colours

STATUS: dict[int, Colour] = {ONBOARD: "ink", FLYING: 0, RETURNING: 3, CRASHED: "late"}
"""Colours of drones: on board, flying, returning, crashed."""
LEGEND = (
    ("not yet open", "waiting", "disc"),
    ("open", "open", "disc"),
    ("late", "late", "disc"),
    ("served", "served", "disc"),
    ("node of the truck (N)", "grid", "square"),
    ("truck", "ink", "truck"),
    ("drone flying", 0, "drone"),
    ("returning", 3, "drone"),
    ("crashed", "late", "drone"),
)


def scene(world: Any, row: int) -> Scene:
    q, step, drones = world.instance_row[row], int(world.i[row]), range(world.sizes["D"])
    nodes, places, truck = world.route_nodes[q], world.customer_pos[q], world.truck_pos[row]
    reached = np.concatenate([nodes, places])  # all motion is within their bounds
    s = Scene(reached.min(0), reached.max(0))
    for i, j in zip(*np.nonzero(np.triu(world.road[q], 1)), strict=True) if world.sizes["R"] else ():
        s.line(f"road {i} to {j}", nodes[i], nodes[j], colour="grid")
    s.points(
        "nodes",
        nodes,
        shape="square",
        colour="grid",
        label=lambda: [f"N{n}" for n in range(len(nodes))],
        text=lambda: [f"node N{n}" for n in range(len(nodes))],
        action=MOVE + np.arange(len(nodes)),
    )
    lists = np.full((1 + len(drones), len(places)), -1)
    lists[1:] = world.sizes["T"] + DELIVER + np.arange(len(places)) + world.sizes["K"] * np.array(drones)[:, None]
    s.points(
        "customers",
        places,
        colour=_colours(world, row, q, step),
        action=lists,
        text=lambda: [
            f"customer {c}, window {a} to {b}, parcel {d:.2f}"
            for c, (a, b, d) in enumerate(
                zip(world.tw_start[q].tolist(), world.tw_end[q].tolist(), world.demand[q].tolist(), strict=True)
            )
        ],
        label=lambda: [str(c) for c in range(len(places))],
    )
    bound = int(world.truck_target[row])
    s.line("way of the truck", truck, nodes[max(bound, 0)], shown=bound >= 0)
    s.vehicle("truck", truck, shape="truck", trail=True)
    for d in drones:
        status, place, parcel = int(world.status[row, d]), world.drone_pos[row, d], int(world.carrying[row, d])
        name = f"d{d}" if parcel < 0 else f"d{d} ({parcel})"
        back, out = status == RETURNING, status == FLYING and bool(world.has_target[row, d])
        s.line(
            f"way of drone {d}",
            place,
            truck if back else world.target_pos[row, d],
            colour=STATUS[status],
            shown=back or out,
        )
        s.vehicle(
            f"drone {d}",
            place,
            shape="drone",
            colour=STATUS[status],
            label=name,
            trail=True,
            gauge=float(world.battery[row, d]),
            shown=status != ONBOARD,
        )
        s.gauge(f"drone {d}", world.battery[row, d], 1.0)
    s.figure("served", world.customers_served[row])
    for entry in LEGEND:
        s.legend(*entry)
    return s


def _colours(world: Any, row: int, q: int, step: int) -> Any:
    """Colours of customers: green if served, hollow before the window, yellow in it, red after."""
    due = np.where(step < world.tw_start[q], "waiting", np.where(step <= world.tw_end[q], "open", "late"))
    return colours(np.where(world.served[row], "served", due))
