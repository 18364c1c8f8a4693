"""The rasteriser behind `render()`: pixels computed by hand, areas compared with geometry, clipping at the sides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkrun.core.errors import ConfigError
from milkrun.render.canvas import ANCHORS, GRID, INK, PALETTE, PAPER, SIGNS, Canvas

BLACK = (0, 0, 0)


def canvas(width: int = 40, height: int = 30) -> Canvas:
    """Before `fit`: one unit is one pixel, the origin is the lower left corner, a pixel's centre is at +0.5."""
    return Canvas(width, height)


def ink(c: Canvas) -> np.ndarray:
    """How much of each pixel is covered, 0 to 1, after drawing black on white."""
    assert (c.pixels == c.pixels[..., :1]).all()
    return 1 - c.pixels[..., 0] / 255


def painted(c: Canvas) -> set[tuple[int, int]]:
    """(row, column) of all pixels that are not blank."""
    return {(int(r), int(k)) for r, k in np.argwhere((c.pixels != np.array(c.background)).any(-1))}


def test_a_new_canvas_is_background_and_writable() -> None:
    """512 x 512 white by default, channels last."""
    assert Canvas().pixels.shape == (512, 512, 3) and (Canvas().pixels == 255).all()
    c = Canvas(4, 3, background=(1, 2, 3))
    assert c.pixels.dtype == np.uint8 and c.pixels.shape == (3, 4, 3) and (c.pixels == [1, 2, 3]).all()
    assert c.pixels.flags.writeable


def test_y_is_up_and_x_is_right() -> None:
    """The point just inside the lower left corner is in the last row, first column."""
    c = canvas()
    c.square((0.5, 0.5), 0.5, BLACK)
    assert painted(c) == {(29, 0)}


def test_fit_puts_the_corners_at_the_margin() -> None:
    """200 x 100 px, margin 0.1 of 100: a box of 3 x 2 is scaled by min(180/3, 80/2) = 40 and centred."""
    c = Canvas(200, 100)
    c.fit((0, 0), (3, 2), margin=0.1)
    assert c.to_px([(0, 0), (3, 2)]).tolist() == [[40, 90], [160, 10]]
    c.fit((0, 0), (3, 2), margin=0.1, keep_aspect=False)
    assert c.to_px([(0, 0), (3, 2)]).tolist() == [[10, 90], [190, 10]]


@pytest.mark.parametrize("point", [(0.0, 0.0), (7.0, -3.0), (1e9, 1e9)])
def test_a_window_on_one_point_shows_it_in_the_centre(point: tuple[float, float]) -> None:
    """Without extent the window is one unit wide: 0.88 * 100 pixels a unit."""
    c = Canvas(100, 100)
    c.fit(point, point)
    assert c.to_px(point) == pytest.approx([50, 50])
    assert c.to_px((point[0] + 0.5, point[1])) == pytest.approx([94, 50])


def test_a_window_flat_in_one_axis_takes_its_scale_from_the_other() -> None:
    """Points along a line of length 200 at y = 5: 88 of 100 pixels for 200 units, the line in mid-height."""
    c = Canvas(100, 100)
    c.fit((0, 5), (200, 5))
    assert c.to_px([(0, 5), (200, 5), (100, 15)]) == pytest.approx(np.array([[6, 50], [94, 50], [50, 45.6]]))


def test_a_window_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[0\.0, nan\]"):
        Canvas().fit((0, math.nan), (1, 1))


def test_a_line_of_width_1_through_centres_covers_exactly_those_pixels() -> None:
    """Row 20 from the top has its centres at y = 9.5; columns 3 to 8, both ends included."""
    c = canvas()
    c.line((3.5, 9.5), (8.5, 9.5), BLACK, width=1)
    assert painted(c) == {(20, k) for k in range(3, 9)}
    assert (c.pixels[20, 3:9] == 0).all()


def test_a_steep_line_is_the_flat_one_turned() -> None:
    """Swapping x and y of the ends mirrors the picture on the diagonal."""
    flat, steep = Canvas(32, 32), Canvas(32, 32)
    flat.line((4.2, 7.9), (27.3, 16.1), BLACK, 2.5)
    steep.line((7.9, 4.2), (16.1, 27.3), BLACK, 2.5)
    assert (flat.pixels[::-1].transpose(1, 0, 2) == steep.pixels[::-1]).all()


