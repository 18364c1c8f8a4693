"""Constants, presets and plane geometry of the truck-and-drones references."""

from __future__ import annotations

import math
from typing import Any

ONBOARD, FLYING, RETURNING, CRASHED = range(4)
HOVER, RETURN = 0, 1
EPS = 1e-9
PUBLISHED_MARGIN = 1.2
NEAR = 1e-6
REST = (0.0, 0.0)

Point = tuple[float, float]

PUBLISHED: dict[str, Any] = {
    "rules": "published",
    "num_drones": 2,
    "num_route_nodes": 5,
    "episode_length": 200,
    "max_steps": None,
    "dt": 0.1,
    "truck_speed": 1.0,
    "drone_speed": 2.0,
    "delivery_threshold": 0.05,
    "recovery_threshold": 0.1,
    "depot_node": False,
    "route_radius": 0.6,
    "battery_rate": 0.01,
    "obey_mask": False,
    "obs": "v1",
    "time_penalty": 0.1,
    "delivery_bonus": 5.0,
    "completion_bonus": 100.0,
    "incomplete_penalty": 20.0,
    "energy_cost": 0.01,
    "forced_return_penalty": 0.5,
    "time_limit_terminal": False,
}
DEFAULT: dict[str, Any] = PUBLISHED | {
    "rules": "sound",
    "num_route_nodes": 6,
    "depot_node": True,
    "battery_rate": 0.4,
    "obey_mask": True,
    "obs": "v2",
    "completion_bonus": 20.0,
    "incomplete_penalty": 10.0,
    "energy_cost": 0.5,
    "payload_factor": 0.5,
    "hover_rate": 0.2,
    "recovery_charge": 0.0,
    "charge_rate": 0.3,
    "battery_rule": "safe",
    "battery_margin": 1.0,
    "pickup": "truck",
    "reserve": True,
    "early": "wait",
    "end": "returned",
    "late_penalty": 0.1,
    "crash_penalty": 10.0,
    "road_graph": False,
}


def dist(p: Point, q: Point) -> float:
    dx, dy = q[0] - p[0], q[1] - p[1]
    return math.sqrt(dx * dx + dy * dy)


def towards(p: Point, goal: Point, s: float, dt: float) -> tuple[Point, Point]:
    """Position and velocity after a move of length s towards a goal that lies elsewhere."""
    dx, dy = goal[0] - p[0], goal[1] - p[1]
    q = math.sqrt(dx * dx + dy * dy)
    ex, ey = dx / q, dy / q
    return (p[0] + ex * s, p[1] + ey * s), (ex * (s / dt), ey * (s / dt))


def ring(count: int, radius: float, depot: bool) -> list[Point]:
    """The truck's nodes: on the circle, after a depot in the middle if there is one."""
    on_ring = count - 1 if depot else count
    angles = [2 * math.pi * i / on_ring for i in range(on_ring)]
    nodes = [(radius * math.cos(w), radius * math.sin(w)) for w in angles]
    return [REST, *nodes] if depot else nodes
