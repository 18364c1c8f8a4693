"""Exposure and cover computed by hand: faces, thirds, cans, turned and relabelled scenes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from .trays import CANS, FLAT, HALF, SOUP, SUGAR, UPRIGHT, laid, made, on_floor, tray

ROOM = {"tray_side": 0.5}


def test_a_single_box_is_fully_visible():
    """A flat sugar box: 89 x 175 mm visible, nothing covered; the cup lands on its middle, 38 mm above the base."""
    world = laid(on_floor(SUGAR))
    assert world.exposed[0, 0] == 1 and world.covered[0, 0] == 0 and not world.blocked[0, 0]
    assert world.exposed_area[0, 0] == pytest.approx(0.089 * 0.175, abs=1e-6)
    assert world.cover[0].tolist() == [[1.0]] and world.top[0, 0] == pytest.approx(0.058)
    assert world.grip_point[0, 0] == pytest.approx([0, 0, 0.058], abs=1e-7) and world.grip_nz[0, 0] == pytest.approx(1)
    assert world.grip_offset[0, 0] == pytest.approx(0, abs=1e-7) and world.reachable[0, 0]


@pytest.mark.parametrize("samples", [3, 6, 9])
def test_a_third_is_covered(samples):
    """A box on top, shifted by two thirds of the long side."""
    world = laid(on_floor(SUGAR), on_floor(SUGAR, x=0.175 * 2 / 3, over=0.0381), ray_samples=samples, **ROOM)
    assert world.cover[0] == pytest.approx(np.array([[2 / 3, 1 / 3], [0, 1]]), abs=1e-6)
    assert world.covered[0] == pytest.approx([1 / 3, 0], abs=1e-6) and world.blocked[0].tolist() == [True, False]
    assert world.exposed_area[0, 0] == pytest.approx(0.089 * 0.175 * 2 / 3, abs=1e-6)


def test_blocked_begins_at_its_threshold():
    """A third covered: blocked with a threshold of .33, not with .34."""
    for threshold, blocked in ((0.33, True), (0.34, False)):
        world = laid(on_floor(SUGAR), on_floor(SUGAR, x=0.175 * 2 / 3, over=0.0381), blocked_cover=threshold, **ROOM)
        assert world.blocked[0, 0] == blocked


def test_cans_standing_and_lying():
    """pi r^2 of an upright soup can, diameter by height of a lying one; a lying one is gripped on its highest line."""
    lying = [0.0, 0.15, 0.02 + 0.033, *FLAT]
    world = laid(on_floor(SOUP, q=UPRIGHT), lying, box_objects=(SOUP,), **ROOM)
    assert world.exposed_area[0] == pytest.approx([math.pi * 0.033**2, 0.066 * 0.101], abs=1e-6)
    assert world.exposed[0].tolist() == [1, 1]
    assert world.top[0] == pytest.approx([0.121, 0.086])
    assert world.grip_point[0, 1] == pytest.approx([0, 0.15, 0.086], abs=1e-7)
    assert world.grip_offset[0, 0] == pytest.approx(0.033 * math.sqrt(1 / 6), abs=1e-7)


def test_a_can_is_gripped_on_its_surface():
    """A can's missing third face has no grip point, at any limit of tilt."""
    world = laid(on_floor(SOUP, q=UPRIGHT), box_objects=(SOUP,), max_tilt_cos=0.0)
    assert world.grip_point[0, 0, 2] == pytest.approx(0.121) and world.grip_nz[0, 0] == 1
    assert (world.hit[0, 0, 9:] == -1).all()


def test_a_wall_hides_and_belongs_to_no_object():
    """A box of 89 mm reaches 3 mm into the wall: of 20 lines of samples, 4.45 mm apart, the last is under it, a
    twentieth of its area."""
    across = [0.25 - 0.0445 + 0.003, 0.0, 0.02 + 0.019, 0.5, -0.5, -0.5, -0.5]  # first extent up, second along x
    world = laid(across, ray_samples=20, **ROOM)
    assert world.exposed[0, 0] == pytest.approx(0.95, abs=1e-6) and world.covered[0, 0] == 0
    assert (world.hit[0, 0, :400] == -1).sum() == 20 and not world.blocked[0, 0]


def test_every_row_of_cover_sums_to_one_at_most():
    """Samples below a wall belong to no object."""
    world = tray(8, num_objects_per_type=2, bank_size=8, **CANS)
    assert (world.cover.sum(2) <= 1 + 1e-6).all() and (world.cover >= 0).all()
    assert np.array_equal(world.cover[:, range(6), range(6)], world.exposed)


