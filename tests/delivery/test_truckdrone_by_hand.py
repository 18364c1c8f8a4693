"""The truck-and-drones world compared with numbers by hand: published rules, ends, driving."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import ResetNeeded
from milkrun.delivery.truckdrone.generator import route_ring as ring
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


def test_sizes_at_both_presets():
    """33, 38 and 34 numbers at 2, 3, 5 with 20 actions; 90, 80 and 87 at 2, 6, 6 with 27."""
    for preset, customers, sizes, actions in (
        ("published", 3, (33, 38, 34), [10, 5]),
        ("default", 6, (80, 90, 87), [11, 8]),
    ):
        model = row(preset, *[CUSTOMER] * customers, num_drones=2)
        assert (len(model.drone_obs[0]), len(model.seen_by_truck), len(model.state)) == sizes
        assert [len(mask) for mask in model.masks] == [*actions, actions[1]]
        assert len(model.action_mask) == sum(actions) + actions[1]


def test_nodes_lie_on_the_circle():
    """Four nodes at right angles; with a depot the middle comes first."""
    cross = [(0.6, 0), (0, 0.6), (-0.6, 0), (0, -0.6)]
    np.testing.assert_allclose(ring(4, 0.6, False), cross, atol=1e-15)
    np.testing.assert_allclose(ring(5, 0.6, True), [(0, 0), *cross], atol=1e-15)


def test_node_of_the_truck_at_reset():
    """Node 0 under published rules although node 0 is at (.6,0); the depot or none under sound rules."""
    assert row("published", CUSTOMER).truck_node == 0
    assert row("published", CUSTOMER).route_nodes[0] == (0.6, 0.0)
    assert row("default", CUSTOMER).truck_node == 0
    assert row("default", CUSTOMER, depot_node=False).truck_node == -1


@pytest.mark.parametrize(("preset", "between", "arrived", "move"), [("published", 0, 0, 1), ("default", -1, 1, 2)])
def test_the_truck_drives_until_arrival_or_stay(preset, between, arrived, move):
    """Six steps of .1 to (.6,0); RELEASE keeps it driving, STAY stops it, the velocity is kept on arrival."""
    model = play(row(preset, CUSTOMER), (move, 0), (1 + (5 if preset == "published" else 6), 0))
    assert model.truck_pos == near((0.2, 0.0))
    assert (model.truck_node, model.truck_target) == (between, move - 1)
    play(model, (0, 0))
    assert (model.truck_pos, model.truck_vel, model.truck_target) == (near((0.2, 0.0)), (0.0, 0.0), -1)
    play(model, *[(move, 0)] * 4)
    assert (model.truck_pos, model.truck_vel) == (near((0.6, 0.0)), near((1.0, 0.0)))
    assert (model.truck_node, model.truck_target) == (arrived, -1)
    play(model, (move, 0))
    assert (model.truck_vel, model.truck_node, model.truck_target) == ((0.0, 0.0), arrived, -1)
    assert (model.kpis()["truck_distance"], model.kpis()["truck_wait"]) == (near(0.6), 2)


@pytest.mark.parametrize("preset", ["published", "default"])
def test_drones_return_to_the_old_place_of_the_truck(preset):
    """From (0,.5) home to (0,0) while the truck drives to the right: straight down by .2."""
    model = row(preset, CUSTOMER)
    model.put(drone_pos=[(0, 0.5)], status=[FLYING])
    play(model, (1 if preset == "published" else 2, 1))
    assert (model.drone_pos, model.drone_vel) == (near_pairs((0.0, 0.3)), near_pairs((0.0, -2.0)))
    assert (model.truck_pos, model.status) == (near((0.1, 0.0)), [RETURNING])


@pytest.mark.parametrize(("preset", "lands"), [("published", False), ("default", True)])
def test_landing_and_delivery_at_the_threshold(preset, lands):
    """A drone exactly at the threshold has landed, or delivered, only under sound rules."""
    model = row(preset, (0.45, 0.0), recovery_threshold=0.25, delivery_threshold=0.25)
    model.put(drone_pos=[(0.45, 0.0)], status=[FLYING])
    play(model, (0, 1))
    assert model.drone_pos == ([(0.0, 0.0)] if lands else [(0.25, 0.0)])
    model.put(drone_pos=[(0.0, 0.0)], status=[FLYING])
    play(model, (0, 2))
    assert (model.drone_pos, model.served) == ([(0.2, 0.0)], [lands])


def test_recovery_charges_under_published_rules():
    """.3, a release to .299, a recovery to .499; a full drone stays at 1."""
    model = row("published", CUSTOMER)
    play(model, (6, 0), (7, 0))
    assert model.battery == [1.0]
    model.put(battery=[0.3])
    play(model, (6, 0), (7, 0))
    assert model.battery == near([0.499])
    assert (model.kpis()["sorties"], model.kpis()["aborted"]) == (2, 0)


def test_a_wreck_is_recovered_with_its_parcel():
    """RECOVER within .1 takes a crashed drone aboard with .2 and its parcel, and cancels its action."""
    model = row("published", CUSTOMER)
    model.put(drone_pos=[(0.1, 0.0)], status=[CRASHED], battery=[0.0], carrying=[0], has_target=[True])
    assert masks(model) == ["11111101", "100"]
    play(model, (7, 2))
    assert (model.status, model.battery, model.carrying, model.has_target) == ([ONBOARD], [0.2], [0], [False])
    assert (model.executed, model.illegal, model.kpis()["aborted"]) == ([7, 0], [False, True], 1)


def test_forced_return_and_crash():
    """.15 is below .5 * 1 * 1.2: forced home, .2 flown, crashed; the only drone, so the episode ends at -20.602."""
    model = row("published", CUSTOMER, battery_rate=1.0)
    model.put(drone_pos=[(0.5, 0.0)], status=[FLYING], battery=[0.15])
    play(model, (0, 2))
    assert (model.executed, model.forced, model.status, model.battery) == ([0, 1], [True], [CRASHED], [0.0])
    assert (model.drone_pos, model.drone_vel) == (near_pairs((0.3, 0.0)), [(0.0, 0.0)])
    assert (model.reward_exact, model.terminated, model.kpis()["crashes"]) == (near(-20.602), True, 1)


def test_a_crash_at_the_truck_still_lands():
    """.15 of distance on .1 of battery: it crashes and is taken aboard in the same step, which does not count as a
    crash."""
    model = row("published", CUSTOMER, battery_rate=1.0)
    model.put(drone_pos=[(0.15, 0.0)], status=[FLYING], battery=[0.1])
    play(model, (0, 1))
    assert (model.status, model.battery, model.terminated) == ([ONBOARD], [0.2], False)
    assert (model.reward_exact, model.kpis()["crashes"]) == (near(-0.6015), 0)


def test_a_chosen_return_is_also_penalised_every_step():
    """.5 < .9 * .5 * 1.2 and then .4 < .42: two penalties for a drone that chose RETURN itself."""
    model = row("published", CUSTOMER, battery_rate=0.5)
    model.put(drone_pos=[(0.9, 0.0)], status=[FLYING], battery=[0.5])
    play(model, (0, 1))
    assert model.reward_exact == near(-0.601)
    play(model, (0, 1))
    assert (model.reward_exact, model.battery, model.kpis()["forced_onsets"]) == (near(-0.601), near([0.3]), 2)


def test_hovering_below_zero_is_no_crash():
    """.0005 - .001 is negative and the drone still flies; then it is forced home and lands with .1995."""
    model = row("published", CUSTOMER)
    model.put(status=[FLYING], battery=[0.0005])
    play(model, (0, 0))
    assert (model.battery, model.status, model.forced) == (near([-0.0005]), [FLYING], [False])
    play(model, (0, 0))
    assert (model.battery, model.status, model.forced) == (near([0.1995]), [ONBOARD], [True])


def test_the_dead_end_of_the_published_rules():
    """A carrier whose customer another drone has served may only hover."""
    model = row("published", CUSTOMER, (-0.5, 0.0), num_drones=2)
    model.put(drone_pos=[(0.5, 0.0), (0.2, 0.0)], status=[FLYING, FLYING], carrying=[0, 0])
    assert masks(model)[1:] == ["1010", "1010"]
    play(model, (0, 2, 2))
    assert (model.served, model.carrying, masks(model)[1:]) == ([True, False], [-1, 0], ["1101", "1000"])


def test_a_parcel_may_go_to_the_wrong_customer():
    """Under published rules parcel 0 can be delivered to customer 1; with `obey_mask` the drone hovers instead."""
    for obey, served, executed in ((False, [False, True], 3), (True, [False, False], 0)):
        model = row("published", CUSTOMER, (-0.5, 0.0), obey_mask=obey)
        model.put(drone_pos=[(-0.5, 0.0)], status=[FLYING], carrying=[0])
        play(model, (0, 3))
        assert (model.served, model.executed, model.illegal) == (served, [0, executed], [False, True])


def test_a_drone_on_board_may_deliver():
    """With a parcel from an earlier flight, if the truck is at the customer."""
    model = row("published", (0.04, 0.0), (0.5, 0.0))
    model.put(carrying=[0])
    play(model, (0, 2))
    assert (model.served, model.carrying, model.status) == ([True, False], [-1], [ONBOARD])


def test_actions_out_of_range_are_action_zero():
    """Under both rule sets, and flagged."""
    for preset in ("published", "default"):
        model = play(row(preset, CUSTOMER), (99, -1))
        assert (model.executed, model.illegal, model.kpis()["illegal"]) == ([0, 0], [True, True], 2)


def test_the_time_limit():
    """Five idle steps of the default preset: -.1 - 60 and truncated, or terminated if the limit is terminal."""
    for terminal in (False, True):
        model = row("default", *[CUSTOMER] * 6, window=(0, 5), episode_length=5, time_limit_terminal=terminal)
        play(model, *[(0, 0)] * 4)
        assert (model.reward_exact, model.done) == (-0.1, False)
        play(model, (0, 0))
        assert (model.reward_exact, model.terminated, model.truncated) == (near(-60.1), terminal, not terminal)
        assert masks(model) == ["1" + "0" * 8, "1" + "0" * 7]
        with pytest.raises(ResetNeeded):
            model.step((0, 0))


def test_max_steps_ends_earlier_but_does_not_scale_the_clock():
    """Truncated after three of 200 steps, with the clock of the state at 3/200."""
    model = play(row("default", CUSTOMER, max_steps=3), *[(0, 0)] * 3)
    assert model.truncated
    assert model.state[-1] == np.float32(3 / 200)
