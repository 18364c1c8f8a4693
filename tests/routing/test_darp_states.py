"""Loaded states of the dial-a-ride world: unreachable ones are refused, reachable ones are not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import BadInstance
from milkrun.routing.darp import DARP
from tests.routing.darp_by_hand import darp
from tests.states import arrays_of, check, check_play

ID = "milkrun/DARP-v0"
PLAYS = [
    {"rule": "deadlines"},
    {"rule": "deadlines", "num_requests": 3, "num_agents": 2, "autoreset": "same_step"},
    {"rule": "deadlines", "num_requests": 4, "num_agents": 3, "max_steps": 5, "autoreset": "disabled"},
    {"rule": "deadlines", "num_requests": 2, "num_agents": 4, "min_pickup_tw": 0, "max_pickup_tw": 3, "record": False},
    {"rule": "classic", "num_requests": 5},
    {"rule": "classic", "num_requests": 4, "style": "b", "autoreset": "same_step", "metric": "matrix"},
    {"rule": "classic", "num_requests": 6, "max_onboard": 2, "max_steps": 6, "autoreset": "disabled", "record": False},
]


@pytest.mark.parametrize("options", PLAYS, ids=lambda o: f"{o['rule']}-{o.get('num_requests')}")
def test_no_reachable_state_is_refused(options):
    """64 rows, 60 steps, one in four actions any number: every state is accepted, also of ended rows."""
    world = milkrun.make(ID, num_envs=64, seed=5, **options)
    world.reset()
    check_play(world)


def test_no_state_of_padded_instances_is_refused():
    """Fleets of other capacities, padding of nodes and vehicles, instances shared by rows: every state is accepted."""
    ones = [darp([1, 10, -5, 2], capacity=(1, 2, 1), load=[1, 2]), darp([3, 10]), darp([1, 2] * 3, capacity=(1, 3))]
    world = DARP.from_instances(ones, repeat=20, seed=1)
    check_play(world)


@cache
def world_aboard(rule):
    """A row of two requests on a line after the first pickup (2 riders from 1 to 10), with a second vehicle unused."""
    one = darp([1, 10, -5, 2], capacity=(3, 3), load=[2, 1])
    if rule == "classic":
        world = DARP.from_instances([one])
    else:
        fields = {name: one.fields()[name] for name in ("locs", "demand", "capacity")}
        world = milkrun.make(ID, rule="deadlines", num_requests=2, num_agents=2, speed=1.0)
        world.reset(instance={**fields, "time_windows": [[100, 50, 50, 50, 50]]})
    world.step([1])
    return world


BOTH = [
    ("current_load", 0, 3, "current_load = 3: must be the riders picked up"),
    ("current_load", 0, 2**62, "current_load = 4611686018427387904: must be"),
    ("visited", (0, 0), True, "visited[0] = True: the depot"),
    ("visited", (0, 4), True, "visited[4] = True: its rider was not picked up"),
    ("visited", (0, 1), False, "picked_up_by_current[1] = True: the pickup is not visited"),
    ("picked_up_by_current", (0, 2), True, "picked_up_by_current[2] = True: is no pickup"),
    ("picked_up_by_current", (0, 1), False, "current_node = 1: the vehicle is there, but its rider is not aboard"),
    ("current_node", 0, 3, "current_node = 3: the vehicle is there, but it is not visited"),
    ("current_agent", 0, 1, "vehicle_finished[0] = False: must be True before the active vehicle"),
    ("vehicle_finished", (0, 0), True, "current_agent = 0: the active vehicle is finished"),
    ("capacity", (0, 0), 1, "current_load = 2: is over the capacity"),
    ("capacity", (0, 0), 2**62, "capacity[0] = 4611686018427387904: must be <="),
    ("demand", (0, 2), -1, "demand[2] = -1: a dropoff is the negative"),
    ("locs", (0, 2, 0), 1e30, "locs[2, 0] = 1.0000000150474662e+30: must be within"),
    ("vehicles_used", 0, 7, "vehicles_used = 7: is more than are finished"),
    ("tour_len", 0, 99, "tour_len = 99: must be <= 6"),
    ("tour", (0, 0), -4, "tour[0] = -4: must be within 0..4"),
    ("total_distance", 0, 1e30, "total_distance = 1"),
    ("action_mask", (0, 1), True, "action_mask[1] = True: the state does not allow this action"),
    ("action_mask", (0, 4), True, "action_mask[4] = True: the state does not allow this action"),
    ("action_mask", (0, 0), True, "action_mask[0] = True: the state does not allow this action"),
]
DEADLINES = [
    ("current_time", 0, 51, "current_time = 51: is after the deadline"),
    ("current_time", 0, 2**62, "current_time = 4611686018427387904: is after the deadline"),
    ("time_windows", (0, 3), -1, "time_windows[3] = -1: must be >= 0"),
    ("capacity", (0, 1), 0, "capacity[1] = 0: must be at least 1"),
]
CLASSIC = [
    ("onboard", (0, 0), 1, "onboard: must list the requests aboard, each once, then -1"),
    ("onboard", (0, 0), -1, "onboard: must list the requests aboard, each once, then -1"),
    ("onboard", (0, 1), 0, "onboard: must list the requests aboard, each once, then -1"),
    ("onboard", (0, 3), 0, "onboard: must list the requests aboard, each once, then -1"),
    ("current_time", 0, -1.0, "current_time = -1.0: is not within the depot's window"),
    ("current_time", 0, 1e300, "current_time = 1e+300: is not within the depot's window"),
    ("n_nodes", 0, 3, "demand[3] = 1: padding has no riders"),
    ("tight_close", (0, 3), np.inf, "tight_close[3] = inf: must not be after"),
    ("tight_open", (0, 3), -5.0, "tight_open[3] = -5.0: must not be before"),
]


@pytest.mark.parametrize(
    ("rule", "name", "at", "value", "said"),
    [*(("deadlines", *c) for c in BOTH + DEADLINES), *(("classic", *c) for c in BOTH + CLASSIC)],
    ids=lambda v: str(v)[:30],
)
def test_an_impossible_state_is_refused_by_name(rule, name, at, value, said):
    """One value changed after the first pickup: the message names row, field, value and rule."""
    world = world_aboard(rule)
    arrays = arrays_of(world)
    check(world, arrays)
    arrays[name][at] = value
    with pytest.raises(BadInstance) as caught:
        check(world, arrays)
    assert said in str(caught.value) and str(caught.value).startswith("row 0: ")


def test_a_rider_of_two_vehicles_is_refused():
    """Classic: picked up by a finished vehicle without a dropoff; only `deadlines` has stranded riders."""
    said = {"deadlines": None, "classic": "the rider was picked up, but is neither aboard nor dropped off"}
    for rule, words in said.items():
        world = world_aboard(rule)
        arrays = arrays_of(world)
        arrays["visited"][0, 3] = True
        arrays["action_mask"][0, 3] = False
        arrays["tour_len"][0] += 1
        if words is None:
            check(world, arrays)
        else:
            with pytest.raises(BadInstance, match=words):
                check(world, arrays)


def test_the_message_names_the_row_at_fault():
    """The sixth of eight rows."""
    world = milkrun.make(ID, num_envs=8, seed=1, num_requests=3, num_agents=2, max_duration=200.0)
    world.reset()
    arrays = arrays_of(world)
    arrays["current_load"][5] = 1
    with pytest.raises(BadInstance, match=r"^row 5: current_load = 1: "):
        check(world, arrays)
