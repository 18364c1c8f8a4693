"""Figures of a row of the TSP with a drone, and replays of whole plans through the world."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution, ShapeError
from milkrun.delivery.instances.tspd import Operation, TSPDInstance
from milkrun.delivery.tspd.log import Event, actions_of, events
from milkrun.delivery.tspd.truck_tour import tour_cost, truck_tour


def kpis(world: Any, row: int) -> dict[str, float]:
    """`truck_only` is the cost of the truck's tour without a drone, `saving` the share that the plan saves."""
    q = world.instance_row[row]
    n = int(world.n_nodes[q])
    cost = world.c_truck[q, :n, :n]
    alone, makespan = tour_cost(cost, truck_tour(cost)), float(world.clock[row])
    by_drone = int(world.by_drone[row])
    return {
        "makespan": makespan,
        "truck_drive": float(world.truck_drive[row]),
        "truck_wait": float(world.truck_wait[row]),
        "drone_fly": float(world.drone_fly[row]),
        "drone_wait": float(world.drone_wait[row]),
        "operations": int(world.num_ops[row]),
        "by_drone": by_drone,
        "by_truck": int(world.covered[row, 1:n].sum()) - by_drone,
        "truck_only": alone,
        "saving": 1.0 - makespan / alone if alone > 0 else 0.0,
    }


def replay(
    world_class: Any, instance: TSPDInstance | Mapping[str, Any], plan: Iterable[Any]
) -> tuple[dict[str, float], list[Event]]:
    """Replays a whole plan through mask and step; BadSolution names the index of an impossible operation."""
    world = world_class.from_instances([instance], autoreset="disabled")
    nodes = int(world.n_nodes[0])
    if not isinstance(plan, Iterable):
        raise ShapeError(f"a plan is a list of operations (start, end, fly, internal), not {plan!r}")
    for k, given in enumerate(plan):
        start, end, fly, internal = _operation(k, given, nodes)
        where = f"operation {k} {(start, end, fly, internal)}"
        if start != world.truck[0]:
            raise BadSolution(f"{where}: starts at {start}, but the truck is at {world.truck[0]}")
        if fly < 0 and start == end and not internal:
            continue  # published plans begin with an empty operation
        for action in actions_of(Operation(start, end, fly, internal), nodes):
            if world.done[0]:
                raise BadSolution(f"{where}: every node is covered and the truck is home already")
            if not world.action_mask[0, action]:
                raise BadSolution(f"{where}: {world.why_illegal(0, action)}")
            world.step([action])
    if not world.terminated[0]:
        left = np.flatnonzero(~world.covered[0]).tolist()
        raise BadSolution(
            f"the plan leaves node {left[0]} uncovered"
            if left
            else f"the plan ends at node {world.truck[0]}, not at the depot"
        )
    return kpis(world, 0), events(world, 0)


def _operation(k: int, given: Any, nodes: int) -> Operation:
    try:
        start, end, fly, internal = given
        whole = [start, end, fly, *internal]
    except (TypeError, ValueError):
        raise BadSolution(f"operation {k} is {given!r}, not (start, end, fly, internal)") from None
    for node in whole:
        if isinstance(node, (bool, np.bool_)) or not isinstance(node, (int, np.integer)):
            raise BadSolution(f"operation {k} {given!r}: {node!r} is not a node")
    for node in [start, end, *internal, *([fly] if fly != -1 else [])]:
        if not 0 <= node < nodes:
            raise BadSolution(f"operation {k} {given!r}: there is no node {node}, only 0..{nodes - 1}")
    return Operation(int(start), int(end), int(fly), tuple(int(node) for node in internal))
