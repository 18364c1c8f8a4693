"""The camera: projection of points, views from unusual places, light, weather, details and noise.

Numbers are computed by hand from the rules of the image; another test compares whole pictures with a ray caster.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from milkrun.core.check.bench import TOLERANCE, first_difference
from milkrun.core.errors import BadInstance
from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.faces import GROUND, SHADED
from milkrun.tracking.rendering import render, shot, weather
from milkrun.tracking.world import Tracking

DAY = weather("day")
SIZE = 84


def box(x: float, y: float, z: float, hx: float, hy: float, hz: float, **more: Any) -> dict[str, Any]:
    return {"pos": [(x, y, z)], "half": [(hx, hy, hz)], **{name: [value] for name, value in more.items()}}


def town(**options: Any) -> Tracking:
    world = Tracking(1, TrackingConfig(**options), seed=options.pop("seed", 3), threads=1)
    world.reset()
    return world


# -- projection ---------------------------------------------------------------------------------------------------


def test_a_point_on_the_ground_is_where_the_projection_says():
    """From (0, 0, 20), pitch 1, the point (14, 1, 0) is at column 37.84, row 36.60, depth 24.393652."""
    _, ids, depth = render((0, 0, 20), 0, 1, 0, box(14, 1, 0, 0.15, 0.15, 0.15), None, "day", SIZE)
    assert ids[36, 37] == 4  # the top of box 0
    assert set(zip(*np.nonzero(ids >= 0), strict=True)) <= {(i, j) for i in (35, 36, 37) for j in (37, 38)}
    assert abs(depth[36, 37] - 24.393652) < 0.2


def test_the_first_row_is_far_and_the_first_column_left():
    """At yaw 0 a box at y > 0 is in columns below 42, and the ground is farther away higher in the picture."""
    _, ids, depth = render((0, 0, 20), 0, 1, 0, box(13, 3, 1, 1, 1, 1), None, "day", SIZE)
    columns = np.nonzero(ids >= 0)[1]
    assert len(columns) > 20 and columns.max() < 42
    ground = depth[:, 80]
    assert (ids[:, 80] == -2).all() and (np.diff(ground) < 0).all()


def test_depth_of_the_ground_follows_from_height_and_angle():
    """Row i of 84 has v = (1 - (2i+1)/84) tan(vfov/2); its depth is z / (sin(pitch) - v cos(pitch))."""
    _, _, depth = render((0, 0, 20), 0.4, 1, 0, None, None, "day", SIZE)
    tan_v = math.tan(0.785398 / 2) * 0.75
    v = (1 - (2 * np.arange(SIZE) + 1) / SIZE) * tan_v
    np.testing.assert_allclose(depth, np.repeat((20 / (math.sin(1) - v * math.cos(1)))[:, None], SIZE, 1), rtol=1e-6)


def test_yaw_turns_to_the_left():
    """At yaw 90 degrees the camera looks along +y and has +x on its right."""
    _, ids, _ = render((0, 0, 20), math.pi / 2, 1, 0, box(3, 12, 1, 1, 1, 1), None, "day", SIZE)
    assert np.nonzero(ids >= 0)[1].min() >= 42


def test_a_wall_ten_metres_ahead():
    """4 m wide it fills |u| < 0.2 / tan 22.5 degrees = 0.48284: columns 22 to 61, all of its -x face, 10 m deep."""
    _, ids, depth = render((0, 0, 1), 0, 0, 0, box(11, 0, 10, 1, 2, 10), None, "day", SIZE)
    assert np.flatnonzero(ids[41] == 1).tolist() == list(range(22, 62))
    np.testing.assert_allclose(depth[41, 22:62], 10, rtol=1e-6)


def test_faces_turn_with_their_box():
    """The visible face of a box turned by 90 degrees is +y: its +y axis points to the camera."""
    _, ids, _ = render((0, 0, 1), 0, 0, 0, box(10, 0, 1, 1, 1, 1, yaw=math.pi / 2), None, "day", SIZE)
    assert set(np.unique(ids[ids >= 0])) == {2}


def test_half_a_turn_about_the_axis_turns_the_picture_upside_down():
    boxes = {"pos": [(12, 2, 1), (15, -4, 2)], "half": [(1, 2, 1), (2, 1, 2)], "yaw": [0.3, 1.0], "kind": [1, 8]}
    level = render((0, 0, 20), 0, 1, 0, boxes, None, "day", SIZE)
    turned = render((0, 0, 20), 0, 1, math.pi, boxes, None, "day", SIZE)
    assert (turned[1][::-1, ::-1] == level[1]).all()
    assert (turned[0][:, ::-1, ::-1] == level[0]).mean() > 0.999


def test_a_camera_that_leans_right_has_the_right_side_at_its_top():
    """Roll is right-handed about the way forward: at a quarter turn what was on the left is at the bottom."""
    _, ids, _ = render((0, 0, 20), 0, 1, math.pi / 2, box(13, 3, 1, 1, 1, 1), None, "day", SIZE)
    rows, columns = np.nonzero(ids >= 0)
    assert rows.min() > 42 and 30 < columns.mean() < 54


def test_above_the_horizon_is_sky():
    """With pitch 0 the upper half of the picture is sky, depth inf, and the lower half is ground."""
    image, ids, depth = render((0, 0, 10), 0, 0, 0, None, None, "day", 16)
    assert (ids[:8] == -1).all() and np.isinf(depth[:8]).all()
    assert (ids[8:] == -2).all() and np.isfinite(depth[8:]).all()
    assert (image[:, :8] == DAY["sky"][:, None, None]).all()


def test_the_ground_is_invisible_from_below():
    _, ids, _ = render((0, 0, -1), 0, -0.5, 0, box(10, 0, 2, 1, 1, 1), None, "day", 16)
    assert -2 not in ids and (ids == 5).any()  # the underside of the box


# -- unusual places -----------------------------------------------------------------------------------------------


def test_a_box_is_invisible_from_inside():
    boxes = {"pos": [(0, 0, 5), (20, 0, 5)], "half": [(4, 4, 5), (2, 20, 10)]}
    _, ids, _ = render((1, 1, 5), 0, 0.2, 0, boxes, None, "day", 32)
    assert set(np.unique(ids)) <= {-1, -2, 9, 12} and (ids == 9).any()


def test_a_wall_nearer_than_the_near_plane_is_invisible():
    """A wall 5 mm ahead is invisible, as the near plane is at 10 mm; at 20 mm it fills the view."""
    for gap, expected in ((0.005, -1), (0.02, 1)):
        _, ids, depth = render((-gap, 0, 5), 0, 0, 0, box(3, 0, 5, 3, 4, 5), None, "day", 32)
        assert (ids[:16] == expected).all()
        assert depth[:16].min() >= 0.01


def test_a_millimetre_off_a_wall_it_is_seen_at_a_flat_angle():
    """A wall 1 mm to the left is visible from a depth of 10 mm, u = -0.1 or column 32 of 84, to its far end; its nearer
    part is invisible."""
    _, ids, depth = render((0, 0, 5), 0, 0, 0, box(25, 1.001, 5, 30, 1, 5), None, "day", SIZE)
    wall = ids == 3  # its -y face
    assert wall[:40, 32:41].all() and not wall[:, :31].any() and not wall[:, 43:].any()
    np.testing.assert_allclose(depth[40, 38], 0.001 / ((1 - 77 / 84) * math.tan(0.785398 / 2)), rtol=1e-5)


def test_what_lies_below_the_ground_is_hidden():
    _, ids, _ = render((0, 0, 20), 0, 1, 0, box(13, 0, -1, 3, 3, 1), None, "day", 32)
    assert (ids == -2).all()


def test_the_nearer_of_two_boxes_hides_the_other():
    boxes = {"pos": [(20, 0, 5), (10, 0, 5)], "half": [(2, 2, 5), (2, 2, 5)]}
    _, ids, depth = render((0, 0, 5), 0, 0, 0, boxes, None, "day", 32)
    assert (ids[8:24, 8:24] == 9).all() and abs(depth[16, 16] - 8) < 1e-4


# -- light and weather --------------------------------------------------------------------------------------------


def test_a_face_is_lit_by_its_slope_to_the_sun():
    """Albedo 100 by day: up 100 (0.45 + 0.55 sun_z), an east wall 100 (0.45 + 0.55 sun_x), a west wall 45."""
    sun = tables.SUN
    boxes = box(0, 0, 4, 4, 4, 4, rgb=np.full(3, 100, np.uint8))
    for pos, yaw, pitch, light in (
        ((0, 0, 20), 0, 1.57, 0.45 + 0.55 * sun[2]),
        ((9, 0, 4), math.pi, 0, 0.45 + 0.55 * sun[0]),
        ((-9, 0, 4), 0, 0, 0.45),
    ):
        image, ids, _ = render(pos, yaw, pitch, 0, boxes, None, "day", 16)
        assert ids[8, 8] >= 0
        assert image[0, 8, 8] == math.floor(100 * light + 0.5)


def test_ground_in_a_shadow_has_half_of_its_light_by_day():
    """ambient / (ambient + (1 - ambient) sun_z) = 0.502."""
    ground = np.full((240, 240), tables.PLAZA, np.uint8)
    ground[:, :120] |= tables.SHADOW_BIT
    image, _, _ = render((0, 0, 20), math.pi / 2, 1.5, 0, None, ground, "day", 32)
    dark, bright = image[0, :, 4].astype(float), image[0, :, 27].astype(float)
    assert np.ptp(dark) == np.ptp(bright) == 0
    assert abs(dark[0] / bright[0] - 0.502) < 0.004


def test_ground_outside_of_the_map_is_of_material_0_and_shade_0():
    ground = np.full((240, 240), tables.GRASS | 16, np.uint8)
    image, ids, _ = render((119, 0, 20), 0, 1.2, 0, None, ground, "day", 32)
    light = 0.94 * (0.45 + 0.55 * tables.SUN[2])
    assert (ids == -2).all()
    assert image[:, 0, 16].tolist() == [math.floor(c * light + 0.5) for c in DAY["palette"][0]]


def test_level_ground_by_day():
    """Grass of shade 0.98 has 0.98 * 0.896371 of its albedo: 77.30, 118.59, 61.49, as bytes 77, 119, 61."""
    ground = np.full((240, 240), tables.GRASS | 16, np.uint8)
    image, _, _ = render((0, 0, 20), 0, 1.57, 0, None, ground, "day", 16)
    assert (image == np.array([77, 119, 61])[:, None, None]).all()


def test_rows_of_the_ground_are_y():
    """A cell of plaza at row 260, column 280 of 480 lies at x 20 to 20.5, y 10 to 10.5."""
    ground = np.full((480, 480), tables.GRASS, np.uint8)
    ground[260, 280] = tables.PLAZA
    image, _, _ = render((20.25, 10.25, 20), 0, 1.57, 0, None, ground, "day", SIZE)
    expected = [math.floor(c * 0.94 * (0.45 + 0.55 * tables.SUN[2]) + 0.5) for c in DAY["palette"][tables.PLAZA]]
    assert image[:, 41, 41].tolist() == expected != image[:, 41, 60].tolist()


def test_fog_by_hand():
    """Sight of 200 m, 10 m deep: f = exp(-3.912 / 200 * 10) = 0.822341, so 127.5 f + 190 (1 - f) = 138.6."""
    light = {"weather": 2, "light": [0.85, 0.75, *tables.SUN, 3.912 / 200, 0, 0], "sky": np.uint8([190, 195, 200])}
    wall = box(11, 0, 10, 1, 50, 10, rgb=np.full(3, 200, np.uint8))
    image, ids, _ = render((0, 0, 5), 0, 0, 0, wall, None, light, SIZE)
    assert ids[41, 41] == ids[41, 20] == 1
    assert image[0, 41, 41] == image[0, 41, 20] == 139


def test_fog_blends_to_the_sky_by_depth():
    """A pixel is f c + (1 - f) sky, f = exp(-beta depth), within 1."""
    boxes = {"pos": [(30, 5, 4), (60, -8, 9)], "half": [(4, 4, 4), (5, 5, 9)], "kind": [1, 1]}
    foggy = weather("foggy")
    clear = {**foggy, "light": foggy["light"].copy()}
    clear["light"][tables.FOG] = 0
    for roll in (0.0, 0.4):
        seen, ids, depth = render((0, 0, 15), 0, 0.25, roll, boxes, None, named(foggy), SIZE)
        plain, _, _ = render((0, 0, 15), 0, 0.25, roll, boxes, None, named(clear), SIZE)
        f = np.exp(-foggy["light"][tables.FOG] * depth.astype(np.float64))
        expected = f * plain + (1 - f) * foggy["sky"][:, None, None]
        assert (ids >= 0).any() and (ids == -2).any() and (ids == -1).any()
        assert abs(seen - expected).max() <= 1


def named(fields: dict[str, Any]) -> dict[str, Any]:
    return {"weather": int(fields["weather_id"]), **{name: fields[name] for name in ("light", "sky", "palette")}}


def test_night_is_dark_and_snow_is_bright():
    """On one town and pose: night below 0.6 of the day's luminance, and snow raises that of the ground."""
    mean = {}
    for name in ("day", "night", "snow"):
        world = town(scene="village", weather=name, noise=False)
        image, ids, _ = shot(world)
        mean[name] = np.average(image.mean((1, 2)), weights=(0.299, 0.587, 0.114)), image[:, ids == -2].mean()
    assert mean["night"][0] < 0.6 * mean["day"][0]
    assert mean["snow"][1] > mean["day"][1] + 20


