"""The observations of the truck-and-drones references, both versions, recomputed from the state fields alone.

All values are computed in float64 and rounded once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .truckdrone_presets import CRASHED, ONBOARD, PUBLISHED_MARGIN, REST, Point, dist

if TYPE_CHECKING:
    from .truckdrone_state import TruckDroneModel

CODES = (0.0, 0.25, 0.5, 1.0)


def round32(values: list[float]) -> list[float]:
    return [float(np.float32(x)) for x in values]


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def hot(index: int, size: int) -> list[float]:
    """All zeros where the index is -1."""
    return [float(i == index) for i in range(size)]


def rel(own: Point, other: Point) -> list[float]:
    return [other[0] - own[0], other[1] - own[1]]


def over(v: Point, top: float) -> list[float]:
    return [v[0] / top, v[1] / top]


def clock(m: TruckDroneModel) -> float:
    return m.world_step / m.L


# v1


def _remaining(m: TruckDroneModel, c: int) -> float:
    return 0.0 if m.served[c] else clip((m.tw_end[c] - m.world_step) / m.L, 0.0, 1.0)


def _customers_v1(m: TruckDroneModel, own: Point) -> list[float]:
    rows = ([*rel(own, p), float(m.served[c]), _remaining(m, c), m.demand[c]] for c, p in enumerate(m.customer_pos))
    return [x for row in rows for x in row]


def _drones_v1(m: TruckDroneModel, own: Point) -> list[float]:
    out: list[float] = []
    for d in range(m.D):
        out += [*rel(own, m.drone_pos[d]), *m.drone_vel[d], m.battery[d]]
        out += [float(m.carrying[d] != -1), CODES[m.status[d]]]
    return out


def truck_v1(m: TruckDroneModel) -> list[float]:
    own = m.truck_pos
    aboard = [float(status == ONBOARD) for status in m.status]
    return [*own, *m.truck_vel, *aboard, *_drones_v1(m, own), *_customers_v1(m, own), *hot(0, m.A)]


def drone_v1(m: TruckDroneModel, d: int) -> list[float]:
    own = m.drone_pos[d]
    target = m.target_pos[d] if m.has_target[d] else REST
    out = [*own, *m.drone_vel[d], m.battery[d], float(m.carrying[d] != -1), *target, float(m.status[d] == ONBOARD)]
    out += [*rel(own, m.truck_pos), *_customers_v1(m, own)]
    for other in range(m.D):
        if other != d:
            out += [*rel(own, m.drone_pos[other]), m.battery[other], CODES[m.status[other]]]
    return [*out, *hot(1 + d, m.A)]


def state_v1(m: TruckDroneModel) -> list[float]:
    return [*m.truck_pos, *m.truck_vel, *_drones_v1(m, REST), *_customers_v1(m, REST), clock(m)]


def padded(rows: list[list[float]]) -> list[list[float]]:
    """The published padding: trailing zeros up to the longest."""
    size = max(map(len, rows))
    return [row + [0.0] * (size - len(row)) for row in rows]


# v2


def _load(m: TruckDroneModel, d: int) -> float:
    return 0.0 if m.carrying[d] == -1 else m.demand[m.carrying[d]]


def slack(m: TruckDroneModel, d: int) -> float:
    """Battery above the possible cost of the way home."""
    if m.status[d] == CRASHED:
        return 0.0
    if m.status[d] == ONBOARD:
        return m.battery[d]
    gap = dist(m.drone_pos[d], m.truck_pos)
    home = gap * m.battery_rate * PUBLISHED_MARGIN if m.rules == "published" else m.need(gap, m.rho(m.carrying[d]))
    return clip(m.battery[d] - home, -1.0, 1.0)


def _window(m: TruckDroneModel, c: int) -> list[float]:
    if m.served[c]:
        return [0.0, 0.0]
    opens, closes = (m.tw_start[c] - m.world_step) / m.L, (m.tw_end[c] - m.world_step) / m.L
    return [clip(opens, 0.0, 1.0), clip(closes, -1.0, 1.0)]


def _taken(m: TruckDroneModel, c: int, but: int = -1) -> float:
    return float(any(m.carrying[d] == c and m.status[d] != CRASHED and d != but for d in range(m.D)))


def _target(m: TruckDroneModel, own: Point) -> list[float]:
    return [0.0, 0.0, 0.0] if m.truck_target == -1 else [*rel(own, m.route_nodes[m.truck_target]), 1.0]


def truck_v2(m: TruckDroneModel) -> list[float]:
    own = m.truck_pos
    out = [*own, *over(m.truck_vel, m.truck_speed), *_target(m, own), *hot(m.truck_node, m.N), clock(m)]
    for node in m.route_nodes:
        out += rel(own, node)
    for d in range(m.D):
        out += [*rel(own, m.drone_pos[d]), *over(m.drone_vel[d], m.drone_speed), m.battery[d]]
        out += [*hot(m.status[d], 4), _load(m, d), slack(m, d)]
    for c, p in enumerate(m.customer_pos):
        out += [*rel(own, p), float(m.served[c]), *_window(m, c), m.demand[c], _taken(m, c)]
    return out


def drone_v2(m: TruckDroneModel, d: int) -> list[float]:
    own, k = m.drone_pos[d], m.carrying[d]
    out = [*own, *over(m.drone_vel[d], m.drone_speed), m.battery[d], _load(m, d), *hot(m.status[d], 4)]
    out += [0.0, 0.0, 0.0] if k == -1 else [*rel(own, m.customer_pos[k]), 1.0]
    out += [*rel(own, m.truck_pos), *over(m.truck_vel, m.truck_speed), *_target(m, own), slack(m, d), clock(m)]
    for c, p in enumerate(m.customer_pos):
        out += [*rel(own, p), float(m.served[c]), *_window(m, c), m.demand[c], float(k == c), _taken(m, c, but=d)]
    for other in range(m.D):
        if other != d:
            out += [*rel(own, m.drone_pos[other]), m.battery[other], *hot(m.status[other], 4), _load(m, other)]
    return [*out, *hot(d, m.D)]


def state_v2(m: TruckDroneModel) -> list[float]:
    out = [*m.truck_pos, *over(m.truck_vel, m.truck_speed)]
    for node in (m.truck_target, m.truck_node):
        out += hot(m.N if node == -1 else node, m.N + 1)
    for d in range(m.D):
        out += [*m.drone_pos[d], *over(m.drone_vel[d], m.drone_speed), m.battery[d], *hot(m.status[d], 4)]
        out += [*hot(m.carrying[d], m.C), float(m.forced_phase[d])]
    for c, p in enumerate(m.customer_pos):
        out += [*p, float(m.served[c]), m.tw_start[c] / m.L, m.tw_end[c] / m.L, m.demand[c]]
    return [*out, clock(m)]
