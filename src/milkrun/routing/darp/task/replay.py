"""What routes of the dial-a-ride problem break, under either rule, and what comes of driving them.

Under `classic` a route is judged as a whole: who rides in it, and whether any schedule keeps its times. Under
`deadlines` it is driven stop by stop on a clock of whole numbers, against deadlines alone; whoever has nowhere left to
go may head for the depot with riders aboard, and after the last stop of all nobody drives home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from milkrun.routing.darp.task.cases import Case
from milkrun.routing.darp.task.schedule import blame, earliest, legs, rides

Routes = Sequence[Sequence[int]]


class Violation(NamedTuple):
    """A broken rule: the vehicle, the position in its route (the return counts as one), the node, what and how much.

    Kinds: unknown node, duplicate, pairing, precedence, capacity, onboard, window, ride, duration, fleet, idle. The
    amount is in riders, requests or units of time, and 1 where there is nothing to measure.
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
    """What was found. Lists have an entry for each route; times are nan where a route has no schedule."""

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
        """Writes down a vehicle that does not leave."""
        self.schedule.append(())
        self.ride_times.append({})
        self.waiting.append(0.0)
        self.duration.append(0.0)

    def time(self, case: Case, walk: Sequence[int], starts: tuple[float, ...] | None) -> None:
        """Writes down when a walk is driven, and how long its riders ride and its vehicle waits."""
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


def judge_classic(case: Case, routes: Routes, tol: float, max_onboard: int | None = None) -> Log:
    """Route k is vehicle k's; `max_onboard` is how many requests it may carry at once."""
    log = Log()
    for k, route in enumerate(routes):
        _judge_riders(case, k, route, log, max_onboard)
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
            for step, kind, amount in blame(case, walk, tol):
                log.add(k, where[step - 1], walk[step], kind, amount)
    return log


def _judge_riders(case: Case, k: int, route: Sequence[int], log: Log, max_onboard: int | None) -> None:
    """Who rides with vehicle k: nobody twice, nobody halfway or backwards, and all of them seated."""
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
    """The routes of a plan of `classic` by vehicle, and the vehicles that it leaves idle where it may not.

    A route goes to the first vehicle behind the one before whose seats suffice; one that fits none of those left goes
    to the next, or beyond the fleet. An empty route leaves the next vehicle unused that could take anybody, which is
    for the sake of one of another capacity behind it.
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
            # Without an able vehicle k is beyond the fleet: nothing is behind it, and the capacity of k is not read.
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
    """A whole plan of `deadlines`: as `drive_deadlines`, and a vehicle that stays at the depot can take nobody."""
    log = drive_deadlines(case, routes)
    k = next((k for k, route in enumerate(routes) if not route), len(routes))
    if k < len(case.capacity) and len(log.visited) < case.num_nodes - 1:
        before = {node for route in routes[:k] for node in route}
        if _can_go_on(case, 0, 0, 0, case.capacity[k], set(), before):
            log.add(k, 0, 0, "idle")
    return log


def drive_deadlines(case: Case, routes: Routes) -> Log:
    """Route k is vehicle k's; a vehicle left at the depot ends the day."""
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
    """Whether any customer may be driven to: in time, with a seat free or its rider aboard."""
    nodes = np.arange(1, case.num_nodes)
    arrival = clock + case.travel(case.distance(np.full_like(nodes, here), nodes))
    return any(
        node not in visited
        and at <= case.closes[node]
        and (load + case.demand[node] <= seats if node % 2 else node - 1 in aboard)
        for node, at in zip(nodes.tolist(), arrival.tolist(), strict=True)
    )
