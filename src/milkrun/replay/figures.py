"""Figures of episodes, drawn with matplotlib without pyplot: no display, no global state.

A world class may name a figure of its own (`figure`); otherwise the figure shows the picture of `render(row)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.core.errors import missing_extra
from milkrun.core.references import resolve
from milkrun.core.world import World
from milkrun.render.canvas import CUSTOMER, DEPOT, GRID, INK, LATE, PAPER, Canvas, Colour, coloured
from milkrun.render.painter import coloured_trips, visited_colours
from milkrun.render.scene import Scene, resolve_texts
from milkrun.replay.trace import days_driven, last_day
from milkrun.routing.collect import Collect
from milkrun.routing.scwcvrp import Recourse

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke
except ImportError as e:
    raise missing_extra("matplotlib", "cli") from e

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 4.8  # inches of one picture
DPI = 150
MARGIN = 0.12  # inches around all that is drawn
LEGEND_UP_TO = 12  # trips
SMALL = 7.5  # points of names
LABEL_GAP = 4.0  # points from the centre of a marker to its side
LABEL_WIDTH, LABEL_HEIGHT = 0.34, 0.5  # half sides of a character, in font sizes
LABEL_ANGLES = np.arange(12) * (math.pi / 6)
LABEL_DISTANCES = (1.0, 1.6, 2.3)
LATE_MARKERS = {"disc": "D", "drone": "X"}  # late or crashed, told apart without colour


def figure_of(world: World, row: int = 0, heading: str = "") -> Figure:
    """The episode in a row of the world."""
    return side_by_side([(world, row, heading)])


def side_by_side(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """Several episodes, each (world, row, heading), in one figure, drawn by the `figure` of their class.

    Pass the `Recorder` in place of a TruckDrone world to show the paths of the whole episode.
    """
    references = {getattr(world, "figure", "") for world, _, _ in pictures}
    if len(references) == 1 and (reference := references.pop()):
        drawn: Figure | None = resolve(reference, f"{type(pictures[0][0]).__name__}.figure")(pictures, title)
        if drawn is not None:
            return drawn
    return in_a_row(pictures, title, paint_pixels)


def figure_of_tours(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """The figure of worlds in which one vehicle drives from node to node."""
    return in_a_row(pictures, title, paint_tour)


def figure_of_routes(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """The figure of worlds whose vehicles have several depots."""
    return in_a_row(pictures, title, paint_routes)


def in_a_row(
    pictures: Sequence[tuple[Any, int, str]],
    title: str,
    paint: Callable[[Axes, Any, int], str],
    side: float = SIDE,
    height: float = 1.3,
    upright: bool = False,
) -> Figure:
    """Pictures side by side or one below the other, each `side` inches wide and `side * height` high.

    `paint` fills one and returns the text above it.
    """
    lines, columns = (len(pictures), 1) if upright else (1, len(pictures))
    figure = empty_figure(side * columns, side * height * lines, title)
    grid = figure.subplots(lines, columns, squeeze=False).flat
    for axes, (world, row, heading) in zip(grid, pictures, strict=True):
        fill(axes, heading, paint, world, row)
    return figure


def empty_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure of this size in inches, with a title."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=rgb(PAPER), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", color=rgb(INK))
    return figure


def fill(axes: Axes, heading: str, paint: Callable[..., str], *what: Any) -> None:
    """Fill a frame by `paint(axes, *what)`, with the heading and the returned text above it."""
    axes.set_aspect("equal", anchor="N")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(rgb(GRID))
    facts = paint(axes, *what)
    leave_inside(axes)
    axes.set_title("\n".join(filter(None, (heading, facts))), fontsize=9.5, color=rgb(INK))


def leave_inside(axes: Axes) -> None:
    """Exclude the content of a frame from the layout, where measuring it would take as long as drawing."""
    for artist in (*axes.texts, *axes.lines, *axes.collections, *axes.patches, *axes.images):
        artist.set_in_layout(False)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG without empty borders; the same figure gives the same bytes.

    The layout keeps everything inside the figure, so the borders are cut off after drawing. matplotlib's tight box
    would draw everything twice and measure it once more.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    # Four channels as one integer, for one comparison per pixel.
    colours = pixels.view(np.uint32)[..., 0]
    inked, margin = colours != colours[0, 0], round(MARGIN * figure.dpi)
    rows, columns = (_from_first_to_last(inked.any(axis=k)) for k in (1, 0))
    kept = pixels[rows, columns, :3]
    picture = Canvas(kept.shape[1] + 2 * margin, kept.shape[0] + 2 * margin)
    picture.pixels[:] = pixels[0, 0, :3]
    picture.pixels[margin:-margin, margin:-margin] = kept
    picture.to_png(path)


def _from_first_to_last(inked: np.ndarray) -> slice:
    (places,) = np.nonzero(inked)
    return slice(places[0], places[-1] + 1) if len(places) else slice(None)


def paint_pixels(axes: Axes, world: World, row: int) -> str:
    """The world's own picture."""
    axes.imshow(world.render(row))
    return f"return {world.objective[row]:.3f}, {world.i[row]} steps"


