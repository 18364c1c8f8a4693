"""The solvers of the dial-a-ride problem, a function each: insertion, large neighbourhood search, OR-Tools, all plans.

Routes are lists of node numbers without the depot, one for each vehicle: request r is picked up at node 2r+1 and
dropped off at node 2r+2. Cost and distance always come from the checker. No solver needs a world."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution, ConfigError
from milkrun.routing.darp.task.checker import DARPProblem
from milkrun.routing.instances.darp import DARPInstance
from milkrun.solvers.darp import construct, ortools, search
from milkrun.solvers.darp.construct import ORDERS, Routes

MOST_REQUESTS = 3  # of solve_exact; 90 orders of three requests, 2520 of four


@dataclass(frozen=True)
class DARPPlan:
    """Routes with the figures of the checker."""

    routes: Routes
    """node numbers, one list for each vehicle"""
    cost: float
    """distance plus the penalty of every unvisited node"""
    distance: float
    unserved: int
    """requests not served"""


def insertion(instance: DARPInstance, order: str = "cheapest", speed: float = 1.0) -> Routes:
    """Routes by successive insertion of requests at their cheapest places; requests that do not fit are left out.

    `cheapest` inserts the cheapest open request first, `deadline` the one with the earliest deadline of its pickup.
    """
    return construct.insert_rows(instance.fields(), order, speed)[0]


def insertion_batch(world: Any, order: str = "deadline", threads: int | None = None) -> list[Routes]:
    """The routes of `insertion` for every row of a world of rule `classic`, with its fleet and speed.

    Rows with the same instance get the same routes. `threads` is by default all for a large batch.
    """
    if not hasattr(world, "window_open"):
        raise ConfigError(f"{type(world).__name__} has no service windows: insertion_batch needs the rule 'classic'")
    rows = np.asarray(world.instance_row, np.int64)
    played, where = np.unique(rows, return_inverse=True)
    names = (
        "locs",
        "demand",
        "capacity",
        "time_windows",
        "window_open",
        "service_time",
        "max_ride_time",
        "max_route_duration",
        "n_nodes",
    )
    fields = {name: np.asarray(getattr(world, name))[played] for name in names}
    if world.config.metric == "matrix":
        fields["dist"] = np.asarray(world.dist)[played]
    found = construct.insert_rows(fields, order, world.config.speed, world.config.max_onboard, threads)
    return [[list(route) for route in found[k]] for k in where.tolist()]


def improve(
    instance: DARPInstance,
    routes: Sequence[Sequence[int]] | None = None,
    seconds: float = 10,
    seed: int = 0,
    iterations: int | None = None,
    *,
    penalty_unvisited: float = 100.0,
    speed: float = 1.0,
) -> DARPPlan:
    """The best plan of a large neighbourhood search from `routes` on, by default from `best_insertion`.

    Never worse than its start. With `iterations` the result depends on the seed only and `seconds` has no effect.
    """
    if not seconds > 0:
        raise ConfigError(f"seconds is {seconds}, must be > 0")
    if iterations is not None and iterations < 1:
        raise ConfigError(f"iterations is {iterations}, must be at least 1, or None")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed is {seed}, must be within 0..2**63-1")
    rules: dict[str, Any] = {"speed": speed, "penalty_unvisited": penalty_unvisited}
    start = best_insertion(instance, **rules) if routes is None else price_routes(instance, routes, **rules)
    # an unserved request is two unvisited nodes
    found = search.search(instance, start.routes, seconds, seed, iterations, speed, 2 * penalty_unvisited)
    return _better(start, price_routes(instance, found, **rules))


def solve_ortools(
    instance: DARPInstance,
    seconds: float = 10,
    warm_start: bool = True,
    scale: int = 1000,
    penalty_unvisited: float = 100.0,
    speed: float = 1.0,
    iterations: int | None = None,
) -> DARPPlan:
    """The plan of OR-Tools' guided local search in whole numbers, `scale` for a unit; needs the extra `solvers`.

    It starts from `best_insertion` and is never worse; without `warm_start` it starts from OR-Tools' first solution.
    `iterations` limits the solutions tried; `seconds` then has no effect.
    """
    if not seconds > 0:
        raise ConfigError(f"seconds is {seconds}, must be > 0")
    if scale < 1:
        raise ConfigError(f"scale is {scale}, must be at least 1")
    if iterations is not None and iterations < 1:
        raise ConfigError(f"iterations is {iterations}, must be at least 1, or None")
    rules: dict[str, Any] = {"speed": speed, "penalty_unvisited": penalty_unvisited}
    start = best_insertion(instance, **rules) if warm_start else price_routes(instance, [], **rules)
    model = ortools.Model(instance, scale, penalty_unvisited, speed)
    found = model.search(seconds, start.routes if warm_start else None, iterations)
    return start if found is None else _better(start, price_routes(instance, found, **rules))


def solve_exact(instance: DARPInstance, *, penalty_unvisited: float = 100.0, speed: float = 1.0) -> DARPPlan:
    """The cheapest of all plans of at most three requests: every choice of requests, vehicles and orders."""
    if instance.num_requests > MOST_REQUESTS:
        raise ConfigError(
            f"{instance.name} has {instance.num_requests} requests, solve_exact tries all plans of at most "
            f"{MOST_REQUESTS}; improve and solve_ortools take any number"
        )
    requests = range(instance.num_requests)
    groups = [frozenset(g) for size in reversed(range(len(requests) + 1)) for g in combinations(requests, size)]
    fleet: list[int] = instance.capacity.tolist()
    shortest = {seats: {g: _shortest(instance, g, seats, speed) for g in groups} for seats in set(fleet)}
    plans: dict[frozenset[int], tuple[float, Routes]] = {frozenset(): (0.0, [])}
    for seats in fleet:
        # vehicle by vehicle, with only the shortest routes for each set of served requests, since the rest depends on
        # the set only
        longer: dict[frozenset[int], tuple[float, Routes]] = {}
        for served, (way, routes) in plans.items():
            for group, found in shortest[seats].items():
                if found is None or group & served:
                    continue
                total = way + found[0]
                if served | group not in longer or total < longer[served | group][0] - 1e-9:
                    longer[served | group] = (total, [*routes, found[1]])
        plans = longer
    rules = {"speed": speed, "penalty_unvisited": penalty_unvisited}
    return min((price_routes(instance, routes, **rules) for _, routes in plans.values()), key=lambda plan: plan.cost)


def price_routes(
    instance: DARPInstance, routes: Sequence[Sequence[int]], *, penalty_unvisited: float = 100.0, speed: float = 1.0
) -> DARPPlan:
    """Routes as a plan with the checker's numbers, one list for each vehicle; `BadSolution` if they break a rule."""
    filled = [[int(node) for node in route] for route in routes]
    filled += [[] for _ in range(instance.num_agents - len(filled))]
    report = DARPProblem.check(instance, filled, speed=speed, penalty_unvisited=penalty_unvisited)
    if report.violations:
        raise BadSolution(f"{instance.name}: {report.violations[0]}")
    return DARPPlan(filled, report.cost, report.distance, report.unserved)


