"""Checks of given instances and loaded states of truck and drones, for whole batches.

Shapes, types and bounds are already checked. Every state of play passes, masked or not. The kernel `fault` checks
parcels and the target of the truck.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.instances import refuse_where
from milkrun.delivery.truckdrone.flight import CRASHED, NEAR, ONBOARD, PUBLISHED_HOVER

Arrays = dict[str, np.ndarray]

OFF_ROAD = 1e-5
"""Tolerance of the distance to a road: rounding, and `NEAR` at its ends."""
ROUNDING = 1e-9


def check_instance(world: Any, arrays: Arrays) -> None:
    """Checks windows, parcels and roads."""
    _refuse("demand", arrays, arrays["demand"] <= 0, "must be above 0")
    _refuse("tw_end", arrays, arrays["tw_end"] < arrays["tw_start"], "the window closes before it opens")
    if world.sizes["R"]:
        _check_roads(arrays)


def _check_roads(arrays: Arrays) -> None:
    road, nodes = arrays["road"], arrays["route_nodes"]
    _refuse("road", arrays, ~road & np.eye(road.shape[1], dtype=bool), "a node is on the road to itself")
    _refuse("road", arrays, road != road.swapaxes(1, 2), "a road leads both ways, but the other way differs")
    unreached = np.zeros_like(road)
    unreached[:, 0] = ~_reached(road)
    _refuse("road", arrays, unreached, "no way by road leads from node 0, the depot, to this node")
    astray = np.zeros(nodes.shape, bool)
    astray[:, 0] = (nodes[:, 0] != 0) & (_norm(nodes[:, 0]) > NEAR)[:, None]
    _refuse("route_nodes", arrays, astray, "with road_graph node 0 is the depot at (0, 0), where the truck starts")


def _reached(road: np.ndarray) -> np.ndarray:
    """(B, N) True at nodes that can be reached from node 0."""
    seen: np.ndarray = road[:, 0]
    for _ in range(road.shape[1]):
        wider = seen | (seen[:, :, None] & road).any(axis=1)
        if (wider == seen).all():
            break
        seen = wider
    return seen


def check_state(world: Any, arrays: Arrays) -> None:
    """Checks all fields of rows, instances row by row; tallies may be missing."""
    _check_bounds(world, arrays)
    _check_drones(world, arrays)
    if world.sound:
        _check_truck(world, arrays)


def _check_bounds(world: Any, arrays: Arrays) -> None:
    """Checks the bounds of rules and configuration."""
    limit, agents, customers = world.config.limit, world.sizes["A"], world.sizes["C"]
    _refuse("i", arrays, arrays["i"] > limit, f"an episode has {limit} steps")
    for name in ("truck_pos", "drone_pos", "target_pos"):
        _refuse(name, arrays, ~(np.abs(arrays[name]) <= 1 + NEAR), "lies outside the map, [-1, 1]^2")
    for name, top in (("truck_vel", world.config.truck_speed), ("drone_vel", world.config.drone_speed)):
        fast = ~(_norm(arrays[name]) <= top * (1 + ROUNDING))
        _refuse(name, arrays, fast[..., None] & (arrays[name] != 0), f"is faster than {top}")
    if "sum_counts" in arrays:
        # A step adds at most one for each agent; each customer may add all steps to the lateness.
        counts, most = arrays["sum_counts"], limit * (agents + customers)
        _refuse("sum_counts", arrays, (counts < 0) | (counts > most), f"must be in 0..{most}")
    if "sum_amounts" in arrays:
        _refuse("sum_amounts", arrays, ~(arrays["sum_amounts"] >= 0), "must be >= 0")


def _check_drones(world: Any, arrays: Arrays) -> None:
    battery, aboard = arrays["battery"], arrays["status"] == ONBOARD
    wreck = arrays["status"] == CRASHED
    least = 0.0 if world.sound else -PUBLISHED_HOVER * arrays["i"][:, None] - ROUNDING  # hovering may end below 0
    _refuse("battery", arrays, ~((battery <= 1) & (battery >= least)), "must be in 0..1")
    if world.safe:
        _refuse("battery", arrays, ~(aboard | wreck | (battery > 0)), "of a drone in the air must be above 0")
    away = aboard & (_norm(arrays["drone_pos"] - arrays["truck_pos"][:, None]) > NEAR)
    _refuse("drone_pos", arrays, np.repeat(away[..., None], 2, axis=2), "of a drone on board: not the truck's")
    still = (aboard | wreck)[..., None]
    _refuse("drone_vel", arrays, still & (arrays["drone_vel"] != 0), "of a drone that is not in the air must be 0")


def _check_truck(world: Any, arrays: Arrays) -> None:
    """Sound rules: checks that the truck is at its node or, between nodes, on its road."""
    node, place, nodes = (arrays[name] for name in ("truck_node", "truck_pos", "route_nodes"))
    rows = np.arange(len(node))
    there = _norm(place - nodes[rows, np.maximum(node, 0)]) <= NEAR
    waits = (node == 0) & (place == 0).all(axis=1)  # the truck starts at (0, 0), even if node 0 is elsewhere
    _refuse("truck_node", arrays, (node >= 0) & ~there & ~waits, "the truck is not there")
    if not world.sizes["R"]:
        return
    u, v = arrays["truck_edge"].T
    start, way = nodes[rows, u], nodes[rows, v] - nodes[rows, u]
    # At a node u = v and the road has no length. Such rows are not checked below, but must not divide 0 by 0.
    share = ((place - start) * way).sum(axis=1) / np.maximum((way * way).sum(axis=1), NEAR * NEAR)
    aside = (_norm(place - start - way * np.clip(share, 0, 1)[:, None]) > OFF_ROAD) & (node < 0) & (u != v)
    _refuse("truck_pos", arrays, np.repeat(aside[:, None], 2, axis=1), "is not on the truck's road")


def _norm(vectors: np.ndarray) -> np.ndarray:
    length: np.ndarray = np.sqrt((vectors * vectors).sum(axis=-1))
    return length


def _refuse(name: str, arrays: Arrays, wrong: np.ndarray, rule: str) -> None:
    refuse_where(name, arrays[name], wrong, rule)