def paint_tour(axes: Axes, world: Any, row: int) -> str:
    """The scene of a single vehicle, including forced returns to the depot, with the load of each trip."""
    scene = world.scene(row)
    (name,) = (name for name, part in scene.marks.items() if part.kind == "points")
    tour = scene.marks["tour"].attributes
    if isinstance(world, Recourse) and world.config.record:
        tour["stops"] = np.array([0, *days_driven(world, row)[-1]])
    if not world.depot_apart and world.config.start == "depot":
        scene.marks[name].attributes["shape"] = ["square"] + ["disc"] * (len(scene.marks[name].attributes["xy"]) - 1)
    paint_scene(axes, scene)
    q, nodes = world.instance_row[row], len(scene.marks[name].attributes["xy"])
    trips, length = coloured_trips(tour), f"length {world.tour_length[row]:.3f}"
    if not world.depot_apart:
        return f"{length}, {nodes} nodes"
    if isinstance(world, Collect):
        done = world.emptied(row) if isinstance(world, Recourse) and world.config.record else world.visited[row]
        earned = f"return {world.objective[row]:.3f}"
        served = f"{np.count_nonzero(done[1:nodes])} of {nodes - 1} served"
        if "day" not in world.fields:
            return f"{earned}, {length}, {served}"
        if not world.config.record:
            return earned
        day, driven = last_day(world, row)
        return f"{earned} in {day} days; day {day}, shown: length {driven:.3f}, {served}"
    if "demand_units" in world.fields and 0 < len(trips) <= LEGEND_UP_TO:
        loads = [int(world.demand_units[q, trip].sum()) for trip, _ in trips]
        _legend_of_loads(axes, loads, int(world.capacity[q]), [rgb(colour) for _, colour in trips])
    return f"{length}, {nodes - 1} customers" + (f", {len(trips)} trips" if world.config.record else "")


def paint_routes(axes: Axes, world: Any, row: int) -> str:
    """The scene of vehicles with routes of their own."""
    paint_scene(axes, world.scene(row))
    customers = int(world.n_nodes[world.instance_row[row]]) - world.first_customer
    return f"length {world.tour_length[row]:.3f}, {customers} customers, {world.trips[row]} routes"


def paint_scene(axes: Axes, scene: Scene, names: str = "") -> None:
    """Paint the routes, points and lines of a scene.

    Each trip has a colour; waiting points are hollow, and points that must be visited have a ring. `names` are written
    "beside" the points, where they hide little, or "inside".
    """
    square_window(axes, np.stack([scene.low[:2], scene.high[:2]]))
    resolve_texts(scene)
    legs: list[np.ndarray] = []
    for name, part in scene.marks.items():
        attributes = part.attributes
        if part.kind == "route":
            nodes, cut = scene.marks[attributes["on"]].attributes["xy"], attributes.get("cut")
            for trip, colour in coloured_trips(attributes):
                for a, b in pairwise(trip):  # legs at the depot are fainter: many meet there
                    width, alpha = (1.0, 0.45) if cut in (a, b) else (1.6, 1.0)
                    axes.plot(*nodes[[a, b]].T, color=rgb(colour), linewidth=width, alpha=alpha, zorder=1)
                    legs.append(nodes[[a, b]])
        elif part.kind == "points":
            _paint_points(axes, attributes, visited_colours(scene).get(name, {}), names == "inside")
        elif part.kind == "line" and attributes["shown"]:
            ends, dashed = np.stack([attributes["start"], attributes["end"]]), (0, (3, 2))
            axes.plot(*ends.T, color=rgb(coloured(attributes["colour"])), linewidth=1.0, linestyle=dashed, zorder=1)
    for part in scene.marks.values():
        if names == "beside" and "label" in part.attributes and part.kind == "points":
            words, unit = part.attributes["label"][1:], float(np.ptp(axes.get_xlim())) / (70 * SIDE)
            places = label_places(part.attributes["xy"], words, SMALL, unit, legs)  # the first is the depot
            _paint_names(axes, places, words)


def _paint_names(axes: Axes, places: np.ndarray, words: Sequence[str]) -> None:
    for (x, y), name in zip(places.tolist(), words, strict=True):
        axes.text(
            x,
            y,
            name,
            fontsize=SMALL,
            color=rgb(INK),
            ha="center",
            va="center_baseline",
            zorder=5,
            path_effects=[withStroke(linewidth=2, foreground=rgb(PAPER))],
        )


def scene_legend(scene: Scene) -> list[tuple[Any, str]]:
    """The entries that a scene has for its colours and shapes."""
    markers, entries = {"square": "s", "truck": "s", "car": "s", "drone": "P"}, []
    for text, code, shape in scene.legends:
        inside, edge = "none" if shape == "ring" else rgb(coloured(code)), rgb(CUSTOMER if code == 0 else INK)
        known = markers | LATE_MARKERS if coloured(code) == LATE else markers
        marker = known.get(shape, "o")
        handle = Line2D([], [], linestyle="", marker=marker, markersize=7, mfc=inside, mec=edge)
        entries.append((handle, text))
    return entries


