"""The ray caster of the tracking reference on scenes whose pixels are known; no world takes part.

Unless said otherwise the sun is that of the day, (0.3, 0.5, 0.81) normalised: sun_z is 0.81 / sqrt(0.9961) = 0.811584,
and level ground has the light 0.45 + 0.55 * 0.811584 = 0.896371 of its albedo.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.core import rng

from .tracking_rays import (
    GROUND,
    SKY,
    Camera,
    camera_of,
    cast,
    finished,
    flakes,
    grey,
    in_car_shadow,
    in_headlights,
    noise,
    project,
    rays,
    supersampled,
    window_grid,
    window_lit,
)

K, V = 4, 2  # slots for boxes and vehicles
SUN = np.array([0.3, 0.5, 0.81]) / math.sqrt(0.9961)
LEVEL = 0.45 + 0.55 * 0.81 / math.sqrt(0.9961)  # of level ground by day
GREEN = (88, 135, 70)
ABOVE = Camera((0, 0, 20), 0, 1)  # the camera of the projection's truth
DOWN = Camera((0, 0, 20), 0, math.pi / 2)  # row 0 is at +x, column 0 at +y
AHEAD = Camera((0, 0, 1), 0, 0)


def near(value, tolerance=1e-6):
    return pytest.approx(value, rel=0, abs=tolerance)


def box(pos, half, yaw=0.0, walls=(200, 100, 50), top=(40, 60, 80), kind=8):
    return pos, half, yaw, (walls, top), kind


def town(*boxes, code=0x14):
    """Grass of the second shade (x 0.98) everywhere, and the boxes."""
    pos, half, yaw = np.zeros((K, 3)), np.zeros((K, 3)), np.zeros(K)
    rgb, kind = np.zeros((K, 2, 3), np.uint8), np.zeros(K, np.int8)
    for k, given in enumerate(boxes):
        pos[k], half[k], yaw[k], rgb[k], kind[k] = given
    ground = np.full((480, 480), code, np.uint8)
    return dict(n_box=len(boxes), box_pos=pos, box_half=half, box_yaw=yaw, box_rgb=rgb, box_kind=kind, ground=ground)


def state(*cars, weather=0, gain=1.0, ambient=0.45, beta=0.0, sky=(170, 200, 235)):
    """Cars are (kind, x, y, heading), all red."""
    palette = np.zeros((16, 3), np.uint8)
    palette[0], palette[1], palette[4] = (150, 150, 145), (70, 70, 74), GREEN
    kind, pose = np.zeros(V, np.int8), np.zeros((V, 3))
    for v, (which, *place) in enumerate(cars):
        kind[v], pose[v] = which, place
    light = np.array([gain, ambient, *SUN, beta, 2.0, 0.01])
    rgb = np.tile(np.array([200, 30, 30], np.uint8), (V, 1))
    return dict(
        weather_id=weather,
        light=light,
        sky=np.array(sky, np.uint8),
        palette=palette,
        n_veh=len(cars),
        veh_kind=kind,
        veh_rgb=rgb,
        veh_on=np.arange(V) < len(cars),
        veh_pose=pose,
    )


def night(*cars):
    return state(*cars, weather=1, gain=0.32, ambient=0.75, sky=(12, 14, 24))


def wall(depth=10.0, across=50.0, height=20.0, **rest):
    """A box whose -x face stands `depth` m before the camera."""
    return box((depth + 1, 0, height / 2), (1, across, height / 2), **rest)


def at(frame, camera, point):
    """The pixel that shows a point."""
    column, row, _ = project(camera, point)
    return frame.colour[int(row), int(column)]


def test_a_ground_point_projects():
    """(14, 1, 0) is 14 cos 1 + 20 sin 1 = 24.393652 m deep, at column 37.8433 and row 36.5988."""
    assert project(ABOVE, (14, 1, 0)) == (near(37.8433, 5e-5), near(36.5988, 5e-5), near(24.393652))


def test_a_small_cube_owns_its_pixel():
    """A cube of 0.3 m at (14, 1, 0) shows in pixel (36, 37)."""
    frame = cast(town(box((14, 1, 0), (0.15, 0.15, 0.15))), state(), ABOVE)
    assert frame.ids[36, 37] >= 0
    assert (frame.ids >= 0).sum() <= 6


def test_left_is_left_and_far_is_up():
    """At yaw 0 a box at y > 0 shows in columns below 42 only, and a farther one in smaller rows."""
    scene = town(box((12, 3, 1), (1, 1, 1)), box((18, -3, 1), (1, 1, 1)))
    ids = cast(scene, state(), ABOVE).ids // 8
    (rows, columns), (far_rows, far_columns) = np.nonzero(ids == 0), np.nonzero(ids == 1)
    assert columns.max() < 42 <= far_columns.min()
    assert far_rows.max() < rows.min()


def test_yaw_turns_to_the_left():
    """At yaw 90 degrees the camera looks along +y and has +x on its right."""
    ids = cast(town(box((3, 12, 1), (1, 1, 1))), state(), Camera((0, 0, 20), math.pi / 2, 1)).ids
    assert np.nonzero(ids >= 0)[1].min() >= 42


def test_the_picture_is_45_degrees_wide_and_34_high():
    """The outermost rays of 84 pixels lean by 83/84 of tan 22.5 degrees across and 3/4 of that upwards."""
    first = rays(AHEAD)[0, 0]
    tangent = math.tan(0.785398 / 2) * 83 / 84
    assert first == near(np.array([1, tangent, 0.75 * tangent]), 1e-12)


def test_the_row_s_own_camera():
    """`camera_of` takes place, yaw and pitch of the drone, and the pose of the truth sees its cube."""
    drone = {"pos": np.array([0.0, 0.0, 20.0]), "yaw": 0.0, "pitch": 1.0}
    assert camera_of(drone, size=84) == ABOVE


def test_a_wall_ten_metres_ahead():
    """A wall of 4 m width at 10 m fills |x| < 0.2 / tan 22.5 degrees = 0.48284: columns 22 to 61, its face is -x."""
    frame = cast(town(wall(across=2)), state(), AHEAD)
    assert np.flatnonzero(frame.ids[41] >= 0).tolist() == list(range(22, 62))
    assert frame.depth[41, 22:62] == near(np.full(40, 10.0), 1e-12)
    assert set(frame.ids[41, 22:62]) == {1}
    assert frame.ids[0, 0] == SKY and frame.depth[0, 0] == math.inf


def test_straight_down_all_ground_is_as_deep():
    """From 20 m all pixels are 20 m deep, and pixel (0, 0) is at x = 15 tan(hfov / 2) 83/42 and y = 4/3 of that."""
    frame = cast(town(), state(), DOWN)
    assert (frame.ids == GROUND).all()
    assert frame.depth == near(np.full((84, 84), 20.0), 1e-9)
    x = 20 * 0.75 * math.tan(0.785398 / 2) * 83 / 84
    i, j = divmod(frame.cell[0, 0], 480)
    assert (i, j) == (int((x * 4 / 3 + 120) / 0.5), int((x + 120) / 0.5))


def test_faces_are_those_of_the_box():
    """Of a box turned by 90 degrees the camera before it sees +y: its own +y axis points to the camera."""
    frame = cast(town(box((10, 0, 1), (1, 1, 1), yaw=math.pi / 2)), state(), AHEAD)
    assert set(np.unique(frame.ids[frame.ids >= 0])) == {2}


def test_vehicles_have_two_boxes():
    """Vehicle 1 of a town with 4 slots is box 6 (body, its top is face 4) and 7 (cabin)."""
    seen = set(np.unique(cast(town(), state((0, 5, 5, 0), (0, 0, 0, 0)), DOWN).ids))
    assert {8 * 6 + 4, 8 * 7 + 4} <= seen


def test_a_vanished_vehicle_is_not_drawn():
    """Without its vehicle the picture is that of the empty town, shadow and all."""
    gone = state((0, 0, 0, 0))
    gone["veh_on"][0] = False
    assert (cast(town(), gone, DOWN).image == cast(town(), state(), DOWN).image).all()


def test_level_ground_by_day():
    """Grass of shade 0.98 is albedo * 0.98 * 0.896371: 77.30, 118.59, 61.49, hence bytes 77, 119, 61."""
    frame = cast(town(), state(), DOWN)
    assert frame.colour[40, 40] == near(np.array(GREEN) * 0.98 * 0.896371, 1e-3)
    assert frame.image[:, 40, 40].tolist() == [77, 119, 61]


def test_outside_of_the_map_is_base_material():
    """Beyond 120 m lies material 0 of shade 0 (x 0.94): 150 * 0.94 * 0.896371."""
    frame = cast(town(), state(), Camera((200, 0, 20), 0, math.pi / 2))
    assert (frame.cell == -1).all()
    assert frame.colour[9, 9, 0] == near(150 * 0.94 * 0.896371, 1e-3)


def test_ground_rows_are_y():
    """A white cell at index (row 260, column 280) lies at x 20..20.5, y 10..10.5."""
    scene = town()
    scene["ground"][260, 280] = 1
    frame = cast(scene, state(), Camera((20.25, 10.25, 20), 0, math.pi / 2))
    assert set(frame.cell[41:43, 41:43].ravel()) == {260 * 480 + 280}
    assert frame.colour[41, 41] == near(np.array([70, 70, 74]) * 0.94 * LEVEL)


def test_shadow_is_half_as_bright_by_day():
    """Ground whose shadow bit is set has 0.45 / 0.896371 = 0.502 of its light."""
    lit, dark = (cast(town(code=code), state(), DOWN).colour[40, 40] for code in (0x14, 0x54))
    assert dark / lit == near(np.full(3, 0.502), 5e-4)


def test_faces_turned_from_the_sun_have_ambient_light():
    """The -x wall gets 0.45 of its albedo, the +y wall 0.45 + 0.55 * 0.5 / 0.998048 = 0.725538, the top as ground."""
    bare = dict(details=False)
    frame = cast(town(wall()), state(), Camera((0, 0, 5), 0, 0, **bare))
    assert frame.colour[41, 41] == near(np.array([200, 100, 50]) * 0.45)
    frame = cast(town(box((0, -10, 5), (5, 1, 5))), state(), Camera((0, 0, 5), -math.pi / 2, 0, **bare))
    assert frame.colour[41, 41] == near(np.array([200, 100, 50]) * 0.725538, 1e-3)
    frame = cast(town(box((0, 0, 1), (9, 9, 1))), state(), DOWN)
    assert frame.colour[41, 41] == near(np.array([40, 60, 80]) * LEVEL)


def test_a_turned_wall_is_lit_by_its_own_normal():
    """The -x face of a box turned by pi has the normal +x: 0.45 + 0.55 * 0.3 / 0.998048 = 0.615323."""
    frame = cast(town(wall(yaw=math.pi)), state(), Camera((0, 0, 5), 0, 0))
    assert frame.ids[41, 41] == 0
    frame = cast(town(box((-11, 0, 5), (1, 5, 5), yaw=math.pi)), state(), Camera((0, 0, 5), math.pi, 0))
    assert frame.ids[41, 41] == 1
    assert frame.colour[41, 41, 0] == near(200 * 0.615323, 1e-3)


def test_fog_by_view_depth():
    """Visibility 200 m, 10 m deep: f = exp(-3.912/200*10) = 0.822341, so 127.5 f + 190 (1 - f) = 138.6037."""
    foggy = state(weather=2, gain=0.85, ambient=0.75, beta=3.912 / 200, sky=(190, 195, 200))
    frame = cast(town(wall()), foggy, Camera((0, 0, 5), 0, 0))
    assert frame.colour[41, 20, 0] == frame.colour[41, 41, 0] == near(138.6037, 1e-4)
    assert frame.colour[0, 0, 0] == near(138.6037, 1e-4)


def test_seam_at_the_foot_of_a_wall():
    """0.75 m above the ground a wall is 0.86 as bright as above 1.5 m, and without details as bright."""
    dim, bright = (cast(town(wall()), state(), Camera((0, 0, z), 0, 0, size=85)).colour[42, 42, 0] for z in (0.75, 5))
    assert (dim, bright) == (near(0.86 * 90), near(90))
    plain = cast(town(wall()), state(), Camera((0, 0, 0.75), 0, 0, size=85, details=False))
    assert plain.colour[42, 42, 0] == near(90)


def test_windows_stand_where_the_pattern_says():
    """Windows lie at 0.65..1.95 m from the wall's middle, again each 2.6 m, and at 0.9..2.34 m of each 3 m."""
    a = np.array([0.0, 0.6, 0.7, 1.9, 2.0, -0.7, -1.9, -0.6, 3.3])
    assert window_grid(a, np.full(9, 1.5), 18)[0].tolist() == [0, 0, 1, 1, 0, 1, 1, 0, 1]
    h = np.array([0.85, 0.95, 2.3, 2.4, 3.5, 3.95, 5.3])
    assert window_grid(np.full(7, 1.3), h, 18)[0].tolist() == [0, 1, 1, 0, 0, 1, 1]


