"""A dial-a-ride instance: frozen, equal by its numbers, and validated."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.routing.instances import DARPInstance


def one_request(**changed):
    """Depot (0,0) [0,100], one rider from (3,0) to (10,0) [50,60], ride 20, duration 100."""
    fields = {
        "name": "one",
        "locs": [[0, 0], [3, 0], [10, 0]],
        "demand": [0, 1, -1],
        "capacity": [1],
        "time_windows": [100, 100, 60],
        "window_open": [0, 0, 50],
        "service_time": [0, 0, 0],
        "max_ride_time": [20],
        "max_route_duration": 100,
    }
    return DARPInstance(**{**fields, **changed})


def test_distances_are_between_float32_points():
    """0.1 is 0.100000001490116 in float32, and the distance is that in float64; a matrix is used unchanged."""
    instance = one_request(locs=[[0, 0], [0.1, 0], [0, 1]])
    assert instance.distances()[0, 1] == float(np.float32(0.1))
    matrix = np.array([[0, 1, 2], [3, 0, 4], [5, 6, 0.0]])
    assert (one_request(dist=matrix).distances() == matrix).all()


def test_an_instance_is_immutable():
    """By its attributes, through its arrays, and through the arrays of the constructor."""
    demand = np.array([0, 1, -1])
    instance = one_request(demand=demand)
    demand[1] = 5
    assert instance.demand.tolist() == [0, 1, -1]
    with pytest.raises(ValueError, match="read-only"):
        instance.demand[1] = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        instance.name = "two"


def test_instances_are_equal_by_their_numbers():
    """The name is ignored, every number is compared."""
    assert one_request() == one_request(name="other")
    assert hash(one_request()) == hash(one_request(name="other"))
    assert one_request() != one_request(max_ride_time=[21])
    assert one_request() != one_request(dist=np.zeros((3, 3)))
    assert one_request() != "one"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"locs": [[0, 0], [np.nan, 0], [1, 0]]}, "node 1: locs is [nan, 0.0], must be finite"),
        ({"locs": [[0, 0], [1, 0], [1e300, 0]]}, "node 2: locs is [inf, 0.0], must be finite"),
        ({"window_open": [0, 101, 50]}, "node 1: time_windows is 100.0, must not be before window_open"),
        ({"window_open": [0, np.nan, 50]}, "node 1: window_open is nan, must be finite"),
        ({"time_windows": [100, np.nan, 60]}, "node 1: time_windows is nan, must not be before"),
        ({"time_windows": [np.inf, 100, 60]}, "node 0: time_windows is inf, must be finite at the depot"),
        ({"service_time": [0, -1, 0]}, "node 1: service_time is -1.0, must be finite and >= 0"),
        ({"service_time": [1, 0, 0]}, "node 0: service_time is 1.0, must be 0 at the depot"),
        ({"max_ride_time": [0]}, "request 0: max_ride_time is 0.0, must be > 0"),
        ({"max_ride_time": [np.nan]}, "request 0: max_ride_time is nan, must be > 0"),
        ({"max_route_duration": 0}, "max_route_duration is 0.0, must be > 0"),
        ({"demand": [1, 1, -1]}, "node 0: demand is 1, must be 0 at the depot"),
        ({"demand": [0, 0, 0]}, "node 1: demand is 0, must be at least 1 at a pickup"),
        ({"demand": [0, 2, -1]}, "node 2: demand is -1, must be the negative of its pickup's"),
        ({"capacity": [2, 0]}, "vehicle 1: capacity is 0, must be at least 1"),
        ({"dist": np.full((3, 3), -1.0)}, "node 0, 0: dist is -1.0, must be finite and >= 0"),
        ({"dist": np.full((3, 3), np.nan)}, "node 0, 0: dist is nan, must be finite and >= 0"),
        ({"locs": [[0, 0], [-1e30, 0], [1, 0]]}, "node 1: locs is [-1.0000000150474662e+30, 0.0], must be within"),
        ({"dist": 1e10 - 1e10 * np.eye(3)}, "node 0, 1: dist is 10000000000.0, must be <= 1e+09"),
        ({"window_open": [0, -1e30, 50]}, "node 1: window_open is -1e+30, must be within -1e+09..1e+09"),
        ({"time_windows": [1e10, 100, 60]}, "node 0: time_windows is 10000000000.0, must be <= 1e+09 at the depot"),
        ({"service_time": [0, 1e10, 0]}, "node 1: service_time is 10000000000.0, must be <= 1e+09"),
        ({"demand": [0, 2**40, -(2**40)]}, "node 1: demand is 1099511627776, must be <= 1073741824"),
        ({"capacity": [2, 2**40]}, "vehicle 1: capacity is 1099511627776, must be <= 1073741824"),
        ({"dist": np.ones((3, 3))}, "node 0, 0: dist is 1.0, must be 0 on the diagonal"),
    ],
)
def test_bad_numbers_are_refused(fields, said):
    """The message names the instance, the node, the field and the value."""
    with pytest.raises(BadInstance, match=re.escape(f"one: {said}")):
        one_request(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"locs": np.zeros((4, 2))}, "locs has 4 nodes, expected a depot and two nodes for each request"),
        ({"locs": np.zeros((1, 2))}, "locs has 1 nodes, expected a depot and two nodes for each request"),
        ({"locs": np.zeros((3, 3))}, "locs has shape (3, 3)"),
        ({"demand": [0, 1]}, "demand has shape (2,)"),
        ({"demand": [0.0, 1.0, -1.0]}, "demand has shape (3,) and dtype float64, expected (3,) of int64"),
        ({"capacity": []}, "capacity has shape (0,)"),
        ({"max_ride_time": [20, 20]}, "max_ride_time has shape (2,)"),
        ({"max_route_duration": [100]}, "max_route_duration is [100], expected one number"),
        ({"dist": np.zeros((2, 2))}, "dist has shape (2, 2)"),
    ],
)
def test_bad_shapes_are_refused(fields, said):
    """Shapes and dtypes are not converted."""
    with pytest.raises(ShapeError, match=re.escape(f"one: {said}")):
        one_request(**fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {}),
        ({"capacity": [1, 3], "demand": [0, 4, -4]}, {0: "capacity"}),
        ({"capacity": [1, 4], "demand": [0, 4, -4]}, {}),
        ({"max_ride_time": [6.9]}, {0: "ride"}),
        ({"max_ride_time": [7.0]}, {}),
        ({"max_route_duration": 19.9}, {0: "duration"}),
        ({"max_route_duration": 20.0}, {}),
        ({"time_windows": [100, 29, 60]}, {0: "window"}),
        ({"time_windows": [100, 30, 60]}, {}),
        ({"time_windows": [59, 100, 60]}, {0: "window"}),
        ({"time_windows": [60, 100, 60]}, {}),
    ],
)
def test_unservable_names_the_limit(fields, said):
    """The way is 3 + 7 + 10. With the dropoff at 50 and a ride of at most 20, the rider boards at 30 or later."""
    assert one_request(**fields).unservable() == said


def test_unservable_depends_on_the_speed():
    """At half the speed the ride of 7 takes 14, beyond a limit of 10."""
    assert one_request(max_ride_time=[10]).unservable(speed=1.0) == {}
    assert one_request(max_ride_time=[10]).unservable(speed=0.5) == {0: "ride"}
