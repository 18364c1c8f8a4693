"""The checker of the TSP with drone compared with costs by hand, and one broken plan for every rule."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from milkrun.core.errors import BadSolution, ShapeError
from milkrun.delivery.instances import Operation, TSPDInstance
from milkrun.delivery.tasks import check_operations, price_operations, tspd_cost

# A rectangle of 3 by 4, its diagonals 5; node 4 lies 6 behind node 3 and 10 from the depot.
PLACES = [[0, 0], [3, 0], [3, 4], [0, 4], [0, 10]]
FIVE = TSPDInstance.of_places("five", PLACES)
SOUND = (Operation(0, 2, 1), Operation(2, 3), Operation(3, 0, 4))


def without(instance, **changed):
    return dataclasses.replace(instance, **changed)


def test_each_operation_has_the_cost_of_the_slower_vehicle():
    """The truck drives 5, 3, 4; the drone flies (3 + 4) / 2, 0, (6 + 10) / 2 and is slower in the last one."""
    prices = price_operations(FIVE, SOUND)
    assert prices.truck.tolist() == [5, 3, 4]
    assert prices.drone.tolist() == [3.5, 0, 8]
    assert prices.cost.tolist() == [5, 3, 8]
    assert prices.drone_wait.tolist() == [1.5, 0, 0]
    assert prices.truck_wait.tolist() == [0, 0, 4]
    assert tspd_cost(FIVE, SOUND) == 16


def test_the_truck_stops_on_the_way():
    """0, 1, 2, 3, 0 is 14; the drone meanwhile flies 10 there and back at half the price, waits 4."""
    prices = price_operations(FIVE, [Operation(0, 0, 4, (1, 2, 3))])
    assert (prices.truck[0], prices.drone[0], prices.cost[0], prices.drone_wait[0]) == (14, 10, 14, 4)


def test_costs_are_asymmetric():
    """From 0 to 1 costs 7 and back 3; the flight 1 -> 0 costs 9, the other way 1.5."""
    roads, air = FIVE.c_truck.copy(), FIVE.c_drone.copy()
    roads[0, 1], air[1, 0] = 7, 9
    crooked = without(FIVE, c_truck=roads, c_drone=air)
    prices = price_operations(crooked, [(0, 1, -1, ()), (1, 0, -1, ()), (0, 2, 1, ()), (1, 3, 0, ())])
    assert prices.truck.tolist() == [7, 3, 5, 5]
    assert prices.drone.tolist() == [0, 0, 3.5, 11]


PLAYABLE = {
    "the truck alone, a leg each": ((0, 1, -1, ()), (1, 2, -1, ()), (2, 3, -1, ()), (3, 4, -1, ()), (4, 0, -1, ())),
    "the truck alone, in one": ((0, 0, -1, (1, 2, 3, 4)),),
    "empty operations": ((0, 0, -1, ()), *SOUND, (0, 0, -1, ())),
    "the truck stays while the drone is out": ((0, 3, -1, ()), (3, 3, 4, ()), (3, 1, 2, ()), (1, 0, -1, ())),
    "meeting at a node covered before": ((0, 1, 2, ()), (1, 0, 3, ()), (0, 0, 4, ())),
    "meeting at a stop of the same operation": ((0, 1, 4, (1, 2)), (1, 3, -1, ()), (3, 0, -1, ())),
    "the end named as last stop": ((0, 2, 1, (2,)), (2, 3, -1, ()), (3, 0, 4, (0,))),
}


@pytest.mark.parametrize("plan", PLAYABLE.values(), ids=PLAYABLE)
def test_playable_plans_are_valid(plan):
    """None breaks a rule."""
    check_operations(FIVE, plan)


def test_costs_of_playable_plans():
    """Legs of 3, 4, 3, 6, 10 around; flights cost half their length if they take longer than the truck."""
    around = 3 + 4 + 3 + 6 + 10
    assert tspd_cost(FIVE, PLAYABLE["the truck alone, a leg each"]) == around
    assert tspd_cost(FIVE, PLAYABLE["the truck alone, in one"]) == around
    assert tspd_cost(FIVE, PLAYABLE["the truck stays while the drone is out"]) == 4 + 6 + 5 + 3
    assert tspd_cost(FIVE, PLAYABLE["meeting at a node covered before"]) == 4.5 + 4.5 + 10
    assert tspd_cost(FIVE, PLAYABLE["the end named as last stop"]) == 16


BROKEN = {
    "starts elsewhere": (((1, 0, -1, ()),), 0, "starts at 1, but a plan starts at the depot 0"),
    "does not chain": ((SOUND[0], (3, 0, 4, ())), 1, "starts at 3, but operation 0 ended at 2"),
    "ends elsewhere": (SOUND[:2], 1, "ends at 3, but a plan ends at the depot 0"),
    "node left out": (((0, 0, 4, (1, 3)),), 0, "the plan ends here and leaves uncovered: 2"),
    "twice by drone": (((0, 2, 1, ()), (2, 3, 1, ())), 1, "node 1 is covered twice by the drone, before by 0"),
    "drone after truck": (((0, 2, -1, ()), (2, 1, 2, ())), 1, "the drone flies to node 2, which the truck has covered"),
    "drone to the depot": (((0, 1, 0, ()),), 0, "the drone flies to node 0, which the truck has covered"),
    "truck after drone": ((SOUND[0], (2, 3, 4, (1,))), 1, "the truck drives to node 1, which is covered"),
    "truck to its drone": (((0, 3, 1, (2, 1)),), 0, "the truck drives to node 1, which is covered"),
    "meeting where the drone is": (
        ((0, 1, 1, ()),),
        0,
        "the truck cannot end at node 1, which the drone covers meanwhile",
    ),
    "stop twice": (((0, 3, 4, (1, 2, 1)),), 0, "the truck drives to node 1, which is covered"),
    "covered end, drone aboard": ((SOUND[0], (2, 1, -1, ())), 1, "the truck drives to node 1, which is covered"),
    "back to its start, drone aboard": (
        ((0, 1, -1, ()), (1, 1, -1, (2,))),
        1,
        "the truck drives to node 1, which is covered",
    ),
    "home too early": (
        ((0, 1, -1, ()), (1, 0, -1, ())),
        1,
        "the truck drives to node 0, which is covered and others are not",
    ),
    "out again after the end": ((*SOUND, (0, 1, -1, ())), 3, "the truck drives to node 1, which is covered"),
    "home again after the end": ((*SOUND, (0, 0, -1, (0,))), 3, "the truck drives to node 0, which is covered"),
    "end named as two stops": (((0, 2, 1, (2, 2)),), 0, "the truck drives to node 2, which is covered"),
    "home on the way": (((0, 1, 4, (2, 0)),), 0, "the truck drives to node 0, which is covered and others are not"),
    "unknown node": ((*SOUND, (0, 5, -1, ())), 3, "node 5 does not exist, nodes are 0..4"),
    "unknown drone node": (((0, 1, -2, ()),), 0, "node -2 does not exist, nodes are 0..4"),
    "unknown stop": (((0, 1, -1, (-1,)),), 0, "node -1 does not exist, nodes are 0..4"),
}


@pytest.mark.parametrize(("plan", "index", "rule"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plan_names_operation_and_rule(plan, index, rule):
    """It has no cost."""
    sentence = f"^operation {index}: {re.escape(rule)}$"
    with pytest.raises(BadSolution, match=sentence):
        check_operations(FIVE, plan)
    with pytest.raises(BadSolution, match=sentence):
        tspd_cost(FIVE, plan)


def test_no_operations_are_no_plan():
    """Every instance has a node to visit."""
    with pytest.raises(BadSolution, match="covers nothing"):
        check_operations(FIVE, [])


RESTRICTED = [
    ({"no_visit": 4}, 2, "the drone may not cover node 4 (no_visit)"),
    ({"forbid": 0}, 0, "the drone may not leave at node 0 (forbid)"),
    ({"forbid": 1}, 0, "the drone may not cover node 1 (forbid)"),
    ({"forbid": 2}, 0, "the drone may not rejoin at node 2 (forbid)"),
    ({"max_fly": 7.75}, 2, "the drone flies 8, max_fly is 7.75"),
]


@pytest.mark.parametrize(("limit", "index", "rule"), RESTRICTED)
def test_a_restriction_names_operation_and_rule(limit, index, rule):
    """The sound plan, under a rule that one of its flights breaks."""
    restricted = TSPDInstance.of_places("five", PLACES, **limit)
    with pytest.raises(BadSolution, match=f"^operation {index}: {re.escape(rule)}$"):
        check_operations(restricted, SOUND)


def test_restrictions_apply_only_to_the_drone():
    """The truck covers nodes that the drone may not serve, and waiting costs no range."""
    nowhere = TSPDInstance.of_places("five", PLACES, max_fly=0, no_visit=range(5), forbid=range(5))
    assert tspd_cost(nowhere, PLAYABLE["the truck alone, in one"]) == 26
    nearly = without(FIVE, no_visit=np.arange(5) == 2, forbid=np.arange(5) == 3, max_fly=10)
    assert tspd_cost(nearly, [(0, 0, 4, (1, 2, 3))]) == 14


def test_a_flight_may_exceed_its_limit_by_rounding_only():
    """By at most 1e-9: the flight costs 8."""
    check_operations(without(FIVE, max_fly=8 - 0.9e-9), SOUND)
    with pytest.raises(BadSolution, match="max_fly"):
        check_operations(without(FIVE, max_fly=8 - 1.1e-9), SOUND)


@pytest.mark.parametrize("wrong", [(0, 1, -1), (0, 1, -1, 2), (0, 1.5, -1, ()), (0, True, -1, ()), "0 1 -1 0", None])
def test_an_invalid_operation_is_refused(wrong):
    """The message has its index."""
    with pytest.raises(ShapeError, match=r"^operation 1 is .* expected"):
        price_operations(FIVE, [SOUND[0], wrong])


def test_numbers_of_numpy_are_nodes():
    """As in a world's log."""
    assert tspd_cost(FIVE, [np.array([0, 0, 4], np.int64).tolist() + [np.array([1, 2, 3])]]) == 14
    assert tspd_cost(FIVE, [(np.int64(0), np.int32(0), np.int64(4), np.array([1, 2, 3]))]) == 14
