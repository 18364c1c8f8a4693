"""Pictures for people: what stands where, and that everything to be seen is there."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core.errors import ResetNeeded
from milkrun.tracking import looks
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.picture import MAP, RING, WINDOW, contact_sheet, from_above, view_window
from milkrun.tracking.world import Tracking


def world_of(**options: object) -> Tracking:
    world = Tracking(2, TrackingConfig(**options), seed=5, threads=1)
    world.reset()
    return world


def has(pixels: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    return np.argwhere((pixels == colour).all(-1))


def test_the_picture_shows_the_camera_beside_the_town_from_above():
    """uint8 (512, 1024, 3): on the left the shot of 256, doubled; on the right ring and window."""
    world = world_of(scene="lake")
    pixels = world.render(1)
    assert pixels.shape == (512, 1024, 3) and pixels.dtype == np.uint8
    camera = world.shot(1, 256, 2)[0].transpose(1, 2, 0)
    assert (pixels[40:512:2, 0:510:2] == camera[20:, :255]).all()
    assert len(has(pixels[:, 512:], WINDOW)) > 100 and not len(has(pixels[:, :512], WINDOW))


def test_the_ring_is_round_the_target():
    """Its middle is where the target stands on a map of 90 m, north up, that is centred between drone and target."""
    world = world_of(scene="desert")
    pixels = world.render(0)[:, 512:]
    middle = (world.pos[0, :2] + world.veh_pose[0, 0, :2]) / 2
    offset = (world.veh_pose[0, 0, :2] - middle) * (512 / (2 * MAP))
    ring = has(pixels, RING)
    rows, columns = (ring.min(0) + ring.max(0)) / 2
    assert abs(columns - (256 + offset[0])) < 3 and abs(rows - (256 - offset[1])) < 3


def test_the_map_shows_the_town_to_scale_with_north_up():
    """A white box 10 m east and 20 m north of the middle, 4 x 2 m, is there on the map."""
    world = Tracking(1, TrackingConfig(ground_cell=2), seed=0)
    world.light[0] = [1, 1, *looks.SUN, 0, 0, 0]
    world.n_box[0], world.box_pos[0, 0], world.box_half[0, 0] = 1, (10, 20, 0.05), (2, 1, 0.05)
    world.box_cs[0, 0], world.box_rgb[0, 0] = (1, 0), 255
    white = has(from_above(world, 0, np.zeros(2), 180), (255, 255, 255))  # 2 pixels a metre
    assert abs(white.mean(0) - (90 - 40 - 0.5, 90 + 20 - 0.5)).max() < 0.6
    assert (np.ptp(white, axis=0) + 1).tolist() == [4, 8]


def test_the_window_is_the_quadrilateral_of_the_reward():
    """Camera at (0, 0, 20), pitch 1, yaw 0, range 0.7: corners (19.981066, +-8.009921), (7.452072, +-6.047125)."""
    world = Tracking(1, TrackingConfig(ground_cell=2), seed=0)
    world.pos[0], world.pitch[0] = (0, 0, 20), 1
    expected = [(19.981066, 8.009921), (19.981066, -8.009921), (7.452072, -6.047125), (7.452072, 6.047125)]
    np.testing.assert_allclose(view_window(world, 0), expected, atol=1e-5)
    world.yaw[0] = math.pi / 2
    np.testing.assert_allclose(view_window(world, 0)[0], (-8.009921, 19.981066), atol=1e-5)


def test_grey_worlds_have_a_picture_too():
    pixels = world_of(channels=1, size=16).render(0)
    assert (pixels[40:, :510, 0] == pixels[40:, :510, 2]).all()


def test_a_world_never_reset_has_no_picture():
    with pytest.raises(ResetNeeded):
        Tracking(1, TrackingConfig(ground_cell=2), seed=0).render(0)


def test_the_sheet_has_every_scene_in_every_weather():
    """6 x 4 pairs of pictures; no two scenes and no two weathers look alike: means differ by more than 5 levels."""
    sheet = contact_sheet(16).astype(float)
    assert sheet.shape == (6 * 52 + 4, 4 * 100 + 4, 3)
    tiles = np.array([[sheet[4 + 52 * i : 52 + 52 * i, 4 + 100 * j : 100 + 100 * j].mean((0, 1)) for j in range(4)]
                      for i in range(6)])  # fmt: skip
    day, night, foggy, snow = tiles.mean((0, 2))
    assert night < 0.6 * day < day < snow and foggy > day
    lake, desert = tiles[2, 0], tiles[4, 0]
    assert abs(lake - desert).max() > 20