def test_snow_lies_on_roofs_and_not_on_walls():
    """Upward faces are blended to white by 0.6, walls not at all."""
    boxes = box(0, 0, 4, 4, 4, 4, rgb=np.array([(100, 100, 100)] * 2, np.uint8))
    light = named(weather("snow"))
    light["light"] = [1, 1, *tables.SUN, 0, 0, 0]  # unchanged colours
    for pos, pitch, expected in (((0, 0, 20), 1.57, round(100 * 0.4 + 255 * 0.6)), ((-9, 0, 4), 0, 100)):
        image, _, _ = render(pos, 0, pitch, 0, boxes, None, light, 16)
        assert image[0, 8, 8] == expected


# -- details ------------------------------------------------------------------------------------------------------


def wall_of_windows(light: str, width: float = 13.0) -> np.ndarray:
    """A building's wall, 2 * width wide and 12 m high, seen at a right angle from 40 m."""
    boxes = box(44, 0, 6, 4, width, 6, kind=1, rgb=np.full(3, 200, np.uint8))
    image, ids, _ = render((0, 0, 6), 0, 0, 0, boxes, None, light, 256)
    return np.where(ids == 1, image, 0)


def test_a_wall_has_a_window_each_bay_and_storey():
    """26 m of wall are 10 bays of 2.6 m, 12 m are four storeys of 3 m: the last one has 2.4 m below the top."""
    image = wall_of_windows("day")
    red = image[0].astype(int)
    wall = red.max()
    panes = (red > 0) & (red == math.floor(0.45 * wall + 0.5))
    assert abs(200 * 0.45 - wall) <= 1
    rows, columns = panes.any(1).astype(int), panes.any(0).astype(int)
    assert (np.diff(rows) == 1).sum() == 4 and (np.diff(columns) == 1).sum() == 10
    assert abs(panes[rows > 0][:, columns > 0].mean() - 1) < 0.01
    assert abs(columns.sum() / (np.nonzero(image[0].any(0))[0].size) - 0.5) < 0.03  # half of a bay is glass