def test_no_window_reaches_the_roof():
    """The second storey's windows need a top above 5.4 m."""
    assert [bool(window_grid(np.array(1.3), np.array(4.5), top)[0]) for top in (5.3, 5.4, 5.5)] == [0, 0, 1]


def test_window_colour():
    """A window 4.5 m high on a -x wall is albedo * 0.45 (ambient) * (0.45, 0.45, 0.50); only kind 1 has windows."""
    camera = Camera((0, 1.3, 4.5), 0, 0, size=85)
    for kind, factor in ((1, np.array([0.45, 0.45, 0.50])), (8, np.ones(3))):
        frame = cast(town(wall(kind=kind)), state(), camera)
        assert frame.colour[42, 42] == near(np.array([200, 100, 50]) * 0.45 * factor)
        assert frame.window[42, 42] == (kind == 1)


def test_windows_are_counted_across_the_wall_on_every_side():
    """On a +y wall the place along the wall is the box's x: a window at x = 1.3, none at x = 0."""
    scene = town(box((0, -10, 10), (20, 1, 10), kind=1))
    for x, found in ((1.3, 1), (0.0, 0)):
        assert cast(scene, state(), Camera((x, 0, 4.5), -math.pi / 2, 0, size=85)).window[42, 42] == found


def test_lit_windows_by_the_hash():
    """Column 64, storey 0: box 1, face 0 gives 4726789952 ^ 83492791 = 4786022647, >> 7 is 1 mod 8: lit; box 0: 6."""
    zero, one, column = np.int64(0), np.int64(1), np.int64(64)
    assert 64 * 73856093 == 4726789952 and 4726789952 ^ 83492791 == 4786022647 and 4786022647 // 128 % 8 == 1
    assert 4726789952 // 128 % 8 == 6
    assert [bool(window_lit(column, zero, b, zero)) for b in (zero, one)] == [False, True]