def test_an_object_out_of_play_is_invisible():
    """All its views are 0, and no ray hits it."""
    world = laid(on_floor(SUGAR), on_floor(SUGAR, x=0.175 * 2 / 3, over=0.0381), **ROOM)
    world.step([1])
    assert world.grasped[0].tolist() == [False, True]
    for name in ("exposed", "exposed_area", "covered", "blocked", "top", "grip_offset", "grip_nz", "reachable"):
        assert getattr(world, name)[0, 1] == 0, name
    assert not world.cover[0, 1].any() and not world.cover[0, :, 1].any() and world.exposed[0, 0] == 1
    assert not world.grip_point[0, 1].any() and (world.hit[0, 1] == -1).all()


VIEWS = ("exposed", "exposed_area", "covered", "blocked", "top", "grip_offset", "grip_nz", "reachable")


@pytest.mark.parametrize("options", [{}, CANS], ids=["boxes", "cans"])
def test_quarter_turns_and_labels_permute_the_views(options):
    """A scene and the same scene turned and relabelled have the same numbers at permuted places."""
    world = made(12, num_objects_per_type=2, bank_size=4, **options)
    plain = made(12, num_objects_per_type=2, bank_size=4, augment=False, **options)
    world.reset()
    plain.reset(instance={"scene_id": world.scene_id.copy()})
    assert set(world.scene_rot.tolist()) == {0, 1, 2, 3} and (np.diff(world.scene_label, axis=1) < 0).any()
    for b in range(12):
        label, turn = world.scene_label[b], int(world.scene_rot[b])
        assert label.tolist() == [t * 2 + k for t in range(3) for k in (label[2 * t : 2 * t + 2] % 2)]
        for name in VIEWS:
            np.testing.assert_allclose(getattr(world, name)[b], getattr(plain, name)[b][label], 0, 1e-6, err_msg=name)
        np.testing.assert_allclose(world.cover[b], plain.cover[b][np.ix_(label, label)], 0, 1e-6)
        assert (world.action_mask[b] == plain.action_mask[b][label]).all()
        c, s = [(1, 0), (0, 1), (-1, 0), (0, -1)][turn]
        x, y, z = plain.grip_point[b][label].T
        np.testing.assert_allclose(world.grip_point[b], np.stack([c * x - s * y, s * x + c * y, z], 1), 0, 1e-6)


def test_hits_of_a_turned_scene_equal_new_rays():
    """Hits from the bank equal those of newly cast rays."""
    world = tray(8, num_objects_per_type=2, bank_size=8, **CANS)
    cast = made(8, num_objects_per_type=2, bank_size=8, **CANS)
    cast.reset(instance={"init_pose": world.init_pose.copy()})
    for name in (*VIEWS, "cover", "grip_point", "objects"):
        np.testing.assert_allclose(getattr(world, name), getattr(cast, name), 0, 1e-6, err_msg=name)


def test_the_highest_object_is_allowed_if_none_can_be_gripped():
    """With a limit of tilt below every surface, only the object with the highest top is allowed, gripped on its top
    face."""
    tilted = [0.0, 0.0, 0.14, math.cos(math.pi / 8), 0.0, math.sin(math.pi / 8), 0.0]
    higher = [0.0, 0.15, 0.15, math.cos(math.pi / 8), 0.0, math.sin(math.pi / 8), 0.0]
    world = laid(tilted, higher, max_tilt_cos=0.99, tray_wall=0.2, **ROOM)
    assert not world.reachable[0].any() and world.action_mask[0].tolist() == [False, True]
    assert world.grip_nz[0, 1] == pytest.approx(HALF) and world.grip_point[0, 1, 2] > 0.15
    assert not world.grip_point[0, 0].any()
    world.step([1])
    assert not world.illegal[0] and world.log_target[0, 0] == 1


def test_a_turned_and_relabelled_scene_can_be_requested():
    """By number, quarters and labels: the bits of the generator, and the same views."""
    world = tray(12, num_objects_per_type=2, bank_size=4)
    other = made(12, num_objects_per_type=2, bank_size=4, augment=False)
    assert set(world.scene_rot.tolist()) == {0, 1, 2, 3} and (np.diff(world.scene_label, axis=1) < 0).any()
    other.reset(instance={name: getattr(world, name).copy() for name in ("scene_id", "scene_rot", "scene_label")})
    for name in ("init_pose", "physics", "hit", "action_mask", "objects"):
        assert (getattr(other, name) == getattr(world, name)).all(), name