def test_a_line_between_two_rows_is_blended_half_and_half() -> None:
    """A black line of width 1 on the border of two rows of white pixels: 255 / 2 rounds to 128 in both."""
    c = canvas()
    c.line((-5, 10), (45, 10), BLACK, width=1)
    assert (c.pixels[19:21] == 128).all()
    assert (np.delete(c.pixels, [19, 20], axis=0) == 255).all()


def test_a_line_thinner_than_a_pixel_is_paler() -> None:
    """Width 0.2 through the centres: 0.8 * 255 = 204 is left of the white."""
    c = canvas()
    c.line((-5, 9.5), (45, 9.5), BLACK, width=0.2)
    assert (c.pixels[20] == 204).all() and len(painted(c)) == 40


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.7854, 1.2, 1.5708, 2.5, 4.0])
def test_a_line_has_the_area_of_a_capsule(angle: float) -> None:
    """Length 60, width 4: 60 * 4 + pi * 2^2, whatever the direction."""
    c = Canvas(100, 100)
    end = 50 + 30 * np.array([math.cos(angle), math.sin(angle)])
    c.line(100 - end, end, BLACK, width=4)
    assert ink(c).sum() == pytest.approx(240 + 4 * math.pi, rel=0.02)


def test_lines_at_once_are_the_lines_one_by_one() -> None:
    """Apart from each other, so that no pixel is painted twice."""
    p, q = [(3, 3), (3, 20), (35, 2)], [(20, 8), (30, 25), (36, 18)]
    together, singly = canvas(), canvas()
    together.line(p, q, INK)
    for a, b in zip(p, q, strict=True):
        singly.line(a, b, INK)
    assert (together.pixels == singly.pixels).all() and len(painted(singly)) > 60


def test_joints_of_a_polyline_do_not_darken() -> None:
    """A line drawn in three legs, one of them back, is the line drawn in one."""
    legs, whole = canvas(), canvas()
    legs.polyline([(4, 4), (14, 9), (24, 14), (14, 9)], BLACK, 1.5)
    whole.line((4, 4), (24, 14), BLACK, 1.5)
    assert np.abs(legs.pixels.astype(int) - whole.pixels).max() <= 1


def test_a_closed_polyline_returns_to_its_first_point() -> None:
    """The last side of the square, on row 25, is there only if closed."""
    square = [(4.5, 4.5), (4.5, 24.5), (24.5, 24.5), (24.5, 4.5)]
    c = canvas()
    c.polyline(square, BLACK, 1)
    assert (c.pixels[25, 6:23] == 255).all()
    c.polyline(square, BLACK, 1, closed=True)
    assert (c.pixels[25, 4:25] == 0).all()
    assert len(painted(c)) == 80


def test_an_arrow_is_wide_at_its_base_and_pointed_at_its_tip() -> None:
    """Head 5 + 2 * 1 = 7 px long and 0.84 * 7 wide, with the tip at q; or its centre on the middle of the way."""
    c = Canvas(60, 21)
    c.arrow((5, 10.5), (50, 10.5), BLACK, width=1)
    height = ink(c).sum(0)
    assert height[51:].sum() == 0 and 0 < height[49] < 1.2
    assert height[43] == pytest.approx(6.5 * 0.84, abs=0.5) and height[42] < 1.2
    assert height[10:40] == pytest.approx(np.ones(30))
    c = Canvas(60, 21)
    c.arrow((5, 10.5), (50, 10.5), BLACK, width=1, middle=True)
    assert int(ink(c).sum(0).argmax()) == 24  # from 27.5 + 3.5 back to 27.5 - 3.5
    assert ink(c).sum(0)[40:49] == pytest.approx(np.ones(9))


def test_arrows_of_a_polyline_are_middle_arrows() -> None:
    """A leg shorter than one and a half heads has none."""
    c, reference = canvas(), canvas()
    c.polyline([(2, 5), (38, 5), (38, 12)], INK, 1, arrow=True)
    reference.arrow((2, 5), (38, 5), INK, 1, middle=True)
    reference.line((38, 5), (38, 12), INK, 1)
    assert (c.pixels[:, :35] == reference.pixels[:, :35]).all() and painted(c) == painted(reference)


