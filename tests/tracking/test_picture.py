"""Rendered pictures: layout and completeness."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core.errors import ResetNeeded
from milkrun.render.canvas import LATE, OPEN, PAPER, Canvas
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.picture import contact_sheet, from_behind, ground, is_hidden, view_window
from milkrun.tracking.world import Tracking


def world_of(**options: object) -> Tracking:
    world = Tracking(2, TrackingConfig(**options), seed=5, threads=1)
    world.reset()
    return world


def has(pixels: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    return np.argwhere((pixels == colour).all(-1))


def test_the_picture_has_the_camera_on_the_left_and_the_map_on_the_right():
    """uint8 (512, 1024, 3): on the left the shot of 256, doubled; on the right the map with the window."""
    world = world_of(scene="lake")
    pixels = world.render(1)
    assert pixels.shape == (512, 1024, 3) and pixels.dtype == np.uint8
    camera = world.shot(1, 256, 2)[0].transpose(1, 2, 0)
    assert (pixels[40:512:2, 0:510:2] == camera[20:, :255]).all()
    assert len(has(pixels[:, 512:], OPEN)) > 100 and not len(has(pixels[:, :512], OPEN))


def from_above(world: Tracking, row: int = 0) -> Canvas:
    canvas = Canvas()
    world.draw(row, canvas)
    return canvas


def test_the_ring_is_round_the_target():
    """North up, around the drone: the ring's middle is the target's position."""
    world = world_of(scene="desert")
    canvas = from_above(world)
    ring = has(canvas.pixels[44:490], LATE)  # without the text
    rows, columns = (ring.min(0) + ring.max(0)) / 2
    x, y = canvas.to_px(world.veh_pose[0, 0, :2])
    assert abs(columns + 0.5 - x) < 2 and abs(rows + 44.5 - y) < 2


def test_the_drone_is_in_the_middle_and_the_window_is_that_of_the_reward():
    """The sides of the window are dashed, in the colour of the drone, and end at its corners."""
    world = world_of(scene="desert")
    canvas = from_above(world)
    drone, corners = canvas.to_px(world.pos[0, :2]), canvas.to_px(view_window(world, 0))
    assert abs(drone - (256, 44 + (512 - 44 - 21) / 2)).max() < 1
    yellow = has(canvas.pixels[44:490], OPEN)[:, ::-1] + (0.5, 44.5)
    around = np.concatenate([corners, [drone - 8, drone + 8]])
    assert (yellow > around.min(0) - 2).all() and (yellow < around.max(0) + 2).all()
    for k in range(4):
        side = corners[k - 1] + (corners[k] - corners[k - 1]) * np.linspace(0, 1, 50)[:, None]
        near = [abs(yellow - place).sum(1).min() < 3 for place in side]
        assert 0.3 < np.mean(near) < 0.95


def test_the_map_shows_the_town_to_scale_with_north_up():
    """A box 10 m east and 20 m north of the drone, 8 x 4 m, is at that place; roads and grass have ground colours."""
    world = world_of(scene="village")
    world.n_box[0], world.box_pos[0, 0], world.box_half[0, 0] = 1, (*world.pos[0, :2] + (10, 20), 1.0), (4, 2, 1.0)
    world.box_yaw[0, 0], world.box_kind[0, 0], world.n_veh[0] = 0, 7, 1
    before = from_above(world)
    world.n_box[0] = 0
    changed = np.argwhere((before.pixels != from_above(world).pixels).any(-1))
    low, high = before.to_px(world.pos[0, :2] + ((6, 22), (14, 18)))
    wide = changed[changed[:, 1] < high[0]]
    assert abs(wide.min(0)[::-1] - low).max() < 1.5
    shadow = 8  # pixels, to the lower right
    assert (changed.max(0)[::-1] - high <= shadow).all() and (changed.max(0)[::-1] - high > 0).all()
    cells = {tuple(cell) for cell in world.scene(0).floor().reshape(-1, 3).tolist()}
    shown = {tuple(pixel) for pixel in from_above(world).pixels[60:480:7, 20:480:7].reshape(-1, 3).tolist()}
    assert len(shown & cells) > 5


def test_the_window_is_the_quadrilateral_of_the_reward():
    """Camera at (0, 0, 20), pitch 1, yaw 0, range 0.7: corners (19.981066, +-8.009921), (7.452072, +-6.047125)."""
    world = Tracking(1, TrackingConfig(ground_cell=2), seed=0)
    world.pos[0], world.pitch[0] = (0, 0, 20), 1
    expected = [(19.981066, 8.009921), (19.981066, -8.009921), (7.452072, -6.047125), (7.452072, 6.047125)]
    np.testing.assert_allclose(view_window(world, 0), expected, atol=1e-5)
    world.yaw[0] = math.pi / 2
    np.testing.assert_allclose(view_window(world, 0)[0], (-8.009921, 19.981066), atol=1e-5)


def test_bright_ground_stays_bright():
    """Pure white is lit between 0.94 and 1.06 by its pattern, in shadow 0.62 of that: never below 148, never
    coloured."""
    world = world_of(scene="citystreet")
    world.palette[:] = 255
    cells = ground(world, 0)
    assert cells.min() == 148 and cells.max() == 255 and (cells == cells[..., :1]).all()


def test_a_target_below_a_roof_is_shown_as_hidden():
    """With full reward, since `occlusion` ignores roofs by default: picture, caption, colour and gauge show it."""
    world = world_of(scene="desert")
    world.pos[0], world.yaw[0], world.pitch[0] = (*world.veh_pose[0, 0, :2], 20.0), 0.0, 1.0
    world.pos[0, 0] -= 20 / math.tan(1.0)
    world.n_box[0], world.box_pos[0, 0], world.box_half[0, 0] = 1, (*world.veh_pose[0, 0, :2], 4.0), (6, 6, 0.5)
    world.box_yaw[0, 0], world.box_cs[0, 0] = 0, (1, 0)
    world.step([6, 6])
    assert world.r_d[0] == 1 and not world.visible[0] and is_hidden(world, 0)
    hidden, seen = world.scene(0), world.scene(1)
    assert hidden.words.endswith("HIDDEN") and "HIDDEN" not in seen.words
    assert hidden.gauges["target hidden"] == (1, 1) and seen.gauges["target hidden"] == (0, 1)
    assert [scene.marks["traffic"].attributes["faint"][0] for scene in (hidden, seen)] == [True, False]
    assert (world.render(0)[:20, :8] == PAPER).any() and not (world.render(1)[:20, :8] == PAPER).all(-1).any()
    world.yaw[0] += math.pi / 2
    world.step([6, 6])
    assert not world.visible[0] and not is_hidden(world, 0)  # outside of the picture: not hidden


def test_grey_worlds_have_a_picture():
    pixels = world_of(channels=1, size=16).render(0)
    assert (pixels[40:, :510, 0] == pixels[40:, :510, 2]).all()


def test_a_world_never_reset_has_no_picture():
    with pytest.raises(ResetNeeded):
        Tracking(1, TrackingConfig(ground_cell=2), seed=0).render(0)


@pytest.mark.parametrize(("hfov", "pitch"), [(0.785398, 0.6), (1.3, 0.6), (2.0, 0.9)])
def test_the_view_from_behind_has_the_target_in_its_middle(hfov, pitch):
    """For any field of view, also one with which the row's start would show the horizon in a square picture."""
    world = world_of(hfov=hfov, start_pitch=(pitch, 1.38), curriculum="straight_mono", noise=False, size=16)
    pixels = from_behind(world, 0, 128)
    red, green, blue = pixels[56:72, 56:72].astype(int).transpose(2, 0, 1)
    assert pixels.shape == (128, 128, 3) and (red > 1.5 * np.maximum(green, blue)).any()


def test_a_large_sheet_has_its_views_from_behind_enlarged():
    """Three times 171 is more than the largest picture, 512: each of its pixels is a square of nine."""
    sheet = contact_sheet(171, gap=0)
    assert sheet.shape == (6 * 513, 8 * 513, 3)
    wide = sheet[:513, 513 : 2 * 513]
    assert (wide == wide[::3, ::3].repeat(3, axis=0).repeat(3, axis=1)).all() and wide.std() > 10


def test_the_sheet_has_every_scene_in_every_weather():
    """6 x 4 pairs of pictures; the means of any two scenes or weathers differ by more than 5 levels."""
    sheet = contact_sheet(16).astype(float)
    assert sheet.shape == (6 * 52 + 4, 4 * 100 + 4, 3)
    tiles = np.array(
        [
            [sheet[4 + 52 * i : 52 + 52 * i, 4 + 100 * j : 100 + 100 * j].mean((0, 1)) for j in range(4)]
            for i in range(6)
        ]
    )
    day, night, foggy, snow = tiles.mean((0, 2))
    assert night < 0.6 * day < day < snow and foggy > day
    lake, desert = tiles[2, 0], tiles[4, 0]
    assert abs(lake - desert).max() > 20