def best_insertion(
    instance: DARPInstance, orders: Sequence[str] = ORDERS, *, penalty_unvisited: float = 100.0, speed: float = 1.0
) -> DARPPlan:
    """The cheapest of the insertions by these orders, or the empty plan if that is cheaper."""
    routes = [*(insertion(instance, order, speed) for order in orders), []]
    plans = [price_routes(instance, plan, speed=speed, penalty_unvisited=penalty_unvisited) for plan in routes]
    return min(plans, key=lambda plan: plan.cost)


def _better(start: DARPPlan, found: DARPPlan) -> DARPPlan:
    return found if found.cost < start.cost else start


def _shortest(
    instance: DARPInstance, group: frozenset[int], seats: int, speed: float
) -> tuple[float, list[int]] | None:
    """The shortest route that serves exactly these requests, or None."""
    d, best = instance.distances(), None
    if not group:
        return 0.0, []
    for route in _orders(instance, sorted(group), [], 0, seats):
        way = float(d[[0, *route], [*route, 0]].sum())
        if (best is None or way < best[0] - 1e-9) and DARPProblem.schedule(instance, route, speed=speed) is not None:
            best = way, route
    return best


def _orders(
    instance: DARPInstance, waiting: list[int], aboard: list[int], load: int, seats: int
) -> Iterator[list[int]]:
    """All feasible orders of the pickups of `waiting` and all dropoffs, within the seats."""
    if not waiting and not aboard:
        yield []
    for r in waiting:
        more = load + int(instance.demand[2 * r + 1])
        if more <= seats:
            rest = [q for q in waiting if q != r]
            yield from ([2 * r + 1, *tail] for tail in _orders(instance, rest, [*aboard, r], more, seats))
    for r in aboard:
        less = load - int(instance.demand[2 * r + 1])
        rest = [q for q in aboard if q != r]
        yield from ([2 * r + 2, *tail] for tail in _orders(instance, waiting, rest, less, seats))
