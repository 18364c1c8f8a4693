"""Many episodes of the tracking world's traffic: no two cars overlap, no vehicle crosses a closed line, and all move
on."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.tracking.tables import SCENES
from tests.tracking.traffic_tools import advance, make, off_road, overlaps

EPISODE, EVERY = 1500, 10
"""Sim steps of an episode, and between two checks of the rectangles."""


def check_traffic(scene, episodes, seed):
    """No overlap at any check, no line crossed and no speed out of range at any sim step; the target stays on roads.

    In a village two roads may meet so sharply that the zone of their junction is long; turns between its other roads
    then cut a corner. This is rare.
    """
    world, outside = make(episodes, seed=seed, scene=scene), []
    for step in range(0, EPISODE, EVERY):
        assert not overlaps(world), step
        broken = world.map_rows(advance, x=EVERY)
        assert not broken.any(), (int(broken.argmax()), int(broken.max()))
        if step % 50 == 0:
            outside.append(off_road(world) > world.road_half)
    assert np.mean(outside) <= (0.003 if scene == "village" else 0.0)
    assert (world.veh_v[world.veh_on] > 0.1).mean() > 0.95


@pytest.mark.parametrize(
    "pose, touch",
    [
        ((4.5, 0, 0), True),
        ((4.7, 0, 0), False),
        ((0, 1.7, 3.1), True),
        ((0, 1.9, 0), False),
        ((3.1, 0, np.pi / 2), True),
        ((3.3, 0, np.pi / 2), False),
        ((-2.2, 2.2, np.pi / 4), True),
        ((-2.3, 2.3, np.pi / 4), False),
    ],
)
def test_overlaps_of_two_sedans_are_detected(pose, touch):
    """4.6 x 1.8 m; the first stands at the origin. A car at 45 degrees is clear of it if its middle is more than 0.9 +
    (2.3 + 0.9) / sqrt 2 = 3.16 m off along its own normal; no side of the first separates them there."""
    world = make(1, max_vehicles=2)
    world.veh_on[:], world.veh_kind[:] = True, 0
    world.veh_pose[0] = (0, 0, 0), pose
    assert bool(overlaps(world)) == touch


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_three_hundred_episodes(scene):
    check_traffic(scene, 300, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_thousand_episodes(scene):
    check_traffic(scene, 1000, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
def test_traffic_flows_for_minutes(scene):
    """After two minutes of traffic hardly any car has stood still for the last 30 s. (Cars of lower index go first, so
    a few wait that long in a busy village.)"""
    world = make(60, seed=2, scene=scene)
    world.map_rows(advance, x=45_000)
    place, moved = world.veh_pose[:, :, :2].copy(), np.zeros(world.veh_on.shape)
    for _ in range(10):
        world.map_rows(advance, x=1500)
        moved = np.maximum(moved, np.abs(world.veh_pose[:, :, :2] - place).max(axis=-1))
    assert (moved[world.veh_on] > 1).mean() > 0.99
