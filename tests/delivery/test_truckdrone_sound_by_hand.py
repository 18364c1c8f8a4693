"""The sound rules of the truck-and-drones world compared with numbers by hand.

With the default numbers a drone flies .2 a step for .08 of battery, .112 with a demand of .8 on board, and hovers for
.02; a fleeing truck drives .1.
"""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.safety import chase, need, rate_under
from tests.delivery.truckdrone_row import (
    CRASHED,
    CUSTOMER,
    FLYING,
    ONBOARD,
    RETURNING,
    masks,
    near,
    near_pairs,
    play,
    row,
)

RELEASE, RECOVER = 7, 8


@kernel
def steps_home(w, b, hundredths, _):
    return chase(w, hundredths / 100.0)


@kernel
def battery_home(w, b, loaded, _):
    return need(w, 0.6, rate_under(w, 0.8 if loaded else 0.0))


def airborne(model, x, battery, **fields):
    """The airborne drone at (x, 0)."""
    model.put(drone_pos=[(x, 0.0)], status=[FLYING], battery=[battery], **fields)
    return model


def test_without_waiting_the_parcel_is_delivered_immediately():
    """`early="ignore"`: served at step 4, the first within .05 of the door."""
    model = play(row("default", CUSTOMER, window=(8, 20), early="ignore"), (RELEASE, 0), *[(0, 2)] * 3)
    assert model.arrival_step == [4]


def test_lateness_is_charged_at_the_delivery():
    """(.3,0) is reached at step 3, one after the window: -.1 + 5 - .5 * .056 - .1."""
    model = play(row("default", (0.3, 0.0), window=(0, 2)), (RELEASE, 0), (0, 2), (0, 2))
    assert (model.arrival_step, model.reward_exact) == ([3], near(4.772))
    assert [model.kpis()[key] for key in ("on_time", "lateness", "lateness_max")] == [0, 1, 1]


def test_steps_home_to_a_fleeing_truck():
    """Steps at gaps .1 to .9: the first .2 beyond the threshold cost one step, then each .1 costs one."""
    world = row("default", CUSTOMER).world
    steps = [int(world.map_rows(steps_home, np.int64, 10 * gap)[0]) for gap in range(1, 10)]
    assert steps == [1, 1, 1, 2, 3, 4, 5, 6, 7]
    assert world.map_rows(steps_home, np.int64, 31)[0] == 2
    needs = [float(world.map_rows(battery_home, np.float64, loaded)[0]) for loaded in (0, 1)]
    assert needs == near([0.32, 0.448])


def test_a_truck_that_cannot_be_caught():
    """Without the battery rule drones may be as slow as the truck: the slack is -1 beyond .2 and 1 - .04 within it."""
    model = row("default", CUSTOMER, drone_speed=1.0, battery_rule="off")
    assert airborne(model, 0.3, 1.0).drone_obs[0][20] == -1.0
    assert airborne(model, 0.15, 1.0).drone_obs[0][20] == np.float32(0.96)


@pytest.mark.parametrize(
    ("x", "battery", "mask"),
    [
        (0.5, 0.34, "010"),
        (0.5, 0.35, "110"),
        (0.1, 0.099, "010"),
        (0.1, 0.101, "110"),
        (0.11, 1, "110"),
        (0.1, 1, "111"),
    ],
)
def test_mask_of_an_empty_drone(x, battery, mask):
    """Hovering at .5 requires .02 + 4 * .08, at .1 .02 + .08; a parcel is loaded within .1 of the truck; RETURN is
    always allowed."""
    assert masks(airborne(row("default", CUSTOMER), x, battery))[1] == mask


@pytest.mark.parametrize(
    ("door", "battery", "changes", "allowed"),
    [
        (0.5, 0.223, {}, False),
        (0.5, 0.225, {}, True),
        (0.2, 0.191, {}, False),
        (0.2, 0.193, {}, True),
        (0.2, 0.193, {"reserve": False}, False),
        (0.2, 0.193, {"window": (2, 200)}, False),
        (0.2, 0.193, {"window": (1, 200)}, True),
        (0.5, 0.01, {"battery_rule": "off"}, True),
        (0.5, 0.335, {"battery_margin": 2.0}, False),
        (0.5, 0.337, {"battery_margin": 2.0}, True),
    ],
)
def test_a_delivery_that_is_safe(door, battery, changes, allowed):
    """.112 for the step and .112 to return loaded, .08 if the parcel is delivered in this step."""
    assert airborne(row("default", (door, 0.0), **changes), 0.0, battery).drone_mask[0][2] == allowed


def test_pickup_in_the_air_loads_a_parcel_anywhere():
    """Out of the truck's reach DELIVER is masked, unless `pickup="air"`."""
    assert masks(airborne(row("default", CUSTOMER), 0.3, 1.0))[1] == "110"
    assert masks(airborne(row("default", CUSTOMER, pickup="air"), 0.3, 1.0))[1] == "111"


