"""`solve` for dial-a-ride: several instances, several processes, actions of the world."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.routing.darp import DARP
from milkrun.solvers import solve
from milkrun.solvers.darp.rows import actions_of
from tests.routing.darp_by_hand import ONE, TWO, darp
from tests.solvers.darp_cases import three_requests

FIELDS = (
    "locs",
    "demand",
    "capacity",
    "time_windows",
    "window_open",
    "service_time",
    "max_ride_time",
    "max_route_duration",
)


def play(instances, actions):
    """The return of each instance's actions; none may be illegal."""
    world = DARP.from_instances(instances, autoreset="disabled", illegal="raise")
    for b, plan in enumerate(actions.tolist()):
        for node in plan:
            if not world.terminated[b]:
                world.step([node], rows=[b])
    assert world.terminated.all()
    return world.objective


def test_one_instance_by_all_plans():
    """3,1,4,2,5,6,0 of cost 41.032918 is the best plan."""
    found = solve("DARP", three_requests(1), method="exact")
    assert found.actions.tolist() == [[3, 1, 4, 2, 5, 6, 0]] and found.actions.dtype == np.int32
    assert found.cost == pytest.approx([41.032918], abs=1e-6) and found.optimal.tolist() == [True]


@pytest.mark.parametrize("method", ["insertion", "improve", "exact"])
def test_instances_of_several_sizes(method):
    """Actions are padded with 0, and their return is minus the cost; only the enumeration proves optimality."""
    instances = [darp(**ONE), three_requests(2)]
    found = solve("milkrun/DARP-v0", instances, method=method, iterations=50 if method == "improve" else None)
    assert found.actions[0].tolist() == [1, 2, 0] + [0] * (found.actions.shape[1] - 3)
    assert found.cost[0] == 20 and found.optimal.tolist() == [method == "exact"] * 2
    assert play(instances, found.actions) == pytest.approx(-found.cost, rel=1e-9)


def test_the_number_of_processes_changes_nothing():
    """Two workers on three instances."""
    instances = [darp(**ONE), three_requests(2), darp(**TWO)]
    here, apart = (solve("DARP", instances, method="exact", workers=w) for w in (1, 2))
    assert here.actions.tolist() == apart.actions.tolist() and here.cost.tolist() == apart.cost.tolist()


def test_the_fields_of_a_world_are_solved():
    """The fields of a batch, padding included, are valid instances."""
    instances = [darp(**ONE, capacity=(1,)), three_requests(2)]
    world = DARP.from_instances(instances)
    fields = solve("DARP", {name: getattr(world, name) for name in (*FIELDS, "n_nodes")}, method="exact")
    listed = solve("DARP", instances, method="exact")
    assert fields.actions.tolist() == listed.actions.tolist() and fields.cost.tolist() == listed.cost.tolist()


def test_the_order_of_insertion_is_the_rule():
    """The default is the cheaper of both."""
    world = milkrun.make("milkrun/DARP-v0", 6, seed=2)
    world.reset()
    fields = {name: getattr(world, name) for name in FIELDS}
    cheapest, deadline, both = (solve("DARP", fields, "insertion", rule=r).cost for r in ("cheapest", "deadline", None))
    assert (cheapest != deadline).any()
    assert both.tolist() == np.minimum(cheapest, deadline).tolist()


def test_a_mixed_fleet_leaves_a_vehicle_by_a_zero():
    """A car of 2 that could take one rider stays by a 0; if only a group of three requests a ride, it is skipped."""
    far_apart = {"places": [30, 31, -30, -31], "opens": [30, 0, 30, 0], "closes": [31, 100, 31, 100]}
    both = darp(**far_apart, load=[3, 1], capacity=(2, 3))
    first_stays = [[], [1, 2]]
    assert actions_of(both, first_stays) == [0, 1, 2, 0]
    assert play([both], np.array([[0, 1, 2, 0]])) == pytest.approx([-62 - 200])
    found = solve("DARP", both, method="exact")
    assert found.actions.tolist() == [[3, 4, 0, 1, 2, 0]] and found.cost.tolist() == [124]
    assert play([both], found.actions) == pytest.approx([-124])
    three = darp(**ONE, load=3, capacity=(2, 3))
    found = solve("DARP", three, method="exact")
    assert found.actions.tolist() == [[1, 2, 0]] and play([three], found.actions) == pytest.approx([-20])


def test_speed_and_penalty_are_those_of_the_cost():
    """At a tenth of the speed no request is on time: both nodes are left out at 7 each."""
    assert solve("DARP", darp(**ONE), method="exact", speed=0.1, penalty_unvisited=7.0).cost.tolist() == [14.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ls"}, "'ls' is not for DARP; DARP has insertion, improve, ortools, exact"),
        ({"method": "exact", "iterations": 5}, "'improve' and 'ortools' count them, not 'exact'"),
        ({"method": "exact", "sped": 2.0}, "did you mean 'speed'"),
        ({"method": "improve", "rule": "cheapest"}, "belongs to the methods 'insertion'"),
        ({"method": "insertion", "rule": "nearest"}, "'nearest'"),
    ],
)
def test_invalid_options_are_refused(options, message):
    """The message has the allowed values."""
    with pytest.raises(ConfigError, match=message):
        solve("DARP", darp(**ONE), **options)


@pytest.mark.parametrize("instances", [[], 5, [1], [darp(**ONE), "a2-16.txt"], {"locs": np.zeros((1, 3, 2))}])
def test_instances_must_be_instances(instances):
    """None, names and incomplete fields are refused."""
    with pytest.raises(ShapeError, match="instances"):
        solve("DARP", instances, method="insertion")