def test_lit_windows_shine_at_night_only():
    """The window of box 1 of the test above is 255, 214, 140 at night, whatever the light, and dark by day."""
    hidden, house = box((50, 0, 1), (1, 1, 1)), box((-11, 0, 10), (1, 20, 10), kind=1)
    camera = Camera((0, 1.3, 1.5), math.pi, 0, size=85)
    dark, lit = (cast(town(hidden, house), weather, camera) for weather in (state(), night()))
    assert lit.ids[42, 42] == 8
    assert lit.window[42, 42] == 2 and lit.colour[42, 42].tolist() == [255, 214, 140]
    assert dark.window[42, 42] == 1 and dark.colour[42, 42, 0] == near(200 * 0.45 * (0.45 + 0.55 * SUN[0]))


def test_inside_a_box_you_look_through_it():
    """From inside a box the picture is that of the empty town."""
    around = cast(town(box((0, 0, 5), (3, 3, 4))), state(), Camera((0, 0, 5), 0.3, 0.7))
    empty = cast(town(), state(), Camera((0, 0, 5), 0.3, 0.7))
    assert (around.image == empty.image).all() and (around.ids == empty.ids).all()


def test_a_wall_before_the_near_plane_is_not_there():
    """A wall 9 mm ahead is looked through, one 11 mm ahead fills the picture."""
    for gap, there in ((0.009, False), (0.011, True)):
        ids = cast(town(wall(depth=gap)), state(), Camera((0, 0, 5), 0, 0)).ids
        assert (ids == 1).all() == there and (ids == 1).any() == there


