"""When each vehicle of a dial-a-ride plan drives, serves and waits, and when each rider is aboard.

The start times are the earliest that the independent checker finds; what lies between them is worked out here, as the
spans of time that a chart has bars for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from milkrun.core.errors import BadSolution
from milkrun.routing.darp.task.cases import Case, of_instance
from milkrun.routing.darp.task.checker import DARPProblem, DARPReport
from milkrun.routing.darp.task.schedule import NOISE, legs
from milkrun.routing.instances.darp import DARPInstance

Span = tuple[float, float]


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

    @property
    def extent(self) -> Span:
        """From the first to the last of all that a chart shows of it."""
        shown = [t for t in (*self.pickup, self.until, self.latest, *sum(self.windows, ())) if math.isfinite(t)]
        return min(shown), max(shown)


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


def lanes(riders: Sequence[Aboard], room: float) -> list[int]:
    """A lane for each, so that those of one lane keep `room` between their extents: the first that is free."""
    taken: list[float] = []
    lane = [0] * len(riders)
    for k in sorted(range(len(riders)), key=lambda k: riders[k].extent):
        start, end = riders[k].extent
        lane[k] = next((n for n, until in enumerate(taken) if until + room <= start), len(taken))
        taken[lane[k] : lane[k] + 1] = [end]
    return lane


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
