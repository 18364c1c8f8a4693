"""Plans of vehicles as legs, and the rules of a single route that need no knowledge of what it carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.base import fits, trip_of_leg, trip_totals
from milkrun.routing.tasks.dataset import Bools, Ints
from milkrun.routing.tasks.depots import FleetData
from milkrun.routing.tasks.distances import Floats

# The worlds add lengths and times in float32, the checkers in float64. This share of the limit covers the difference.
ROUNDING = 2e-6
MOST_ROUNDING = 0.1  # whole numbers stay exact

Rule = tuple[Bools, Callable[[int, int], str]]
"""Where a rule is broken, and the sentence of an entry: the arguments of `Faults.add`."""


def within(x: Floats, limit: Floats) -> Bools:
    """x <= limit for lengths and times, with the tolerance of the family and that of float32 sums."""
    return fits(x - np.minimum(MOST_ROUNDING, ROUNDING * np.maximum(1.0, np.abs(limit))), limit)


class Routes:
    """Plans as legs: arrays (R, M) over the legs in the order driven, of the solution rows `at` (R,).

    A leg goes from `start` to `stop`, a customer or the vehicle's own depot. A pair of depots in a plan is an empty
    route, a leg of length 0.
    """

    def __init__(self, data: FleetData, nodes: Ints, at: Ints) -> None:
        self.data, self.at = data, at
        depot_at = nodes < data.num_depots
        last = np.maximum.accumulate(np.where(depot_at, np.arange(nodes.shape[1]), 0), axis=1)
        self.depot = np.take_along_axis(nodes, last, axis=1)[:, :-1]
        self.start = nodes[:, :-1]
        self.leaves = depot_at[:, :-1] & ~depot_at[:, 1:]
        self.serves = ~depot_at[:, 1:]
        self.returns = ~depot_at[:, :-1] & depot_at[:, 1:]
        self.stop = np.where(self.serves, nodes[:, 1:], self.depot)
        self.trip = trip_of_leg(np.where(depot_at, 0, nodes))
        legs = data.between(self.start, self.stop, at=at)
        self.length = np.where(self.returns & data.is_open[at, None], 0.0, legs)

    def of_stop(self, values: NDArray[Any]) -> NDArray[Any]:
        """From a value for each node (B, N), that of each stop (R, M)."""
        return values[self.at[:, None], self.stop]

    def of_depot(self, values: Floats) -> Floats:
        """From a value for each depot (B, K), that of the depot of each leg (R, M)."""
        return values[self.at[:, None], self.depot]

    def so_far(self, values: Floats) -> Floats:
        """Sums of `values` (R, M) over the legs of a route up to each leg, that leg included."""
        totals = trip_totals(self.trip, values)
        before = np.cumsum(totals, axis=1) - totals
        sums: Floats = np.cumsum(values, axis=1) - np.take_along_axis(before, self.trip, axis=1)
        return sums

    def in_all(self, values: Floats) -> Floats:
        """Sums of `values` (R, M) over the route of each leg."""
        return np.take_along_axis(trip_totals(self.trip, values), self.trip, axis=1)


def permission_rules(routes: Routes) -> Iterator[Rule]:
    if routes.data.serves is None:
        return
    refused = routes.serves & ~routes.data.serves[routes.at[:, None], routes.stop, routes.depot]
    yield refused, lambda b, m: f"depot {routes.depot[b, m]} may not serve customer {routes.stop[b, m]}"


def distance_rules(routes: Routes) -> Iterator[Rule]:
    limit = routes.of_depot(routes.data.distance_limit)
    if np.isposinf(limit).all():
        return
    driven = routes.in_all(routes.length)
    yield (
        routes.returns & ~within(driven, limit),
        lambda b, m: (
            f"route {routes.trip[b, m]}, whose last customer is {routes.start[b, m]}, is {driven[b, m]:.10g} long, "
            f"distance_limit {limit[b, m]:.10g}"
        ),
    )


def time_rules(routes: Routes) -> Iterator[Rule]:
    """Windows of the customers, return to the depot, and the duration of the route."""
    data = routes.data
    limit = routes.of_depot(data.duration_limit)
    if not data.has_windows and np.isposinf(limit).all():
        return
    arrive, leave = _earliest_times(routes)
    closes = routes.of_stop(data.closes)
    late = ~within(arrive, closes)
    yield (
        routes.serves & late,
        lambda b, m: (
            f"late at customer {routes.stop[b, m]} on route {routes.trip[b, m]}: "
            f"arrives {arrive[b, m]:.10g}, closes {closes[b, m]:.10g}"
        ),
    )
    yield (
        routes.returns & late & ~data.is_open[routes.at, None],
        lambda b, m: (
            f"late home on route {routes.trip[b, m]} after customer {routes.start[b, m]}: "
            f"arrives {arrive[b, m]:.10g}, depot {routes.depot[b, m]} closes {closes[b, m]:.10g}"
        ),
    )
    if np.isposinf(limit).all():
        return
    lasts = arrive - _latest_start(routes, leave)
    yield (
        routes.returns & ~within(lasts, limit),
        lambda b, m: (
            f"route {routes.trip[b, m]}, whose last customer is {routes.start[b, m]}, takes {lasts[b, m]:.10g}, "
            f"duration_limit {limit[b, m]:.10g}"
        ),
    )


def _earliest_times(routes: Routes) -> tuple[Floats, Floats]:
    """For each leg, the earliest arrival at its stop and the earliest departure from its start, (R, M)."""
    data = routes.data
    drive = routes.length / data.speed[routes.at, None]
    opens, service = routes.of_stop(data.opens), routes.of_stop(data.service)
    depot_opens = routes.of_depot(data.opens)
    arrive, leave = np.zeros_like(drive), np.zeros_like(drive)
    clock = np.zeros(len(drive))
    for m in range(drive.shape[1]):
        leave[:, m] = np.where(routes.leaves[:, m], depot_opens[:, m], clock)
        arrive[:, m] = leave[:, m] + drive[:, m]
        clock = np.maximum(arrive[:, m], opens[:, m]) + service[:, m]
    return arrive, leave


def _latest_start(routes: Routes, leave: Floats) -> Floats:
    """For each leg home, the latest start of its route that ends no later than the earliest end, (R, M).

    Backwards from the earliest departure from the last customer. The least duration of a route is its earliest end
    minus this start: an earlier start adds waiting, a later one, if there is one, ends as much later.
    """
    data = routes.data
    drive = routes.length / data.speed[routes.at, None]
    closes, service = routes.of_stop(data.closes), routes.of_stop(data.service)
    depot_closes = routes.of_depot(data.closes)
    starts = np.zeros((len(drive), int(routes.trip.max(initial=0)) + 1))
    row = np.arange(len(drive))
    latest = np.zeros(len(drive))
    for m in reversed(range(drive.shape[1])):
        begins = np.minimum(closes[:, m], latest - service[:, m])
        latest = np.where(routes.serves[:, m], begins - drive[:, m], leave[:, m])
        out = routes.leaves[:, m]
        starts[row[out], routes.trip[out, m]] = np.minimum(depot_closes[:, m], latest)[out]
    return np.take_along_axis(starts, routes.trip, axis=1)