@pytest.mark.parametrize("radius", [3.0, 4.5, 7.25, 14.0])
@pytest.mark.parametrize("centre", [(20, 15), (20.5, 15.5), (19.8, 15.3)])
def test_a_disc_has_the_area_of_a_disc(radius: float, centre: tuple[float, float]) -> None:
    """Coverage sums to pi r^2 within 2 %."""
    c = canvas()
    c.disc(centre, radius, BLACK)
    assert ink(c).sum() == pytest.approx(math.pi * radius**2, rel=0.02)


def test_an_outline_takes_the_outer_pixel_and_a_half() -> None:
    """Radius 8 around the centre of row 15, column 20: blue up to 6.5 - 0.5, black from there to 8 - 0.5."""
    c = canvas()
    c.disc((20.5, 14.5), 8, (0, 0, 255), outline=BLACK)
    assert (c.pixels[15, 15:27] == [0, 0, 255]).all()
    assert c.pixels[15, 27].tolist() == [0, 0, 0]
    assert c.pixels[15, 28].tolist() == [128, 128, 128]
    assert c.pixels[15, 29].tolist() == [255, 255, 255]


def test_later_discs_cover_earlier_ones() -> None:
    """Each disc has its own colour and radius; the last one is on top."""
    c = canvas()
    c.discs([(10.5, 15.5), (16.5, 15.5)], [6, 3], [PALETTE[0], PALETTE[1]])
    assert tuple(c.pixels[14, 10]) == PALETTE[0] and tuple(c.pixels[14, 15]) == PALETTE[1]
    assert tuple(c.pixels[14, 22]) == PAPER


def test_a_rectangle_covers_its_exact_area() -> None:
    """From (2.5, 3) to (6, 5.25): columns 2 (half) to 5, rows 24 (a quarter), 25 and 26."""
    c = canvas()
    c.rect((6, 3), (2.5, 5.25), BLACK)
    assert ink(c).sum() == pytest.approx(3.5 * 2.25, abs=0.02)
    assert painted(c) == {(r, k) for r in (24, 25, 26) for k in (2, 3, 4, 5)}
    assert c.pixels[25, 2:6, 0].tolist() == [128, 0, 0, 0]
    assert c.pixels[24, 3, 0] == 191  # 0.75 * 255 = 191.25


def test_a_polygon_has_its_area_also_where_it_is_hollow() -> None:
    """An L of 20 x 20 less 10 x 10 and a triangle of 24 * 20 / 2, in either sense of rotation."""
    ell = [(5, 5), (25, 5), (25, 15), (15, 15), (15, 25), (5, 25)]
    for points, area in ((ell, 300), (ell[::-1], 300), ([(6, 4), (30, 7), (12, 22)], 205.5)):
        c = canvas()
        c.polygon(points, BLACK)
        assert ink(c).sum() == pytest.approx(area, rel=0.01)
    c = canvas()
    c.polygon(ell, BLACK)
    assert c.pixels[30 - 20, 20, 0] == 255 and c.pixels[30 - 10, 20, 0] == 0 and c.pixels[30 - 20, 10, 0] == 0


def test_a_bar_is_filled_to_its_share() -> None:
    """12 x 5 px frame, 10 x 3 inside: 0.3 fills three columns; upright it fills from the bottom."""
    red = (255, 0, 0)
    c = canvas()
    c.bar((20, 15), 12, 5, 0.3, red)
    inner = c.pixels[14:16, 15:25]
    assert ((inner == red).all(-1).sum(1) == 3).all() and (inner[:, :3] == red).all()
    assert tuple(c.pixels[14, 14]) == INK == tuple(c.pixels[14, 25])
    c = canvas()
    c.bar((20, 15), 6, 12, 0.5, red)
    assert (c.pixels[15:20, 18:22] == red).all() and (c.pixels[10:15, 18:22] == 255).all()
    for share, full in ((-1.0, 0), (0.0, 0), (1.0, 10), (7.0, 10), (math.nan, 0)):
        c = canvas()
        c.bar((20, 15), 12, 6, share, red)
        assert (c.pixels[14, 15:25] == red).all(-1).sum() == full