def test_a_slanting_wall_is_cut_at_the_near_plane():
    """A wall 4.9 mm aside, seen along it: of it shows only what is at least 10 mm deep."""
    frame = cast(town(box((0, 1.0049, 5), (50, 1, 5))), state(), Camera((0, 0, 5), 0, 0))
    shown = np.flatnonzero(frame.ids[41] == 3)
    assert shown.tolist() == list(range(0, 42))
    assert frame.depth[41, shown].min() == near(0.0049 / (math.tan(0.785398 / 2) * 83 / 84), 1e-9)
    closer = cast(town(box((0, 1.0020, 5), (50, 1, 5))), state(), Camera((0, 0, 5), 0, 0))
    # 2 mm aside: depth 0.01 at u = -0.2 / 0.41421 = -0.48284, so columns 0..21 look through the wall.
    assert np.flatnonzero(closer.ids[41] == 3).tolist() == list(range(22, 42))


def test_roll_lifts_the_left_side():
    """Rolled by 90 degrees the picture's up is the right side: a box at y > 0 shows in rows from 42 on."""
    scene = town(box((12, 3, 5), (1, 1, 1)))
    ids = cast(scene, state(), Camera((0, 0, 5), 0, 0, roll=math.pi / 2)).ids
    rows, columns = np.nonzero(ids >= 0)
    assert rows.min() >= 42 and columns.min() < 42 <= columns.max()


