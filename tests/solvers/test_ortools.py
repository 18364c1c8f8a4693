"""OR-Tools as a back end: optima by hand, tours never better than the exact ones, valid plans for any time limit."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from milkrun.core.errors import MissingExtra
from milkrun.solvers import ortools, solve
from milkrun.solvers.exact import exact_cvrp, held_karp
from tests.solvers.backends import BY_HAND, RECTANGLE, Case
from tests.solvers.plays import crooked, drawn, play

pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")

FEW = 300  # solutions; guided local search uses all of them


@pytest.mark.parametrize("case", BY_HAND)
def test_the_rectangle_by_hand(case):
    """The eight optima computed by hand."""
    name, fields, config, best = BY_HAND[case]
    _, cost, proven = Case(name, {"locs": RECTANGLE, **fields}, **config).solve(ortools, iterations=FEW)
    assert cost == pytest.approx(best, abs=1e-5)
    assert not proven


@pytest.mark.parametrize("symmetric", [True, False])
def test_tours_of_ten_nodes_are_the_shortest(symmetric):
    """Equal to dynamic programming, on symmetric and asymmetric integer distances."""
    d = np.random.default_rng(4).integers(1, 1000, (4, 10, 10)) * (1 - np.eye(10, dtype=np.int64))
    d = d + d.transpose(0, 2, 1) if symmetric else d
    case = Case("TSP", {"dist": d.astype(np.float32)})
    for b in range(4):
        assert case.solve(ortools, b)[1] == held_karp(d[b])[0]


def test_plans_of_eight_customers_are_the_cheapest():
    """Equal to dynamic programming over subsets."""
    case = Case("CVRP", drawn("CVRP", 8, 4))
    for b in range(4):
        best, _ = exact_cvrp(case.problem.distances(b), case.arrays["demand_units"][b], 20)
        assert case.solve(ortools, b)[1] == pytest.approx(best, rel=1e-6)


def test_trips_forbidden_by_the_world_are_replaced():
    """Five instances of the CVRP with detours that are shortcuts; the method is passed on, and proves nothing."""
    instances = crooked("CVRP", 8, 5)
    found = solve("CVRP", instances, "ortools", iterations=FEW)
    np.testing.assert_allclose(play("CVRP", instances, found.actions), -found.cost, rtol=1e-5)
    assert (found.cost >= solve("CVRP", instances, "exact").cost - 1e-5).all()
    assert not found.optimal.any()


def test_windows_force_the_order():
    """The near customer opens at 5, the far one closes at 3, the depot at 6: far, back, wait, home."""
    fields = {
        "locs": [[[0, 0], [1, 0], [2, 0]]],
        "prize": [[0, 10, 10]],
        "service_time": [[0, 0, 0]],
        "time_windows": [[[0, 6], [5, 6], [0, 3]]],
    }
    case = Case("VRPP", fields, length_weight=1.0, time_windows=True)
    assert case.solve(ortools, iterations=FEW)[:2] == ([2, 1], -16.0)


def test_a_valid_plan_needs_no_time():
    """One millisecond for 60 customers: customers that OR-Tools left out get separate trips."""
    actions, _, _ = Case("CVRP", drawn("CVRP", 60, 1)).solve(ortools, iterations=None, time_limit=1e-9)
    assert sorted(a for a in actions if a) == list(range(1, 61))


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_a_limit_of_solutions_is_independent_of_time(name):
    """The shortest time limit does not shorten a search limited by solutions, and the answer is repeatable."""
    instances = drawn(name, 12, 2)
    found = [solve(name, instances, "ortools", iterations=FEW, time_limit=t) for t in (1e-9, 1e6)]
    np.testing.assert_array_equal(found[0].actions, found[1].actions)
    assert (found[0].cost <= solve(name, instances, "ortools", iterations=1).cost).all()


def test_a_search_that_finds_no_second_solution_ends():
    """Windows that allow only one order: without a limit of branches the search would not end."""
    fields = {
        "locs": [[[0, 0], [1, 0], [2, 0], [3, 0]]],
        "prize": [[0, 9, 9, 9]],
        "service_time": [[0, 0, 0, 0]],
        "time_windows": [[[0, 99], [1, 1], [2, 2], [3, 3]]],
        "must_go": [[False, True, True, True]],
    }
    assert Case("VRPP", fields, length_weight=1.0, time_windows=True).solve(ortools)[:2] == ([1, 2, 3], -21.0)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """pip install -e ".[solvers]"."""
    monkeypatch.setitem(sys.modules, "ortools.constraint_solver", None)
    with pytest.raises(MissingExtra, match=r"ortools.*\.\[solvers\]"):
        Case("TSP", {"locs": RECTANGLE}).solve(ortools)
