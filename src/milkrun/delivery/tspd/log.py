"""What is told of a row of the TSP with a drone: its operations, a Gantt chart, figures, reasons; and plans replayed.

All of it is read from the actions that the world has kept, not from what the kernels summed up, except the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from milkrun.core.errors import BadSolution, ShapeError
from milkrun.delivery.instances.tspd import NO_FLY, Operation, TSPDInstance
from milkrun.delivery.tspd.truck_tour import tour_cost, truck_tour

if TYPE_CHECKING:
    from milkrun.delivery.tspd.world import TSPD


class Event(NamedTuple):
    """A bar of the Gantt chart: what `agent` (truck, drone) does from t0 to t1, between which nodes."""

    agent: str
    kind: str  # truck: drive, wait; drone: aboard, fly, wait
    t0: float
    t1: float
    start: int
    end: int


class Trip(NamedTuple):
    """An operation done: when it began, what the truck drove, both waited for each other until `t1`."""

    start: int
    stops: list[int]  # where the truck drove to
    fly: int
    t0: float
    t1: float


def operations(world: TSPD, row: int) -> list[Operation]:
    told = []
    for trip in _trips(world, row):
        end = trip.stops[-1] if trip.stops else trip.start
        told.append(Operation(trip.start, end, trip.fly, tuple(trip.stops[:-1])))
    return told


def events(world: TSPD, row: int) -> list[Event]:
    q = world.instance_row[row]
    c_truck, c_drone = world.c_truck[q], world.c_drone[q]
    truck, drone = list[Event](), list[Event]()
    for trip in _trips(world, row):
        here, now = trip.start, trip.t0
        for j in trip.stops:
            then = now + float(c_truck[here, j])
            truck.append(Event("truck", "drive", now, then, here, j))
            here, now = j, then
        if now < trip.t1:
            truck.append(Event("truck", "wait", now, trip.t1, here, here))
        if trip.fly < 0:
            if drone and drone[-1].kind == "aboard":
                drone[-1] = drone[-1]._replace(t1=trip.t1, end=here)
            else:
                drone.append(Event("drone", "aboard", trip.t0, trip.t1, trip.start, here))
            continue
        there = min(trip.t0 + float(c_drone[trip.start, trip.fly]), trip.t1)
        back = trip.t1
        if now >= trip.t1:  # the truck came last, the drone waits; otherwise it lands as the operation ends
            flight = float(c_drone[trip.start, trip.fly]) + float(c_drone[trip.fly, here])
            back = max(there, min(trip.t0 + flight, trip.t1))
        drone.append(Event("drone", "fly", trip.t0, there, trip.start, trip.fly))
        drone.append(Event("drone", "fly", there, back, trip.fly, here))
        if back < trip.t1:
            drone.append(Event("drone", "wait", back, trip.t1, here, here))
    return truck + drone


def kpis(world: TSPD, row: int) -> dict[str, float]:
    """`truck_only` is the cost of the truck's tour without a drone, `saving` the share of it that the plan saves."""
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


def paths(world: TSPD, row: int) -> tuple[list[int], list[list[int]]]:
    """The nodes of the truck in order, and of each flight start, customer and, if it is over, end."""
    nodes = world.sizes["N"]
    way, flights = [0], []
    for action in _taken(world, row):
        if action < nodes:
            way.append(action)
        elif action < 2 * nodes:
            flights.append([way[-1], action - nodes])
        else:
            flights[-1].append(way[-1])
    return way, flights


def _taken(world: TSPD, row: int) -> list[int]:
    taken: list[int] = world.plan[row, : world.steps[row]].tolist()
    return taken


def _trips(world: TSPD, row: int) -> Iterator[Trip]:
    """Operations done, in order; times as the world counts them."""
    nodes, q = world.sizes["N"], world.instance_row[row]
    c_truck, c_drone = world.c_truck[q], world.c_drone[q]
    here = start = 0
    fly, stops, driven = -1, list[int](), 0.0
    began = now = 0.0
    for action in _taken(world, row):
        if nodes <= action < 2 * nodes:
            start, fly, stops, driven, began = here, action - nodes, [], 0.0, now
        elif action < nodes:
            way = float(c_truck[here, action])
            before, here = here, action
            now += way
            driven += way
            if fly < 0:
                yield Trip(before, [here], -1, began, now)
                began = now
            else:
                stops.append(here)
        else:
            flight = float(c_drone[start, fly]) + float(c_drone[fly, here])
            now += max(0.0, flight - driven)
            yield Trip(start, stops, fly, began, now)
            fly, began = -1, now


