"""Bodies from straight above: the highest one, its steepness, transparency, outlines, names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from milkrun.render.canvas import LATE, PALETTE, PAPER, Canvas, coloured
from milkrun.render.painter import paint, paint_marks
from milkrun.render.scene import Scene
from milkrun.render.top_view import SHADES, bodies_of, rasterise_bodies

TILTED = [math.cos(math.pi / 8), math.sin(math.pi / 8), 0, 0]
"""45 degrees about the x axis."""


@pytest.fixture
def scene():
    return Scene((0, 0, 0), (10, 10, 10))


def picture(scene, size=100):
    """Ten pixels to the unit."""
    canvas = Canvas(size, size)
    canvas.fit((0, 0), (10, 10), margin=0)
    paint_marks(canvas, scene)
    return canvas


def at(canvas, x, y):
    column, row = canvas.to_px((x, y))
    return tuple(canvas.pixels[int(row), int(column)].tolist())


def seen_of(scene):
    return rasterise_bodies(picture(Scene((0, 0, 0), (10, 10, 10))), bodies_of(scene), 0.0)


def test_a_higher_body_hides_a_lower_one(scene):
    """A box of 4 x 4 on one of 8 x 8, in either order."""
    scene.bodies("b", "box", [(4, 4, 1), (8, 8, 1)], [(5, 5, 2.5), (5, 5, 1.5)], colour=[0, 1])
    canvas = picture(scene)
    assert at(canvas, 5, 5) == PALETTE[0] and at(canvas, 2, 2) == PALETTE[1] and at(canvas, 0.4, 9) == PAPER
    seen = seen_of(scene)
    assert (seen.body == 0).sum() == 1600 and (seen.body >= 0).sum() == 6400
    assert set(np.unique(seen.z).tolist()) == {0.0, 2.0, 3.0}


@pytest.mark.parametrize(("shape", "area"), [("box", 16.0), ("cylinder", 4 * math.pi), ("sphere", 4 * math.pi)])
def test_every_shape_has_its_outline(scene, shape, area):
    """4 across: 16 units of area, or those of a circle of radius 2; its top is at 5 + 2."""
    scene.bodies("b", shape, [(4, 4, 4)], [(5, 5, 5)])
    seen = seen_of(scene)
    assert (seen.body == 0).sum() / 100 == pytest.approx(area, rel=0.02)
    assert seen.z.max() == pytest.approx(7, abs=0.01)


def test_heights_and_slopes_of_a_sphere_and_of_a_turned_box(scene):
    """One unit off the middle of a sphere of radius 2 it is sqrt(3) high, its normal 30 degrees off the vertical; a box
    turned by 45 degrees shows two faces that are as steep, and an edge at sqrt(8)."""
    scene.bodies("ball", "sphere", [(4, 4, 4)], [(2.05, 5.05, 5)])
    scene.bodies("box", "box", [(4, 4, 4)], [(7.05, 5.05, 5)], [TILTED])
    seen = seen_of(scene)
    assert seen.z[49, 30] == pytest.approx(5 + math.sqrt(3), abs=1e-5)
    assert seen.level[49, 30] == round(SHADES * math.sqrt(3) / 2)
    assert seen.z[49, 70] == pytest.approx(5 + math.sqrt(8), abs=1e-5)
    assert seen.level[30, 70] == seen.level[69, 70] == round(SHADES * math.sqrt(0.5))
    assert seen.face[30, 70] != seen.face[69, 70]


def test_steep_faces_are_darker(scene):
    """0.6 of the colour and half of 0.4 more than half way up; a level face has all of it."""
    scene.bodies("box", "box", [(4, 4, 4)], [(5, 5, 5)], [TILTED], colour=0)
    shade = 0.6 + 0.4 * round(SHADES * math.sqrt(0.5)) / SHADES
    assert at(picture(scene), 5, 6.5) == pytest.approx([shade * part for part in PALETTE[0]], abs=1)


def test_one_sees_through_what_is_transparent_and_faint_is_pale(scene):
    """Three fifths of its own colour; of a faint body three fifths are paper; glass below a solid body is hidden."""
    scene.bodies("glass", "box", [(8, 8, 1)], [(5, 5, 4)], colour="ink", transparent=True)
    scene.bodies("b", "box", [(2, 2, 1)] * 2, [(3, 3, 1), (7, 7, 7)], colour=[0, 1], faint=[True, False])
    canvas, ink = picture(scene), np.array(coloured(4))
    pale = 0.6 * 255 + 0.4 * np.array(PALETTE[0])
    assert at(canvas, 3, 3) == pytest.approx(0.6 * ink + 0.4 * pale, abs=1.5)
    assert at(canvas, 5, 5) == pytest.approx(0.6 * ink + 0.4 * 255, abs=1.5)
    assert at(canvas, 7, 7) == PALETTE[1]


def test_higher_things_cast_a_shadow_to_the_lower_right(scene):
    """Seven pixels at most, in which 0.72 of the light is left."""
    scene.bodies("b", "box", [(4, 4, 9)], [(5, 5, 4.5)])
    canvas = picture(scene)
    dark = (round(0.72 * 255),) * 3
    assert at(canvas, 7.4, 3.4) == dark and at(canvas, 7.4, 2.6) == dark
    assert at(canvas, 7.9, 2.0) == PAPER and at(canvas, 2.6, 7.4) == PAPER


def test_the_target_is_outlined_and_a_small_one_ringed(scene):
    """Red on its own edge where it is 40 pixels wide; around it where it is 5."""
    scene.bodies("b", "box", [(4, 4, 1), (0.5, 0.5, 1)], [(3, 3, 1), (8, 8, 1)], target=0)
    assert at(picture(scene), 1.05, 3) == LATE and at(picture(scene), 3, 3) != LATE
    scene.marks["b"].attributes["target"] = 1
    canvas = picture(scene)
    red = np.argwhere((canvas.pixels == LATE).all(2))
    assert not len(np.argwhere((canvas.pixels[50:] == LATE).all(2)))
    assert abs((red.min(0) + red.max(0)) / 2 + 0.5 - (20, 80)).max() <= 1 and np.ptp(red[:, 1]) > 12


def test_what_is_above_the_window_or_below_the_ground_is_not_drawn(scene):
    scene.bodies("b", "box", [(4, 4, 1)] * 2, [(3, 3, 12), (7, 7, -5)])
    assert (picture(scene).pixels == 255).all()


def test_a_named_body_outside_of_the_picture_is_a_disc_at_its_edge(scene):
    """A body without a name is not shown."""
    scene.bodies("b", "box", [(1, 1, 1)] * 2, [(5, -30, 1), (-30, 5, 1)], colour=[0, 1], label=["7", ""])
    pixels = picture(scene).pixels
    painted = np.argwhere((pixels == PALETTE[0]).all(2))
    assert len(painted) > 300 and painted[:, 0].min() > 70 and abs(painted[:, 1].mean() - 50) < 2
    assert not (pixels == PALETTE[1]).all(2).any()


def test_a_scene_without_bodies_in_a_mark_is_painted(scene):
    """Its ground is bare, and its caption stands."""
    scene.bodies("b", "box", np.zeros((0, 3)), np.zeros((0, 3)))
    assert (picture(scene).pixels == PAPER).all()
    canvas = Canvas()
    paint(canvas, scene, "nothing")
    assert (canvas.pixels != PAPER).any()


def test_the_ground_lies_under_all_to_scale(scene):
    """Four cells, the first at the corner from which the window begins; paper beyond it."""
    cells = np.array([[[10, 0, 0], [20, 0, 0]], [[30, 0, 0], [40, 0, 0]]], np.uint8)
    scene.ground(lambda: cells)
    canvas = picture(scene)
    assert [at(canvas, *place)[0] for place in ((1, 1), (9, 1), (1, 9), (9, 9))] == [10, 20, 30, 40]
    canvas.fit((-10, -10), (10, 10), margin=0)
    canvas.pixels[:] = 255
    paint_marks(canvas, scene)
    assert at(canvas, -5, -5) == PAPER and at(canvas, 1, 1)[0] == 10 and at(canvas, 9, 9)[0] == 40


def test_the_tally_is_shown_below_in_order(scene):
    """A disc, a ring, a square of 17 pixels, from the left; the words of the scene stand above."""
    for entry in (("1", 0, "disc"), ("2", 1, "ring"), ("3", "late", "square")):
        scene.tally(*entry)
    scene.caption("so it goes")
    canvas = Canvas()
    paint(canvas, scene, "not this")
    line = canvas.pixels[-30:]
    first = [np.argwhere((line == colour).all(2))[:, 1].min() for colour in (PALETTE[0], PALETTE[1], LATE)]
    assert first == sorted(first) and first[-1] < 60
    other = Canvas()
    paint(other, Scene((0, 0, 0), (1, 1, 1)), "so it goes")
    assert (canvas.pixels[:27] == other.pixels[:27]).all()
