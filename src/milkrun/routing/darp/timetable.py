"""When each vehicle of a dial-a-ride plan drives, serves and waits, and when each rider is aboard.

The start times are the earliest that the independent checker finds; what lies between them is worked out here, as the
spans of time that a chart has bars for, and `chart` makes them of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution
from milkrun.core.fields import Role
from milkrun.core.scene import Bar, Chart, Look, Mark, Window
from milkrun.routing.darp.task.cases import Case, of_instance
from milkrun.routing.darp.task.checker import DARPProblem, DARPReport
from milkrun.routing.darp.task.schedule import NOISE, legs
from milkrun.routing.instances.darp import DARPInstance

Span = tuple[float, float]
LOOKS = {
    "drive": Look("drives", "muted"), "service": Look("at a stop", "ink"), "wait": Look("waits", "muted", hatched=True),
    "ride": Look("rides", 0), "limit": Look("could ride until", "grid"), "left": Look("never set down", "late"),
}  # fmt: skip


@dataclass(frozen=True)
class Aboard:
    """One request in one vehicle."""

    request: int
    pickup: Span
    """service, from its start to its end"""
    dropoff: Span | None
    """None: the rider is not set down, and ends with the vehicle"""
    until: float
    """the end of service at the dropoff, or of the vehicle's day"""
    latest: float
    """when the dropoff has to start by the ride limit; inf: there is none"""
    windows: tuple[Span, Span]
    """of the pickup and of the dropoff; infinite where the depot's own window says as much"""


@dataclass(frozen=True)
class Shift:
    """The day of one vehicle; `departure` is None where it stays, or where its route has no schedule."""

    vehicle: int
    departure: float | None = None
    back: float | None = None
    drives: list[Span] = field(default_factory=list)
    services: list[Span] = field(default_factory=list)
    waits: list[Span] = field(default_factory=list)
    riders: list[Aboard] = field(default_factory=list)


def timetable(
    instance: DARPInstance, routes: Sequence[Sequence[int]], rule: str = "classic", speed: float | None = None
) -> tuple[DARPReport, list[Shift]]:
    """What the checker says of routes of nodes, and the day of each vehicle."""
    case = of_instance(instance, rule, speed)
    for k, route in enumerate(routes):
        for node in route:
            if not 0 < node < case.num_nodes:
                raise BadSolution(f"{instance.name}: route {k} has node {node}, nodes are 1..{case.num_nodes - 1}")
    report = DARPProblem.check(instance, routes, rule, speed=speed)
    days = zip(routes, report.schedule, strict=True)
    return report, [_shift(case, k, route, starts) if starts else Shift(k) for k, (route, starts) in enumerate(days)]


def _shift(case: Case, vehicle: int, route: Sequence[int], starts: tuple[float, ...]) -> Shift:
    walk = [0, *route, 0][: len(starts)]  # under the rule `deadlines` nobody drives home from the last stop of all
    shift = Shift(vehicle, starts[0], starts[-1])
    for step, tau in enumerate(legs(case, walk)):
        served, arrival = starts[step] + case.service[walk[step]], starts[step] + tau
        if step:
            shift.services.append((starts[step], served))
        shift.drives.append((served, arrival))
        if starts[step + 1] > arrival + NOISE:
            shift.waits.append((arrival, starts[step + 1]))
    if walk[-1]:
        shift.services.append((starts[-1], starts[-1] + case.service[walk[-1]]))
    when = dict(zip(walk[1:], starts[1:], strict=True))
    shift.riders.extend(_aboard(case, node, when, starts[-1]) for node in route if node % 2)
    return shift


def _aboard(case: Case, pickup: int, when: dict[int, float], back: float) -> Aboard:
    down, request = pickup + 1, pickup // 2
    picked = when[pickup] + case.service[pickup]
    dropoff = (when[down], when[down] + case.service[down]) if down in when else None
    return Aboard(
        request, (when[pickup], picked), dropoff, back if dropoff is None else dropoff[1],
        latest=picked + case.ride[request], windows=(_window(case, pickup), _window(case, down)),
    )  # fmt: skip


