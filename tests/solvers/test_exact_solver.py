"""method="exact": optima computed by hand, and agreement of two independent methods."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import MilkrunError
from milkrun.routing.instances import read
from milkrun.solvers import solve
from milkrun.solvers.exact import brute_force_tsp, exact_cvrp, held_karp
from tests.published import published_file
from tests.solvers.plays import bounded, crooked, drawn, matrix_of, play

SQUARE = np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)
"""Depot and three customers on the corners of a rectangle; its diagonal is 5."""
PRIZES = np.array([[0, 10, 10, 1]], np.float32)
WASTE = np.array([[0, 0.5, 1, 0.3]], np.float32)
WEIGHTS = {"waste_weight": 10.0, "length_weight": 1.0, "overflow_weight": 10.0}


def best(name, config=None, **fields):
    """The optimal objective of the rectangle."""
    found = solve(name, {"locs": SQUARE, **fields}, "exact", **(config or {}))
    assert found.optimal.all()
    return -found.cost[0]


def test_all_corners_are_visited_along_the_sides():
    """3 + 4 + 3 + 4."""
    assert best("TSP") == pytest.approx(-14)


def test_two_customers_a_truck():
    """One pair shares a trip: 12 with (1, 2) or (2, 3), and 6 or 8 for the remaining one."""
    units = np.array([[0, 5, 5, 5]])
    assert best("CVRP", demand_units=units, capacity=np.array([10])) == pytest.approx(-18)


@pytest.mark.parametrize("limit", [np.inf, 12.0])
def test_prizes_worth_their_detour(limit):
    """1 and 2 bring 20 over 12; the third corner costs 2 and brings 1. A trip of 12 fits a limit of 12."""
    result = best("VRPP", {"length_weight": 1.0}, prize=PRIZES, max_length=np.array([limit], np.float32))
    assert result == pytest.approx(8)


def test_prizes_that_fit_the_truck():
    """With a capacity of 15 only one prize of ten is collected, the near one: 10 - 6."""
    result = best("CVRPP", {"length_weight": 1.0}, prize=PRIZES, weight=PRIZES, capacity=np.array([15], np.float32))
    assert result == pytest.approx(4)


@pytest.mark.parametrize(("must", "reserve", "value"), [((), True, 3), ((3,), True, 1), ((3,), False, 3)])
def test_waste_with_and_without_reserved_capacity(must, reserve, value):
    """15 - 12 with bins 1 and 2; a mandatory bin 3 costs 2, unless other bins may use its capacity."""
    must_go = np.isin(np.arange(4), must)[None]
    capacity = np.array([1.6], np.float32)
    result = best("WCVRP", {**WEIGHTS, "must_go_reserve": reserve}, waste=WASTE, must_go=must_go, capacity=capacity)
    assert result == pytest.approx(value, abs=1e-5)


def test_waste_on_several_trips():
    """A truck for one bin; the full one is collected for 10 - 10, and no other one pays."""
    assert best("CWCVRP", WEIGHTS, waste=WASTE, capacity=np.array([1.0], np.float32)) == pytest.approx(0, abs=1e-5)


def test_held_karp_equals_all_tours():
    """Eight nodes, 20 instances, each of 5040 tours by the checker's cost."""
    instances = drawn("TSP", 8, 20)
    found = solve("TSP", instances, "exact")
    truth = [brute_force_tsp(d)[0] for d in matrix_of(instances)]
    np.testing.assert_allclose(found.cost, truth, rtol=1e-9)


def test_cvrp_equals_dynamic_programming_over_subsets():
    """Six customers, 20 instances with limited trips: enumeration compared with the partition of subsets."""
    instances = bounded("CVRP", 6, 20)
    found = solve("CVRP", instances, "exact")
    result = zip(matrix_of(instances), instances["demand_units"], instances["capacity"], instances["max_length"])
    truth = [exact_cvrp(d, [0, *units], float(room), float(limit))[0] for d, units, room, limit in result]
    np.testing.assert_allclose(found.cost, truth, rtol=1e-6)


@pytest.mark.parametrize("law", [bounded, crooked], ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", ["CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_optimal_plans_are_played(name, law):
    """With mandatory customers and limited trips, also without the triangle inequality, at the stated cost."""
    instances = law(name, 5, 30, seed=3)
    found = solve(name, instances, "exact")
    np.testing.assert_allclose(play(name, instances, found.actions), -found.cost, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [("TSP", 18, "17 nodes"), ("CVRP", 13, "13 nodes"), ("VRPP", 10, "at most 9"), ("CWCVRP", 10, "at most 9")],
)
def test_larger_sizes_are_refused(name, n, message):
    """The message has the largest allowed size; in the CVRP the depot counts as a node."""
    with pytest.raises(MilkrunError, match=message):
        solve(name, drawn(name, n, 1), "exact")


@pytest.mark.truth
def test_br17():
    """TSPLIB: 17 cities, asymmetric distances, optimum 39."""
    found = solve("TSP", read(published_file("routing/atsp/br17.atsp")), "exact")
    assert found.cost.tolist() == [39.0]
    assert found.optimal.tolist() == [True]


def test_held_karp_on_asymmetric_distances():
    """0 -> 1 -> 2 -> 0 costs 3, the other direction 30."""
    d = np.array([[[0, 1, 10], [10, 0, 1], [1, 10, 0]]], np.float32)
    found = solve("TSP", {"dist": d}, "exact")
    assert found.actions.tolist() == [[1, 2, 0]]
    assert found.cost[0] == held_karp(d[0])[0] == 3
