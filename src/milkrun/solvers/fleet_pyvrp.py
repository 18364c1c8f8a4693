"""PyVRP for `VRP-v0`: the model of an instance, and its best solution as actions.

Lengths and times are rounded up and limits down, so a plan that PyVRP calls feasible is valid. A depot becomes a
vehicle type. Open routes have returns of length 0; what may not follow or be served has an edge of prohibitive length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution, missing_extra
from milkrun.routing.tasks.base import TOL
from milkrun.solvers.fleet import Fleet, Route, in_actions

FINENESS = 1e6  # about the size of the longest leg
LOADS = 1000  # with small loads the penalties of PyVRP may be too low to forbid an overload
FORBIDDEN = 1 << 36  # of an edge; far above any cost, far below overflow
LATEST = 1 << 44  # no limit
PATIENCE = 200  # iterations without improvement, for each customer, after which the search stops


def solve_one(fleet: Fleet, time_limit: float, seed: int, iterations: int | None = None) -> tuple[list[int], bool]:
    """Actions of the best plan found, and False: PyVRP proves nothing."""
    try:
        from pyvrp.stop import MaxIterations, MaxRuntime, MultipleCriteria, NoImprovement
    except ImportError:
        raise missing_extra("pyvrp", "solvers") from None
    customers = len(fleet.dist) - fleet.depots
    end = MaxRuntime(time_limit) if iterations is None else MaxIterations(iterations)
    stop = MultipleCriteria([end, NoImprovement(PATIENCE * customers)])
    result = model_of(fleet).solve(stop, seed=seed % 2**32, collect_stats=False, display=False)
    if not result.best.is_feasible():
        raise BadSolution("PyVRP found no plan that serves all customers with this fleet; give it more time")
    routes: list[Route] = []
    for route in result.best.routes():
        stops = [fleet.depots + visit.idx for visit in route if visit.is_client()]
        routes.append((route.vehicle_type(), stops))
    return in_actions(fleet, in_order(fleet, routes)), False


def in_order(fleet: Fleet, routes: list[Route]) -> list[Route]:
    """With `backhaul_only=False`, routes of backhauls come last, when no linehaul is left."""
    if fleet.backhaul_only:
        return routes
    return sorted(routes, key=lambda route: not fleet.linehaul[route[1]].any())


def model_of(fleet: Fleet) -> Any:
    """The PyVRP model."""
    from pyvrp import Model

    n, depots = len(fleet.dist), fleet.depots
    scale = _scale(fleet)
    clock = scale * fleet.speed  # so that a leg's duration is its length
    dist = np.ceil(scale * fleet.dist - 1e-6).astype(np.int64)
    if fleet.open_route:
        dist[:, :depots] = 0
    np.fill_diagonal(dist, 0)
    timed = fleet.has_times

    model = Model()
    places = [model.add_location(0, 0) for _ in range(n)]
    homes = [model.add_depot(places[k]) for k in range(depots)]
    for j in range(depots, n):
        window: dict[str, Any] = _window(fleet, j, clock) if timed else {}
        model.add_client(
            places[j], delivery=int(fleet.linehaul[j]) * LOADS, pickup=int(fleet.backhaul[j]) * LOADS, **window
        )
    price = _prices(fleet)
    for k in range(fleet.n_depots):
        profile = model.add_profile()
        _add_edges(model, fleet, places, profile, dist, k, timed)
        if fleet.vehicles[k] == 0:
            continue
        limits: dict[str, Any] = {}
        if np.isfinite(fleet.distance_limit[k]):
            limits["max_distance"] = _floor(scale, fleet.distance_limit[k])
        if np.isfinite(fleet.duration_limit[k]):
            limits["shift_duration"] = _floor(clock, fleet.duration_limit[k])
        if timed:
            closes = _floor(clock, fleet.closes[k])
            limits["tw_early"] = math.ceil(clock * fleet.opens[k])
            limits["tw_late"] = LATEST if fleet.open_route else closes
            limits["start_late"] = closes
        model.add_vehicle_type(
            int(min(fleet.vehicles[k], n - depots)),
            int(fleet.capacity[k]) * LOADS,
            start_depot=homes[k],
            end_depot=homes[k],
            fixed_cost=round(scale * price * fleet.fixed_cost[k]),
            unit_distance_cost=round(price * fleet.distance_cost[k]),
            profile=profile,
            **limits,
        )
    return model


def _add_edges(model: Any, fleet: Fleet, places: Any, profile: Any, dist: Any, k: int, timed: bool) -> None:
    """The edges of the vehicles of depot k."""
    depots = fleet.depots
    only_back = (fleet.backhaul > 0) & (fleet.linehaul == 0)
    closed = np.zeros(dist.shape, bool)
    if fleet.backhaul_class == 1:
        closed |= (fleet.backhaul > 0)[:, None] & (fleet.linehaul > 0)
    if not fleet.backhaul_only and fleet.linehaul.any():
        closed[:depots] |= only_back
    closed[:, ~fleet.serves[k]] = True
    closed[:, :depots] = False
    for i in range(len(dist)):
        for j in range(len(dist)):
            if i != j:
                leg = FORBIDDEN if closed[i, j] else int(dist[i, j])
                model.add_edge(places[i], places[j], leg, leg if timed and not closed[i, j] else 0, profile=profile)


def _prices(fleet: Fleet) -> float:
    """A factor that makes the costs of distance whole numbers, at least to a thousandth of the lowest."""
    used = fleet.distance_cost[fleet.distance_cost > 0]
    if not len(used) or (used == np.round(used)).all():
        return 1.0
    return float(1000.0 / used.min())


def _scale(fleet: Fleet) -> float:
    """The scale; a whole number for whole distances and times, which then stay exact."""
    largest = float(fleet.dist.max(initial=0.0))
    scale = FINENESS / largest if largest > 0 else 1.0
    finite = fleet.closes[np.isfinite(fleet.closes)]
    amounts = np.concatenate([fleet.dist.ravel(), fleet.opens, finite, fleet.service])
    return max(1.0, math.floor(scale)) if (amounts == np.floor(amounts)).all() else scale


def _floor(scale: float, limit: float) -> int:
    """A limit with half of the tolerance of `fits`, rounded down."""
    return math.floor(min(scale * (limit + 0.5 * min(0.5, TOL * max(1.0, abs(limit)))), LATEST))


def _window(fleet: Fleet, j: int, clock: float) -> dict[str, int]:
    return {
        "tw_early": math.ceil(clock * fleet.opens[j]),
        "tw_late": _floor(clock, fleet.closes[j]),
        "service_duration": math.ceil(clock * fleet.service[j] - 1e-6),
    }