def test_walls_darken_towards_the_ground():
    """x (0.72 + 0.28 h / 1.5) below 1.5 m."""
    boxes = box(8, 0, 2, 1, 3, 2, rgb=np.full(3, 200, np.uint8))
    image, ids, _ = render((0, 0, 2), 0, 0, 0, boxes, None, "day", 128)
    column = ids[:, 64] == 1
    tan_v = math.tan(0.785398 / 2) * 0.75
    h = 2 + 7 * (1 - (2 * np.arange(128) + 1) / 128) * tan_v
    expected = np.floor(200 * 0.45 * (0.72 + 0.28 * np.minimum(1, h / 1.5)) + 0.5)
    assert abs(image[0, column, 64] - expected[column]).max() <= 1
    assert expected[column].min() < 70


def test_a_quarter_of_the_windows_shines_at_night():
    image = wall_of_windows("night", 15)
    lit = (image == np.array([255, 214, 140])[:, None, None]).all(0)
    day = wall_of_windows("day", 15)[0]
    glass = (day > 0) & (day < 45)
    share = lit.sum() / glass.sum()
    assert (lit <= glass).all() and 0.1 < share < 0.45


@pytest.mark.parametrize(("others", "lit"), [(1, True), (0, False)])
def test_lit_windows_by_the_hash(others, lit):
    """Bay 64, storey 0 of a +x wall: for box 1 4726789952 ^ 83492791 = 4786022647, >> 7 is 1 mod 8, lit; box 0: 6."""
    assert 64 * 73856093 == 4726789952 and 4726789952 ^ 83492791 == 4786022647
    assert 4786022647 // 128 % 8 == 1 and 4726789952 // 128 % 8 == 6
    hidden = [((50, 0, 1), (1, 1, 1), 8)] * others
    pos, half, kind = zip(*hidden, ((-11, 0, 10), (1, 20, 10), 1))
    boxes = {"pos": pos, "half": half, "kind": kind}
    image, ids, _ = render((0, 1.3, 1.5), math.pi, 0, 0, boxes, None, "night", 85)
    assert ids[42, 42] == 8 * others
    assert (image[:, 42, 42].tolist() == [255, 214, 140]) == lit


