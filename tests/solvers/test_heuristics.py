"""The compiled heuristics: plans are allowed, have the world's cost, are local optima, and never beat the optimum."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.tasks import TSP
from milkrun.solvers import evaluate, nearest, solve
from tests.solvers.backends import BY_HAND, RECTANGLE, Case
from tests.solvers.plays import COMMON, METHODS, asymmetric, bounded, crooked, drawn, padded, play

CASES = [(name, method) for name, methods in METHODS.items() for method in methods]
LAWS = {"TSP": (padded, asymmetric), **dict.fromkeys([*METHODS][1:], (padded, bounded, asymmetric, crooked))}
EPS = 1e-7


def agree(cost, objective):
    """Within the world's single precision."""
    np.testing.assert_array_less(np.abs(cost + objective), 1e-4 * np.maximum(1.0, np.abs(cost)))


@pytest.mark.parametrize(
    ("name", "method", "law"),
    [pytest.param(*case, law, id=f"{'-'.join(case)}-{law.__name__}") for case in CASES for law in LAWS[case[0]]],
)
def test_plans_are_allowed_and_have_the_cost_of_the_world(name, method, law):
    """On 100 instances each: mixed sizes; mandatory customers and limited trips; asymmetric distances; shortcuts."""
    instances = law(name, 14, 100)
    found = solve(name, instances, method)
    agree(found.cost, play(name, instances, found.actions))
    assert not found.optimal.any()


@pytest.mark.parametrize(
    ("name", "trips"), [("VRPP", "multi"), ("CVRPP", "multi"), ("WCVRP", "multi"), ("CWCVRP", "single")]
)
@pytest.mark.parametrize("method", ["nearest", "insertion", "ls"])
@pytest.mark.parametrize("law", [bounded, crooked], ids=lambda law: law.__name__)
def test_the_other_number_of_trips(name, trips, method, law):
    """Profit and waste worlds support both; the plans follow the option."""
    instances = law(name, 14, 100)
    found = solve(name, instances, method, trips=trips)
    agree(found.cost, play(name, instances, found.actions, trips=trips))


@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_every_mandatory_customer_is_served_if_length_is_free(name):
    """Their loads fit the truck here, so none may be left out."""
    instances = drawn(name, 20, 100)
    instances["must_go"] = np.random.default_rng(1).random((100, 20)) < 0.15
    plans = solve(name, instances, "ls").actions
    for must, plan in zip(instances["must_go"], plans):
        assert set(np.flatnonzero(must) + 1) <= set(plan.tolist())


@pytest.mark.parametrize("name", METHODS)
def test_no_heuristic_beats_the_optimum(name):
    """30 instances of five customers (nodes) for each law: limits, mandatory customers, asymmetric distances,
    shortcuts."""
    for law in LAWS[name][1:]:
        instances = law(name, 5, 30, seed=8)
        best = solve(name, instances, "exact").cost
        for method in METHODS[name]:
            cost = solve(name, instances, method).cost
            assert (cost >= best - 1e-9 * np.maximum(1.0, np.abs(best))).all(), (method, law)


def tours(found):
    """(B, n) closed tours from node 0."""
    return np.concatenate([np.zeros((len(found.actions), 1), np.int64), found.actions[:, :-1].astype(np.int64)], axis=1)


def reversals(tour):
    """Every tour with one reversed path; node 0 stays first."""
    n = len(tour)
    return np.array(
        [[*tour[: i + 1], *tour[i + 1 : j + 1][::-1], *tour[j + 1 :]] for i in range(n - 2) for j in range(i + 2, n)]
    )


def segment_moves(tour):
    """Every tour with up to three neighbours moved to another position, in either direction; node 0 stays first."""
    made = []
    for size in (1, 2, 3):
        for p in range(1, len(tour) - size + 1):
            segment, rest = tour[p : p + size], [*tour[:p], *tour[p + size :]]
            for q in range(1, len(rest) + 1):
                made += [[*rest[:q], *segment, *rest[q:]], [*rest[:q], *segment[::-1], *rest[q:]]]
    return np.array(made)


@pytest.mark.parametrize(
    ("method", "moves"), [("2opt", [reversals]), ("oropt", [segment_moves]), ("ls", [reversals, segment_moves])]
)
@pytest.mark.parametrize("law", [drawn, asymmetric], ids=lambda law: law.__name__)
def test_local_search_ends_where_no_move_improves(method, moves, law):
    """Every neighbour of the tour, n = 30, by the checker's cost of whole tours."""
    instances = law("TSP", 30, 6)
    found = solve("TSP", instances, method)
    for b, tour in enumerate(tours(found).tolist()):
        one = {key: value[b : b + 1] for key, value in instances.items()}
        for neighbours in moves:
            cost, _, _ = TSP.get_costs(one, neighbours(tour))
            assert cost.min() >= found.cost[b] - EPS


