"""Replays of dial-a-ride routes under both rules: broken rules, distances and times.

Under `classic` a route is checked as a whole: its riders, and whether any schedule keeps its times. Under `deadlines`
it is replayed stop by stop on an integer clock against deadlines only. A vehicle without an open node may return with
riders aboard, and the return after the very last stop is not driven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from milkrun.routing.darp.task.cases import Case
from milkrun.routing.darp.task.schedule import broken_limits, earliest, legs, rides

Routes = Sequence[Sequence[int]]


class Violation(NamedTuple):
    """A broken rule: the vehicle, the position in its route (the return counts as one), the node, kind and amount.

    Kinds: unknown node, duplicate, pairing, precedence, capacity, onboard, window, ride, duration, fleet, idle. The
    amount is in riders, requests or units of time, or 1.
    """

    vehicle: int
    position: int
    node: int
    kind: str
    amount: float

    def __str__(self) -> str:
        return f"vehicle {self.vehicle}, position {self.position}, node {self.node}: {self.kind} by {self.amount:g}"


@dataclass
class Log:
    """The findings. Lists have an entry for each route; times are nan if a route has no schedule."""

    violations: list[Violation] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)
    served: set[int] = field(default_factory=set)  # requests
    distance: float = 0.0
    schedule: list[tuple[float, ...] | None] = field(default_factory=list)
    ride_times: list[dict[int, float]] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    duration: list[float] = field(default_factory=list)

    def add(self, vehicle: int, position: int, node: int, kind: str, amount: float = 1.0) -> None:
        self.violations.append(Violation(vehicle, position, node, kind, float(amount)))

    def stay(self) -> None:
        """Records a vehicle that does not leave."""
        self.schedule.append(())
        self.ride_times.append({})
        self.waiting.append(0.0)
        self.duration.append(0.0)

    def time(self, case: Case, walk: Sequence[int], starts: tuple[float, ...] | None) -> None:
        """Records the start times of a walk, its ride times and its waiting time."""
        self.schedule.append(starts)
        if starts is None:
            self.ride_times.append({})
            self.waiting.append(np.nan)
            self.duration.append(np.nan)
            return
        self.ride_times.append(
            {r: starts[down] - starts[up] - case.service[walk[up]] for r, up, down, _ in rides(case, walk)}
        )
        length = starts[-1] - starts[0]
        self.waiting.append(length - sum(legs(case, walk)))
        self.duration.append(length)


def check_classic(case: Case, routes: Routes, tol: float, max_onboard: int | None = None) -> Log:
    """Checks routes; route k belongs to vehicle k, and `max_onboard` limits the requests aboard."""
    log = Log()
    for k, route in enumerate(routes):
        _check_riders(case, k, route, log, max_onboard)
        known = [position for position, node in enumerate(route) if 0 < node < case.num_nodes]
        if not known:
            log.stay()
            continue
        walk = [0, *(route[position] for position in known), 0]
        nodes = np.array(walk)
        log.distance += float(case.distance(nodes[:-1], nodes[1:]).sum())
        log.served |= {ride.request for ride in rides(case, walk)}
        starts = earliest(case, walk, tol)
        log.time(case, walk, starts)
        if starts is None:
            where = [*known, len(route)]
            for step, kind, amount in broken_limits(case, walk, tol):
                log.add(k, where[step - 1], walk[step], kind, amount)
    return log


def _check_riders(case: Case, k: int, route: Sequence[int], log: Log, max_onboard: int | None) -> None:
    """Checks the riders of vehicle k: visits, pairing, precedence and capacity."""
    if route and k >= len(case.capacity):
        log.add(k, 0, route[0], "fleet")
    seats = case.capacity[k] if k < len(case.capacity) else None
    load = aboard = 0
    here, picked = set(route), set[int]()
    for position, node in enumerate(route):
        if not 0 < node < case.num_nodes:
            log.add(k, position, node, "unknown node")
            continue
        if node in log.visited:
            log.add(k, position, node, "duplicate")
            continue
        log.visited.add(node)
        load += case.demand[node]
        if node % 2:
            picked.add(node)
            aboard += 1
            if seats is not None and load > seats:
                log.add(k, position, node, "capacity", load - seats)
            if node + 1 not in here:
                log.add(k, position, node, "pairing")
            if max_onboard is not None and aboard > max_onboard:
                log.add(k, position, node, "onboard", aboard - max_onboard)
        elif node - 1 in picked:
            aboard -= 1
        else:
            log.add(k, position, node, "precedence" if node - 1 in route[position:] else "pairing")


def assign(case: Case, routes: Routes, tol: float) -> tuple[list[list[int]], list[Violation]]:
    """The routes of a `classic` plan by vehicle, and the vehicles that it must not leave idle.

    A route goes to the first later vehicle with enough seats; if there is none, to the next one, or beyond the fleet.
    An empty route leaves the next usable vehicle idle, which requires a later vehicle of another capacity.
    """
    fleet: list[list[int]] = [[] for _ in case.capacity]
    idle: list[Violation] = []
    waiting: list[int] | None = None
    visited: set[int] = set()
    free = 0
    for route in routes:
        left = [k for k in range(free, len(case.capacity)) if case.capacity[k] > 0]
        if not route:
            if waiting is None:
                pickups = range(1, case.num_nodes, 2)
                waiting = [p for p in pickups if earliest(case, [0, p, p + 1, 0], tol) is not None]
            lightest = min((case.demand[p] for p in waiting if p not in visited), default=None)
            able = [k for k in left if lightest is not None and lightest <= case.capacity[k]]
            k = able[0] if able else len(fleet)
            # Without a usable vehicle k is beyond the fleet: no vehicle follows, and the capacity of k is not read.
            if all(case.capacity[other] == case.capacity[k] for other in left if other > k):
                idle.append(Violation(k, 0, 0, "idle", 1.0))
            free = k + 1
            continue
        known = [case.demand[node] for node in route if 0 < node < case.num_nodes]
        peak = max(accumulate(known), default=0)
        k = next((k for k in left if case.capacity[k] >= peak), left[0] if left else len(fleet))
        if k == len(fleet):
            fleet.append([])
        fleet[k] = list(route)
        visited.update(route)
        free = k + 1
    return fleet, idle


def drive_plan(case: Case, routes: Routes) -> Log:
    """Replays a whole plan of `deadlines`; a vehicle may stay at the depot only if no request fits."""
    log = drive_deadlines(case, routes)
    k = next((k for k, route in enumerate(routes) if not route), len(routes))
    if k < len(case.capacity) and len(log.visited) < case.num_nodes - 1:
        before = {node for route in routes[:k] for node in route}
        if _can_go_on(case, 0, 0, 0, case.capacity[k], set(), before):
            log.add(k, 0, 0, "idle")
    return log


def drive_deadlines(case: Case, routes: Routes) -> Log:
    """Replays routes; route k belongs to vehicle k, and an empty route ends the day."""
    log = Log()
    over = False
    for k, route in enumerate(routes):
        if route and (over or k >= len(case.capacity)):
            log.add(k, 0, route[0], "fleet")
        over = over or not route
        _drive_one(case, k, route, log)
    return log


def _drive_one(case: Case, k: int, route: Sequence[int], log: Log) -> None:
    seats = case.capacity[k] if k < len(case.capacity) else 0
    clock = load = here = 0
    picked: dict[int, int] = {}
    walk, starts = [0], [0.0]
    for position, node in enumerate(route):
        if not 0 < node < case.num_nodes:
            log.add(k, position, node, "unknown node")
            continue
        way = case.distance(np.array([here]), np.array([node]))
        clock += int(case.travel(way)[0])
        log.distance += float(way[0])
        if clock > case.closes[node]:
            log.add(k, position, node, "window", clock - case.closes[node])
        if node in log.visited:
            log.add(k, position, node, "duplicate")
        elif node % 2:
            load += case.demand[node]
            picked[node] = position
            if load > seats:
                log.add(k, position, node, "capacity", load - seats)
        elif node - 1 in picked:
            load += case.demand[node]
            del picked[node - 1]
            log.served.add((node - 1) // 2)
        else:
            log.add(k, position, node, "precedence" if node - 1 in route[position:] else "pairing")
        log.visited.add(node)
        here = node
        walk.append(node)
        starts.append(float(clock))
    if len(walk) == 1:
        log.stay()
        return
    if len(log.visited) < case.num_nodes - 1:
        if picked and _can_go_on(case, here, clock, load, seats, set(picked), log.visited):
            for node, position in picked.items():
                log.add(k, position, node, "pairing")
        way = case.distance(np.array([here]), np.array([0]))
        log.distance += float(way[0])
        walk.append(0)
        starts.append(float(clock + int(case.travel(way)[0])))
    log.time(case, walk, tuple(starts))


def _can_go_on(case: Case, here: int, clock: int, load: int, seats: int, aboard: set[int], visited: set[int]) -> bool:
    """True if some node is open: reached in time, with a free seat or with its rider aboard."""
    nodes = np.arange(1, case.num_nodes)
    arrival = clock + case.travel(case.distance(np.full_like(nodes, here), nodes))
    return any(
        node not in visited
        and at <= case.closes[node]
        and (load + case.demand[node] <= seats if node % 2 else node - 1 in aboard)
        for node, at in zip(nodes.tolist(), arrival.tolist(), strict=True)
    )
