"""Large trays and objects: objects out of play lie outside of the tray, and the cup reaches all places."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from milkrun.clutter import register_object_type
from milkrun.clutter.model import parking
from milkrun.clutter.options import ClutterConfig

from .reference_pair import Pair
from .trays import SUGAR, UPRIGHT, config, laid, on_floor, tray


@pytest.mark.parametrize("preset", ClutterConfig.presets)
def test_presets_park_and_move_as_documented(preset):
    """From 1 m on, 0.3 m apart; a cup moved by the policy stays within 0.6 m, and below 0.8 m."""
    for choosing in (True, False):
        c = ClutterConfig.build(preset, use_discrete_action=choosing)
        assert [pose[:2] for pose in parking(c)[:5]] == [(1 + 0.3 * k, -0.5) for k in range(4)] + [(1.0, -0.5 + 0.3)]
        assert (c.cup_far, c.cup_high) == (0.6, 0.8)


def test_objects_are_not_parked_in_a_wide_tray():
    """One object lies at (1, -0.5), the usual park position of the first object: it is not touched."""
    world = laid(on_floor(SUGAR), on_floor(SUGAR, x=1.0, y=-0.5), tray_side=2.4)
    world.step([0])
    event = world.events(0)[0]
    assert event["result"] == "success" and max(event["displacement"]) < 0.002
    assert world.obj_pose[0, 0, 0] > 1.2 + 0.02


def test_parked_objects_do_not_touch():
    """Boxes of half a metre, side by side: each stays at its park position."""
    register_object_type("crate", "box", (0.5, 0.4, 0.3), 0.5)
    options = {"tray_side": 1.7, "tray_wall": 0.8, "suction_force": 1000.0}
    spots = [(x, y, 0.17, *UPRIGHT) for x, y in itertools.product((-0.55, 0.0, 0.55), (-0.25, 0.25))]
    world = laid(*map(list, spots), box_objects=("crate",), **options)
    for i in range(6):
        world.step([i])
    assert world.success[0]
    np.testing.assert_allclose(world.obj_pose[0], parking(world.config), 0, 1e-3)


@pytest.mark.parametrize(
    "places",
    [{"tray_side": 0.9}, {"drop_pos": (-0.75, 0.1, 1.1)}, {"home_pos": (0.7, 0.0, 0.9)}],
    ids=["wide tray", "far drop", "far home"],
)
def test_a_moved_cup_gets_to_the_drop(places):
    """Straight from home, at most 2 cm a tick along each axis."""
    world = tray(1, use_discrete_action=False, **places)
    for _ in range(90):
        before = world.cup_pos[0].copy()
        way = np.clip((world.drop - before) / 0.02, -1, 1)
        world.step([[*way, -1.0]])
        assert abs(world.cup_pos[0] - before).max() < 0.0201
    np.testing.assert_allclose(world.cup_pos[0], world.drop, 0, 1e-6)


def test_a_moved_cup_does_not_reach_parked_objects():
    """Nor does the longest object on the cup, in any orientation."""
    c = config(use_discrete_action=False, tray_side=1.6)
    nearest = min(pose[0] - kind.size[0] / 2 for pose, kind in zip(parking(c), c.types, strict=True))
    assert c.cup_far == 1.0 and nearest > 1.0 + max(np.linalg.norm(kind.size) for kind in c.types)


@pytest.mark.parametrize("options", [{}, {"use_discrete_action": False}], ids=["picks", "motion"])
def test_large_trays_are_those_of_the_reference(options):
    """To the bit, like usual trays."""
    pair = Pair(1, tray_side=2.4, bank_size=1, ray_samples=1, **options)
    for turn in range(60 if options else 3):
        pair.step(np.array([[1.0, 1.0, 1.0, -1.0]], np.float32) if options else pair.world.sample_actions(0, turn))
    assert pair.world.cup_pos[0, 1] > 0.6