def _window(case: Case, node: int) -> Span:
    opens, closes = case.opens[node], case.closes[node]
    home = math.inf if case.rule == "deadlines" else case.closes[0]  # that rule never tests the depot's deadline
    return opens if opens > case.opens[0] else -math.inf, closes if closes < home else math.inf


def routes_of_row(world: Any, row: int) -> tuple[DARPInstance, list[list[int]]]:
    """The instance that a row plays and a route for each vehicle, as far as it has come; needs record=True."""
    q = world.instance_row[row]
    fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE]
    instance = DARPInstance.of_row(f"row {row}", {name: getattr(world, name)[q] for name in fields})
    driven = DARPProblem.actions_to_routes(world.path(row)[1:])
    return instance, _by_vehicle(instance, driven, world.config.rule == "classic")


def _by_vehicle(instance: DARPInstance, driven: list[list[int]], classic: bool) -> list[list[int]]:
    """A route for each vehicle: under the rule `classic` one that nobody left fits into is passed over."""
    loads = {r: int(instance.demand[2 * r + 1]) for r in range(instance.num_requests)}
    fleet: list[list[int]] = []
    waiting = iter(driven)
    for seats in instance.capacity.tolist():
        passed = classic and all(load > seats for load in loads.values())
        fleet.append([] if passed else next(waiting, []))
        for node in fleet[-1]:
            loads.pop((node - 1) // 2, None)
    return fleet


def chart(world: Any, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
    """Of a row: vehicles are planned one after the other, each is known from the frame on at which its tour ended."""
    if not world.config.record:
        return None
    instance, routes = routes_of_row(world, row)
    over = frames["vehicle_finished"].astype(bool)
    known = [int(over[:, k].argmax()) or len(over) - 1 for k in range(len(routes))]
    return chart_of_plan(routes, timetable(instance, routes, world.config.rule, world.config.speed)[1], known)


def chart_of_plan(routes: Sequence[Sequence[int]], shifts: Sequence[Shift], known: Sequence[int] = ()) -> Chart:
    """A lane for each vehicle and below it one for each of its riders."""
    lanes, bars, marks, windows = list[str](), list[Bar](), list[Mark](), list[Window]()
    for shift in shifts:
        vehicle, at = f"vehicle {shift.vehicle + 1}", known[shift.vehicle] if known else None
        lanes.append(vehicle)
        if shift.departure is None:
            lanes[-1] += ", no schedule keeps its times" if routes[shift.vehicle] else ", stays at the depot"
        for kind, spans in (("drive", shift.drives), ("service", shift.services), ("wait", shift.waits)):
            bars += [Bar(vehicle, kind, *span, at=at) for span in spans]
        for rider in shift.riders:
            lane = f"request {rider.request + 1}"
            lanes.append(lane)
            ride = rider.pickup[1], rider.until if rider.dropoff is None else rider.dropoff[0]
            bars.append(Bar(lane, "ride", *ride, at=at))
            if math.isfinite(rider.latest):
                bars.append(Bar(lane, "limit", ride[1], max(ride[1], rider.latest), at=at))
            bars += [Bar(lane, "service", *span, at=at) for span in (rider.pickup, rider.dropoff) if span]
            if rider.dropoff is None:
                marks.append(Mark(lane, "left", rider.until, at=at))
            stops = ("pickup", rider.pickup), ("dropoff", rider.dropoff)
            for (word, stop), bounds in zip(stops, rider.windows, strict=True):
                if math.isfinite(bounds[0]) or math.isfinite(bounds[1]):
                    came = (stop[0], vehicle) if stop else ()
                    windows.append(Window(f"{lane}, {word}", *bounds, *came))
    seen = {bar.kind for bar in bars} | {mark.kind for mark in marks}
    kinds = {kind: look for kind, look in LOOKS.items() if kind in seen}
    return Chart(tuple(lanes), tuple(bars), tuple(marks), tuple(windows), unit="time", kinds=kinds)