def test_a_small_roll_tilts_the_horizon():
    """With the left side up by 0.1 rad and a level axis the ground comes in from the right: more sky on the left."""
    sky = cast(town(), state(), Camera((0, 0, 5), 0, 0, roll=0.1)).ids == SKY
    assert sky[:, 0].sum() > sky[:, 83].sum()
    assert sky.sum() == near(84 * 84 / 2, 84)


def test_car_shadow_reaches_away_from_the_sun():
    """A sedan is 1.45 m high: its shadow moves by (-0.537, -0.895), so (-2.6, -1.5) is dark and (2.6, -1.5) is not."""
    x, y = np.array([-2.6, 2.6, 0.0, -2.85, 2.29]), np.array([-1.5, -1.5, -1.75, 0.0, 0.89])
    assert in_car_shadow(0, (0, 0, 0), SUN, x, y).tolist() == [True, False, True, False, True]


def test_car_shadow_in_the_picture():
    """Ground at (-2.6, -1.5) beside a sedan is 0.45 / 0.896371 as bright as open ground, without details as bright."""
    frame, plain = (cast(town(), state((0, 0, 0, 0)), Camera((0, 0, 20), 0, 1.5707, details=d)) for d in (True, False))
    column, row, _ = project(DOWN, (-2.6, -1.5, 0))
    i, j = int(row), int(column)
    assert frame.cars[i, j] == 1 and plain.cars[i, j] == 0
    assert frame.colour[i, j] / plain.colour[i, j] == near(np.full(3, 0.45 / LEVEL))


def test_headlights_at_night():
    """A sedan at the origin lights the ground from x 2.6 to 11.3, 0.9 m to each side at first, 2.5 m at the end."""
    x, y = np.array([2.5, 2.7, 2.7, 11.2, 11.2, 11.4]), np.array([0.0, 0.85, 1.1, 2.45, 2.55, 0.0])
    assert in_headlights(0, (0, 0, 0), x, y).tolist() == [False, True, False, True, False, False]


