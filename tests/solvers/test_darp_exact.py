"""Enumeration of three requests: the best plan by hand, and the other dial-a-ride solvers compared with it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from milkrun.core.errors import ConfigError
from milkrun.routing.instances import DARPInstance
from milkrun.solvers.darp import improve, insertion, price_routes, solve_exact, solve_ortools
from tests.solvers.darp_cases import drawn, three_requests

CASES = [(seed, 1 + seed % 3, 1 + seed // 3 % 3, seed % 2 == 0) for seed in range(40)]


def one_request(**changes):
    """From (3, 0) to (10, 0): 20 to drive."""
    given = {
        "locs": [[0, 0], [3, 0], [10, 0]],
        "demand": [0, 1, -1],
        "capacity": [1],
        "window_open": [0.0, 0, 50],
        "time_windows": [100.0, 100, 60],
        "service_time": [0.0, 0, 0],
        "max_ride_time": [20.0],
        "max_route_duration": 100.0,
    }
    return DARPInstance(name="one", **{**given, **changes})


@pytest.mark.parametrize("vehicles", [1, 2])
def test_the_best_plan_of_three_requests(vehicles):
    """41.032918 by 3, 1, 4, 2, 5, 6 in the first vehicle, the best of all legal episodes."""
    plan = solve_exact(three_requests(vehicles))
    assert plan.routes == [[3, 1, 4, 2, 5, 6], [], []][:vehicles]
    assert plan.cost == pytest.approx(41.032918, abs=1e-6)
    assert plan.distance == plan.cost
    assert plan.unserved == 0


def test_a_request_above_the_penalty_is_left_out():
    """20 to drive compared with 2 nodes at 9.9 or at 10.1."""
    assert solve_exact(one_request(), penalty_unvisited=10.1).routes == [[1, 2]]
    plan = solve_exact(one_request(), penalty_unvisited=9.9)
    assert (plan.routes, plan.distance, plan.unserved) == ([[]], 0.0, 1)
    assert plan.cost == pytest.approx(19.8)


def test_speed_divides_time_and_not_distance():
    """At half the speed 7 takes 14: feasible with a ride limit of 14, not of 13.9."""
    assert solve_exact(one_request(max_ride_time=[14.0]), speed=0.5).distance == 20
    assert solve_exact(one_request(max_ride_time=[13.9]), speed=0.5).unserved == 1


def test_the_vehicle_with_enough_seats_is_used():
    """Two riders: the first vehicle has one seat."""
    assert solve_exact(one_request(demand=[0, 2, -2], capacity=[1, 2])).routes == [[], [1, 2]]


def test_riders_fit_together_only_with_seats_for_both():
    """Two riders with the same route and times: one tour of 20 with two seats, two tours with one."""
    places = [[0, 0], [3, 0], [10, 0], [3, 0], [10, 0]]
    two = one_request(
        locs=places,
        demand=[0, 1, -1, 1, -1],
        capacity=[2, 2],
        max_ride_time=[20.0] * 2,
        window_open=[0.0, 30, 50, 30, 50],
        time_windows=[60.0, 40, 55, 40, 55],
        service_time=[0.0] * 5,
    )
    assert solve_exact(two).distance == 20
    assert solve_exact(dataclasses.replace(two, capacity=[1, 1])).distance == 40
    assert solve_exact(dataclasses.replace(two, capacity=[1])).unserved == 1


def test_four_requests_are_refused():
    """The message names the number and the limit."""
    with pytest.raises(ConfigError, match=r"has 4 requests.*at most 3"):
        solve_exact(drawn(0, 4, 2))


def test_the_search_finds_the_best_plan_of_few_requests():
    """40 random instances, half of them with detours that are shortcuts, fleets of one to four seats."""
    for seed, requests, vehicles, crooked in CASES:
        instance = drawn(seed, requests, vehicles, crooked=crooked)
        best = solve_exact(instance)
        start = min(price_routes(instance, insertion(instance, order)).cost for order in ("cheapest", "deadline"))
        assert start >= best.cost - 1e-9, instance.name
        assert improve(instance, iterations=300).cost == pytest.approx(best.cost, abs=1e-9), instance.name


def test_some_of_the_drawn_instances_are_hard():
    """Some best plans leave requests out, share rides, or are not found by insertion."""
    instances = [drawn(seed, requests, vehicles, crooked=crooked) for seed, requests, vehicles, crooked in CASES]
    plans = [solve_exact(instance) for instance in instances]
    starts = [price_routes(i, insertion(i, "deadline")).cost for i in instances]
    assert 5 <= sum(plan.unserved > 0 for plan in plans) <= 35
    assert sum(start > plan.cost + 1e-9 for start, plan in zip(starts, plans, strict=True)) >= 3
    assert any(node % 2 and route[k + 1] % 2 for p in plans for route in p.routes for k, node in enumerate(route))


def test_ortools_finds_the_best_plan_of_few_requests():
    """Twelve random instances, 300 solutions each; its times are rounded, the cost of its plan is not."""
    pytest.importorskip("ortools.constraint_solver.pywrapcp", reason="needs the extra 'solvers'")
    instances = [drawn(seed, 3, 2) for seed in range(12)]
    found = [(solve_ortools(i, iterations=300).cost, solve_exact(i).cost) for i in instances]
    np.testing.assert_allclose(*zip(*found, strict=True), rtol=0, atol=1e-9)