def replay(
    world_class: type[TSPD], instance: TSPDInstance | Mapping[str, Any], plan: Iterable[Any]
) -> tuple[dict[str, float], list[Event]]:
    """A whole plan through mask and step; BadSolution with the index of an operation that cannot be."""
    world = world_class.from_instances([instance], autoreset="disabled")
    nodes = int(world.n_nodes[0])
    if not isinstance(plan, Iterable):
        raise ShapeError(f"a plan is a list of operations (start, end, fly, internal), not {plan!r}")
    for k, given in enumerate(plan):
        start, end, fly, internal = _operation(k, given, nodes)
        said = f"operation {k} {(start, end, fly, internal)}"
        if start != world.truck[0]:
            raise BadSolution(f"{said}: starts at {start}, but the truck is at {world.truck[0]}")
        if fly < 0 and start == end and not internal:
            continue  # published plans begin with an operation that does nothing
        for action in actions_of(Operation(start, end, fly, internal), nodes):
            if world.done[0]:
                raise BadSolution(f"{said}: every node is covered and the truck is home already")
            if not world.action_mask[0, action]:
                raise BadSolution(f"{said}: {why_illegal(world, 0, action)}")
            world.step([action])
    if not world.terminated[0]:
        left = np.flatnonzero(~world.covered[0]).tolist()
        raise BadSolution(f"the plan leaves node {left[0]} uncovered" if left else
                          f"the plan ends at node {world.truck[0]}, not at the depot")  # fmt: skip
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


def actions_of(operation: Operation, nodes: int) -> Iterator[int]:
    """An operation in the actions of a world of so many nodes: drive to j is j, launch to k nodes + k, join 2 nodes."""
    start, end, fly, internal = operation
    if fly != NO_FLY:
        yield nodes + fly
    yield from internal
    if end != (start, *internal)[-1]:
        yield end
    if fly != NO_FLY:
        yield 2 * nodes


def why_illegal(world: TSPD, row: int, action: int) -> str:
    """The action by name, and the reason in the words of the trade."""
    nodes = world.sizes["N"]
    if not 0 <= action <= 2 * nodes:
        return f"out of range 0..{2 * nodes}"
    node = action % nodes
    if action == 2 * nodes:
        return f"JOIN: {_no_join(world, row, int(world.truck[row])) if world.fly[row] >= 0 else 'the drone is aboard'}"
    name, reason = ("DRIVE", _no_drive) if action < nodes else ("LAUNCH", _no_launch)
    if node >= world.n_nodes[world.instance_row[row]]:
        return f"{name}_{node}: the instance has no such node"
    return f"{name}_{node}: {reason(world, row, node)}"


def _no_drive(world: TSPD, row: int, j: int) -> str:
    if world.fly[row] < 0:
        return "nodes are left to cover" if j == 0 else "covered"
    if world.must_join[row]:
        return "the truck is back at a covered node: the drone must join"
    if j == world.truck[row]:
        return "the truck is there"
    return "the drone serves it" if j == world.fly[row] else f"covered, and {_no_join(world, row, j)}"


def _no_launch(world: TSPD, row: int, k: int) -> str:
    q, here = world.instance_row[row], world.truck[row]
    if world.fly[row] >= 0:
        return "the drone is out"
    if world.covered[row, k]:
        return "covered"
    if world.no_visit[q, k]:
        return f"the drone may not serve {k}"
    for node in (k, here):
        if world.forbid[q, node]:
            return f"node {node} is forbidden to the drone"
    least = world.c_drone[q, here, k] + world.fly_on[q, k]
    return f"there and on to the nearest node costs {least:g}, over max_fly = {world.max_fly[q]:g}"


def _no_join(world: TSPD, row: int, node: int) -> str:
    q, launch, fly = world.instance_row[row], world.launch[row], world.fly[row]
    if world.forbid[q, node]:
        return f"node {node} is forbidden to the drone"
    flight = world.c_drone[q, launch, fly] + world.c_drone[q, fly, node]
    return f"the flight to {node} would cost {flight:g}, over max_fly = {world.max_fly[q]:g}"