def test_lamp_lit_ground_at_night():
    """Lamp light is gain 0.55 without the sun term: 0.55 * 0.75; by day the bit does nothing."""
    frame = cast(town(code=0x94), night(), DOWN)
    assert frame.colour[40, 40] == near(np.array(GREEN) * 0.98 * 0.55 * 0.75)
    assert (cast(town(code=0x94), state(), DOWN).image == cast(town(), state(), DOWN).image).all()


def test_headlight_ground_is_lamp_lit():
    """The ground 5 m before a car's centre has the lamp's light, behind it the night's 0.32 (0.75 + 0.25 sun_z)."""
    frame = cast(town(), night((0, 0, 0, 0)), DOWN)
    assert at(frame, DOWN, (5, 0, 0)) == near(np.array(GREEN) * 0.98 * 0.4125)
    assert at(frame, DOWN, (-5, 0, 0)) == near(np.array(GREEN) * 0.98 * 0.32 * (0.75 + 0.25 * SUN[2]))


def test_a_car_under_a_lamp():
    """A roof of albedo 200 is 200 * 0.4125 over lamp-lit ground and 200 * 0.32 * (0.75 + 0.25 sun_z) elsewhere."""
    for code, level in ((0x94, 0.4125), (0x14, 0.32 * (0.75 + 0.25 * SUN[2]))):
        frame = cast(town(code=code), night((0, 0, 0, 0)), DOWN)
        assert frame.ids[41, 41] == 8 * 5 + 4
        assert frame.colour[41, 41, 0] == near(200 * level)


def test_cars_shine_at_night():
    """Front faces are 255, 250, 220 and rear faces 190, 20, 20 at night, unlit; by day both are paint."""
    for heading, colour in ((math.pi, (255, 250, 220)), (0.0, (190, 20, 20))):
        car, camera = (0, 10, 0, heading), Camera((0, 0, 0.5), 0, 0)
        assert cast(town(), night(car), camera).colour[41, 41].tolist() == list(colour)
        assert cast(town(), state(car), camera).colour[41, 41, 1] == near(30 * 0.45)


def test_cabins_are_glass_with_a_painted_roof():
    """The cabin's sides are 45, 55, 65, its roof is car paint, 0.9 * 1.8 m wide and 2.3 m long."""
    side = cast(town(), state((0, 10, 0, 0)), Camera((0, 0, 1.2), 0, 0))
    assert side.colour[41, 41] == near(np.array([45, 55, 65]) * 0.45)
    above = cast(town(), state((0, 0, 0, 0)), DOWN)
    rows, columns = np.nonzero(above.ids == 8 * 5 + 4)
    tall, wide = (20 - 1.45) * 0.41421356 * 2 * 0.75 / 84, (20 - 1.45) * 0.41421356 * 2 / 84  # metres a pixel
    assert np.ptp(rows) + 1 == near(2.3 / tall, 1) and np.ptp(columns) + 1 == near(1.62 / wide, 1)


def test_snow_whitens_the_ground():
    """Grass blends by 0.7, asphalt by 0.35: 88 -> 204.9 and 70 -> 134.75; a palette already blended stays."""
    snow = state(weather=3)
    assert cast(town(), snow, DOWN).colour[40, 40, 0] == near(204.9 * 0.98 * LEVEL)
    assert cast(town(code=0x11), snow, DOWN).colour[40, 40, 0] == near(134.75 * 0.98 * LEVEL)
    blended = Camera((0, 0, 20), 0, math.pi / 2, palette_blended=True)
    assert cast(town(), snow, blended).colour[40, 40, 0] == near(88 * 0.98 * LEVEL)


def test_snow_lies_on_tops_not_on_walls():
    """A top of 40 becomes 40 + 0.6 * 215 = 169, a wall stays 200."""
    snow = state(weather=3)
    assert cast(town(box((0, 0, 1), (9, 9, 1))), snow, DOWN).colour[41, 41, 0] == near(169 * LEVEL)
    assert cast(town(wall()), snow, Camera((0, 0, 5), 0, 0)).colour[41, 41, 0] == near(90)


