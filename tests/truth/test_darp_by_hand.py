"""Dial-a-ride problems so small that all episodes can be listed, and a trace of the rule `deadlines` by hand.

The legal episodes of a small world must be exactly the plans that the checker finds by trying all routes. The checker
uses neither summaries nor tightened windows.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

import milkrun
from milkrun.routing.darp import DARP
from milkrun.routing.instances import DARPInstance
from milkrun.routing.tasks import DARPProblem

ONE = DARPInstance(
    name="one",
    locs=[[0, 0], [3, 0], [10, 0]],
    demand=[0, 1, -1],
    capacity=[1],
    window_open=[0, 0, 50],
    time_windows=[100, 100, 60],
    service_time=[0, 0, 0],
    max_ride_time=[20],
    max_route_duration=100,
)


def two(ride):
    """(1,0) -> (10,0) and (-5,0) -> (2,0), at any time."""
    return DARPInstance(
        name="two",
        locs=[[0, 0], [1, 0], [10, 0], [-5, 0], [2, 0]],
        demand=[0, 1, -1, 1, -1],
        capacity=[2],
        window_open=[0] * 5,
        time_windows=[100] * 5,
        service_time=[0] * 5,
        max_ride_time=[ride] * 2,
        max_route_duration=100,
    )


def three(vehicles):
    """Three requests: a window at the dropoff of the first and at the pickups of the others."""
    return DARPInstance(
        name="three",
        locs=[[0, 0], [2, 3], [8, -1], [-4, 1], [5, 5], [6, -6], [-3, -5]],
        demand=[0, 1, -1, 1, -1, 1, -1],
        capacity=[2] * vehicles,
        window_open=[0, 0, 20, 10, 0, 30, 0],
        time_windows=[120, 1440, 35, 25, 1440, 45, 1440],
        service_time=[0, 1, 1, 1, 1, 1, 1],
        max_ride_time=[25] * 3,
        max_route_duration=100,
    )


def legal(world, row=0):
    return set(np.flatnonzero(world.action_mask[row]).tolist())


def begun(instance, **options):
    return DARP.from_instances([instance], autoreset="disabled", illegal="raise", **options)


def all_episodes(world):
    """Every legal episode from the state of a world of one row, with its return."""
    found = {}
    waiting = [((), world.state_dict())]
    while waiting:
        plan, state = waiting.pop()
        for action in np.flatnonzero(state["action_mask"][0]).tolist():
            world.load_state_dict(state)
            world.step([action])
            longer = (*plan, action)
            if world.terminated[0]:
                found[longer] = float(world.objective[0])
            else:
                waiting.append((longer, world.state_dict()))
    return found


def all_plans(instance):
    """The same by the checker alone: ordered lists of routes, one for each vehicle unless all requests are served."""
    requests, seats = range(instance.num_requests), instance.capacity[0]

    def routes_from(route, aboard, left):
        if route and not aboard:
            if DARPProblem.schedule(instance, route) is not None:
                yield route
        for r in aboard:
            yield from routes_from([*route, 2 * r + 2], aboard - {r}, left)
        for r in left:
            if sum(instance.demand[2 * s + 1] for s in aboard | {r}) <= seats:
                yield from routes_from([*route, 2 * r + 1], aboard | {r}, left - {r})

    def plans(routes, left):
        if not left or len(routes) == instance.num_agents:
            yield routes
            return
        for route in routes_from([], frozenset(), left):
            yield from plans([*routes, route], left - {(node - 1) // 2 for node in route})

    return [tuple(a for route in plan for a in (*route, 0)) for plan in plans([], frozenset(requests))]


# -- (1) a pickup that waits ------------------------------------------------------------------------------------------


def test_a_pickup_is_delayed_for_the_ride_limit():
    """Set down from 50 on after a ride of at most 20: boarding from 30 to 53, home at 60; rewards -3, -7, -10."""
    world = begun(ONE)
    assert world.tight_open[0].tolist() == [0, 30, 50] and world.tight_close[0].tolist() == [100, 53, 60]
    clock, rewards = [], []
    for action in (1, 2, 0):
        assert legal(world) == {action}
        world.step([action])
        clock.append(float(world.current_time[0]))
        rewards.append(float(world.reward[0]))
    assert clock[:2] == [30, 50] and rewards == [-3, -7, -10]
    assert world.terminated[0] and world.objective[0] == -20
    assert DARPProblem.schedule(ONE, [1, 2]) == (0, 30, 50, 60)


# -- (2) a detour -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ride", "allowed"), [(21, {2, 3}), (20.9, {2})])
def test_the_ride_limit_decides_a_detour(ride, allowed):
    """From 1 to 10 by way of -5 and 2 it is 6 + 7 + 8 = 21."""
    world = begun(two(ride))
    assert legal(world) == {1, 3}
    world.step([1])
    assert legal(world) == allowed
    assert world.explain(0, 3) == (
        "allowed" if 3 in allowed else "would strand a rider, or break a ride or route limit later"
    )


# -- (3) all episodes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", ["dense", "terminal"])
def test_all_episodes_of_two_vehicles(reward):
    """26, of which 20 serve all requests, of 6 to 8 steps; the best one costs 41.032918, their mean is 98.198511."""
    found = all_episodes(begun(three(2), reward=reward))
    serve_all = [plan for plan in found if {*range(1, 7)} <= {*plan}]
    assert len(found) == 26 and len(serve_all) == 20
    assert (min(map(len, found)), max(map(len, found))) == (6, 8)
    assert max(found, key=found.get) == (3, 1, 4, 2, 5, 6, 0)
    assert -max(found.values()) == pytest.approx(41.032918, abs=1e-6)
    assert -np.mean(list(found.values())) == pytest.approx(98.198511, abs=1e-6)
    for plan, paid in found.items():
        report = DARPProblem.check(three(2), DARPProblem.actions_to_routes(plan))
        assert report.feasible and -paid == pytest.approx(report.cost, rel=1e-9)


def test_all_episodes_of_one_vehicle():
    """15, of which 4 serve all requests; the best one is the same."""
    found = all_episodes(begun(three(1)))
    assert len(found) == 15
    assert sum({*range(1, 7)} <= {*plan} for plan in found) == 4
    assert max(found, key=found.get) == (3, 1, 4, 2, 5, 6, 0)
    assert -max(found.values()) == pytest.approx(41.032918, abs=1e-6)


@pytest.mark.parametrize("vehicles", [1, 2])
def test_the_checker_lists_the_same_episodes(vehicles):
    """Found by trying all routes on raw windows."""
    assert sorted(all_episodes(begun(three(vehicles)))) == sorted(all_plans(three(vehicles)))


@pytest.mark.parametrize(("style", "vehicles"), [("a", 1), ("b", 1), ("a", 2), ("b", 2)])
def test_legal_episodes_are_the_feasible_plans(style, vehicles):
    """12 random instances of three requests each: the legal episodes are exactly the plans that the checker finds."""
    law = milkrun.make(
        "milkrun/DARP-v0",
        12,
        num_requests=3,
        num_agents=vehicles,
        style=style,
        max_duration=120,
        window_width=40,
        max_ride=38.0,
        seed=vehicles,
    )
    law.reset()
    episodes = 0
    for q in range(12):
        names = ("locs", "demand", "capacity", "time_windows", "window_open", "service_time", "max_ride_time")
        instance = DARPInstance(
            name=f"row {q}",
            **{name: getattr(law, name)[q] for name in names},
            max_route_duration=float(law.max_route_duration[q]),
        )
        found = all_episodes(begun(instance))
        assert sorted(found) == sorted(all_plans(instance)), q
        episodes += len(found)
    assert episodes > 12 * 15


def test_unequal_vehicles_may_stay():
    """Cars of 1 and 2 seats: in either order of the fleet, plans leave the first car unused or use both."""
    for fleet in ([1, 2], [2, 1]):
        instance = DARPInstance(
            name="fleet",
            locs=two(21).locs,
            demand=[0, 1, -1, 1, -1],
            capacity=fleet,
            window_open=[0] * 5,
            time_windows=[100] * 5,
            service_time=[0] * 5,
            max_ride_time=[21] * 2,
            max_route_duration=100,
        )
        world = begun(instance)
        assert legal(world) == {0, 1, 3}
        found = all_episodes(world)
        single = {(1, 2), (3, 4), (1, 2, 3, 4), (3, 4, 1, 2)}
        paired = [r for r in permutations(range(1, 5)) if r.index(1) < r.index(2) and r.index(3) < r.index(4)]
        shared = {route for route in paired if DARPProblem.schedule(instance, route) is not None}
        assert single < single | shared
        first, second = (single, single | shared) if fleet[0] == 1 else (single | shared, single)
        expected = {(0, *route, 0) for route in second}
        for route in first:
            rest = {(1, 2), (3, 4)} - {route} if len(route) == 2 else {()}
            expected |= {(*route, 0, *more, 0) if more else (*route, 0) for more in rest}
        assert set(found) == expected


# -- the rule `deadlines` ---------------------------------------------------------------------------------------------


def test_trace_of_the_rule_by_deadlines():
    """Speed 25: 50 takes 2, the way from (0,50) to (30,40) 1.26, rounded to 1. No vehicle reaches node 4 by 5, so its
    rider is not dropped off."""
    world = milkrun.make(
        "milkrun/DARP-v0", 1, preset="published", num_requests=2, num_agents=2, autoreset="disabled", illegal="raise"
    )
    world.reset(
        instance={
            "locs": [[[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]],
            "demand": [[0, 2, -2, 1, -1]],
            "time_windows": [[48, 10, 13, 12, 5]],
            "capacity": [[5, 5]],
        }
    )
    assert legal(world) == {1, 3}
    for action, time, load, allowed in ((3, 2, 1, {1}), (1, 3, 3, {2}), (2, 5, 1, {0}), (0, 0, 0, {0})):
        world.step([action])
        assert (world.current_time[0], world.current_load[0], legal(world)) == (time, load, allowed)
        assert not world.done[0] and world.reward[0] == 0
    assert world.current_agent[0] == 1 and world.vehicle_finished[0].tolist() == [True, False]
    assert world.visited[0].tolist() == [False, True, True, True, False]
    world.step([0])
    assert world.terminated[0] and not world.truncated[0]
    assert world.total_distance[0] == pytest.approx(231.6228, abs=1e-4)
    assert world.objective[0] == pytest.approx(-331.6228, abs=1e-4)
    assert world.reward[0] == pytest.approx(-331.6228, abs=1e-3)
    assert (world.unserved[0], world.vehicles_used[0]) == (1, 1)
