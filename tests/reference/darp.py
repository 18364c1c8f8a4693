"""The scalar reference of the dial-a-ride world, rule `classic`: one row, plain Python, written from the rules alone.

It has two feasibility checks. `append` updates the summary of all schedules of the active vehicle and fills the state
fields. `schedule` solves the difference constraints of the whole route on raw windows by Bellman-Ford, without that
summary. `mask_by_append` and `mask_by_schedule` compute the same mask by each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .darp_base import DARPBaseModel, Reason, is_dropoff, is_pickup, request_of
from .tsp import distance_table, f32

TIME_EPS = 1e-4


class Aboard(NamedTuple):
    """A request aboard: the latest start of service at its pickup, and the least time since then."""

    request: int
    latest: float
    elapsed: float


class Route(NamedTuple):
    """The active vehicle's nodes from the depot on, and the summary of all feasible schedules."""

    nodes: tuple[int, ...]
    earliest: float
    departure_latest: float
    elapsed: float
    aboard: tuple[Aboard, ...] = ()


class DARPModel(DARPBaseModel):
    """Build the vehicles' routes sequentially; no rider may be late, ride too long or stay in a vehicle."""

    def __init__(
        self,
        locs: Sequence,
        demand: Sequence[int],
        capacity: Sequence[int],
        window_open: Sequence[float],
        time_windows: Sequence[float],
        service_time: Sequence[float],
        max_ride_time: Sequence[float],
        max_route_duration: float,
        dist: Sequence | None = None,
        n_nodes: int | None = None,
        penalty: float = 100.0,
        speed: float = 1.0,
        max_onboard: int = 8,
        reward: str = "dense",
        max_steps: int | None = None,
    ) -> None:
        super().__init__(demand, capacity, n_nodes, penalty, reward, max_steps)
        self.locs = [(f32(x), f32(y)) for x, y in locs]
        if dist is None:
            self.d = distance_table("euclid", locs, None)
        else:
            self.d = [[float(x) for x in row] for row in dist]
        self.t = [[x / float(speed) for x in row] for row in self.d]
        self.window_open = [float(x) for x in window_open]
        self.time_windows = [float(x) for x in time_windows]
        self.service_time = [float(x) for x in service_time]
        self.max_ride_time = [float(x) for x in max_ride_time]
        self.max_route_duration = float(np.asarray(max_route_duration).reshape(()))
        self.max_onboard = int(max_onboard)
        self._tighten()
        self.reset()

    def _tighten(self) -> None:
        """Tightened windows; depot and padding keep theirs."""
        opens, closes, s, t = self.window_open, self.time_windows, self.service_time, self.t
        self.tight_open, self.tight_close = list(opens), list(closes)
        for p in range(1, self.n_nodes, 2):
            d, ride = p + 1, self.max_ride_time[request_of(p)]
            self.tight_open[p] = max(opens[p], opens[0] + t[0][p], opens[d] - s[p] - ride)
            self.tight_close[d] = min(closes[d], closes[0] - s[d] - t[d][0], closes[p] + s[p] + ride)
            self.tight_close[p] = min(closes[p], self.tight_close[d] - s[p] - t[p][d])
            self.tight_open[d] = max(opens[d], self.tight_open[p] + s[p] + t[p][d])

    # The first check: the summary.

    def _fresh(self) -> Route:
        return Route((0,), self.window_open[0], self.time_windows[0], 0.0)

    def append(self, route: Route, v: int) -> Route | None:
        """The route extended by a node, or None if no schedule is left."""
        here = route.nodes[-1]
        tau = self.service_time[here] + self.t[here][v]
        earliest = max(self.tight_open[v], route.earliest + tau)
        latest = self.tight_close[v]
        aboard = [Aboard(r, u, x + tau) for r, u, x in route.aboard]
        elapsed = route.elapsed + tau
        if v == 0:
            if aboard or elapsed > self.max_route_duration + TIME_EPS:
                return None
            latest = min(latest, route.departure_latest + self.max_route_duration)
        elif is_dropoff(v):
            (rider,) = (one for one in aboard if one.request == request_of(v))
            service, ride = self.service_time[v - 1], self.max_ride_time[rider.request]
            if rider.elapsed > service + ride + TIME_EPS:
                return None
            latest = min(latest, rider.latest + service + ride)
            aboard.remove(rider)
        if earliest > latest + TIME_EPS:
            return None
        aboard = [Aboard(r, min(u, latest - x), x) for r, u, x in aboard]
        if is_pickup(v):
            aboard.append(Aboard(request_of(v), latest, 0.0))
        departure = min(route.departure_latest, latest - elapsed)
        return Route((*route.nodes, v), earliest, departure, elapsed, tuple(aboard))

    def _completable(self, route: Route) -> bool:
        if not route.aboard:
            return self.append(route, 0) is not None
        after = (self.append(route, 2 * one.request + 2) for one in route.aboard)
        return any(longer is not None and self._completable(longer) for longer in after)

    def _survives_by_append(self, route: Route, v: int) -> bool:
        longer = self.append(route, v)
        return longer is not None and self._completable(longer)

    # The second check: difference constraints over the whole route, raw windows, no summary.

    def schedule(self, nodes: Sequence[int], slack: float = 0.0) -> list[float] | None:
        """The earliest start times along a route that begins (and, if complete, ends) at the depot, or None.

        Every upper limit may be exceeded by `slack`. The times only grow from the openings; if they still change after
        as many rounds as there are nodes, the constraints are cyclic and have no solution.
        """
        start = [self.window_open[j] for j in nodes]
        back = [
            (nodes.index(j - 1), q, self.service_time[j - 1] + self.max_ride_time[request_of(j)])
            for q, j in enumerate(nodes)
            if is_dropoff(j)
        ]
        if len(nodes) > 1 and nodes[-1] == 0:
            back.append((0, len(nodes) - 1, self.max_route_duration))
        for _ in range(len(nodes) + 1):
            before = list(start)
            for q in range(1, len(nodes)):
                i, j = nodes[q - 1], nodes[q]
                start[q] = max(start[q], start[q - 1] + self.service_time[i] + self.t[i][j])
            for p, q, limit in back:
                start[p] = max(start[p], start[q] - limit - slack)
            if any(b > self.time_windows[j] + slack for b, j in zip(start, nodes, strict=True)):
                return None
            if all(b - a <= 1e-9 for a, b in zip(before, start, strict=True)):
                return start
        return None

    def _survives_by_schedule(self, nodes: tuple[int, ...], slack: float) -> bool:
        """Whether some order of the dropoffs is feasible; a prefix without a schedule has no feasible extension."""
        if self.schedule(nodes, slack) is None:
            return False
        waiting = [j + 1 for j in nodes if is_pickup(j) and j + 1 not in nodes]
        if not waiting:
            return self.schedule((*nodes, 0), slack) is not None
        return any(self._survives_by_schedule((*nodes, j), slack) for j in waiting)

    # The mask.

    def mask_by_append(self) -> list[bool]:
        return self._mask_of(self._survives_by_append)

    def mask_by_schedule(self, slack: float = TIME_EPS) -> list[bool]:
        """The mask by Bellman-Ford. If slack -1e-3 and 1e-3 give the same mask, no limit is nearer than that."""
        return self._mask_of(lambda route, v: self._survives_by_schedule((*route.nodes, v), slack))

    def _live_mask(self) -> list[bool]:
        return self.mask_by_append()

    def _mask_of(self, survives: Callable[[Route, int], bool]) -> list[bool]:
        def allows(j: int) -> bool:
            if j == 0:
                return self._depot_open()
            open_here = self._pickup_fits(j) if is_pickup(j) else request_of(j) in self.riding
            return open_here and survives(self.route, j)

        return [allows(j) for j in range(self.num_nodes)]

    def _pickup_fits(self, j: int) -> bool:
        return (
            not self.visited[j]
            and self.current_load + self.demand[j] <= self.capacity[self.current_agent]
            and len(self.route.aboard) < self.max_onboard
        )

    def _depot_open(self) -> bool:
        if self.current_node > 0:
            return not self.route.aboard
        seats = self.capacity[self.current_agent]
        later = range(self.current_agent + 1, len(self.capacity))
        return any(not self.vehicle_finished[k] and self.capacity[k] != seats for k in later)

    def illegal_reason(self, action: int) -> Reason:
        if not 0 <= action < self.num_nodes:
            return Reason.OUT_OF_RANGE
        if self.visited[action]:
            return Reason.VISITED
        if is_dropoff(action) and request_of(action) not in self.riding:
            return Reason.NOT_ABOARD
        if action == 0 and self.route.aboard:
            return Reason.RIDERS_ABOARD
        if action == 0:
            return Reason.NONE if self._depot_open() else Reason.FROM_DEPOT
        if is_pickup(action) and self.current_load + self.demand[action] > self.capacity[self.current_agent]:
            return Reason.CAPACITY
        if is_pickup(action) and len(self.route.aboard) >= self.max_onboard:
            return Reason.TOO_MANY
        longer = self.append(self.route, action)
        if longer is None:
            return Reason.TOO_LATE
        return Reason.NONE if self._completable(longer) else Reason.STRANDS

    # The step.

    def _start(self) -> None:
        if not self._advance():
            raise ValueError("no vehicle can take any request")

    def _advance(self) -> bool:
        """The first unfinished vehicle with a legal pickup becomes active; skipped ones are finished."""
        fresh = self._fresh()
        for k, seats in enumerate(self.capacity):
            if self.vehicle_finished[k]:
                continue
            open_pickups = (p for p in range(1, self.n_nodes, 2) if not self.visited[p] and self.demand[p] <= seats)
            if any(self._survives_by_append(fresh, p) for p in open_pickups):
                self._activate(k)
                self.route = fresh
                return True
            self._finish_vehicle(k)
        return False

    def _drive(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        self.total_distance += leg
        if a > 0:
            self._serve(a)
            longer = self.append(self.route, a)
            assert longer is not None
            self.route = longer
        else:
            self.vehicles_used += self.current_node > 0
            self._finish_vehicle(self.current_agent)
            self.terminated = not self._advance()
        self.current_node = a
        return leg

    # Fields from the summary. A return that ends the episode does not change them.

    @property
    def riding(self) -> list[int]:
        return [one.request for one in self.route.aboard]

    def _slots(self, values: list[Any], empty: Any) -> list[Any]:
        return values + [empty] * (self.max_onboard - len(values))

    @property
    def current_time(self) -> float:
        return self.route.earliest

    @property
    def departure_latest(self) -> float:
        return self.route.departure_latest

    @property
    def route_elapsed(self) -> float:
        return self.route.elapsed

    @property
    def onboard(self) -> list[int]:
        return self._slots(self.riding, -1)

    @property
    def onboard_latest(self) -> list[float]:
        return self._slots([one.latest for one in self.route.aboard], 0.0)

    @property
    def onboard_elapsed(self) -> list[float]:
        return self._slots([one.elapsed for one in self.route.aboard], 0.0)

    # Values of this rule for the features.

    def _travel_time(self, j: int) -> float:
        return self.t[self.current_node][j]

    def _earliest_start(self, j: int) -> float:
        tau = self.service_time[self.current_node] + self._travel_time(j)
        return max(self.tight_open[j], self.current_time + tau)

    def _vehicle_shares(self) -> tuple[float, float]:
        return len(self.riding) / self.max_onboard, self.route_elapsed / self.max_route_duration