def test_the_sign_4_is_this_pattern() -> None:
    """The picture of a 4, its box 5 x 7, from the given top left corner."""
    c = canvas()
    c.text((2, 3), "4", BLACK, anchor="nw", px=True)
    seen = ["".join("#" if v == 0 else "." for v in row) for row in c.pixels[3:10, 2:7, 0]]
    assert seen == ["...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."]
    assert len(painted(c)) == 14


def test_every_sign_is_drawn_and_no_two_are_alike() -> None:
    """95 printable ASCII characters, only the blank is empty, with a free column to the right of each."""
    assert SIGNS.shape == (95, 7, 6) and not SIGNS[:, :, 5].any()
    assert [i for i in range(95) if not SIGNS[i].any()] == [0]
    assert len({sign.tobytes() for sign in SIGNS}) == 95


def test_size_2_is_size_1_with_pixels_doubled() -> None:
    small, large = Canvas(40, 12), Canvas(80, 24)
    small.text((1, 2), "Gap, 7", anchor="nw", px=True)
    large.text((2, 4), "Gap, 7", size=2, anchor="nw", px=True)
    assert (small.pixels.repeat(2, 0).repeat(2, 1) == large.pixels).all()


def test_letters_that_hang_below_the_line_do() -> None:
    """The bowl of p stands where the o stands, its stem two rows lower; the x-height is five rows."""
    c = canvas()
    c.text((2, 3), "op", BLACK, anchor="nw", px=True)
    rows = [{r for r, k in painted(c) if left <= k < left + 5} for left in (2, 8)]
    assert rows == [set(range(5, 10)), set(range(5, 12))]


def test_anchors_put_that_side_of_the_text_at_the_point() -> None:
    """'HH' is 11 x 7: left, right, top and bottom around pixel (20, 15) for each anchor."""
    for anchor, (x, y) in ANCHORS.items():
        c = canvas()
        c.text((20, 15), "HH", BLACK, anchor=anchor, px=True)
        rows, cols = zip(*painted(c), strict=True)
        assert abs(min(cols) - (20 - 11 * x)) <= 0.5 and max(cols) - min(cols) == 10
        assert abs(min(rows) - (15 - 7 * y)) <= 0.5 and max(rows) - min(rows) == 6
    with pytest.raises(ConfigError, match="'center'; did you mean 'centre'"):
        canvas().text((0, 0), "x", anchor="center")


def test_text_is_placed_in_world_coordinates_unless_in_pixels() -> None:
    """World (20, 20) of a canvas 30 high is pixel (20, 10)."""
    world, px = canvas(), canvas()
    world.text((20, 20), "7")
    px.text((20, 10), "7", px=True)
    assert (world.pixels == px.pixels).all() and painted(world)


def test_signs_the_font_lacks_are_question_marks() -> None:
    a, b = canvas(), canvas()
    a.text((20, 15), "é\n")
    b.text((20, 15), "??")
    assert (a.pixels == b.pixels).all() and painted(a)


def test_a_caption_is_clean_and_shrinks_to_fit() -> None:
    """It clears its ground; 30 letters fit at twice the size in 512 pixels, 60 only at the single size."""
    c = Canvas(background=PAPER)
    c.rect((0, 0), (512, 512), GRID)
    c.caption("H" * 30)
    assert {tuple(v) for v in c.pixels[7:21, 8:366].reshape(-1, 3)} == {PAPER, INK}
    assert tuple(c.pixels[20, 8]) == INK and tuple(c.pixels[60, 8]) == GRID
    c = Canvas()
    c.caption("H" * 60)
    assert max(k for _, k in painted(c)) == 8 + 60 * 6 - 2 and max(r for r, _ in painted(c)) == 13


def everything(c: Canvas, at: np.ndarray) -> None:
    """One of each shape around `at`."""
    with np.errstate(all="raise"):
        c.line(at, at + 3, INK)
        c.polyline([at, at + 5, at + (40, 3)], INK, closed=True, arrow=True)
        c.arrow(at, at + (30, 0), INK)
        c.disc(at, 4, INK, outline=PAPER)
        c.square(at, 4, INK)
        c.rect(at, at + 4, INK)
        c.polygon([at, at + (9, 0), at + (0, 9)], INK)
        c.bar(at, 12, 4, 0.5, INK)
        c.text(at, "out", size=2)


