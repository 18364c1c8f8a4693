"""The log of a row of the TSP with a drone: operations, the bars of a Gantt chart, paths.

All is derived from the recorded actions, not from sums of the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from milkrun.delivery.instances.tspd import NO_FLY, Operation
from milkrun.delivery.styles import STYLES
from milkrun.render.scene import Bar, Chart


class Event(NamedTuple):
    """A bar of the Gantt chart: the activity of `agent` (truck, drone) from t0 to t1, and its nodes."""

    agent: str
    kind: str  # truck: drive, wait; drone: aboard, fly, wait
    t0: float
    t1: float
    start: int
    end: int


class Trip(NamedTuple):
    """A completed operation from `t0` to `t1`, and the stops of the truck."""

    start: int
    stops: list[int]  # of the truck
    fly: int
    t0: float
    t1: float


def operations(world: Any, row: int) -> list[Operation]:
    return [
        Operation(trip.start, (trip.start, *trip.stops)[-1], trip.fly, tuple(trip.stops[:-1]))
        for trip in _trips(world, row)
    ]


def events(world: Any, row: int) -> list[Event]:
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
        # t1 is summed along the truck's path. The drone's times are other sums and may exceed it by rounding; clipped
        # to t1, the bars have no gaps and do not overlap.
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


def chart_of_events(events: Iterable[Event], clock: np.ndarray | None = None) -> Chart:
    """The lanes of truck and drone; the numbers are nodes."""
    bars, flying = list[Bar](), False
    for agent, kind, t0, t1, _, node in events:
        flying = kind == "fly" and not flying  # a flight has two legs: out to the customer, and back
        shown = {"aboard": "onboard", "fly": "fly_out" if flying else "return"}.get(kind, kind)
        bars.append(Bar(agent, shown, t0, t1, f"\u2192{node}" if kind in ("drive", "fly") else ""))
    kinds = {kind: style for kind, style in STYLES.items() if any(bar.kind == kind for bar in bars)}
    return Chart(("truck", "drone"), tuple(bars), unit="time, in cost units", clock=clock, kinds=kinds)


def paths(world: Any, row: int) -> tuple[list[int], list[int], list[int]]:
    """The nodes of the truck in order, those of the drone, and those that the drone served."""
    nodes, out = world.sizes["N"], False
    way, drone, flown = [0], [0], list[int]()
    for action in world.plan[row, : world.steps[row]].tolist():
        if action < nodes:
            way.append(action)
        elif out := action < 2 * nodes:  # otherwise it has come back
            flown.append(action - nodes)
            drone.append(action - nodes)
        if not out:
            drone.append(way[-1])
    return way, drone, flown


def _trips(world: Any, row: int) -> Iterator[Trip]:
    """Completed operations in order, with times as the world sums them."""
    nodes, q = world.sizes["N"], world.instance_row[row]
    c_truck, c_drone = world.c_truck[q], world.c_drone[q]
    here = start = 0
    fly, stops, driven = -1, list[int](), 0.0
    began = now = 0.0
    for action in world.plan[row, : world.steps[row]].tolist():
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


def actions_of(operation: Operation, nodes: int) -> Iterator[int]:
    """The actions of an operation in a world of `nodes` nodes: j drives, nodes + k launches, 2 nodes joins."""
    start, end, fly, internal = operation
    if fly != NO_FLY:
        yield nodes + fly
    yield from internal
    if end != (start, *internal)[-1]:
        yield end
    if fly != NO_FLY:
        yield 2 * nodes
