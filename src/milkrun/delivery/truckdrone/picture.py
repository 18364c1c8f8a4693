"""The picture of a row: the truck and where it is bound for, drones by status, customers by their window.

The map fills the middle; above it the step and a gauge for each drone, below it what the colours mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.canvas import CUSTOMER, GRID, INK, LATE, OPEN, PALETTE, PAPER, SERVED, Canvas, Colour
from milkrun.delivery.truckdrone.flight import CRASHED, ONBOARD, RETURNING

STATUS = {ONBOARD: INK, 1: PALETTE[0], RETURNING: PALETTE[3], CRASHED: LATE}
"""Colours of drones: on board, flying, returning, crashed."""
WORDS = {ONBOARD: "on board", 1: "flying", RETURNING: "returning", CRASHED: "crashed"}
DOT, BOX, TAG = 8, 8, (13, 14)  # half sides in pixels: customers, the truck, a drone's name over its battery
SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))
ROAD = 4  # pixels
GAUGES = 4  # drones that have one above the map

Box = tuple[float, float, float, float]
"""centre and half sides, in pixels"""


def customer_colour(served: bool, step: int, opens: int, closes: int) -> Colour:
    """Green when served, grey before the window, yellow in it, red after."""
    if served:
        return SERVED
    return CUSTOMER if step < opens else OPEN if step <= closes else LATE


def draw(world: Any, row: int, canvas: Canvas) -> None:
    q, step = world.instance_row[row], int(world.i[row])
    nodes, places, truck = world.route_nodes[q], world.customer_pos[q], world.truck_pos[row]
    canvas.fit((-1, -1), (1, 1), margin=0.1)
    canvas.polyline([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], GRID)
    _draw_roads(world, q, canvas)
    _draw_ways(world, row, canvas)
    taken = [_box(canvas, place, DOT) for place in places] + [_box(canvas, truck, BOX)]
    for n, node in enumerate(nodes):
        canvas.square(node, 6, GRID)
        hidden = any(_overlap(_box(canvas, node, 4), other) > 0 for other in taken)
        x, y = _beside(taken, canvas.to_px(node), 6, (5, 5)) if hidden else canvas.to_px(node)
        canvas.text((x, y), str(n), CUSTOMER, px=True)
        taken.append(_box(canvas, node, 6))
    for c, place in enumerate(places):
        colour = customer_colour(world.served[row, c], step, int(world.tw_start[q, c]), int(world.tw_end[q, c]))
        canvas.disc(place, DOT, colour, outline=INK)
        canvas.text(place, str(c), PAPER if colour in (SERVED, LATE) else INK)
    canvas.square(truck, BOX, INK)
    canvas.text(truck, "T", PAPER)
    _draw_drones(world, row, canvas, taken)
    canvas.caption(f"step {step}  served {int(world.customers_served[row])}/{len(places)}")
    _draw_gauges(world, row, canvas)
    _draw_legend(canvas, roads=world.sizes["R"] > 0)


def _draw_roads(world: Any, q: int, canvas: Canvas) -> None:
    """Where the truck can drive, if not everywhere."""
    if world.sizes["R"]:
        nodes, (i, j) = world.route_nodes[q], np.nonzero(np.triu(world.road[q], 1))
        canvas.line(nodes[i], nodes[j], GRID, width=ROAD)


def _draw_ways(world: Any, row: int, canvas: Canvas) -> None:
    """Where the truck and the drones are bound for."""
    truck = world.truck_pos[row]
    if world.truck_target[row] >= 0:
        canvas.line(truck, world.route_nodes[world.instance_row[row], world.truck_target[row]], INK)
    for d, place in enumerate(world.drone_pos[row]):
        status = int(world.status[row, d])
        if status == RETURNING:
            canvas.line(place, truck, STATUS[status], width=1)
        elif status not in (ONBOARD, CRASHED) and world.has_target[row, d]:
            canvas.line(place, world.target_pos[row, d], STATUS[status], width=1)


def _draw_drones(world: Any, row: int, canvas: Canvas, taken: list[Box]) -> None:
    """Those in the air: a dot, and beside it name and battery where they hide least."""
    flying = [d for d in range(len(world.drone_pos[row])) if world.status[row, d] != ONBOARD]
    taken = taken + [_box(canvas, world.drone_pos[row, d], 5) for d in flying]
    for d in flying:
        place, colour = world.drone_pos[row, d], STATUS[int(world.status[row, d])]
        canvas.disc(place, 5, colour, outline=INK)
        x, y = _beside(taken, canvas.to_px(place), 4, TAG)
        taken.append((x, y, *TAG))
        canvas.text((x, y - 5), f"d{d}", colour, px=True)
        _gauge(canvas, x, y + 5, float(world.battery[row, d]), colour)


def _draw_gauges(world: Any, row: int, canvas: Canvas) -> None:
    """In a line below the caption what each drone does and carries, and its battery; of many, how many are on board."""
    drones = world.sizes["D"]
    if drones > GAUGES:
        aboard = int((world.status[row] == ONBOARD).sum())
        canvas.text((9, 34), f"{aboard} of {drones} drones on board", INK, anchor="w", px=True)
        return
    for d in range(drones):
        status, x = int(world.status[row, d]), 9 + d * 124
        canvas.text((x, 34), f"d{d}", STATUS[status], anchor="w", px=True)
        _gauge(canvas, x + 26, 34, float(world.battery[row, d]), STATUS[status])
        parcel = int(world.carrying[row, d])
        words = WORDS[status] + ("" if parcel < 0 else f" ({parcel})")
        canvas.text((x + 42, 34), words, STATUS[status], anchor="w", px=True)


def _draw_legend(canvas: Canvas, roads: bool) -> None:
    """What colours and shapes mean, in two lines below the map."""
    low, right = canvas.to_px((-1, -1))[1], canvas.to_px((1, -1))[0]
    lines = (
        ("customer:", 68, (("not yet open", CUSTOMER), ("open", OPEN), ("late", LATE), ("served", SERVED))),
        ("drone:", 68, (("flying", STATUS[1]), ("returning", STATUS[RETURNING]), ("crashed", STATUS[CRASHED]))),
    )
    for k, (title, indent, entries) in enumerate(lines):
        x, y = 9.0, low + 15 + 16 * k
        canvas.text((x, y), title, INK, anchor="w", px=True)
        x += indent
        for name, colour in entries:
            canvas.disc(_at(canvas, x, y), 5, colour, outline=INK)
            canvas.text((x + 9, y), name, INK, anchor="w", px=True)
            x += 9 + 6 * len(name) + 18
    for k, (name, colour) in enumerate((("T truck", INK), ("node, road" if roads else "node", GRID))):
        y = low + 15 + 16 * k
        if roads and colour == GRID:
            canvas.line(_at(canvas, right - 64, y), _at(canvas, right - 50, y), GRID, width=ROAD)
        canvas.square(_at(canvas, right - 50, y), 5, colour)
        canvas.text((right - 41, y), name, INK, anchor="w", px=True)


def _gauge(canvas: Canvas, x: float, y: float, share: float, colour: Colour) -> None:
    canvas.bar(_at(canvas, x, y), 22, 6, share, colour)


def _at(canvas: Canvas, x: float, y: float) -> np.ndarray:
    """The point of the plane that is drawn at a pixel."""
    origin, unit = canvas.to_px((0.0, 0.0)), canvas.to_px((1.0, 1.0)) - canvas.to_px((0.0, 0.0))
    point: np.ndarray = (np.array([x, y]) - origin) / unit
    return point


def _box(canvas: Canvas, place: np.ndarray, half: float) -> Box:
    x, y = canvas.to_px(place).tolist()
    return x, y, half, half


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2] + other[2] - abs(one[0] - other[0]), 2 * one[2])
    down = min(one[3] + other[3] - abs(one[1] - other[1]), 2 * one[3])
    return max(0.0, across) * max(0.0, down)


def _beside(taken: list[Box], at: np.ndarray, away: float, half: tuple[float, float]) -> tuple[float, float]:
    """The centre of a label beside a point, where it covers least, the nearer the better; above if nothing is there."""
    gaps = (away, away + DOT, away + 2 * DOT)
    tried = [(at[0] + sx * (gap + half[0]), at[1] + sy * (gap + half[1])) for gap in gaps for sx, sy in SIDES]
    hidden = [sum(_overlap((x, y, *half), other) for other in taken) for x, y in tried]
    x, y = tried[int(np.argmin(hidden))]
    return float(x), float(y)
