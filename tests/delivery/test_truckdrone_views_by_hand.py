"""Both versions of the observations of the truck-and-drones world, number by number for one scene.

The truck drives through (.2,0) towards node 1 of three, after six of a hundred steps. Drone 0 flies upwards at (.5,.4),
a gap of .5, with the parcel of customer 0; drone 1 is on board. The window of customer 1 closed two steps ago.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.delivery.truckdrone_row import CRASHED, FLYING, ONBOARD, Row

INSTANCE = {"customer_pos": [(0.5, 0.5), (-0.5, 0.0)], "demand": [0.5, 1.0], "tw_start": [10, 0], "tw_end": [30, 4]}
SCENE = {
    "truck_pos": (0.2, 0.0),
    "truck_vel": (1.0, 0.0),
    "truck_node": -1,
    "truck_target": 1,
    "world_step": 6,
    "drone_pos": [(0.5, 0.4), (0.2, 0.0)],
    "drone_vel": [(0.0, 2.0), (0.0, 0.0)],
    "battery": [0.6, 0.9],
    "carrying": [0, -1],
    "status": [FLYING, ONBOARD],
    "target_pos": [(0.5, 0.5), (0.7, 0.7)],
    "has_target": [True, False],
    "forced_phase": [True, False],
}


def scene(preset="default", **changes):
    config = {"num_route_nodes": 3, "episode_length": 100, "depot_node": True} | changes
    model = Row(preset, INSTANCE, **config)
    model.put(**SCENE)
    return model


def near32(*parts):
    """Views are float32; the numbers here are decimal."""
    return pytest.approx([x for part in parts for x in part], rel=0, abs=1e-7)


def test_the_truck_sees_v1():
    """Itself, flags on board, the drones, the customers, its number."""
    assert scene(obs="v1").seen_by_truck == near32(
        [0.2, 0, 1, 0],
        [0, 1],
        [0.3, 0.4, 0, 2, 0.6, 1, 0.25],
        [0, 0, 0, 0, 0.9, 0, 0],
        [0.3, 0.5, 0, 0.24, 0.5],
        [-0.7, 0, 0, 0, 1],
        [1, 0, 0],
    )


def test_the_drones_see_v1():
    """A cleared target is zeros, independent of its stored place."""
    first, second = scene(obs="v1").drone_obs
    assert first == near32(
        [0.5, 0.4, 0, 2, 0.6, 1, 0.5, 0.5, 0, -0.3, -0.4],
        [0, 0.1, 0, 0.24, 0.5],
        [-1, -0.4, 0, 0, 1],
        [-0.3, -0.4, 0.9, 0],
        [0, 1, 0],
    )
    assert second == near32(
        [0.2, 0, 0, 0, 0.9, 0, 0, 0, 1, 0, 0],
        [0.3, 0.5, 0, 0.24, 0.5],
        [-0.7, 0, 0, 0, 1],
        [0.3, 0.4, 0.6, 0.25],
        [0, 0, 1],
    )


def test_the_shared_state_v1():
    """Absolute positions, and the clock."""
    assert scene(obs="v1").state == near32(
        [0.2, 0, 1, 0],
        [0.5, 0.4, 0, 2, 0.6, 1, 0.25],
        [0.2, 0, 0, 0, 0.9, 0, 0],
        [0.5, 0.5, 0, 0.24, 0.5],
        [-0.5, 0, 0, 0, 1],
        [0.06],
    )


def test_the_truck_sees_v2():
    """Drone 0 has .6 and may need 3 steps of .2 at .4 * 1.25 to return: a slack of .3."""
    assert scene().seen_by_truck == near32(
        [0.2, 0, 1, 0],
        [0.4, 0, 1],
        [0, 0, 0],
        [0.06],
        [-0.2, 0, 0.4, 0, -0.8, 0],
        [0.3, 0.4, 0, 1, 0.6, 0, 1, 0, 0, 0.5, 0.3],
        [0, 0, 0, 0, 0.9, 1, 0, 0, 0, 0, 0.9],
        [0.3, 0.5, 0, 0.04, 0.24, 0.5, 1],
        [-0.7, 0, 0, 0, -0.02, 1, 0],
    )


def test_the_drones_see_v2():
    """The own target of drone 0 is a taken one for drone 1."""
    first, second = scene().drone_obs
    assert first == near32(
        [0.5, 0.4, 0, 1, 0.6, 0.5, 0, 1, 0, 0],
        [0, 0.1, 1],
        [-0.3, -0.4, 1, 0],
        [0.1, -0.4, 1],
        [0.3, 0.06],
        [0, 0.1, 0, 0.04, 0.24, 0.5, 1, 0],
        [-1, -0.4, 0, 0, -0.02, 1, 0, 0],
        [-0.3, -0.4, 0.9, 1, 0, 0, 0, 0],
        [1, 0],
    )
    assert second == near32(
        [0.2, 0, 0, 0, 0.9, 0, 1, 0, 0, 0],
        [0, 0, 0],
        [0, 0, 1, 0],
        [0.4, 0, 1],
        [0.9, 0.06],
        [0.3, 0.5, 0, 0.04, 0.24, 0.5, 0, 1],
        [-0.7, 0, 0, 0, -0.02, 1, 0, 0],
        [0.3, 0.4, 0.6, 0, 1, 0, 0, 0.5],
        [0, 1],
    )


def test_the_shared_state_v2():
    """No node is the last entry of its one-hot; no parcel is zeros."""
    assert scene().state == near32(
        [0.2, 0, 1, 0],
        [0, 1, 0, 0],
        [0, 0, 0, 1],
        [0.5, 0.4, 0, 1, 0.6, 0, 1, 0, 0, 1, 0, 1],
        [0.2, 0, 0, 0, 0.9, 1, 0, 0, 0, 0, 0, 0],
        [0.5, 0.5, 0, 0.1, 0.3, 0.5],
        [-0.5, 0, 0, 0, 0.04, 1],
        [0.06],
    )


def test_speeds_are_relative_to_the_own_maximum():
    """1 of 4 for the truck, 2 of 8 for the drone."""
    model = scene(truck_speed=4.0, drone_speed=8.0)
    assert model.drone_obs[0][2:4] == [0.0, 0.25]
    assert model.drone_obs[0][15:17] == [0.25, 0.0]
    assert model.seen_by_truck[2:4] == [0.25, 0.0]


def test_the_served_and_the_wreck():
    """A served customer has no window; a wreck has no slack and reserves no parcel."""
    model = scene()
    model.put(status=[CRASHED, ONBOARD], served=[True, False])
    drones, customers = model.seen_by_truck[17:39], model.seen_by_truck[39:]
    assert drones[5:11] == near32([0, 0, 0, 1, 0.5, 0])
    assert customers[:7] == near32([0.3, 0.5, 1, 0, 0, 0.5, 0])
    old = scene(obs="v1")
    old.put(status=[CRASHED, ONBOARD], served=[True, False])
    assert old.seen_by_truck[6:13] == near32([0.3, 0.4, 0, 2, 0.6, 1, 1])
    assert old.seen_by_truck[20:25] == near32([0.3, 0.5, 1, 0, 0.5])


def test_slack_under_published_rules():
    """.6 - .5 * .01 * 1.2 in the air."""
    assert scene("published", obs="v2").drone_obs[0][20] == np.float32(0.594)
