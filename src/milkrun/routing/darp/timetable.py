"""Charts of dial-a-ride plans: driving, service and waiting of each vehicle, and the ride of each request.

The start times are the earliest ones of the independent checker; the intervals in between are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution
from milkrun.core.fields import Role
from milkrun.render.scene import Bar, Chart, Mark, Style, Window
from milkrun.routing.darp.task.cases import Case, of_instance
from milkrun.routing.darp.task.checker import DARPProblem, DARPReport
from milkrun.routing.darp.task.schedule import NOISE, legs
from milkrun.routing.instances.darp import DARPInstance

Span = tuple[float, float]
Part = Bar | Mark | Window
STYLES = {
    "drive": Style("drives", "muted"),
    "service": Style("at a stop", "ink"),
    "wait": Style("waits", "muted", hatched=True),
    "ride": Style("rides", 0),
    "limit": Style("could ride until", "grid"),
    "left": Style("never dropped off", "late"),
}


def timetable(
    instance: DARPInstance,
    routes: Sequence[Sequence[int]],
    rule: str = "classic",
    speed: float | None = None,
    known: Sequence[int] = (),
) -> tuple[DARPReport, Chart]:
    """The checker's report on routes of nodes, and a chart with a lane for each vehicle and for each of its requests.

    The lanes of vehicle k are shown from frame `known[k]` on.
    """
    case = of_instance(instance, rule, speed)
    for k, route in enumerate(routes):
        for node in route:
            if not 0 < node < case.num_nodes:
                raise BadSolution(f"{instance.name}: route {k} has node {node}, nodes are 1..{case.num_nodes - 1}")
    report = DARPProblem.check(instance, routes, rule, speed=speed)
    lanes, parts = list[str](), list[Part]()
    for k, (route, starts) in enumerate(zip(routes, report.schedule, strict=True)):
        lanes.append(f"vehicle {k + 1}")
        if not starts:
            lanes[-1] += ", no schedule keeps its times" if route else ", stays at the depot"
            continue
        vehicle, at = lanes[-1], known[k] if known else None
        walk = [0, *route, 0][
            : len(starts)
        ]  # under the rule `deadlines` the return after the very last stop is not driven
        day = list(_drives(case, walk, starts, vehicle, at))
        parts += [bar for kind in STYLES for bar in day if bar.kind == kind]
        when = dict(zip(walk[1:], starts[1:], strict=True))
        for pickup in (node for node in route if node % 2):
            lanes.append(f"request {pickup // 2 + 1}")
            parts += _rides(case, pickup, when, starts[-1], lanes[-1], vehicle, at)
    kinds = {kind: style for kind, style in STYLES.items() if any(getattr(part, "kind", "") == kind for part in parts)}
    bars, marks = (tuple(p for p in parts if isinstance(p, Bar)), tuple(p for p in parts if isinstance(p, Mark)))
    windows = tuple(part for part in parts if isinstance(part, Window))
    return report, Chart(tuple(lanes), bars, marks, windows, unit="time", kinds=kinds)


def _drives(case: Case, walk: list[int], starts: Sequence[float], lane: str, at: int | None) -> Iterator[Bar]:
    """The day of a vehicle, in the order of time."""
    for step, tau in enumerate(legs(case, walk)):
        served, arrival = starts[step] + case.service[walk[step]], starts[step] + tau
        if step:
            yield Bar(lane, "service", starts[step], served, at=at)
        yield Bar(lane, "drive", served, arrival, at=at)
        if starts[step + 1] > arrival + NOISE:
            yield Bar(lane, "wait", arrival, starts[step + 1], at=at)
    if walk[-1]:
        yield Bar(lane, "service", starts[-1], starts[-1] + case.service[walk[-1]], at=at)


def _rides(
    case: Case, pickup: int, when: dict[int, float], back: float, lane: str, vehicle: str, at: int | None
) -> Iterator[Part]:
    """The ride of a request; without a dropoff it ends with the vehicle's day."""
    services = [(stop, when[stop], when[stop] + case.service[stop]) for stop in (pickup, pickup + 1) if stop in when]
    picked, down = services[0][2], when.get(pickup + 1, back)
    yield Bar(lane, "ride", picked, down, at=at)
    if math.isfinite(latest := picked + case.ride[pickup // 2]):
        yield Bar(lane, "limit", down, max(down, latest), at=at)
    for _, start, end in services:
        yield Bar(lane, "service", start, end, at=at)
    if pickup + 1 not in when:
        yield Mark(lane, "left", back, at=at)
    for word, stop in (("pickup", pickup), ("dropoff", pickup + 1)):
        opens, closes = _window(case, stop)
        if math.isfinite(opens) or math.isfinite(closes):
            came = (when[stop], vehicle) if stop in when else ()
            yield Window(f"{lane}, {word}", opens, closes, *came)


def _window(case: Case, node: int) -> Span:
    """The window of a node, infinite where that of the depot is as tight."""
    opens, closes = case.opens[node], case.closes[node]
    home = math.inf if case.rule == "deadlines" else case.closes[0]  # that rule never tests the depot's deadline
    return opens if opens > case.opens[0] else -math.inf, closes if closes < home else math.inf


def routes_of_row(world: Any, row: int) -> tuple[DARPInstance, list[list[int]]]:
    """The instance of a row and the route of each vehicle so far; needs record=True."""
    q = world.instance_row[row]
    fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE]
    instance = DARPInstance.of_row(f"row {row}", {name: getattr(world, name)[q] for name in fields})
    driven = DARPProblem.actions_to_routes(world.path(row)[1:])
    return instance, _by_vehicle(instance, driven, world.config.rule == "classic")


def _by_vehicle(instance: DARPInstance, driven: list[list[int]], classic: bool) -> list[list[int]]:
    """A route for each vehicle; the rule `classic` skips vehicles that fit no remaining request."""
    loads = {r: int(instance.demand[2 * r + 1]) for r in range(instance.num_requests)}
    fleet: list[list[int]] = []
    waiting = iter(driven)
    for seats in instance.capacity.tolist():
        skipped = classic and all(load > seats for load in loads.values())
        fleet.append([] if skipped else next(waiting, []))
        for node in fleet[-1]:
            loads.pop((node - 1) // 2, None)
    return fleet


def chart(world: Any, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
    """The chart of a row; each vehicle is shown from the frame in which its tour ended."""
    if not world.config.record:
        return None
    instance, routes = routes_of_row(world, row)
    over = frames["vehicle_finished"].astype(bool)
    # argmax is 0 for a vehicle that never finished and for one skipped at the start, whose route is empty: both are
    # shown at the last frame.
    known = [int(over[:, k].argmax()) or len(over) - 1 for k in range(len(routes))]
    return timetable(instance, routes, world.config.rule, world.config.speed, known)[1]