def test_local_search_improves_its_start():
    """2-opt and or-opt start from the nearest neighbour; all moves together are better than either on average."""
    instances = drawn("TSP", 50, 100)
    cost = {method: solve("TSP", instances, method).cost for method in ("nearest", "2opt", "oropt", "ls")}
    assert (cost["2opt"] <= cost["nearest"] + EPS).all()
    assert (cost["oropt"] <= cost["nearest"] + EPS).all()
    assert cost["ls"].mean() < min(cost["2opt"].mean(), cost["oropt"].mean())


@pytest.mark.parametrize("case", BY_HAND)
def test_the_rectangle_by_hand(case):
    """The eight optima computed by hand, by all moves together."""
    name, fields, config, best = BY_HAND[case]
    instances = Case(name, {"locs": RECTANGLE, **fields}, **config).arrays
    assert solve(name, instances, "ls", **config).cost[0] == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("method", COMMON)
def test_round_the_rectangle(method):
    """Even the nearest neighbour follows its sides: 3 + 4 + 3 + 4."""
    assert solve("TSP", {"locs": RECTANGLE}, method).cost.tolist() == [14.0]


def test_nearest_neighbour_by_hand():
    """On a line from node 0 at 0: 1 at -1, 2 at 1.5, 3 at 4. It goes to 1 first, then back over 0: 2, 3, home."""
    line = {"locs": np.array([[[0, 0], [-1, 0], [1.5, 0], [4, 0]]], np.float32)}
    found = solve("TSP", line, "nearest")
    assert found.actions.tolist() == [[1, 2, 3, 0]]
    assert found.cost[0] == pytest.approx(1 + 2.5 + 2.5 + 4)


def test_nearest_equals_the_policy_of_that_name():
    """200 instances of the CVRP, one by one."""
    result = evaluate(milkrun.make("milkrun/CVRP-v0", num_envs=200, num_loc=20), nearest, 200, seed=4)
    cost = solve("CVRP", drawn("CVRP", 20, 200, seed=4), "nearest").cost
    np.testing.assert_allclose(cost, -result.returns, rtol=1e-5)


def test_savings_by_hand():
    """Customers 2 and 3 save 5 + 4 - 3 = 6 when joined, 1 and 2 save 4: with room for two, {2, 3} and {1}: 18."""
    demand = {"demand_units": np.array([[0, 5, 5, 5]], np.int32), "capacity": np.array([10], np.int32)}
    found = solve("CVRP", {"locs": RECTANGLE, **demand}, "savings")
    assert {frozenset(trip) for trip in "".join(map(str, found.actions[0])).split("0")} - {frozenset()} == {
        frozenset("1"),
        frozenset("23"),
    }
    assert found.cost.tolist() == [18.0]


def test_a_trip_is_split_if_the_way_home_would_be_too_long():
    """Out to 1, on to 2 and home takes 3 of 3, but home from 1 would take 9: no world allows the move to 1. There and
    back to 2 costs 2, which its prize may or may not be worth."""
    matrix = np.array([[[0, 1, 1], [9, 0, 1], [1, 1, 0]]], np.float32)
    for prize, best in ((1, 0), (4, 2)):
        instance = {"dist": matrix, "prize": np.array([[0, 5, prize]], np.float32), "max_length": np.float32([3])}
        for method in (*COMMON, "exact"):
            found = solve("VRPP", instance, method, length_weight=1.0)
            assert found.cost.tolist() == [-best]
            assert found.actions[0].any() == (best > 0)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("method", ["nearest", "insertion", "ls"])
def test_scaling_the_box_keeps_the_plans(name, method):
    """By 1024, exact in float32; the automatic price of length scales with the side of the box."""
    instances = drawn(name, 20, 50)
    larger = {k: v * np.float32(1024) if k in ("locs", "depot") else v for k, v in instances.items()}
    small, large = solve(name, instances, method), solve(name, larger, method, max_loc=1024.0)
    np.testing.assert_array_equal(small.actions, large.actions)
    scale = 1024 if name in ("TSP", "CVRP") else 1
    np.testing.assert_allclose(large.cost, scale * small.cost, rtol=1e-9)


@pytest.mark.parametrize("name", ["TSP", "CVRP", "CWCVRP"])
def test_threads_change_nothing(name):
    """Rows are solved independently."""
    instances = drawn(name, 20, 41)
    one, two = solve(name, instances, "ls"), solve(name, instances, "ls", workers=2)
    np.testing.assert_array_equal(one.actions, two.actions)
    alone = solve(name, {k: v[17:18] for k, v in instances.items()}, "ls")
    assert alone.cost[0] == one.cost[17]