def test_a_carrier_returns_only_if_it_cannot_deliver():
    """From .3 to .5 and home requires .112 + 4 * .112, hovering at .3 requires .028 + 2 * .112."""
    model = row("default", (0.9, 0.0), (-0.9, 0.0))
    assert masks(airborne(model, 0.3, 0.561, carrying=[0]))[1] == "1010"
    assert masks(airborne(model, 0.3, 0.559, carrying=[0]))[1] == "1100"
    assert masks(airborne(model, 0.3, 0.251, carrying=[0]))[1] == "0100"


def test_release_and_recovery_in_the_mask():
    """RELEASE requires .02 + .08; RECOVER an airborne drone within .1; a wreck cannot be recovered."""
    model = row("default", CUSTOMER)
    for battery, release in ((0.1, False), (0.1 + 5e-10, False), (0.1 + 2e-9, True)):
        model.put(battery=[battery])
        assert model.truck_mask[RELEASE:] == [release, False]
    assert row("default", CUSTOMER, battery_rule="off").truck_mask[RELEASE]
    assert airborne(model, 0.1, 1.0).truck_mask[RELEASE:] == [False, True]
    assert airborne(model, 0.1001, 1.0).truck_mask[RELEASE:] == [False, False]
    model.put(status=[CRASHED], drone_pos=[(0.0, 0.0)])
    assert masks(model) == ["111111100", "100"]


def test_an_override_is_charged_once():
    """At .5 with .25 only RETURN is left; with HOVER twice it is overridden, with one onset penalty of .5."""
    model = airborne(row("default", CUSTOMER), 0.5, 0.25)
    play(model, (0, 0))
    assert (model.executed, model.illegal, model.forced, model.forced_phase) == ([0, 1], [False, True], [True], [True])
    assert (model.reward_exact, model.status, model.battery) == (near(-0.64), [RETURNING], near([0.17]))
    play(model, (0, 0))
    assert (model.reward_exact, model.forced, model.status) == (near(-0.14), [True], [ONBOARD])
    assert (model.forced_phase, model.kpis()["forced_onsets"], model.kpis()["illegal"]) == ([False], 1, 2)


def test_a_chosen_return_and_illegal_actions_with_hover_are_not_penalised():
    """A chosen RETURN costs .1 + .04; an illegal action with HOVER allowed is flagged, executed as HOVER, and not
    forced."""
    model = play(airborne(row("default", CUSTOMER), 0.5, 0.25), (0, 1))
    assert (model.reward_exact, model.forced) == (near(-0.14), [False])
    model = play(airborne(row("default", CUSTOMER), 0.5, 0.9), (0, 2))
    assert (model.executed, model.illegal, model.forced) == ([0, 0], [False, True], [False])
    assert (model.reward_exact, model.kpis()["forced_onsets"]) == (near(-0.11), 0)


def test_an_illegal_truck_stops():
    """RECOVER of a drone on board is STAY: the target is cleared."""
    model = play(row("default", CUSTOMER), (2, 0), (RECOVER, 0))
    assert (model.executed, model.truck_target, model.truck_pos) == ([0, 0], -1, near((0.1, 0.0)))


def test_two_drones_choose_one_parcel():
    """The lower index takes it (.112), the other hovers (.02); without `reserve` both fly and the slower one has to
    return."""
    model = row("default", CUSTOMER, num_drones=2)
    model.put(status=[FLYING, FLYING])
    play(model, (0, 2, 2))
    assert (model.conflict, model.executed, model.carrying) == ([False, True], [0, 2, 0], [0, -1])
    assert (model.battery, model.reward_exact, model.kpis()["conflicts"]) == (near([0.888, 0.98]), near(-0.166), 1)
    assert model.illegal == [False] * 3
    assert masks(model)[1:] == ["101", "110"]
    model = row("default", CUSTOMER, num_drones=2, reserve=False)
    model.put(status=[FLYING, FLYING], drone_pos=[(0.5, 0.0), (0.2, 0.0)], carrying=[0, 0])
    play(model, (0, 2, 2))
    assert (model.served, model.carrying, masks(model)[1:]) == ([True], [-1, 0], ["110", "110"])


def test_a_conflict_without_allowed_hover_is_a_return():
    """The door requires .0224 + .08, hovering at .05 a step .13; of two drones with .12 the second has to land."""
    model = row("default", (0.04, 0.0), num_drones=2, hover_rate=0.5)
    model.put(status=[FLYING, FLYING], battery=[0.12, 0.12])
    assert masks(model)[1:] == ["011", "011"]
    play(model, (0, 2, 2))
    assert (model.conflict, model.executed, model.status) == ([False, True], [0, 2, 1], [FLYING, ONBOARD])


def test_recovery_returns_the_parcel():
    """RECOVER: the parcel is in stock again, one aborted flight, .03 charged in the same step plus
    `recovery_charge`."""
    for changes, battery in (({}, 0.53), ({"recovery_charge": 0.2}, 0.73)):
        model = airborne(row("default", CUSTOMER, **changes), 0.1, 0.5, carrying=[0], forced_phase=[True])
        play(model, (RECOVER, 2))
        assert (model.carrying, model.battery, model.executed) == ([-1], near([battery]), [RECOVER, 0])
        assert (model.status, model.forced_phase, model.kpis()["aborted"]) == ([ONBOARD], [False], 1)