def car_world(weather_name: str, **options: Any) -> Tracking:
    """One red sedan at the origin, headed along +x, on bare ground, seen from above with north up."""
    world = Tracking(1, TrackingConfig(noise=False, ground_cell=2, size=SIZE, **options), seed=0, threads=1)
    for name, value in weather(weather_name).items():
        getattr(world, name)[0] = value
    world.n_veh[0], world.veh_on[0, 0], world.veh_rgb[0, 0] = 1, True, (200, 30, 30)
    world.pos[0], world.yaw[0], world.pitch[0] = (0, 0, 40), math.pi / 2, math.pi / 2
    return world


def at(image: np.ndarray, x: float, y: float) -> list[int]:
    """The colour of a place on the ground in the pictures of `car_world`."""
    half_x, half_y = 40 * math.tan(0.785398 / 2), 40 * math.tan(0.785398 / 2) * 0.75
    return list(image[:, int((1 - y / half_y) * SIZE / 2), int((1 + x / half_x) * SIZE / 2)].tolist())


def test_a_car_throws_its_shadow_away_from_the_sun():
    """The sun is in the north-east, (0.3, 0.5, 0.81): 1.45 m of car shade the ground to 0.9 m south of it."""
    image = car_world("day").observe()["image"][0]
    ground, shade = at(image, 0, 5), at(image, 0, -1.5)
    assert at(image, 0, 1.6) == ground and at(image, 3.2, 0) == ground
    assert abs(np.divide(shade, ground) - 0.502).max() < 0.01
    assert at(image, -1.9, 0) == [179, 27, 27]  # the bonnet's red, 200 (0.45 + 0.55 sun_z)


