"""The dial-a-ride world by hand: observations, travel times, fleets of several sizes, padding."""

from __future__ import annotations

import math

import numpy as np
import pytest

import milkrun
from milkrun.routing.darp import DARP
from milkrun.routing.instances import DARPInstance


def alone(**changes):
    """From (3, 0) without a window to (10, 0) between 50 and 60."""
    fields = {
        "locs": [[0, 0], [3, 0], [10, 0]],
        "demand": [0, 1, -1],
        "capacity": [1],
        "window_open": [0, 0, 50],
        "time_windows": [100, 100, 60],
        "service_time": [0, 0, 0],
        "max_ride_time": [20],
        "max_route_duration": 100,
    }
    return DARPInstance(name="alone", **{**fields, **changes})


def anytime(locs, demand, capacity, ride=50):
    """An instance without active windows."""
    n = len(locs)
    return alone(
        locs=locs,
        demand=demand,
        capacity=capacity,
        window_open=[0] * n,
        time_windows=[100] * n,
        service_time=[0] * n,
        max_ride_time=[ride] * (n // 2),
    )


LINE = [[0, 0], [1, 0], [10, 0], [-5, 0], [2, 0]]


def row_of(*instances, **options):
    return DARP.from_instances(instances, autoreset="disabled", **options)


def deadlines(locs, demand, windows, capacity, **options):
    """A row of the rule `deadlines`."""
    world = milkrun.make(
        "milkrun/DARP-v0",
        1,
        preset="published",
        num_requests=len(locs) // 2,
        num_agents=len(capacity),
        autoreset="disabled",
        **options,
    )
    fields = {"locs": locs, "demand": demand, "time_windows": windows, "capacity": capacity}
    world.reset(instance={name: [value] for name, value in fields.items()})
    return world


def legal(world, row=0):
    return np.flatnonzero(world.action_mask[row]).tolist()


def near(values):
    return pytest.approx(values, rel=0, abs=1e-7)


def test_features_of_one_request():
    """After the pickup at 30: 7 of 100 away, earliest 50, latest 60, one rider of eight aboard."""
    world = row_of(alone(), max_steps=10)
    world.step([1])
    world.observe()
    seen = world.nodes[0]
    assert seen[0] == near([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0.03, 0.33, 0.67, 0])
    assert seen[1] == near([0.3, 0, 1, 0, 0.3, 0.53, 1, 0, 1, 1, 0, 0.3, 0.23, 0])
    assert seen[2] == near([1, 0, -1, 0, 0.5, 0.6, 0, 1, 0, 1, 0.07, 0.5, 0.1, 1])
    assert world.vehicle[0] == near([0.3, 1, 0.125, 0.03, 0, 0, 0.1])
    world.step([2])
    world.observe()
    assert world.vehicle[0] == near([0.5, 0, 0, 0.1, 0, 1, 0.2])


def test_places_and_riders_are_shares():
    """Places are shares of the largest coordinate, riders of the largest vehicle."""
    world = row_of(anytime(LINE, [0, 1, -1, 1, -1], [2], ride=21))
    world.observe()
    assert world.nodes[0, 3, [0, 2]] == near([-0.5, 0.5])


def test_features_under_the_rule_by_deadlines():
    """After actions 3 and 1 at hour 3 of 48: the dropoffs are 2 and 3 hours away, two requests of two aboard."""
    locs = [[0, 0], [30, 40], [60, 80], [0, 50], [100, 0]]
    world = deadlines(locs, [0, 2, -2, 1, -1], [48, 10, 13, 12, 5], [5, 5], max_steps=10)
    for action in (3, 1):
        world.step([action])
    world.observe()
    assert world.nodes[0, 2] == near([0.6, 0.8, -0.4, 0, 0, 13 / 48, 0, 1, 0, 1, 2 / 48, 5 / 48, 8 / 48, 1])
    assert world.nodes[0, 4, -5:] == near([1, 3 / 48, 6 / 48, -1 / 48, 0])
    assert world.vehicle[0] == near([3 / 48, 0.6, 1, 3 / 48, 0, 0, 0.2])


def test_speed_divides_times_and_not_distances():
    """At speed 0.5 the distance of 7 takes 14, so the pickup may start at 60 - 14 = 46 at the latest."""
    world = row_of(alone(), speed=0.5)
    assert world.tight_close[0].tolist() == [100, 46, 60]
    world.step([1])
    assert (world.reward[0], world.current_time[0], world.route_elapsed[0]) == (-3, 30, 6)


@pytest.mark.parametrize(("miles", "hours"), [(62.5, 2), (37.5, 2), (12.5, 0), (87.5, 4)])
def test_travel_time_by_deadlines_rounds_half_to_even(miles, hours):
    """At speed 25, 62.5 miles are 2.5 hours, rounded to 2; 37.5 miles are 1.5 hours, also rounded to 2."""
    world = deadlines([[0, 0], [miles, 0], [0, 1]], [0, 1, -1], [48, 30, 30], [5])
    world.step([1])
    assert world.current_time[0] == hours


def test_mask_is_never_empty_before_the_first_step():
    """If no node can be reached in time the depot is allowed immediately, and ends the episode."""
    world = deadlines([[0, 0], [100, 0], [0, 1]], [0, 1, -1], [48, 3, 30], [5])
    assert legal(world) == [0]
    world.step([0])
    assert world.terminated[0] and world.reward[0] == -200


def test_fleet_of_two_sizes_may_leave_a_vehicle_unused():
    """With seats 2 and 1 the first may stay at the depot; with 2 and 2 it may not."""
    demand = [0, 2, -2, 1, -1]
    assert legal(row_of(anytime(LINE, demand, [2, 2]))) == [1, 3]
    world = row_of(anytime(LINE, demand, [2, 1]))
    assert legal(world) == [0, 1, 3]
    world.step([0])
    assert (world.current_agent[0], world.vehicle_finished[0].tolist(), legal(world)) == (1, [True, False], [3])
    for action in (3, 4, 0):
        world.step([action])
    assert world.terminated[0] and world.vehicles_used[0] == 1 and world.objective[0] == -(14 + 200)


def test_vehicle_too_small_for_every_request_is_skipped():
    """Two riders do not fit the first vehicle: the second is the active one."""
    world = row_of(anytime(LINE[:3], [0, 2, -2], [1, 2]))
    assert (world.current_agent[0], world.vehicle_finished[0].tolist()) == (1, [True, False])


def test_padding_is_never_legal_nor_counted():
    """Batched with a larger instance the small one plays as alone; its padding is visited from the start."""
    world = row_of(alone(), anytime(LINE, [0, 1, -1, 1, -1], [1, 1]), max_steps=12)
    true = row_of(alone(), max_steps=12)
    assert world.visited[0].tolist() == [False, False, False, True, True]
    assert world.vehicle_finished[0].tolist() == [False, True]
    for action in (1, 2, 0):
        assert legal(world) == legal(true) == [action]
        world.observe()
        true.observe()
        assert (world.nodes[0, :3] == true.nodes[0]).all()
        for each in (world, true):
            each.step([action], rows=[0])
        assert world.reward[0] == true.reward[0]
    assert world.terminated[0] and world.objective[0] == -20
    assert math.isinf(world.max_ride_time[0, 1])
