"""Observations besides the image: stacked frames, the drone's motion, the lidar. Observing changes no state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.world import Tracking

CLOUD = {"cloud": True, "size": 16, "ground_cell": 2.0}


def world_of(num_envs: int = 1, **options: Any) -> Tracking:
    return Tracking(num_envs, TrackingConfig(**options), seed=5, threads=1)


def put_box(world: Tracking, k: int, pos: tuple[float, ...], half: tuple[float, ...], yaw: float = 0.0) -> None:
    world.n_box[0] = max(int(world.n_box[0]), k + 1)
    world.box_pos[0, k], world.box_half[0, k], world.box_yaw[0, k] = pos, half, yaw
    world.box_cs[0, k] = math.cos(yaw), math.sin(yaw)


def points(world: Tracking) -> np.ndarray:
    return world.observe()["cloud"][0].reshape(-1, 5)


# -- lidar --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("yaw", [0.0, 1.0, -2.5])
def test_a_wall_ahead_is_a_straight_line_of_points(yaw):
    """A face 10 m ahead, normal to the heading: point 0 is (10, 0, 0), and all points on it have x = 10."""
    world = world_of(**CLOUD)
    world.pos[0], world.yaw[0], world.sim_step[0] = (3, -4, 5), yaw, 250
    c, s = math.cos(yaw), math.sin(yaw)
    put_box(world, 0, (3 + 12 * c, -4 + 12 * s, 5), (2, 8, 5), yaw)
    seen = points(world)
    np.testing.assert_allclose(seen[0], (10, 0, 0, 0, 0.5), atol=1e-5)
    hits = seen[seen[:, 4] > 0]
    assert len(hits) == 1 + 2 * math.floor(400 * math.atan(0.8) / (2 * math.pi))
    assert abs(hits[:, 0] - 10).max() < 1e-5 and abs(hits[:, 1]).max() <= 8


def test_points_run_counter_clockwise():
    """A wall to the left has the points around a quarter of the turn, 100 of 400."""
    world = world_of(**CLOUD)
    world.pos[0] = 0, 0, 5
    put_box(world, 0, (0, 6, 5), (1, 1, 5))
    seen = points(world)
    np.testing.assert_allclose(seen[100, :3], (0, 5, 0), atol=1e-5)
    assert (seen[:80] == 0).all() and (seen[120:] == 0).all()


def test_above_the_roofs_no_ray_hits():
    """Every number is 0, never inf, also far from all boxes and beyond 16 m."""
    world = world_of(**CLOUD)
    put_box(world, 0, (5, 0, 5), (2, 2, 5))
    put_box(world, 1, (0, 30, 15), (2, 12, 15))
    world.pos[0], world.sim_step[0] = (0, 0, 10.5), 100
    assert (points(world) == 0).all()


def test_the_nearest_box_within_range_is_hit():
    """At 5 m in front of one at 9 m; at 0.1 m it is too near for the lidar, which then hits the one behind it."""
    world = world_of(**CLOUD)
    world.pos[0] = 0, 0, 5
    put_box(world, 0, (10, 0, 5), (1, 1, 5))
    put_box(world, 1, (6, 0, 5), (1, 1, 5))
    assert abs(points(world)[0, 0] - 5) < 1e-5
    world.pos[0, 0] = 4.9
    world._all_stale = True
    assert abs(points(world)[0, 0] - 4.1) < 1e-5


def test_a_car_is_hit_at_its_body_and_above_it_at_its_cabin():
    """A truck: body 8 m long to 1.35 m, cabin 5.6 m long above it; no hit below 0.25 m nor after it has left."""
    world = world_of(**CLOUD)
    world.n_veh[0], world.veh_on[0, 0], world.veh_kind[0, 0] = 1, True, tables.KINDS.index("truck")
    world.veh_pose[0, 0] = 10, 0, math.pi
    found = []
    for z in (0.2, 1.0, 2.0, 3.5):
        world.pos[0, 2] = z
        world._all_stale = True
        found.append(points(world)[0, 0])
    np.testing.assert_allclose(found, (0, 6, 7.2, 0), atol=1e-5)
    world.veh_on[0, 0], world.pos[0, 2] = False, 1.0
    world._all_stale = True
    assert points(world)[0, 0] == 0


# -- the drone's own motion ---------------------------------------------------------------------------------------


def test_other_state_has_19_numbers_in_their_order():
    world = world_of(other_state=True, size=16, ground_cell=2)
    world.pos[0], world.vel[0], world.acc[0] = (1, 2, 3), (4, 5, 6), (7, 8, 9)
    world.yaw[0], world.yaw_rate[0] = 1.2, -0.5
    expected = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, -0.5, math.cos(0.6), 0, 0, math.sin(0.6), 0, 0, 1.2]
    np.testing.assert_allclose(world.observe()["other_state"][0], expected, rtol=0, atol=1e-15)


# -- frames -------------------------------------------------------------------------------------------------------


def test_frames_are_the_last_images_with_the_oldest_first():
    """At reset the first image three times; after that each frame is the image of its step."""
    options = {"size": 32, "ground_cell": 2.0, "scene": "village"}
    plain, stacked = world_of(2, **options), world_of(2, frame_stack=3, **options)
    plain.reset()
    stacked.reset()
    images = [plain.observe()["image"].copy()] * 3
    for t in range(6):
        frames = stacked.observe()["frames"]
        for h in range(3):
            assert (frames[:, h] == images[h - 3]).all(), (t, h)
        actions = np.array([t % 6, 0])
        plain.step(actions)
        stacked.step(actions)
        images.append(plain.observe()["image"].copy())


# -- observing ----------------------------------------------------------------------------------------------------


def test_observing_changes_no_state():
    """Observed after every step, after every third, and only at the end: the same bytes of state and image."""
    ends = []
    for every in (1, 3, 100):
        world = world_of(3, size=32, ground_cell=2.0, scene="downtown", weather="snow", other_state=True, cloud=True)
        world.reset()
        for t in range(12):
            world.step(np.array([0, 2, 4]))
            if t % every == 0:
                world.observe()
                world.shot(1, 48)
        world.observe()
        kept = [f.name for f in world.fields.values() if f.role in (Role.STATE, Role.VIEW, Role.KEY, Role.INSTANCE)]
        ends.append({name: getattr(world, name).tobytes() for name in kept})
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("stack", [0, 2])
def test_rows_never_reset_are_black_and_every_byte_is_written(debug, stack):
    config = TrackingConfig(size=16, ground_cell=2.0, other_state=True, cloud=True, frame_stack=stack)
    world = Tracking(2, config, seed=0, debug=debug)
    for name in ("image", "frames", "other_state", "cloud"):
        getattr(world, name)[...] = 7
    seen = world.observe()
    still = np.array([0.0] * 12 + [1.0] + [0.0] * 6)
    assert (seen["frames" if stack else "image"] == 0).all()
    assert (seen["other_state"] == still).all() and (seen["cloud"] == 0).all()


def test_rows_that_share_a_town_observe_the_same_as_rows_with_copies():
    """Two rows on one town by `instance_row`, and two with a copy each."""
    world = world_of(2, size=32, ground_cell=2.0)
    world.reset()
    town = world.town(1)
    images = []
    for owner in (np.zeros(2, int), np.arange(2)):
        world.reset(
            seed=9,
            instance={**{k: np.repeat(v, owner.max() + 1, axis=0) for k, v in town.items()}, "instance_row": owner},
        )
        images.append(world.observe()["image"].copy())
    assert (images[0] == images[1]).all() and (images[0][0] != images[0][1]).any()