def test_a_low_sun_throws_shadows_far_beyond_the_car():
    """A sun of z = 0.05 in the west, and 1.45 m of car: 29 m of shade from its front at 2.3 m; only its tip is in the
    picture."""
    world = car_world("day")
    world.light[0, tables.SUN_X : tables.SUN_Z + 1] = -math.sqrt(1 - 0.05**2), 0.0, 0.05
    world.pos[0] = 30.0, 0.0, 5.0
    world.observe()
    down, across = world.ids[0, :, SIZE // 2], world.ids[0, SIZE // 2]  # north to south, west to east
    assert down[0] == down[-1] == GROUND and down[SIZE // 2] == SHADED
    assert (across[: SIZE // 2] == SHADED).all() and across[-1] == GROUND


def test_no_snow_lies_on_cars():
    """The bonnet of a red car stays (200, 30, 30), as colour distinguishes the target."""
    world = car_world("snow")
    world.light[0] = [1, 1, *tables.SUN, 0, 0, 0]  # unchanged colours
    assert at(world.observe()["image"][0], -1.9, 0) == [200, 30, 30]


def test_headlights_light_the_road_before_a_car_at_night():
    """From 0.3 to 9 m before its front, which is at 2.3 m, and not behind it."""
    image = car_world("night").observe()["image"][0]
    dark, lit = at(image, -6, 0), at(image, 7, 0)
    assert dark == at(image, 12.5, 0) == at(image, 3.5, 2.5) and lit == at(image, 10.5, 2)
    assert abs(np.divide(lit, dark) - 0.55 / (0.32 * (0.75 + 0.25 * tables.SUN[2]))).max() < 0.05


@pytest.mark.parametrize(("heading", "colour"), [(0.0, (190, 20, 20)), (math.pi, (255, 250, 220))])
def test_lamps_show_the_heading_of_a_car_at_night(heading, colour):
    """Red from behind, white from ahead."""
    world = car_world("night")
    world.veh_pose[0, 0, 2] = heading
    world.pos[0], world.yaw[0], world.pitch[0] = (-12, 0, 1), 0, 0
    assert tuple(world.observe()["image"][0, :, 47, 42]) == colour


def test_a_car_under_a_street_lamp_is_brighter():
    bright = []
    for bit in (0, tables.LAMP_BIT):
        world = car_world("night")
        world.ground[:] = bit
        bright.append(at(world.observe()["image"][0], -1.9, 0))
    assert np.array(bright[1]).sum() > 1.5 * np.array(bright[0]).sum()


def test_without_details_only_faces_and_ground_are_drawn():
    image = car_world("day", details=False).observe()["image"][0]
    assert at(image, 0, -1.5) == at(image, 0, 5)


def test_a_car_that_has_left_is_not_seen():
    world = car_world("day")
    world.veh_on[0, 0] = False
    assert np.ptp(world.observe()["image"][0].reshape(3, -1), axis=1).tolist() == [0, 0, 0]


# -- noise --------------------------------------------------------------------------------------------------------


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 in plain Python (Salmon et al. 2011)."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(p1 >> 32) ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def grey_world(sigma: float = 2.0, size: int = SIZE, share: float = 0.0) -> Tracking:
    """A row of plain sky of grey 128."""
    world = Tracking(1, TrackingConfig(size=size, ground_cell=2), seed=11, first_row=4, threads=1)
    world.sky[:] = 128
    world.light[0, tables.SIGMA], world.light[0, tables.FLAKE_SHARE] = sigma, share
    world.stream[0, 2] = 0
    world.agent_step[:] = 5
    return world


def test_noise_is_read_from_the_stream_byte_by_byte():
    """Pixel (i, j) takes byte j % 16 of block (agent_step * S + i) * ceil(S / 16) + j // 16 of the stream `frame`."""
    from statistics import NormalDist

    image = grey_world(sigma=8).observe()["image"][0]
    first = philox([4, 0, 0, 0], [11, 0])  # the key of seed 11, row 4, episode 0
    for i, j in ((0, 0), (0, 17), (40, 83), (83, 62)):
        words = philox([(5 * 84 + i) * 6 + j // 16, 33, first[2], first[3]], first[:2])
        byte = (words[j % 16 // 4] >> (8 * (j % 4))) & 255
        expected = math.floor(128 + 8 * NormalDist().inv_cdf((byte + 0.5) / 256) + 0.5)
        assert image[:, i, j].tolist() == [expected] * 3


def test_the_spread_of_noise_is_sigma():
    """Within 5 % of 2, 3 and 4 grey levels, without a bias."""
    for sigma in (2.0, 3.0, 4.0):
        image = grey_world(sigma).observe()["image"][0].astype(float)
        assert abs(math.sqrt(image.var() - 1 / 12) / sigma - 1) < 0.05
        assert abs(image.mean() - 128) < 0.1


def test_noise_changes_with_the_step_and_not_with_the_look():
    world = grey_world()
    first = world.observe()["image"].copy()
    world._all_stale = True
    assert (world.observe()["image"] == first).all()
    world.agent_step[:] = 6
    world._all_stale = True
    assert (world.observe()["image"] != first).mean() > 0.5


def test_snow_has_a_white_pixel_in_a_hundred():
    """round(0.01 * 84 * 84) = 71 flakes, fewer where two fall on one pixel."""
    image = grey_world(sigma=0, share=0.01).observe()["image"][0]
    white = (image == 255).all(0)
    assert 65 <= white.sum() <= 71 and (image[:, ~white] == 128).all()


def test_noise_leaves_a_flake_black_at_most():
    """With noise of 200 levels a pixel that was black on grey 128 is at most 127 as a flake of 255."""
    plain, snow = (grey_world(sigma=200, share=share).observe()["image"][0] for share in (0.0, 1.0))
    black = plain == 0
    assert snow[black].max() <= 127 and (snow >= plain).all() and (snow[black] == 0).any()


# -- sizes, samples, grey -----------------------------------------------------------------------------------------


def test_supersampling_is_the_mean_of_four():
    world = town(scene="downtown", noise=False)
    fine, coarse = shot(world, 0, 168)[0].astype(float), shot(world, 0, 84, supersample=2)[0]
    mean = fine.reshape(3, 84, 2, 84, 2).mean((2, 4))
    assert abs(coarse - mean).max() <= 1


def test_grey_is_weighed_colour():
    red, grey = (town(scene="village", noise=False, channels=c).observe()["image"][0] for c in (3, 1))
    expected = np.tensordot((0.299, 0.587, 0.114), red.astype(float), 1)
    assert grey.shape == (1, 84, 84) and abs(grey[0] - expected).max() <= 1


def test_a_shot_of_the_same_size_is_the_observation():
    world = town(scene="citystreet", weather="snow")
    image, ids, depth = world.shot()
    assert (image == world.observe()["image"][0]).all()
    assert ids.shape == depth.shape == (84, 84) and (np.isinf(depth) == (ids == -1)).all()
    assert (ids // 8 == world.sizes["K"]).any()  # the target's body


def test_any_size_shows_the_same_view():
    """The picture of 512 and of 16 agree where both show flat ground: the same share of each material."""
    world = town(scene="lake", noise=False)
    means = [shot(world, 0, size, 2)[0].mean((1, 2)) for size in (16, 37, 512)]
    assert np.ptp(means, axis=0).max() < 6


# -- interpreted --------------------------------------------------------------------------------------------------


def interpreted(world: Tracking) -> Tracking:
    """A copy of a world whose kernels are interpreted."""
    copy = Tracking(1, world.config, seed=0, debug=True)
    for f in world.fields.values():
        if f.role in (Role.INSTANCE, Role.STATE, Role.KEY):
            getattr(copy, f.name)[:] = getattr(world, f.name)
    return copy


@pytest.mark.parametrize("name", tables.WEATHERS)
def test_interpreted_and_compiled_pictures_are_equal(name):
    """Also of samples, grey, roll and details, and no access is out of bounds."""
    more = {"day": {"supersample": 2}, "night": {}, "foggy": {"channels": 1}, "snow": {}}[name]
    world = town(scene="downtown", weather=name, size=16, ground_cell=2, other_state=True, cloud=True, **more)
    for roll, z in ((0.0, 20.0), (0.3, 9.0)):
        world.roll[:], world.pos[0, 2] = roll, z
        world._all_stale = True
        copy = interpreted(world)
        seen, again = world.observe(), copy.observe()
        for field in ("image", "other_state", "cloud"):
            assert first_difference(field, np.asarray(seen[field]), np.asarray(again[field]), TOLERANCE) is None
        assert (world.ids[0] == copy.ids[0]).all()
        assert first_difference("depth_inv", world.depth_inv, copy.depth_inv, TOLERANCE) is None


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 15}, r"size = 15: must be a whole number, 16\.\.512"),
        ({"size": 513}, "513"),
        ({"size": 32.0}, "whole"),
        ({"pos": (0, 0, math.nan)}, r"^pos = nan: must be finite"),
        ({"pos": (0, 0)}, "shape"),
        ({"yaw": math.inf}, "yaw = inf"),
        ({"ground": np.zeros((480, 480))}, "ground: dtype float64: must be uint8"),
        ({"ground": np.zeros((480, 479), np.uint8)}, "square"),
        ({"light": "dusk"}, "'dusk': must be of day, night, foggy, snow"),
        ({"light": {"sun": 1}}, "sun"),
        ({"light": {"light": np.zeros(7)}}, "shape"),
        ({"boxes": {"pos": [(0, 0, 0)]}}, "must have pos and half"),
        ({"boxes": {"pos": [(0, 0, 0)] * 2, "half": [(1, 1, 1), (1, -1, 1)]}}, r"row 1: boxes\['half'\] = -1.0"),
        ({"boxes": {"pos": [(0, math.nan, 0)], "half": [(1, 1, 1)]}}, r"row 0: boxes\['pos'\] = nan"),
        ({"boxes": {"pos": [(0, 0, 0)], "half": [(1, 1, 1)], "rgb": [(300, 0, 0)]}}, "uint8"),
        ({"boxes": {"pos": [(0, 0, 0)], "half": [(1, 1, 1)], "kind": [9]}}, "kind"),
    ],
)
def test_bad_input_is_refused_by_field_and_value(change, message):
    given = {
        "pos": (0, 0, 20),
        "yaw": 0,
        "pitch": 1,
        "roll": 0,
        "boxes": None,
        "ground": None,
        "light": "day",
        "size": 32,
        **change,
    }
    with pytest.raises(BadInstance, match=message):
        render(**given)