def _paint_points(axes: Axes, attributes: dict[str, Any], visited: dict[int, Colour], named: bool) -> None:
    places, n = attributes["xy"], len(attributes["xy"])
    size = np.broadcast_to(1.5 if named else attributes.get("size", 0.15 + 0.85 * attributes.get("level", 0.0)), n)
    codes = np.broadcast_to(attributes.get("colour", 0), n).tolist()
    fills = [visited.get(j, coloured(codes[j])) for j in range(n)]
    square = np.array(
        [attributes["shape"] == "square"] * n
        if isinstance(attributes["shape"], str)
        else [shape == "square" for shape in attributes["shape"]]
    )
    late, (x, y) = np.array([fill == LATE for fill in fills]), places.T
    for marker, which in (("o", ~square & ~late), (LATE_MARKERS["disc"], ~square & late)):
        some = np.flatnonzero(which)
        if marker == "o" or len(some):
            edges = [rgb(CUSTOMER if fills[j] == PAPER else PAPER) for j in some]
            axes.scatter(
                x[some],
                y[some],
                s=12.0 + 90.0 * size[some],
                c=[rgb(fills[j]) for j in some],
                linewidths=0.8,
                marker=marker,
                edgecolors=edges,
                zorder=3,
            )
    rings = np.flatnonzero(np.broadcast_to(attributes.get("ring", False), n))
    axes.scatter(
        x[rings],
        y[rings],
        s=72.0 + 90.0 * size[rings],
        facecolors="none",
        edgecolors=rgb(INK),
        linewidths=0.9,
        zorder=2,
    )
    inside = [rgb(fills[j] if "colour" in attributes else DEPOT) for j in np.flatnonzero(square)]
    axes.scatter(
        x[square], y[square], s=110 if named else 70, marker="s", c=inside, edgecolors=rgb(PAPER), lw=0.8, zorder=2.5
    )
    if named and "label" in attributes:
        _paint_names(axes, places, attributes["label"])


def square_window(axes: Axes, nodes: np.ndarray) -> None:
    """Set a square window around all nodes, so that pictures side by side have the same size."""
    low, high = nodes.min(0), nodes.max(0)
    half = 0.56 * max((high - low).max(), 1e-9)
    centre = (low + high) / 2
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))


def _legend_of_loads(axes: Axes, loads: list[int], capacity: int, colours: list[Any]) -> None:
    columns = min(6, len(loads))
    order = [k for c in range(columns) for k in range(c, len(loads), columns)]  # matplotlib fills columns first
    axes.legend(
        [Line2D([], [], color=colours[k], linewidth=1.6) for k in order],
        [str(loads[k]) for k in order],
        title=f"load of each trip (capacity {capacity})",
        loc="upper center",
        bbox_to_anchor=(0.5, -0.01),
        ncols=columns,
        fontsize=8,
        title_fontsize=8,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )


def rgb(colour: Colour) -> tuple[float, float, float]:
    return (colour[0] / 255, colour[1] / 255, colour[2] / 255)


def label_places(
    nodes: np.ndarray, names: Sequence[str], size: float, unit: float, legs: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """Centres for the names of all nodes but the first, each beside its node where it covers least.

    `size` is the font size in points, `unit` the length of a point in the plane, `legs` are pairs of ends (2, 2).
    Greedy: names are placed in order and not moved again.
    """
    dots = [a + (b - a) * np.arange(0, 1, 3 * unit / max(math.dist(a, b), unit))[:, None] for a, b in legs]
    lines = np.concatenate([np.zeros((0, 2)), *dots])
    boxes = np.concatenate([nodes, np.full_like(nodes, LABEL_GAP * unit)], axis=1)  # centre and half sides
    for node, name in zip(nodes[1:], names, strict=True):
        half = np.array([LABEL_WIDTH * len(name), LABEL_HEIGHT]) * size * unit
        step = np.stack([np.cos(LABEL_ANGLES), np.sin(LABEL_ANGLES)], axis=1) * (half + (LABEL_GAP + 0.5) * unit)
        tried = np.concatenate([node + far * step for far in LABEL_DISTANCES])
        near = lines[(abs(lines - node) < LABEL_DISTANCES[-1] * abs(step).max(axis=0) + half).all(axis=1)]
        over = (boxes[:, 2:] + half - abs(boxes[:, :2] - tried[:, None])).min(axis=2)
        crossed = (abs(near - tried[:, None]) < half).all(axis=2).sum(axis=1)
        blocked = (
            np.maximum(over, 0).sum(axis=1)
            + (0.3 * crossed + np.repeat(LABEL_DISTANCES, len(LABEL_ANGLES)) - 1.0) * unit
        )
        boxes = np.concatenate([boxes, [[*tried[blocked.argmin()], *half]]])
    return boxes[len(nodes) :, :2]
