"""Paints a `Scene` on a `Canvas`, for `World.render`.

Figures and pages have painters of their own, in `replay`; all of them take the colours of trips from here.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.render.canvas import CUSTOMER, DEPOT, GRID, INK, LATE, OPEN, PALETTE, PAPER, Canvas, Colour, coloured
from milkrun.render.scene import Scene
from milkrun.render.top_view import bodies_of, paint_bodies

Array: TypeAlias = NDArray[Any]
Box: TypeAlias = tuple[float, float, float, float]
"""centre and half sides, in pixels"""
LINE = 17  # pixels of a line of the legend
TALLY, LEAST = 20, 14  # pixels across a sign of the tally: by default, and at least
VIEW_FACTOR = 1.35  # half side of the window around a followed body, in distances of the camera


def trips_of(stops: ArrayLike, cut: int | None = None, closed: bool = False) -> list[list[int]]:
    """The trips of a route: each ends at node `cut`, and the next begins there."""
    trips: list[list[int]] = []
    for j in np.asarray(stops).tolist():
        if not trips or (cut is not None and trips[-1][-1] == cut and len(trips[-1]) > 1):
            trips.append([j] if cut is None or j == cut else [cut, j])
        elif j != trips[-1][-1]:
            trips[-1].append(j)
    if closed and trips and len(trips[-1]) > 1:
        trips[-1].append(trips[-1][0])
    return [trip for trip in trips if len(trip) > 1]


def paint(canvas: Canvas, scene: Scene, caption: str = "") -> None:
    """Paint a scene: caption, figures and gauges above, the tally and the legend below.

    Bodies are seen from above, around the one that the camera follows. A scene without marks shows its first image.
    """
    entries = scene.legends + scene.tally_legends
    legend = _lines(canvas.width, entries)
    above, below = 44 if scene.gauges else 27, LINE * len(legend) + (TALLY + 4 if scene.tallies else 0) + 4
    if scene.images and not scene.marks:
        _paint_image(canvas, next(iter(scene.images.values())))
    else:
        if len(scene.low) == 2:
            canvas.fit(scene.low, scene.high, margin=0.1)
        else:
            canvas.fit(*_around(scene), margin=0.01, above=above, below=below)
        paint_marks(canvas, scene)
        if scene.floor is not None:  # blank ground behind text
            canvas.rect((0, 0), (canvas.width, above), PAPER, px=True)
            canvas.rect((0, canvas.height - below), (canvas.width, canvas.height), PAPER, px=True)
    words = [f"{name} {f'{value:.4f}'.rstrip('0').rstrip('.')}" for name, value in scene.figures.items()]
    while len(words) > 1 and 12 * len("  ".join([caption, *words])) + 16 > canvas.width:
        words.pop()
    canvas.caption("  ".join([caption, *words]) if scene.words is None else scene.words)
    _paint_gauges(canvas, list(scene.gauges.items()))
    paint_legend(canvas, entries)
    _paint_tally(canvas, scene.tallies, canvas.height - LINE * len(legend) - TALLY / 2 - 2)


def paint_marks(canvas: Canvas, scene: Scene) -> None:
    """Paint only the marks of a scene, in the window of the canvas."""
    if scene.floor is not None:
        _paint_floor(canvas, scene)
    if bodies := bodies_of(scene):
        paint_bodies(canvas, bodies, float(scene.low[2]))
    visited, taken = visited_colours(scene), list[Box]()
    for kind, paint_kind in PAINTERS.items():
        for name, part in scene.marks.items():
            if part.kind == kind and part.attributes.get("shown", True):
                paint_kind(canvas, part.attributes, visited.get(name, {}) if kind == "points" else scene.marks, taken)


def _around(scene: Scene) -> tuple[Array, Array]:
    """The visible part of a window of bodies."""
    if scene.view is None or scene.view["follow"] not in scene.marks:
        return scene.low[:2], scene.high[:2]
    middle = scene.marks[scene.view["follow"]].attributes["pos"][0, :2]
    half = VIEW_FACTOR * math.dist(scene.view["position"], scene.view["look_at"])
    return middle - half, middle + half


def _paint_floor(canvas: Canvas, scene: Scene) -> None:
    """Paint the ground; pixels beyond the window stay blank."""
    assert scene.floor is not None
    ground, extent = scene.floor(), scene.high[:2] - scene.low[:2]
    corners = canvas.from_px([(0.5, 0.5), (canvas.width - 0.5, canvas.height - 0.5)]) - scene.low[:2]
    spots, cells = [], []
    for axis, (pixels, count) in enumerate(((canvas.width, ground.shape[1]), (canvas.height, ground.shape[0]))):
        low, high = (corners[:, axis] * (count / extent[axis])).tolist()
        at = np.floor(np.linspace(low, high, pixels)).astype(int)
        inside = (0 <= at) & (at < count)
        first = int(inside.argmax())
        spots.append(slice(first, first + int(inside.sum())))
        cells.append(at[inside])
    canvas.pixels[spots[1], spots[0]] = ground[cells[1]][:, cells[0]]


def visited_colours(scene: Any) -> dict[str, dict[int, Colour]]:
    """Colours of the points that take that of the trip which visited them."""
    found: dict[str, dict[int, Colour]] = {}
    for part in scene.marks.values():
        if part.kind == "route" and part.attributes["paint"]:
            cut, on = part.attributes.get("cut"), part.attributes["on"]
            for trip, colour in coloured_trips(part.attributes):
                found.setdefault(on, {}).update(dict.fromkeys((j for j in trip if j != cut), colour))
    return found


def coloured_trips(attributes: dict[str, Any]) -> list[tuple[list[int], Colour]]:
    """The trips of a route with their colours."""
    trips = trips_of(attributes["stops"], attributes.get("cut"), attributes["closed"])
    given = attributes.get("colour")
    return [(trip, PALETTE[k % len(PALETTE)] if given is None else coloured(given)) for k, trip in enumerate(trips)]


def _paint_route(canvas: Canvas, attributes: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """Legs to and from the depot are thin: many meet there and would hide the rest."""
    nodes, cut = marks[attributes["on"]].attributes["xy"], attributes.get("cut")
    for trip, colour in coloured_trips(attributes):
        drawn = trip[:-1] if attributes["open"] and trip[-1] == cut else trip
        canvas.polyline(nodes[drawn], colour, 1.0)
        canvas.polyline(nodes[[j for j in trip if j != cut]], colour, 2.0)


def _paint_line(canvas: Canvas, attributes: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """Dashed, except lines of the ground."""
    colour = coloured(attributes["colour"])
    if colour == GRID:
        canvas.line(attributes["start"], attributes["end"], GRID, width=4)
        return
    dashes = max(1, round(math.dist(canvas.to_px(attributes["start"]), canvas.to_px(attributes["end"])) / 10))
    ends = np.linspace(attributes["start"], attributes["end"], 2 * dashes)
    canvas.line(ends[::2], ends[1::2], colour, 1.5)


def _paint_points(canvas: Canvas, attributes: dict[str, Any], visited: Any, taken: list[Box]) -> None:
    """Discs with their names inside where no size is given, else discs of the given sizes."""
    n = len(attributes["xy"])
    shapes = [attributes["shape"]] * n if isinstance(attributes["shape"], str) else attributes["shape"]
    codes = np.broadcast_to(attributes.get("colour", 0), n).tolist()
    names = (
        attributes.get("label", [""] * n)
        if "size" not in attributes and "level" not in attributes and n <= 40
        else [""] * n
    )
    names = names() if callable(names) else names
    room = min(1.0, 14 / math.sqrt(n + 1))  # the more points, the smaller
    radii = np.broadcast_to(
        3.0 + 6.0 * room * attributes["size"] if "size" in attributes else 8.0 if any(names) else 6.0 * room, n
    )
    rings, levels = (
        np.broadcast_to(attributes.get("ring", False), n),
        np.broadcast_to(attributes.get("level", np.nan), n),
    )
    for j, (place, radius) in enumerate(zip(attributes["xy"], radii.tolist(), strict=True)):
        fill, at = visited.get(j, coloured(codes[j])), canvas.to_px(place)
        if rings[j]:
            canvas.disc(place, radius + 3.5, PAPER, outline=INK)
        if shapes[j] == "square":
            canvas.square(place, max(5.0, 0.75 * radius), fill if j in visited or "colour" in attributes else DEPOT)
        elif fill == LATE:
            _diamond(canvas, float(at[0]), float(at[1]), 1.3 * radius, fill)
        elif np.isnan(levels[j]):
            canvas.disc(place, radius, fill, outline=INK if any(names) else CUSTOMER if fill == PAPER else None)
        else:
            canvas.disc(place, radius, PAPER, outline=visited.get(j, CUSTOMER))
            inside = visited.get(j, LATE if levels[j] >= 1 else OPEN)
            canvas.fill_disc(place, radius - 1.5, float(levels[j]), inside)
        if names[j]:
            dark = 0.3 * fill[0] + 0.6 * fill[1] + 0.1 * fill[2] < 140
            hidden = any(_overlap((*at, 4, 4), other) > 0 for other in taken)
            spot = _beside(taken, at, 6, (3 * len(names[j]), 5)) if hidden else at
            canvas.text(spot, names[j], PAPER if dark and not hidden else INK, px=True)
        taken.append((*at.tolist(), radius, radius))


def _paint_vehicle(canvas: Canvas, attributes: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """The vehicle, with its name and gauge beside it where they hide least."""
    place, colour = attributes["xy"], coloured(attributes["colour"])
    x, y = canvas.to_px(place).tolist()
    _shape(canvas, attributes["shape"], x, y, colour)
    taken.append((x, y, 8, 8))
    if attributes.get("label") or "gauge" in attributes:
        name = attributes.get("label", "")
        half = (max(13.0, 3.0 * len(name)), 14.0 if "gauge" in attributes else 6.0)
        x, y = _beside(taken, np.array([x, y]), 5, half)
        taken.append((x, y, *half))
        canvas.text((x, y - 5 * ("gauge" in attributes)), name, colour, px=True)
        if "gauge" in attributes:
            canvas.bar(canvas.from_px((x, y + 5)), 22, 6, attributes["gauge"], colour)


def _shape(canvas: Canvas, shape: str, x: float, y: float, colour: Colour) -> None:
    """A vehicle or an entry of the legend, centred at a pixel."""
    if shape in ("truck", "car"):
        canvas.rect((x - 9, y - 6), (x + 9, y + 6), PAPER, px=True)
        canvas.rect((x - 8, y - 5), (x + 2, y + 5), colour, px=True)
        canvas.rect((x + 3, y - 3), (x + 8, y + 5), colour, px=True)
    elif shape == "drone" and colour == LATE:  # crashed
        for turn in (-1, 1):
            ends = canvas.from_px([(x - 5, y - 5 * turn), (x + 5, y + 5 * turn)])
            canvas.line(ends[0], ends[1], colour, 3.5)
    elif shape == "drone":
        for dx, dy in ((-4, -4), (4, -4), (-4, 4), (4, 4)):
            canvas.disc(canvas.from_px((x + dx, y + dy)), 3.0, colour, outline=PAPER)
        canvas.disc(canvas.from_px((x, y)), 4.0, colour)
    elif shape == "square":
        canvas.rect((x - 5, y - 5), (x + 5, y + 5), colour, px=True)
    elif shape == "ring":
        canvas.disc(canvas.from_px((x, y)), 6.0, PAPER, outline=colour)
    elif colour == LATE:
        _diamond(canvas, x, y, 6.5, colour)
    else:
        canvas.disc(canvas.from_px((x, y)), 5.0, colour, outline=CUSTOMER if colour == PAPER else INK)


def _diamond(canvas: Canvas, x: float, y: float, radius: float, colour: Colour) -> None:
    """The sign for late, centred at a pixel; its shape differs from served for colour-blind readers."""
    for reach, fill in ((radius, INK), (radius - 2, colour)):
        corners = [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)]
        canvas.polygon(canvas.from_px(corners), fill)


PAINTERS = {"line": _paint_line, "route": _paint_route, "points": _paint_points, "vehicle": _paint_vehicle}
"""Painters in their order: later kinds cover earlier ones, and all cover bodies."""


def _paint_image(canvas: Canvas, pixels: Array) -> None:
    """The image enlarged by a whole factor as far as it fits, or subsampled."""
    shown = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    up = max(1, min(canvas.height // shown.shape[0], canvas.width // shown.shape[1]))
    down = max(1, -(-shown.shape[0] // canvas.height), -(-shown.shape[1] // canvas.width))
    shown = shown[::down, ::down].repeat(up, axis=0).repeat(up, axis=1)
    top, left = (canvas.height - shown.shape[0]) // 2, (canvas.width - shown.shape[1]) // 2
    canvas.pixels[top : top + shown.shape[0], left : left + shown.shape[1]] = shown


def _paint_gauges(canvas: Canvas, gauges: list[tuple[str, tuple[float, float]]]) -> None:
    """Gauges in a line below the caption, as many as fit."""
    x = 9.0
    for name, (value, high) in gauges:
        wide = 6 * len(name) + 48
        if x + wide > canvas.width:
            return
        canvas.text((x, 34), name, INK, anchor="w", px=True)
        canvas.bar(canvas.from_px((x + wide - 30, 34)), 32, 7, value / high if high > 0 else 0.0, PALETTE[0])
        x += wide


def _lines(width: int, entries: list[tuple[str, int, str]], size: int = 1) -> list[list[tuple[float, str, int, str]]]:
    """The entries of a legend in lines, each with its x."""
    x, lines = 14.0 * size, [list[tuple[float, str, int, str]]()] if entries else []
    for words, code, shape in entries:
        if x + size * (6 * len(words) + 16) > width and lines[-1]:
            x = 14.0 * size
            lines.append([])
        lines[-1].append((x, words, code, shape))
        x += size * (6 * len(words) + 30)
    return lines


def paint_legend(canvas: Canvas, entries: list[tuple[str, int, str]], size: int = 1) -> int:
    """Paint the legend at the bottom at this text size; returns the number of lines."""
    lines = _lines(canvas.width, entries, size)
    for k, line in enumerate(lines):
        y = canvas.height - 12.0 - size * LINE * (len(lines) - 1 - k)
        for x, words, code, shape in line:
            _shape(canvas, shape, x, y, coloured(code))
            canvas.text((x + 12, y), words, INK, size, anchor="w", px=True)
    return len(lines)


def _paint_tally(canvas: Canvas, entries: list[tuple[str, int, str]], y: float) -> None:
    """A line of signs with their texts inside; the last ones if not all fit."""
    room = canvas.width - 12
    shown = entries[-(room // LEAST) :]
    across = min(TALLY, room / max(1, len(shown)))
    for k, (words, code, shape) in enumerate(shown):
        x, half, colour = 6 + across * (k + 0.5), 0.43 * across, coloured(code)
        if shape == "square":
            canvas.rect((x - half, y - half), (x + half, y + half), colour, px=True)
        else:
            canvas.disc(canvas.from_px((x, y)), half, PAPER if shape == "ring" else colour, outline=colour)
        canvas.text((x, y), words, LATE if shape == "ring" else PAPER, px=True)


SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2] + other[2] - abs(one[0] - other[0]), 2 * one[2])
    down = min(one[3] + other[3] - abs(one[1] - other[1]), 2 * one[3])
    return max(0.0, across) * max(0.0, down)


def _beside(taken: list[Box], at: Array, away: float, half: tuple[float, float]) -> tuple[float, float]:
    """The centre of a label beside a point: the nearest place where it covers least."""
    gaps = (away, away + 8, away + 16)
    tried = [(at[0] + sx * (gap + half[0]), at[1] + sy * (gap + half[1])) for gap in gaps for sx, sy in SIDES]
    hidden = [sum(_overlap((x, y, *half), other) for other in taken) for x, y in tried]
    # argmin takes the first of equals: the nearest, and above before the other sides.
    x, y = tried[int(np.argmin(hidden))]
    return float(x), float(y)
