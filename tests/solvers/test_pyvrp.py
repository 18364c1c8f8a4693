"""PyVRP as a back end: integers without loss, rules of the worlds that it does not support, answers by hand."""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
import pytest

from milkrun.core.errors import MissingExtra
from milkrun.solvers import pyvrp, solve
from milkrun.solvers.integers import complete, in_whole_numbers
from milkrun.solvers.limits import driven
from tests.solvers.backends import BY_HAND, RECTANGLE, Case
from tests.solvers.plays import COMMON, crooked, drawn, play

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")

LINE = [[[0, 0], [1, 0], [2, 0]]]


@pytest.mark.parametrize("case", BY_HAND)
def test_the_rectangle_by_hand(case):
    """The eight optima computed by hand."""
    name, fields, config, best = BY_HAND[case]
    _, cost, proven = Case(name, {"locs": RECTANGLE, **fields}, **config).solve(pyvrp)
    assert cost == pytest.approx(best, abs=1e-5)
    assert not proven


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_it_finds_the_optimum_of_tiny_instances(name):
    """Five instances of 6 nodes or customers, all mandatory, compared with dynamic programming."""
    instances = drawn(name, 6, 5, seed=1)
    exact = solve(name, instances, "exact").cost
    np.testing.assert_allclose(solve(name, instances, "pyvrp", iterations=300).cost, exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_it_equals_or_beats_our_heuristics(name):
    """Six instances of 20 customers."""
    instances = drawn(name, 20, 6, seed=1)
    found = solve(name, instances, "pyvrp", iterations=1000).cost
    for method in COMMON:
        assert (found <= solve(name, instances, method).cost + 1e-4 * np.abs(found)).all()


@pytest.mark.parametrize(
    ("name", "trips"),
    [("CVRP", "multi"), *product(("VRPP", "CVRPP", "WCVRP", "CWCVRP"), ("single", "multi"))],
)
def test_trips_forbidden_by_the_world_are_replaced(name, trips):
    """With detours that are shortcuts, the world may forbid a trip half way; the returned plan can be played."""
    options = {} if name == "CVRP" else {"trips": trips}
    instances = crooked(name, 8, 20)
    found = solve(name, instances, "pyvrp", iterations=50, **options)
    np.testing.assert_allclose(play(name, instances, found.actions, **options), -found.cost, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_a_short_search_is_not_worse_than_the_empty_plan(name, trips):
    """40 instances with hardly any profitable customer, 20 iterations each: the search itself ends with losing
    trips."""
    rng = np.random.default_rng(0)
    amounts = np.c_[np.zeros(40), rng.random((40, 8)) * 0.3].astype(np.float32)
    fields = {"VRPP": {"prize": amounts}, "CVRPP": {"prize": amounts, "capacity": np.full(40, 2, np.float32)}}
    instances = {"locs": rng.random((40, 9, 2)).astype(np.float32), **fields.get(name, {"waste": amounts})}
    found = solve(name, instances, "pyvrp", iterations=20, trips=trips, length_weight=1.0)
    assert (found.cost <= 0).all()


def test_a_plan_is_not_worse_than_the_mandatory_customers_alone():
    """On the line to 1 and 2, with customer 1 mandatory: over 2 costs 4 and gains .5, there and back costs 2."""
    options = {"locs": LINE, "prize": [[0, 0.5, 0.5]], "must_go": [[False, True, False]]}
    for trips in ("single", "multi"):
        case = Case("VRPP", options, length_weight=1.0, trips=trips)
        assert complete(case.problem, 0, [[1, 2]]) == [1]
        assert complete(case.problem, 0, [[2]]) == [1]


def test_unprofitable_optional_trips_are_dropped():
    """To 1 and back costs 2 and gains 3; to 2 and back costs 4 and gains 3."""
    case = Case("VRPP", {"locs": LINE, "prize": [[0, 3, 3]]}, length_weight=1.0, trips="multi")
    assert complete(case.problem, 0, [[2], [1]]) == [1]
    assert complete(case.problem, 0, [[1, 2]]) == [1, 2]


def test_integer_demands_stay_integer():
    """Thirds of the largest demand: 3 + 3 + 3 exactly fill a truck of 9; individually rounded up they would not fit."""
    locs = [[[0, 0], [5, 0], [5, 1], [5, 2], [0, 1]]]
    case = Case("CVRP", {"locs": locs, "demand_units": [[0, 3, 3, 3, 9]], "capacity": [9]})
    whole = in_whole_numbers(case.problem, 0)
    assert 3 * whole.loads[0][1] == whole.loads[0][4] <= whole.capacity[0]
    actions, cost, _ = case.solve(pyvrp)
    assert {1, 2, 3} in [set(trip) for trip in split(actions)]
    assert cost == pytest.approx(5 + 2 + np.hypot(5, 2) + 2, rel=1e-6)


def test_thirds_of_a_bin_fill_a_truck():
    """Three bins of 1/3 and a truck of 1: they fit within the tolerance of the world, though each is rounded up."""
    third = np.float32(1 / 3)
    case = Case(
        "CWCVRP",
        {"locs": [[[0, 0], [9, 0], [9, 1], [9, 2], [0, 1]]], "waste": [[0, third, third, third, 1]], "capacity": [1.0]},
        length_weight=0.001,
    )
    assert {1, 2, 3} in [set(trip) for trip in split(case.solve(pyvrp)[0])]


def test_loads_and_lengths_are_rounded_against_the_solver():
    """1e6 units for the longest leg and the heaviest bin, both rounded up; limits down, with half the tolerance
    added."""
    fields = {
        "locs": [[[0, 0], [3, 0], [0, 1]]],
        "waste": [[0, 0.7, 0.3]],
        "capacity": [1.0],
        "max_length": [7.0],
        "max_waste": [0.9],
    }
    whole = in_whole_numbers(Case("CWCVRP", fields, length_weight=2.0).problem, 0)
    longest = np.sqrt(10)
    assert whole.dist[0, 1] == np.ceil(1e6 * 3 / longest) == 948684
    assert whole.dist[1, 2] == 1e6
    assert whole.max_length == np.floor(1e6 / longest * (7 + 3.5e-5))
    assert whole.loads == []  # both together fit a truck
    tight = in_whole_numbers(Case("CWCVRP", {**fields, "capacity": [0.9]}, length_weight=2.0).problem, 0)
    assert tight.loads[0].tolist() == [0, 1000000, np.ceil(1e6 * np.float32(0.3) / np.float64(np.float32(0.7)))]
    assert tight.capacity == [int(1e6 * (np.float64(np.float32(0.9)) + 5e-6) / np.float32(0.7))]


def test_prizes_are_in_units_of_length():
    """A prize of 5 at a price of 2 is worth 2.5 of length, in units of 1e6 for the longest leg of 2."""
    whole = in_whole_numbers(Case("VRPP", {"locs": LINE, "prize": [[0, 5, 1]]}, length_weight=2.0).problem, 0)
    assert (whole.prize.tolist(), whole.price) == ([0, 1250000, 250000], 1)


def test_free_length_leaves_prizes_only():
    """With free length of at most 4, the customer at 2 with prize 5 beats the one behind it with prize 3."""
    fields = {"locs": [[[0, 0], [2, 0], [-2, 0]]], "prize": [[0, 5, 3]], "max_length": [4.0]}
    assert Case("VRPP", fields, length_weight=0.0).solve(pyvrp)[:2] == ([1], -5.0)


@pytest.mark.parametrize(("service", "best"), [(0.0, ([2, 1], -16.0)), (0.5, ([2], -6.0))])
def test_windows_force_the_order(service, best):
    """The near customer opens at 5, the far one closes at 3, the depot at 6: far, back, wait, home at exactly 6. With a
    service time of 0.5 the truck would leave the near one at 5.5 and be home at 6.5, too late also if alone."""
    fields = {
        "locs": LINE,
        "prize": [[0, 10, 10]],
        "time_windows": [[[0, 6], [5, 6], [0, 3]]],
        "service_time": [[0, service, 0]],
    }
    assert Case("VRPP", fields, length_weight=1.0, time_windows=True).solve(pyvrp)[:2] == best


def test_speed_converts_length_to_time():
    """At half the speed the far customer is reached at 4, after it closes."""
    fields = {"locs": LINE, "prize": [[0, 10, 10]], "time_windows": [[[0, 99], [0, 99], [0, 3]]], "speed": [0.5]}
    assert Case("VRPP", fields, length_weight=1.0, time_windows=True).solve(pyvrp)[:2] == ([1], -8.0)


def test_mandatory_bins_that_exceed_the_truck_together():
    """0.7 and 0.6 are mandatory and do not both fit 1.0; the rules then forbid every optional bin, also the nearest."""
    fields = {
        "locs": [[[0, 0], [1, 0], [0, 1], [0.1, 0]]],
        "waste": [[0, 0.7, 0.6, 0.2]],
        "capacity": [1.0],
        "must_go": [[False, True, True, False]],
    }
    actions, _, _ = Case("WCVRP", fields, length_weight=0.1).solve(pyvrp)
    assert actions == [1]


def test_mandatory_customers_out_of_reach_are_skipped():
    """At distance 10 with trips of at most 5 it cannot be served, so the plan is valid without it."""
    fields = {
        "locs": [[[0, 0], [10, 0], [1, 0]]],
        "prize": [[0, 9, 9]],
        "must_go": [[False, True, False]],
        "max_length": [5.0],
    }
    for trips in ("single", "multi"):
        assert Case("VRPP", fields, length_weight=1.0, trips=trips).solve(pyvrp)[:2] == ([2], -7.0)


def test_limited_trips_with_mandatory_customers_always_get_a_plan():
    """24 instances in which some, all or none of the mandatory customers can be served: every plan keeps the rules."""
    rng = np.random.default_rng(3)
    for name in ("VRPP", "CVRPP", "WCVRP", "CWCVRP"):
        made = drawn(name, 8, 6, seed=2)
        made |= {"must_go": rng.random((6, 8)) < 0.4, "max_length": rng.uniform(0.6, 2, 6).astype(np.float32)}
        case = Case(name, made)
        for b in range(6):
            case.solve(pyvrp, b, iterations=200)


def test_missing_customers_are_added_to_the_plan():
    """A solver without enough time served only customer 1. With several trips the others get one each; a single truck
    of 10 continues to the nearer of those that still fit, and then goes home."""
    demand = {"demand_units": [[0, 5, 5, 5]], "capacity": [10]}
    assert complete(Case("CVRP", {"locs": RECTANGLE, **demand}).problem, 0, [[1], []]) == [1, 0, 2, 0, 3]
    fields = {
        "locs": RECTANGLE,
        "prize": [[0, 1, 1, 1]],
        "weight": [[0, 5, 5, 5]],
        "capacity": [10.0],
        "must_go": [[False, True, True, True]],
    }
    assert complete(Case("CVRPP", fields, length_weight=1.0).problem, 0, [[1]]) == [1, 2]


def test_a_mandatory_customer_keeps_its_capacity():
    """A truck of 10 that takes the optional 5 has no capacity for the mandatory 6. Without a reserve this is legal, but
    the plan of the mandatory 6 alone is preferred."""
    fields = {
        "locs": LINE,
        "prize": [[0, 1, 1]],
        "weight": [[0, 6, 5]],
        "capacity": [10.0],
        "must_go": [[False, True, False]],
    }
    assert complete(Case("CVRPP", fields).problem, 0, [[2]]) == [1]
    careless = Case("CVRPP", fields, must_go_reserve=False).problem
    assert driven(careless, 0, [[2]]) == [[2]]
    assert complete(careless, 0, [[2]]) == [1]


@pytest.mark.parametrize(("closes", "depot_closes", "trip"), [(3, 4, [2, 1]), (2.9, 4, [2]), (3, 3.9, [1])])
def test_a_missing_customer_may_be_too_late(closes, depot_closes, trip):
    """After customer 2, at time 2, the mandatory customer 1 is reached at 3, unless closed by then, and the depot at 4.
    If the depot closes before 4, customer 2 cannot be served."""
    fields = {
        "locs": LINE,
        "prize": [[0, 1, 1]],
        "must_go": [[False, True, False]],
        "time_windows": [[[0, depot_closes], [0, closes], [0, 9]]],
        "service_time": [[0, 0, 0]],
    }
    assert driven(Case("VRPP", fields, time_windows=True).problem, 0, [[2]]) == [trip]


@pytest.mark.parametrize("trips", ["single", "multi"])
def test_windows_with_detours_that_are_shortcuts(trips):
    """A truck must be able to return in time from every stop; no plan is better than the optimum."""
    instances, rng = crooked("VRPP", 5, 20), np.random.default_rng(2)
    opens = rng.uniform(0, 2, (20, 6))
    spans = np.stack([opens, opens + rng.uniform(0.5, 2, (20, 6))], axis=-1)
    spans[:, 0] = 0, 3
    instances |= {"time_windows": spans.astype(np.float32), "service_time": np.float32([[0, *[0.1] * 5]] * 20)}
    options = {"trips": trips, "time_windows": True, "length_weight": 9.0}
    found = {method: solve("VRPP", instances, method, iterations=50, **options) for method in ("pyvrp", "exact")}
    for answer in found.values():
        np.testing.assert_allclose(play("VRPP", instances, answer.actions, **options), -answer.cost, rtol=1e-4)
    assert (found["pyvrp"].cost >= found["exact"].cost - 1e-5).all()


def test_asymmetric_costs_are_respected():
    """Each leg of 1, 2, 3 costs 1 in this direction and 9 in the other."""
    matrix = [[[0, 1, 9, 9], [9, 0, 1, 9], [9, 9, 0, 1], [1, 9, 9, 0]]]
    assert Case("TSP", {"dist": matrix}).solve(pyvrp)[:2] == ([1, 2, 3], 4.0)


def test_padding_is_not_visited_and_a_single_plan_is_optimal():
    """One instance has two real nodes of four, the other four, for which a search proves nothing."""
    instances = {
        "locs": np.repeat(RECTANGLE, 2, axis=0),
        "demand_units": np.array([[0, 5, 5, 5]] * 2),
        "capacity": np.array([10, 10]),
        "n_nodes": np.array([2, 4]),
    }
    found = solve("CVRP", instances, "pyvrp", iterations=20)
    assert found.actions[0].tolist() == [1, 0, 0, 0, 0]
    assert found.cost.tolist() == [6.0, 18.0]
    assert found.optimal.tolist() == [True, False]


def test_a_valid_plan_needs_no_time():
    """Even without any search all 40 customers are served."""
    actions, _, _ = Case("CVRP", drawn("CVRP", 40, 1)).solve(pyvrp, iterations=None, time_limit=1e-9)
    assert sorted(a for a in actions if a) == list(range(1, 41))


def test_iterations_and_seed_determine_the_answer():
    """The same answer twice, also on a busy machine."""
    case = Case("CVRPP", drawn("CVRPP", 30, 1))
    first, again = (case.solve(pyvrp, time_limit=t, seed=5, iterations=50) for t in (1e-9, 1e6))
    assert first == again


def test_without_the_package_the_extra_is_named(monkeypatch):
    """pip install -e ".[solvers]"."""
    monkeypatch.setitem(sys.modules, "pyvrp.stop", None)
    with pytest.raises(MissingExtra, match=r"pyvrp.*\.\[solvers\]"):
        Case("TSP", {"locs": RECTANGLE}).solve(pyvrp)


def split(actions):
    """The trips of a plan."""
    trips = [[]]
    for a in actions:
        if a:
            trips[-1].append(a)
        else:
            trips.append([])
    return trips
