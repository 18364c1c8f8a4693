"""Exact answers for tiny sizes, as the standard for every other solver.

Two independent methods: dynamic programming over subsets of customers, and enumeration of all plans priced by the
checkers of `milkrun.routing.tasks`. Both take a distance matrix (from row to column, asymmetric allowed) and consider
only trips that a world allows, which could return from each of their customers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.core.held_karp import shortest_paths, shortest_tour, trip_through
from milkrun.core.instances import as_array
from milkrun.routing.tasks import CVRP, TSP
from milkrun.routing.tasks.base import fits
from milkrun.solvers.limits import Limits, can_be_driven, limits_of
from milkrun.solvers.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_HELD_KARP = 17
MAX_SUBSET_CVRP = 13
MAX_BRUTE_TSP = 9
MAX_BRUTE_CVRP = 7


def held_karp(dist: Any) -> tuple[float, Ints]:
    """The shortest closed tour and its cost, n <= 17 nodes; the tour starts at node 0."""
    d = _read_dist(dist, MAX_HELD_KARP)
    cost, tour = shortest_tour(d)
    return cost, np.array(tour, np.int64)


def brute_force_tsp(dist: Any) -> tuple[float, Ints]:
    """As `held_karp`, by pricing all (n - 1)! tours from node 0 with the checker; n <= 9 nodes."""
    d = _read_dist(dist, MAX_BRUTE_TSP)
    if len(d) == 1:
        return 0.0, np.zeros(1, np.int64)
    tours = np.array([(0, *order) for order in permutations(range(1, len(d)))], np.int64)
    cost, _, _ = TSP.get_costs({"dist": d[None]}, tours)
    best = int(cost.argmin())
    return float(cost[best]), tours[best]


def exact_cvrp(dist: Any, demand: Any, capacity: float, max_length: float = np.inf) -> tuple[float, Ints]:
    """The cheapest plan for up to 12 customers and its cost, as actions: each trip's customers, then 0.

    Finds the shortest trip through each subset that fits one vehicle, then the cheapest partition into such subsets.
    `demand` is over nodes, 0 at the depot.
    """
    d = _read_dist(dist, MAX_SUBSET_CVRP)
    capacity, max_length = _limit("capacity", capacity), _limit("max_length", max_length)
    path = shortest_paths(d, lambda ways: fits(ways + d[1:, 0], max_length))
    subsets = np.arange(len(path))
    member = (subsets[:, None] >> np.arange(len(d) - 1)) & 1
    trip = (path + d[1:, 0]).min(axis=1)
    feasible = fits(member @ _read_demand(demand, d)[1:], capacity) & np.isfinite(trip)

    # the trip with the lowest customer of a set has no lower customer
    candidates = [subsets[feasible & ((subsets & -subsets) == 1 << j)] for j in range(len(d) - 1)]
    cost = np.full(len(path), np.inf)
    cost[0] = 0.0
    last = np.zeros(len(path), np.int64)
    for s in range(1, len(path)):
        inside = candidates[(s & -s).bit_length() - 1]
        inside = inside[(inside & ~s) == 0]
        if len(inside):
            total = trip[inside] + cost[s ^ inside]
            cost[s], last[s] = total.min(), inside[total.argmin()]

    everyone = len(path) - 1
    if not np.isfinite(cost[everyone]):
        raise BadInstance(f"no plan serves every customer with capacity {capacity:g} and max_length {max_length:g}")
    actions: list[int] = []
    s = everyone
    while s:
        actions += [*trip_through(path, d, int(last[s])), 0]
        s ^= int(last[s])
    return float(cost[everyone]), np.array(actions, np.int64)


def brute_force_cvrp(dist: Any, demand: Any, capacity: float, max_length: float = np.inf) -> tuple[float, Ints]:
    """As `exact_cvrp`, by pricing every order with every choice of returns with the checker; up to 6 customers."""
    d = _read_dist(dist, MAX_BRUTE_CVRP)
    capacity, max_length = _limit("capacity", capacity), _limit("max_length", max_length)
    customers = len(d) - 1
    orders = np.array(list(permutations(range(1, len(d)))), np.int64)
    goes_home = np.array([(*cut, True) for cut in product((False, True), repeat=customers - 1)])
    plans = np.zeros((len(orders), len(goes_home), 2 * customers), np.int64)
    stop = np.arange(customers) + np.cumsum(goes_home, axis=1) - goes_home  # a return before a stop shifts it by one
    for k, places in enumerate(stop):
        plans[:, k, places] = orders
    pi = plans.reshape(-1, 2 * customers)
    dataset = {"dist": d[None], "demand_units": _read_demand(demand, d)[None]}
    cost, _, _ = CVRP.get_costs(dataset, pi, on_violation="inf", capacity=capacity, max_length=max_length)
    cost[~can_be_driven(Limits(d, np.zeros(len(d)), max_length=max_length), pi)] = np.inf
    best = int(cost.argmin())
    if not np.isfinite(cost[best]):
        raise BadInstance(f"no plan serves every customer with capacity {capacity:g} and max_length {max_length:g}")
    returns = int(goes_home[best % len(goes_home)].sum())
    return float(cost[best]), pi[best, : customers + returns]


def _read_dist(dist: Any, most: int) -> Floats:
    d = _numbers("dist", dist)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or not 1 <= len(d) <= most:
        raise ShapeError(f"dist has shape {d.shape}, expected (n, n) with at most {most} nodes")
    if not (np.isfinite(d) & (d >= 0)).all():
        raise BadInstance("dist must be finite and >= 0")
    return d


def _read_demand(demand: Any, d: Floats) -> Floats:
    w = _numbers("demand", demand)
    if w.shape != (len(d),):
        raise ShapeError(f"demand has shape {w.shape}, expected ({len(d)},), the depot first")
    if not (np.isfinite(w) & (w >= 0)).all():
        raise BadInstance("demand must be finite and >= 0")
    return w


def _limit(name: str, value: Any) -> float:
    limit = _numbers(name, value)
    if limit.ndim or not limit >= 0:
        raise ConfigError(f"{name}={value!r}: must be a number >= 0")
    return float(limit)


def _numbers(name: str, value: Any) -> Floats:
    array = as_array(name, value)
    if array.dtype.kind not in "fiu":
        raise ShapeError(f"{name} is of dtype {array.dtype}, expected numbers")
    return array.astype(np.float64)


# -- any world ----------------------------------------------------------------------------------------------------

MAX_CUSTOMERS = 9
AT_ONCE = 100_000  # plans priced together


def solve_one(problem: Problem, b: int, price: Any) -> tuple[list[int], bool]:
    """The best actions for a small instance b.

    A tour is solved by `held_karp`, trips that serve all customers by `exact_cvrp`, other problems by enumeration with
    the checker, `price(plans, b) -> cost`.
    """
    limits = limits_of(problem, b)
    if problem.circular:
        _, tour = held_karp(limits.dist)
        return tour[1:].tolist(), True
    n = len(limits.dist)
    ways = problem.ways(b)
    alone = fits(ways[0] + ways[:, 0], limits.max_length)
    serves_all = problem.multi and bool((problem.required[b, 1:n] & alone[1:]).all()) and problem.windows is None
    if serves_all and not problem.gain[b].any():
        _, best = exact_cvrp(ways, limits.weight, limits.capacity, limits.max_length)
        return best[:-1].tolist(), True

    def cost(plans: Ints) -> Floats:
        paid: Floats = price(plans, b)
        return np.where(can_be_driven(limits, plans), paid, np.inf) if limits.bind_on_the_way else paid

    return enumerate_plans(n - 1, problem.multi, cost).tolist(), True


def enumerate_plans(customers: int, multi: bool, cost: Callable[[Ints], Floats]) -> NDArray[np.int32]:
    """The cheapest of all plans over subsets of the customers, with one trip or several."""
    if customers > MAX_CUSTOMERS:
        raise ShapeError(f"{customers} customers are too many to enumerate: at most {MAX_CUSTOMERS}")
    # int8: 9 customers make 9,914,336 plans of 19 entries, 190 MB.
    plans, lengths = np.zeros((1, 2 * customers + 1), np.int8), np.zeros(1, np.int64)
    for j in range(1, customers + 1):
        plans, lengths = _with_or_without(plans, lengths, j, multi)
    costs = np.concatenate([cost(plans[k : k + AT_ONCE].astype(np.int64)) for k in range(0, len(plans), AT_ONCE)])
    best = int(costs.argmin())
    if not np.isfinite(costs[best]):
        raise BadInstance("no plan keeps every rule")
    return plans[best, : lengths[best]].astype(np.int32)


def _with_or_without(plans: Any, lengths: Any, j: int, multi: bool) -> tuple[Any, Any]:
    """Every plan without customer j, with it before each entry (also a closing 0), or on a separate trip."""
    made, sizes = [plans], [lengths]
    width = plans.shape[1]
    for p in range(int(lengths.max()) if len(lengths) else 0):
        some = p < lengths
        # only a 0 is dropped at the end: with one customer fewer a plan has at most 2 customers - 2 entries
        wider = np.insert(plans[some], p, j, axis=1)[:, :width]
        made.append(wider)
        sizes.append(lengths[some] + 1)
    alone = np.ones(len(plans), bool) if multi else lengths == 0
    # A new trip goes to the end and customers come in ascending order, so trips are ordered by their lowest customer
    # and no plan is made twice.
    own, at = plans[alone].copy(), lengths[alone]
    own[np.arange(len(own)), at] = j
    made.append(own)
    sizes.append(at + 2)
    return np.concatenate(made), np.concatenate(sizes)