@pytest.mark.parametrize("far", [200.0, 1e6, 1e12, 1e30, 1e300, math.inf, math.nan])
def test_shapes_outside_change_no_pixel(far: float) -> None:
    """Beyond every side and corner, near or absurdly far or not a number: no error, no pixel."""
    for x, y in itertools.product((-far, 20.0, far), (-far, 15.0, far)):
        if (x, y) != (20.0, 15.0):
            c = canvas()
            everything(c, np.array([x, y]))
            assert painted(c) == set()


def test_the_picture_at_a_border_is_the_picture_cut() -> None:
    """Drawing across each side equals cutting the window out of a picture with room all around."""
    for x, y in itertools.product((-3.25, 0.0, 18.5, 38.0, 41.75), (-4.5, 0.0, 13.0, 28.25, 33.0)):
        small, large = canvas(), Canvas(240, 230)
        everything(small, np.array([x, y]))
        everything(large, np.array([x + 100, y + 100]))
        assert np.abs(large.pixels[100:130, 100:140].astype(int) - small.pixels).max() <= 1


def test_a_line_from_far_away_crosses_the_picture_where_it_should() -> None:
    """Both ends a million pixels out on the diagonal of a square: the diagonal is black, the other corners white."""
    c = Canvas(64, 64)
    c.line((-1e6, -1e6), (1e6, 1e6), BLACK, width=2)
    assert (np.diagonal(c.pixels[::-1, :, 0]) == 0).all()
    assert c.pixels[0, 0, 0] == 255 and ink(c).sum() == pytest.approx(64**2 - (64 - math.sqrt(2)) ** 2, rel=0.03)


def test_nothing_to_draw_is_no_error() -> None:
    """No points, one point, no text, no radius, no length."""
    c = canvas()
    c.polyline([], INK, closed=True, arrow=True)
    c.polyline([(3, 3)], INK, arrow=True)
    c.polygon([], INK)
    c.discs([], 4, INK)
    c.disc((5, 5), 0, INK)
    c.text((5, 5), "")
    assert painted(c) == set()
    c.arrow((5.5, 5.5), (5.5, 5.5), BLACK, width=1)
    assert painted(c) == {(24, 5)}


coordinate = st.floats(-60, 100)


@given(coordinate, coordinate, coordinate, coordinate, st.floats(0.1, 6))
def test_a_line_touches_only_pixels_within_its_reach(x0: float, y0: float, x1: float, y1: float, width: float) -> None:
    """Every pixel of the picture is covered by width / 2 + 1/2 less its distance from the segment, within 0 and 1."""
    c = canvas()
    c.line((x0, y0), (x1, y1), BLACK, width)
    for row, col in itertools.product(range(0, 30, 3), range(0, 40, 3)):
        x, y = col + 0.5 - x0, 29.5 - row - y0
        wx, wy = x1 - x0, y1 - y0
        t = min(1.0, max(0.0, (x * wx + y * wy) / (wx * wx + wy * wy))) if wx * wx + wy * wy else 0.0
        cover = min(1.0, width, max(0.0, width / 2 + 0.5 - math.hypot(x - t * wx, y - t * wy)))
        assert abs(c.pixels[row, col, 0] - 255 * (1 - cover)) < 0.51


def test_route_colours_differ_for_colour_blind_eyes() -> None:
    """Machado et al. (2009) at severity 1: any two colours differ by 16 in CIELAB, and each by 32 from the paper."""
    eyes = {
        "usual": np.eye(3).tolist(),
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    }
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    rgb = np.array([*PALETTE, PAPER]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    for eye, matrix in eyes.items():
        xyz = np.clip(linear @ np.array(matrix).T, 0, 1) @ to_xyz.T / [0.9505, 1, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1) + np.diag(np.full(11, 99.0))
        assert apart[:10, :10].min() >= 16 and apart[10, :10].min() >= 32, eye


def test_a_png_reads_back_as_the_picture(tmp_path) -> None:
    """Decoded by another library."""
    image = pytest.importorskip("PIL.Image")
    c = Canvas(37, 23, background=(250, 240, 230))
    c.line((2, 2), (30, 20), PALETTE[1], 3)
    c.to_png(tmp_path / "picture.png")
    with image.open(tmp_path / "picture.png") as read:
        assert read.mode == "RGB" and (np.asarray(read) == c.pixels).all()