def test_edges_are_where_neighbours_differ():
    """Of one wall and no seams the edge pixels are the two columns either side of each of its borders."""
    frame = cast(town(wall(across=2, height=200)), state(), Camera((0, 0, 60), 0, 0))
    assert np.flatnonzero(frame.edge[0]).tolist() == [21, 22, 61, 62]


def test_edges_look_beyond_the_picture():
    """A wall that ends half a pixel right of the picture makes its last column an edge."""
    limit = 10 * math.tan(0.785398 / 2)
    scene = town(box((11, 0, 50), (1, limit, 50)))
    frame = cast(scene, state(), Camera((0, 0, 50), 0, 0))
    assert (frame.ids == 1).all()
    assert np.flatnonzero(frame.edge[40]).tolist() == [0, 83]


def test_supersampling_is_the_mean_of_four():
    """A picture half wall half sky whose border halves a column of pixels is half of both there."""
    middle = 10 * math.tan(0.785398 / 2) / 84  # half a pixel of 84 at 10 m
    scene = town(box((11, 50 + middle, 50), (1, 50, 50)))
    colour, edge = supersampled(scene, state(), Camera((0, 0, 50), 0, -0.5, details=False))
    assert colour.shape == (84, 84, 3)
    frame = cast(scene, state(), Camera((0, 0, 50), 0, -0.5, size=168, details=False))
    assert colour[3, 41] == near(frame.colour[6:8, 82:84].reshape(4, 3).mean(axis=0))
    straight, edge = supersampled(scene, state(), Camera((0, 0, 50), 0, 0, details=False))
    assert straight[40, 41, 0] == near((170 + 90) / 2) and edge[40, 41]


def test_grey_weighs_the_channels():
    """Grey of (200, 100, 50) is 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2."""
    assert grey(np.array([[[200.0, 100.0, 50.0]]])).tolist() == [[[near(124.2)]]]


def test_rounding_is_half_up_and_clipped():
    """0.5 becomes 1, 2.5 becomes 3, 2.49 becomes 2, -3 becomes 0 and 260 becomes 255."""
    values = np.array([0.5, 2.5, 2.49, -3.0, 260.0])[None, :, None]
    assert finished(values).tolist() == [[[1, 3, 2, 0, 255]]]


def test_flakes_are_white_before_noise():
    """A flake of a frame with noise -20 is 235 in every channel, and any other pixel its own colour less 20."""
    colour, flake = np.full((2, 2, 3), 100.0), np.array([[True, False], [False, False]])
    assert finished(colour, flake, np.full((2, 2), -20.0))[:, 0].tolist() == [[235, 80]] * 3


def test_flakes_of_a_frame():
    """84 x 84 pixels at density 0.01 get 71 draws, which go on counting from frame to frame."""
    key, purpose = (7, 3, 2), 20
    first, second = (flakes(84, 0.01, t, key, purpose) for t in (0, 1))
    stream = rng.stream(*key, purpose)
    assert 66 <= first.sum() <= 71
    assert np.flatnonzero(second).tolist() == sorted({int(rng.integers(stream, 71 + k, 0, 7056)) for k in range(71)})


def test_noise_reads_a_byte_a_pixel():
    """Pixel (1, 17) of frame 2 at size 84 is byte 1 of block (2 * 84 + 1) * 6 + 1: bits 8 to 15 of its first word."""
    key, purpose = (7, 3, 2), 19
    word = int(rng.block(rng.stream(*key, purpose), (2 * 84 + 1) * 6 + 1, 0)[0])
    expected = 4.0 * rng.normal_quantile(((word >> 8 & 255) + 0.5) / 256)
    assert noise(84, 4.0, 2, key, purpose)[1, 17] == near(expected, 1e-12)


def test_noise_has_its_sigma():
    """The 256 quantiles have a standard deviation within 1 % of one, and so has a frame within 5 %."""
    assert noise(84, 2.0, 0, (1, 2, 3), 19).std() == pytest.approx(2.0, rel=0.05)
