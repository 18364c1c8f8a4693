"""Loaded states of the TSP with a drone: unreachable ones are refused, reachable ones are not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance
from milkrun.delivery.instances import TSPDInstance
from milkrun.delivery.tspd import TSPD
from tests.states import arrays_of, check, check_play

ID = "milkrun/TSPD-v0"
PLAYS = [
    {},
    {"num_nodes": 4, "autoreset": "same_step"},
    {"num_nodes": 6, "max_fly": 40.0, "autoreset": "disabled"},
    {"num_nodes": 2, "law": "singlecenter"},
    {"num_nodes": 5, "max_steps": 4, "alpha": 1.0},
]


@pytest.mark.parametrize("options", PLAYS, ids=str)
def test_no_reachable_state_is_refused(options):
    """64 rows, 60 steps, one in four actions any number: every state is accepted, also of ended rows."""
    world = milkrun.make(ID, num_envs=64, seed=5, **options)
    world.reset()
    check_play(world)


def test_no_state_of_padded_instances_is_refused():
    """Forbidden nodes, short flights and padding, shared by rows: every state is accepted."""
    rng = np.random.default_rng(2)
    ones = [
        TSPDInstance.of_places(
            str(n), rng.integers(0, 9, (n, 2)), max_fly=float(n), no_visit=[1], forbid=rng.integers(0, n, 1)
        )
        for n in (2, 3, 5, 7)
    ]
    world = TSPD.from_instances(ones, repeat=16, seed=1)
    check_play(world)


@cache
def world_in_flight():
    """A row of four nodes in a world of five: the truck has driven to 1, launched the drone to 2 and driven to 3."""
    one = TSPDInstance.of_places("four", [[0, 0], [3, 4], [6, 0], [9, 4]], no_visit=[3])
    world = TSPD.from_instances([one], num_nodes=5)
    for action in (1, 5 + 2, 3):
        world.step([action])
    assert not world.illegal[0] and not world.done[0]
    return world


CASES = [
    ("truck", 0, 4, "truck = 4: is no node of this instance"),
    ("launch", 0, 4, "launch = 4: is no node of this instance"),
    ("fly", 0, 4, "fly = 4: is no node of this instance"),
    ("launch", 0, -1, "launch = -1: must be -1 if and only if fly is"),
    ("fly", 0, -1, "truck_leg = 6.0: must be 0 with the drone aboard"),
    ("fly", 0, 1, "fly = 1: is where the drone was launched"),
    ("fly", 0, 0, "fly = 0: the depot is covered"),
    ("covered", (0, 0), False, "covered[0] = False: the depot and padding"),
    ("covered", (0, 4), False, "covered[4] = False: the depot and padding"),
    ("covered", (0, 3), False, "truck = 3: is a node that is not covered"),
    ("covered", (0, 2), False, "fly = 2: is a node that is not covered"),
    ("left", 0, 2, "left = 2: must be the nodes not covered"),
    ("truck_leg", 0, 1e9, "truck_leg = 1000000000.0: is more than the time"),
    ("clock", 0, 1e300, "clock = 1e+300: must be <="),
    ("steps", 0, 10**9, "steps = 1000000000: must be <= 15"),
    ("plan", (0, 0), -1, "plan[0] = -1: must be 0..10 up to steps = 3"),
    ("plan", (0, 0), 99, "plan[0] = 99: must be 0..10"),
    ("plan", (0, 5), 1, "plan[5] = 1: must be 0..10"),
    ("plan", (0, 0), 10, "plan[0] = 10: launches and joins must alternate"),
    ("plan", (0, 0), 6, "plan[1] = 7: launches and joins must alternate"),
    ("plan", (0, 1), 2, "fly = 2: does not fit the launches"),
    ("by_drone", 0, 3, "by_drone = 3: must be the launches of the plan"),
    ("num_ops", 0, 10**6, "num_ops = 1000000: must be <= 10"),
    ("must_join", 0, True, "action_mask[0] = True: the state does not allow this action"),
    ("action_mask", (0, 2), True, "action_mask[2] = True: the state does not allow this action"),
    ("action_mask", (0, 3), True, "action_mask[3] = True: the state does not allow this action"),
    ("action_mask", (0, 4), True, "action_mask[4] = True: the state does not allow this action"),
    ("action_mask", (0, 5), True, "action_mask[5] = True: the state does not allow this action"),
    ("fly_on", (0, 1), 0.5, "fly_on[1] = 0.5: must be 2.5, the least c_drone to another node"),
    ("c_truck", (0, 1, 2), 1e40, "c_truck[1, 2] = 1e+40: must be <="),
    ("locs", (0, 1, 0), 1e31, "locs[1, 0] = 1e+31: must be within"),
]


@pytest.mark.parametrize(("name", "at", "value", "said"), CASES, ids=lambda v: str(v)[:30])
def test_an_impossible_state_is_refused_by_name(name, at, value, said):
    """One value changed with the drone out: the message names row, field, value and rule."""
    world = world_in_flight()
    arrays = arrays_of(world)
    check(world, arrays)
    arrays[name][at] = value
    with pytest.raises(BadInstance) as caught:
        check(world, arrays)
    assert said in str(caught.value) and str(caught.value).startswith("row 0: ")


@pytest.mark.parametrize(
    ("name", "at", "value", "said"),
    [
        ("must_join", 0, True, "must_join = True: the drone is aboard"),
        ("truck_leg", 0, 1.0, "truck_leg = 1.0: must be 0 with the drone aboard"),
        ("action_mask", (0, 0), True, "action_mask[0] = True: the state does not allow this action"),
        ("action_mask", (0, 4 + 0), True, "action_mask[4] = True: the state does not allow"),
        ("action_mask", (0, 8), True, "action_mask[8] = True: the state does not allow"),
    ],
)
def test_a_drone_aboard_has_nothing_to_join(name, at, value, said):
    """At the start of a row of four nodes."""
    world = milkrun.make(ID, num_nodes=4, seed=1)
    world.reset()
    arrays = arrays_of(world)
    arrays[name][at] = value
    with pytest.raises(BadInstance) as caught:
        check(world, arrays)
    assert said in str(caught.value)
