"""The picture of a row: the truck and where it is bound for, drones by status, customers by their window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milkrun.core.canvas import CUSTOMER, GRID, INK, LATE, OPEN, PALETTE, SERVED, Canvas, Colour
from milkrun.delivery.flight import CRASHED, ONBOARD, RETURNING

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone import TruckDrone

STATUS = {ONBOARD: INK, 1: PALETTE[0], RETURNING: PALETTE[3], CRASHED: LATE}
"""Colours of drones: on board, flying, returning, crashed."""
ABOVE = np.array((0.0, 0.045))


def customer_colour(served: bool, step: int, opens: int, closes: int) -> Colour:
    """Green when served, grey before the window, yellow in it, red after."""
    if served:
        return SERVED
    return CUSTOMER if step < opens else OPEN if step <= closes else LATE


def draw(world: TruckDrone, row: int, canvas: Canvas) -> None:
    q, step = world.instance_row[row], int(world.i[row])
    nodes, places = world.route_nodes[q], world.customer_pos[q]
    canvas.fit((-1, -1), (1, 1), margin=0.07)
    canvas.polyline([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], GRID)
    for n, node in enumerate(nodes):
        canvas.square(node, 5, GRID)
        canvas.text(node, str(n), colour=CUSTOMER)
    for c, place in enumerate(places):
        colour = customer_colour(world.served[row, c], step, int(world.tw_start[q, c]), int(world.tw_end[q, c]))
        canvas.disc(place, 8, colour, outline=INK)
        canvas.text(place, str(c))
    truck = world.truck_pos[row]
    if world.truck_target[row] >= 0:
        canvas.line(truck, nodes[world.truck_target[row]], INK)
    canvas.square(truck, 8, INK)
    for d, place in enumerate(world.drone_pos[row]):
        status = int(world.status[row, d])
        if status == ONBOARD:
            continue
        if world.has_target[row, d] and status != CRASHED:
            goal = truck if status == RETURNING else world.target_pos[row, d]
            canvas.line(place, goal, STATUS[status], width=1)
        canvas.disc(place, 4, STATUS[status])
        canvas.bar(place + ABOVE, 20, 5, float(world.battery[row, d]), STATUS[status])
        canvas.text(place + 2 * ABOVE, f"d{d}", colour=STATUS[status])
    canvas.caption(f"step {step}  served {int(world.customers_served[row])}/{len(places)}")
