"""The exposure law of the clutter reference on scenes whose shares and areas are known; no world takes part."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

import mujoco

from .clutter import ClutterRow
from .clutter_physics import full_extents
from .clutter_rays import faces, first_hit
from .clutter_scenes import FLAT, HALF, UP, dropped_pile, laid, on_tray

SUGAR, SOUP, TUNA = "004_sugar_box", "005_tomato_soup_can", "007_tuna_fish_can"
LONG = 0.175  # along x when a sugar box lies flat; .089 along y, .038 high
ROOM = {"tray_side": 0.5}


def near(value, tolerance=1e-6):
    return pytest.approx(value, rel=0, abs=tolerance)


def stacked(share):
    """A flat box, and another on top that covers this share of it from the right."""
    upper = on_tray(SUGAR, x=(1 - share) * LONG, above=0.038)
    return laid((SUGAR,), on_tray(SUGAR), upper, **ROOM)


def turned_quarter(poses):
    """The scene turned by 90 degrees around z."""
    found = []
    for x, y, z, w, a, b, c in np.asarray(poses):
        found.append((-y, x, z, HALF * (w - c), HALF * (a - b), HALF * (b + a), HALF * (c + w)))
    return np.array(found)


def test_a_flat_box_alone_is_seen_whole():
    """Exposed 1, the visible area is the top face of 89 x 175 mm, nothing covers it, the cup lands in its middle."""
    row = laid((SUGAR,), on_tray(SUGAR))
    assert row.cover.tolist() == [[1.0]]
    assert (row.exposed[0], row.covered[0], row.blocked, row.reachable) == (1.0, 0.0, [False], [True])
    assert row.exposed_area[0] == near(0.089 * 0.175)
    assert row.grip_point[0] == near(np.array([0, 0, 0.058]))
    assert (row.grip_offset[0], row.grip_nz[0], row.top[0]) == (near(0), near(1), near(0.058))


def test_a_third_covered():
    """A box over a third of another along its long side: 2/3, 1/3, 1; a third is blocked, the middle still free."""
    row = stacked(1 / 3)
    assert row.cover == near(np.array([[2 / 3, 1 / 3], [0, 1]]))
    assert row.exposed_area == near(np.array([2 / 3, 1]) * 0.089 * 0.175)
    assert (row.blocked, row.reachable) == ([True, False], [True, True])
    assert row.grip_offset == near(np.zeros(2))


def test_a_covered_middle_moves_the_grip():
    """With two thirds covered only the samples at -2/3 of the half length are left; the middle one is nearest."""
    row = stacked(2 / 3)
    assert row.cover[0] == near(np.array([1 / 3, 2 / 3]))
    assert row.grip_point[0] == near(np.array([-2 / 3 * LONG / 2, 0, 0.058]))
    assert row.grip_offset[0] == near(LONG / 3)


def test_wholly_covered_is_not_reachable():
    """A box right on top of another hides it: no grip point, not allowed, while the upper one is."""
    row = stacked(1)
    assert row.exposed.tolist() == [0, 1]
    assert (row.reachable, row.action_mask) == ([False, True], [False, True])
    assert row.grip_point[0].tolist() == [0, 0, 0]
    assert row.objects[0, 22] == 1


def test_a_tilted_box_shows_two_faces():
    """Turned by 30 degrees about y, a box shows its top by cos 30 and one side by sin 30, the third face by 0."""
    angle = math.pi / 12
    row = laid((SUGAR,), (0, 0, 0.2, math.cos(angle), 0, math.sin(angle), 0))
    solid = row.solid(0)
    weights = [face.weight for face in faces(solid, 3)]
    assert weights == near([0.089 * 0.175 / 2, 0, 0.038 * 0.089 * math.sqrt(0.75)])
    assert row.exposed_area[0] == near(sum(weights))
    assert row.top[0] == near(0.2 + 0.0875 * math.sqrt(0.75) + 0.019 / 2)


def test_samples_of_a_box_face():
    """Points of a face lie at -2/3, 0, 2/3 of its half extents, the first of its two axes slowest."""
    points = [sample.local for sample in faces(laid((SUGAR,), on_tray(SUGAR)).solid(0), 3)[0].samples]
    y, z = 0.089 / 3, 0.175 / 3
    assert np.array(points)[:, 1:] == near(np.array([(b * y, c * z) for b in (-1, 0, 1) for c in (-1, 0, 1)]))


def test_an_upright_can_shows_its_lid():
    """The visible area of an upright soup can is its disc; lid samples are at r sqrt((i+.5)/3)."""
    row = laid((SOUP,), on_tray(SOUP, q=UP))
    assert row.exposed_area[0] == near(math.pi * 0.033**2)
    assert (row.exposed[0], row.grip_nz[0]) == (near(1), near(1))
    assert row.grip_offset[0] == near(0.033 * math.sqrt(0.5 / 3))


def test_a_lying_can_shows_its_rectangle():
    """The visible area of a lying soup can is diameter x height; the cup lands on its highest line."""
    row = laid((SOUP,), (0, 0, 0.053, *FLAT))
    assert row.exposed_area[0] == near(0.066 * 0.101)
    assert row.grip_point[0] == near(np.array([0, 0, 0.086]))
    assert (row.exposed[0], row.grip_nz[0], row.top[0]) == (near(1), near(1), near(0.086))


def test_mantle_normals_lean_aside():
    """On a lying can the samples at 2/3 of the radius have a normal of z sqrt(1-4/9)."""
    (mantle,) = (face for face in faces(laid((SOUP,), (0, 0, 0.053, *FLAT)).solid(0), 3) if face.weight > 1e-6)
    assert sorted({round(sample.nz, 9) for sample in mantle.samples}) == near([math.sqrt(5) / 3, 1])


def test_walls_hide_but_belong_to_nobody():
    """A box whose last three samples lie under a wall, .25 to .27, is seen by two thirds and covered by no object."""
    row = laid((SUGAR,), on_tray(SUGAR, x=0.26 - LONG / 3), **ROOM)
    assert row.cover.tolist() == [[near(2 / 3)]]
    assert (row.hit[0] == -1).sum() >= 3 and row.covered[0] == 0


def test_no_reach_leaves_the_highest_one():
    """If no face is level enough, the object with the greatest top is allowed, at the middle of its top face."""
    poses = [on_tray(SUGAR), on_tray(SUGAR, y=0.12, q=UP), on_tray(SUGAR, y=-0.12, q=UP)]
    row = laid((SUGAR,), *poses, max_tilt_cos=1.5, **ROOM)
    assert (row.reachable, row.action_mask) == ([False] * 3, [False, True, False])
    assert row.grip_point == near(np.array([(0, 0, 0), (0, 0.12, 0.195), (0, 0, 0)]))
    row.step(1)
    assert row.grasped == [False, True, False]


@pytest.mark.parametrize("types", [(SUGAR, "006_mustard_bottle", "008_pudding_box"), (SUGAR, SOUP, TUNA)])
def test_rays_meet_what_the_engine_says(types):
    """In dropped piles, boxes and cans, every sample with a weight and random rays hit what `mj_ray` hits."""
    row, draw, count = ClutterRow({"box_objects": types}), np.random.default_rng(4), 0
    for seed in (1, 2):
        row.reset(dropped_pile(row, seed))
        row.size = [full_extents(kind) for kind in row.kinds]  # not rounded: a steep side would multiply the rounding
        model, data = row.engine.model, row.engine.data
        mujoco.mj_kinematics(model, data)
        solids, fixed, geom = row._solids(), row._fixed(), np.zeros(1, dtype=np.int32)
        points = [tuple(draw.uniform(-0.17, 0.17, 2)) for _ in range(300)]
        for i, solid in enumerate(solids):
            for face in faces(solid, 3):
                if face.weight > 1e-7:
                    points += [tuple(np.add(row.centre(i), sample.offset)[:2]) for sample in face.samples]
        for x, y in points:
            who, z = first_hit(x, y, solids, fixed)
            far = mujoco.mj_ray(model, data, (x, y, 1.0), (0, 0, -1.0), None, 1, -1, geom, None)
            name = model.geom(int(geom[0])).name
            assert who == (int(name[1:]) if name[0] == "g" else -1)
            assert z == near(1 - far)
            count += 1
    assert count > 1000


@pytest.mark.parametrize("seed", [1, 2])
def test_a_quarter_turn_changes_nothing(seed):
    """The pile turned by 90 degrees has the same shares, areas, tops and mask, and grip points that turned with it."""
    row = ClutterRow({"box_objects": (SUGAR, SOUP, TUNA)})
    poses = dropped_pile(row, seed)
    row.reset(poses)
    names = "cover exposed_area covered top grip_offset grip_nz".split()
    before, points, mask = {name: getattr(row, name) for name in names}, row.grip_point, row.action_mask
    row.reset(turned_quarter(poses))
    assert row.action_mask == mask
    for name in names:
        assert getattr(row, name) == near(before[name])
    assert row.grip_point == near(points @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1.0]]))


def test_a_finer_grid_agrees_with_an_image():
    """With 81 samples a face, shares of a pile are within .05 on average of those counted in a 128 x 128 image."""
    row = ClutterRow({"ray_samples": 9, "map_size": 128})
    row.reset(dropped_pile(row, 3))
    _, seen = row.maps()
    pixel = (row.side / 128) ** 2
    gaps = []
    for i in range(row.N):
        silhouette = sum(face.weight for face in faces(row.solid(i), 9))
        gaps.append(abs(row.exposed[i] - (seen == i).sum() * pixel / silhouette))
    assert np.mean(gaps) < 0.05
    assert row.cover.sum(axis=1).max() <= 1 + 1e-6


def test_maps_of_one_box():
    """Row 0 lies at +y and column 0 at -x; heights are z/.3; pixels without an object are -1."""
    row = laid((SUGAR,), on_tray(SUGAR, x=0.1, y=0.15), tray_side=0.4, map_size=4)
    height, seen = row.maps()
    assert np.argwhere(seen == 0).tolist() == [[0, 2], [0, 3]]
    assert (height[0, 2], height[3, 0]) == (near(0.058 / 0.3), near(0.02 / 0.3))