def test_charging_stops_at_full():
    """.99 + .03 is 1."""
    model = row("default", CUSTOMER)
    model.put(battery=[0.99])
    assert play(model, (0, 0)).battery == [1.0]


@pytest.mark.parametrize(("drones", "end"), [(1, "served"), (2, "served"), (2, "returned"), (2, "depot")])
def test_a_crash_loses_the_parcel(drones, end):
    """.112 on .05: crashed at .7, parcel lost, no customer left: -.1 - .056 - 10 - 10."""
    model = row("default", (0.9, 0.0), num_drones=drones, battery_rule="off", end=end)
    rest = drones - 1
    model.put(drone_pos=[(0.5, 0.0)] + [(0.0, 0.0)] * rest, status=[FLYING] + [ONBOARD] * rest)
    model.put(battery=[0.05] + [1.0] * rest, carrying=[0] + [-1] * rest)
    play(model, (0, 2, *[0] * rest))
    assert (model.lost, model.status[0], model.battery[0], model.carrying[0]) == ([True], CRASHED, 0.0, 0)
    assert (model.drone_pos[:1], model.drone_vel[0]) == (near_pairs((0.7, 0.0)), (0.0, 0.0))
    assert (model.reward_exact, model.terminated, model.kpis()["crashes"]) == (near(-20.156), True, 1)


def test_a_wreck_delivers_nothing_and_its_parcel_is_not_available():
    """.112 on .05 ends exactly at the door; drone 1 at the truck may only take the other parcel."""
    model = row("default", CUSTOMER, (-0.5, 0.0), num_drones=2, battery_rule="off")
    model.put(drone_pos=[(0.3, 0.0), (0.0, 0.0)], status=[FLYING, FLYING], battery=[0.05, 1.0], carrying=[0, -1])
    play(model, (0, 2, 0))
    assert (model.drone_pos[:1], model.served, model.lost) == (near_pairs(CUSTOMER), [False, False], [True, False])
    assert masks(model)[1:] == ["1000", "1101"]


def test_a_parcel_of_a_crash_in_the_same_step_is_still_available():
    """Only live drones cause a conflict: drone 0 loads and crashes, drone 1 then loads the same parcel."""
    model = row("default", CUSTOMER, num_drones=2, battery_rule="off")
    model.put(status=[FLYING, FLYING], battery=[0.05, 1.0])
    play(model, (0, 2, 2))
    assert (model.status, model.carrying, model.conflict) == ([CRASHED, FLYING], [0, 0], [False, False])


def test_landing_cancels_a_crash_at_the_truck():
    """An unneeded parcel carried home over .15 on .01 of battery: aboard at 0, not lost, no crash charged."""
    model = row("default", CUSTOMER, (-0.5, 0.0), battery_rule="off", reserve=False)
    airborne(model, 0.15, 0.01, carrying=[0], served=[True, False])
    play(model, (0, 1))
    assert (model.status, model.battery, model.lost, model.carrying) == ([ONBOARD], [0.0], [False, False], [-1])
    assert (model.reward_exact, model.kpis()["crashes"]) == (near(-0.1 - 0.5 * 0.15 * 0.4 * 1.4), 0)


@pytest.mark.parametrize(("end", "steps"), [("served", 2), ("returned", 3), ("depot", 5)])
def test_end_of_a_complete_episode(end, steps):
    """Served at step 2, the drone home at 3, the truck back at its depot at 5."""
    model = row("default", (0.2, 0.0), end=end)
    model.put(truck_pos=(0.2, 0.0), drone_pos=[(0.2, 0.0)], truck_node=-1)
    for actions in ((RELEASE, 0), (0, 2), (0, 1), (1, 0), (1, 0))[:steps]:
        assert not model.done
        model.step(actions)
    assert model.terminated
    assert model.reward_exact > 19


def reaches(door, node, demand=1.0):
    """Whether a full drone can serve the demand at the door while the truck stays at the node."""
    model = row("default", door, demand=demand)
    place = model.route_nodes[node]
    model.put(truck_pos=place, drone_pos=[place], truck_node=node)
    play(model, (RELEASE, 0))
    while model.drone_mask[0][2] and not model.served[0]:
        model.step((0, 2))
    return model.served[0]


def test_every_door_is_within_reach_of_a_node():
    """A grid of the square with its corners, at demand 1; a corner is out of the depot's reach."""
    grid = [x / 5 for x in range(-4, 5, 2)]
    assert all(any(reaches((x, y), node) for node in range(6)) for x in grid for y in grid)
    assert not reaches((0.8, 0.8), 0)


def test_most_doors_are_within_reach_of_the_depot():
    """73 % of positions and demands, at the middles of 12 x 12 x 5 cells of a quarter of the square."""
    middles = [0.8 * (i + 0.5) / 12 for i in range(12)]
    doors = [reaches((x, y), 0, demand / 20) for x in middles for y in middles for demand in range(11, 20, 2)]
    assert sum(doors) / len(doors) == pytest.approx(0.73, abs=0.01)
