"""PyVRP for `VRP-v0`: the model of an instance, and its best solution as actions.

Costs and times are rounded up and limits down, so a plan that PyVRP calls feasible is valid. A depot becomes a vehicle
type with edges of its own, whose length is their cost. Open routes have returns of length 0; what may not follow or be
served has an edge of prohibitive length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution, missing_extra
from milkrun.routing.tasks.base import TOL
from milkrun.solvers.fleet import Fleet, Ints, Route, in_actions
from milkrun.solvers.problem import Floats

FINENESS = 1e6  # about the size of the longest leg, in cost and in time
LONG = 1000.0  # legs of more medians do not set the scale
DEAREST = 1e8  # of a fixed cost; the penalties of PyVRP must stay above it
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
        raise BadSolution(
            "PyVRP found no plan that serves all customers: give it more time; if the fleet is too small, the policy "
            "'nearest' leaves customers"
        )
    kinds = used_depots(fleet)
    routes: list[Route] = []
    for route in result.best.routes():
        stops = [fleet.depots + visit.idx for visit in route if visit.is_client()]
        routes.append((kinds[route.vehicle_type()], stops))
    return in_actions(fleet, in_order(fleet, routes)), False


def in_order(fleet: Fleet, routes: list[Route]) -> list[Route]:
    """With `backhaul_only=False`, routes of backhauls come last, when no linehaul is left."""
    if fleet.backhaul_only:
        return routes
    return sorted(routes, key=lambda route: not fleet.linehaul[route[1]].any())


def used_depots(fleet: Fleet) -> list[int]:
    """The depots that have vehicles: the vehicle types of the model."""
    return [k for k in range(fleet.n_depots) if fleet.vehicles[k] > 0]


def model_of(fleet: Fleet) -> Any:
    """The PyVRP model."""
    from pyvrp import Model

    n, depots = len(fleet.dist), fleet.depots
    legs = fleet.dist.copy()
    if fleet.open_route:
        legs[:, :depots] = 0.0
    scale, clock, timed = _scale_of_costs(fleet), _scale_of_times(fleet), fleet.has_times
    durations = _rounded_up(clock * legs / fleet.speed) if timed else np.zeros(legs.shape, np.int64)

    model = Model()
    places = [model.add_location(0, 0) for _ in range(n)]
    homes = [model.add_depot(places[k]) for k in range(depots)]
    for j in range(depots, n):
        window: dict[str, Any] = _window(fleet, j, clock) if timed else {}
        model.add_client(
            places[j], delivery=int(fleet.linehaul[j]) * LOADS, pickup=int(fleet.backhaul[j]) * LOADS, **window
        )
    for k in used_depots(fleet):
        # The length of an edge is its cost, and a free vehicle has true lengths of price 0: a price of thousands would
        # exceed the penalties of PyVRP.
        rate = scale * (fleet.distance_cost[k] or 1.0)
        profile = model.add_profile()
        _add_edges(model, fleet, places, profile, _rounded_up(rate * legs), durations, k)
        limits: dict[str, Any] = {}
        if np.isfinite(fleet.distance_limit[k]):
            limits["max_distance"] = _floor(rate, fleet.distance_limit[k])
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
            fixed_cost=round(scale * fleet.fixed_cost[k]),
            unit_distance_cost=int(fleet.distance_cost[k] > 0),
            profile=profile,
            **limits,
        )
    return model


def _rounded_up(amounts: Floats) -> Ints:
    """Whole numbers, with 0 on the diagonal; what is too large for a search is forbidden."""
    whole = np.ceil(np.minimum(amounts - 1e-6, FORBIDDEN)).astype(np.int64)
    np.fill_diagonal(whole, 0)
    return np.maximum(whole, 0)


def _add_edges(model: Any, fleet: Fleet, places: Any, profile: Any, costs: Ints, durations: Ints, k: int) -> None:
    """The edges of the vehicles of depot k."""
    depots = fleet.depots
    closed = np.zeros(costs.shape, bool)
    if fleet.backhaul_class == 1:
        closed |= (fleet.backhaul > 0)[:, None] & (fleet.linehaul > 0)
    if not fleet.backhaul_only and fleet.linehaul.any():
        closed[:depots] |= (fleet.backhaul > 0) & (fleet.linehaul == 0)
    closed[:, ~fleet.serves[k]] = True
    closed[:, :depots] = False
    lengths = np.where(closed, FORBIDDEN, costs).tolist()
    for i, row in enumerate(lengths):
        for j, length in enumerate(row):
            if i != j:
                model.add_edge(places[i], places[j], length, int(durations[i, j]), profile=profile)


def _scale_of_costs(fleet: Fleet) -> float:
    """The scale of costs; a whole number for whole distances at the price 1, which then stay exact."""
    rates = fleet.distance_cost[used_depots(fleet)]
    price = float(rates.max(initial=0.0)) or 1.0
    scale = _fine(price * fleet.dist)
    dearest = float(fleet.fixed_cost[used_depots(fleet)].max(initial=0.0))
    if dearest > 0:
        scale = min(scale, DEAREST / dearest)
    return _whole_scale(scale, np.append(fleet.dist.ravel(), fleet.fixed_cost)) if (rates == 1).all() else scale


def _scale_of_times(fleet: Fleet) -> float:
    """The scale of times; a whole number for whole times, which then stay exact."""
    finite = fleet.closes[np.isfinite(fleet.closes)]
    limits = fleet.duration_limit[np.isfinite(fleet.duration_limit)]
    times = np.concatenate([fleet.dist.ravel() / fleet.speed, fleet.opens, finite, fleet.service, limits])
    largest = float(times.max(initial=0.0))
    scale = _fine(fleet.dist / fleet.speed)
    return _whole_scale(min(scale, LATEST / (4.0 * largest)) if largest > 0 else scale, times)


def _fine(legs: Floats) -> float:
    """The scale at which the longest leg is about FINENESS; a few very long ones do not count."""
    apart = legs[legs > 0]
    if not len(apart):
        return 1.0
    return FINENESS / min(float(apart.max()), LONG * float(np.median(apart)))


def _whole_scale(scale: float, amounts: Floats) -> float:
    """The scale, rounded down if all amounts are whole numbers of a size that stays exact."""
    is_whole = (amounts == np.floor(amounts)).all() and amounts.max(initial=0.0) < LATEST / FINENESS
    return max(1.0, math.floor(scale)) if is_whole else scale


def _floor(scale: float, limit: float) -> int:
    """A limit with half of the tolerance of `fits`, rounded down."""
    return math.floor(min(scale * (limit + 0.5 * min(0.5, TOL * max(1.0, abs(limit)))), LATEST))


def _window(fleet: Fleet, j: int, clock: float) -> dict[str, int]:
    return {
        "tw_early": math.ceil(clock * fleet.opens[j]),
        "tw_late": _floor(clock, fleet.closes[j]),
        "service_duration": math.ceil(clock * fleet.service[j] - 1e-6),
    }
