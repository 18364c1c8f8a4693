"""A scene copies its arguments, names the mark in errors, and can be painted."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError
from milkrun.render.canvas import INK, LATE, OPEN, PALETTE, PAPER, SERVED, Canvas, coloured
from milkrun.render.painter import paint, trips_of
from milkrun.render.scene import (
    Bar,
    Chart,
    Mark,
    Scene,
    Style,
    Window,
    colour_code,
    colours,
    resolve_texts,
    texts_of_actions,
)
from tests import small

SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


@pytest.fixture
def scene():
    return Scene((0, 0), (1, 1))


def test_arguments_are_copied(scene):
    """A view of a field would show the last step at every frame."""
    places, stops = SQUARE.copy(), np.array([0, 1])
    scene.points("nodes", places)
    scene.route("tour", "nodes", stops)
    places[0], stops[0] = 9.0, 3
    assert scene.marks["nodes"].attributes["xy"].tolist() == SQUARE.tolist()
    assert scene.marks["tour"].attributes["stops"].tolist() == [0, 1]


def test_colours_are_codes():
    """Names count from 0, colours of the palette from 16 and from the first again after the last."""
    names = ("waiting", "open", "late", "served", "ink", "muted", "grid")
    assert [colour_code(name) for name in names] == list(range(7))
    assert [colour_code(k) for k in (0, 9, 10)] == [16, 25, 16]
    assert colours(np.where([True, False], "late", "served")).tolist() == [2, 3]
    assert colours(["ink", 1]).tolist() == [4, 17] and coloured(17) == PALETTE[1] and coloured(3) == SERVED


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda s: s.points("nodes", SQUARE), "'nodes' is added twice"),
        (lambda s: s.points("p", [1, 2]), r"mark 'p', xy: the shape \(2,\) must be \(n, 2\)"),
        (lambda s: s.points("p", [[0, np.nan]]), "mark 'p', xy: it has numbers that are not finite"),
        (lambda s: s.points("p", SQUARE, text=["a"]), "mark 'p', text: 1 texts for 4"),
        (lambda s: s.points("p", SQUARE, size=[1, 2]), r"mark 'p', size: the shape \(2,\) must be \(4,\)"),
        (lambda s: s.points("p", SQUARE, shape="disk"), "mark 'p', shape: 'disk'; did you mean 'disc'"),
        (lambda s: s.points("p", SQUARE, shape=["disc"]), "mark 'p', shape: 1 of them for 4"),
        (lambda s: s.points("p", SQUARE, action=[1]), r"mark 'p', action: the shape \(1,\) must be \(4,\)"),
        (lambda s: s.points("p", SQUARE, colour="red"), "there is no colour 'red'"),
        (lambda s: s.route("r", "cities", [0]), "mark 'r': on='cities' names no points added before it"),
        (lambda s: s.route("r", "nodes", [0, 4]), r"mark 'r', stops: 0\.\.4 is not within 0\.\.3"),
        (lambda s: s.vehicle("v", (0, 0), shape="ship"), "mark 'v', shape: 'ship'"),
        (lambda s: s.bodies("b", "box", [[1, 1, 1]], [[0, 0, 0]], [[1, 0, 0]]), r"mark 'b', quat: the shape \(1, 3\)"),
        (lambda s: s.image("i", np.zeros((2, 2, 4))), r"image 'i': pixels \(2, 2, 4\)"),
        (lambda s: s.figure(3, 1.0), "a name is a text, not 3"),
    ],
)
def test_invalid_marks_are_refused_by_name(scene, say, why):
    """The error names mark, attribute and rule."""
    scene.points("nodes", SQUARE)
    with pytest.raises(ConfigError, match=why):
        say(scene)


@pytest.mark.parametrize("low", [(0, np.nan), (0, -np.inf), (0, 0, 0), (0,)])
def test_a_window_is_finite_and_of_two_or_three_numbers(low):
    """NaN would make all places undefined."""
    with pytest.raises(ConfigError, match="window"):
        Scene(low, (1, 1))


def test_the_texts_of_actions_are_those_of_the_places(scene):
    """Callables are called; for an action with several places the first one counts."""
    scene.points("nodes", SQUARE[:2], text=lambda: ["home", "away"], action=[[0, 1], [-1, 5]])
    scene.points("more", SQUARE[2:], text=["late", "later"], action=[1, 2])
    resolve_texts(scene)
    found = texts_of_actions(scene)
    assert {k: found[k] for k in (0, 1, 2, 5)} == {0: "home", 1: "away", 2: "later", 5: "away"}


def test_a_route_is_cut_where_it_comes_home():
    """Staying at the depot is no trip, an unfinished trip stays open, and without a cut all stops are one trip."""
    assert trips_of([0, 1, 2, 0, 0, 3], cut=0) == [[0, 1, 2, 0], [0, 3]]
    assert trips_of([0, 1, 2, 0]) == [[0, 1, 2, 0]] and trips_of([1, 2], closed=True) == [[1, 2, 1]]
    assert trips_of([0], cut=0) == trips_of([]) == []


def test_a_late_window_says_by_how_much():
    """Five after it closed; a customer that was never served is not late."""
    assert Window("a", 0, 10, 15).late == 5 and Window("a", 0, 10).late == 0
    kinds = {"drive": Style("drives", "ink"), "served": Style("served", "served")}
    assert Chart(("x",), (Bar("x", "drive", 0, 3),), (Mark("x", "served", 4),), kinds=kinds).end == 4


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"bars": (Bar(0, "drive", 0, 3),)}, r"Bar\(lane=0, .*\) is in the lane 0: the lanes are 'truck', 'drone'"),
        (
            {"bars": (), "marks": (Mark("dron", "served", 1),)},
            r"Mark\(lane='dron', .*\) is in the lane 'dron': the lanes are 'truck', 'drone'",
        ),
        (
            {"bars": (Bar("truck", "driv", 0, 3),)},
            r"Bar\(.*\) is a bar of the kind 'driv', which has no style in `kinds`: it has 'drive'",
        ),
        (
            {"bars": (), "marks": (Mark("truck", "served", 1),)},
            r"Mark\(.*\) is a mark of the kind 'served', which has no style in `kinds`: it has 'drive'",
        ),
    ],
    ids=["lane of a bar", "lane of a mark", "kind of a bar", "kind of a mark"],
)
def test_a_chart_whose_parts_do_not_go_together_is_refused(said, sentence):
    """Raised on construction, with the bar or mark, the wrong name and the known ones."""
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        Chart(("truck", "drone"), **said, kinds={"drive": Style("drives", "ink")})


def test_a_look_of_no_colour_is_refused():
    """Raised on construction, not when a page is written."""
    with pytest.raises(ConfigError, match="there is no colour 'lat'; did you mean 'late'"):
        Style("is late", "lat")


def picture(scene):
    canvas = Canvas()
    paint(canvas, scene, "here")
    return canvas


def at(canvas, place, dx=0, dy=0):
    x, y = canvas.to_px(place)
    return tuple(canvas.pixels[int(y) + dy, int(x) + dx].tolist())


def test_visited_points_have_the_colour_of_their_trip(scene):
    """Node 1 on the first trip, node 2 on the second; node 3 waits and is hollow, the depot stays as it is."""
    scene.points("nodes", SQUARE, shape=["square", "disc", "disc", "disc"])
    scene.route("tour", "nodes", [0, 1, 0, 2], cut=0)
    canvas = picture(scene)
    assert [at(canvas, place) for place in SQUARE] == [INK, PALETTE[0], PALETTE[1], PAPER]


def test_a_level_fills_a_bin_from_below(scene):
    """Half full: yellow below the middle, paper above it; a full one is red."""
    scene.points("bins", SQUARE[:2], level=[0.5, 1.0])
    canvas = picture(scene)
    assert [at(canvas, SQUARE[0], dy=dy) for dy in (-2, 2)] == [PAPER, OPEN] and at(canvas, SQUARE[1]) == LATE


def test_hidden_vehicles_are_not_painted(scene):
    """The same picture as without."""
    scene.points("nodes", SQUARE)
    without = picture(scene).pixels
    scene.vehicle("drone", (0.5, 0.5), shape="drone", label="d0", gauge=0.5, shown=False)
    scene.line("way", (0.1, 0.1), (0.9, 0.4), shown=False)
    assert (picture(scene).pixels == without).all()


def test_a_scene_without_marks_shows_its_image():
    """Twice as large, by whole pixels, in the middle."""
    scene, pixels = Scene((0, 0), (1, 1)), np.random.default_rng(0).integers(0, 255, (200, 200), np.uint8)
    scene.image("picture", pixels)
    shown = picture(scene).pixels[56:456, 56:456]
    assert (shown[::2, ::2] == pixels[..., None]).all() and (shown[1::2, 1::2] == pixels[..., None]).all()


def test_ground_below_flat_marks(scene):
    """It is painted below them, texts have a blank ground, and an image without marks hides it."""
    scene.points("nodes", SQUARE)
    scene.ground(lambda: np.full((2, 2, 3), (10, 200, 30), np.uint8))
    canvas = Canvas(200, 200)
    paint(canvas, scene, "here")
    assert canvas.pixels[100, 100].tolist() == [10, 200, 30] and canvas.pixels[2, 198].tolist() == list(PAPER)
    alone = Scene((0, 0), (1, 1))
    alone.image("camera", np.full((8, 8, 3), 50, np.uint8))
    alone.ground(lambda: np.full((2, 2, 3), (10, 200, 30), np.uint8))
    paint(canvas := Canvas(200, 200), alone)
    assert canvas.pixels[100, 100].tolist() == [50, 50, 50]


def shape_of(canvas: Canvas, scene: Scene) -> np.ndarray:
    """Pixels that are not blank."""
    paint(canvas, scene)
    return (canvas.pixels[60:300, 60:300] != PAPER).any(-1)


def test_late_and_crashed_differ_from_the_rest_by_shape():
    """A late customer is a diamond, a served one a disc; a crashed drone is a cross: without colours, too."""
    shapes = {}
    for name in ("late", "served", "open"):
        scene = Scene((0, 0), (2, 2))
        scene.points("customers", [(0.5, 1.5)], colour=name)
        shapes[name] = shape_of(Canvas(), scene)
    for name in ("late", 0):
        scene = Scene((0, 0), (2, 2))
        scene.vehicle("drone", (0.5, 1.5), shape="drone", colour=name)
        shapes["crash" if name == "late" else "flight"] = shape_of(Canvas(), scene)
    assert shapes["late"].any() and (shapes["served"] == shapes["open"]).all()
    assert (shapes["late"] != shapes["served"]).sum() > 20 and (shapes["crash"] != shapes["flight"]).sum() > 20
    legends = {}
    for entry in (("late", "disc"), ("served", "disc"), ("late", "drone"), (0, "drone")):
        scene = Scene((0, 0), (1, 1))
        scene.legend("x", *entry)
        canvas = Canvas()
        paint(canvas, scene)
        legends[entry] = (canvas.pixels[480:, :24] != PAPER).any(-1)
    assert (legends["late", "disc"] != legends["served", "disc"]).any()
    assert (legends["late", "drone"] != legends[0, "drone"]).any()


@pytest.mark.parametrize("world_id", milkrun.list_worlds())
def test_a_row_that_does_not_exist_has_no_scene(world_id):
    """Refused with a sentence; so is any row before the first reset."""
    world = milkrun.make(world_id, 2, seed=1, **small.options(world_id))
    with pytest.raises(ResetNeeded):
        world.scene(0)
    world.reset()
    methods = [world.scene, *(getattr(world, name) for name in ("events",) if hasattr(world, name))]
    for method in methods:
        for row in (99, 2, -1, "a", None):
            with pytest.raises(ShapeError, match="row"):
                method(row)
    assert world.scene(1).marks or world.scene(1).figures
