"""Paints the bodies of a scene as seen from straight above: each pixel shows the highest body.

Faces are darker the steeper they are, and higher bodies cast a shadow on lower ones. Both use few shades, so that films
keep exact colours. Bodies below a transparent one show through it; the target is outlined.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milkrun.render.canvas import FIRST_OF_PALETTE, INK, LATE, PAPER, Canvas, coloured

Array = NDArray[Any]
SHADES = 8  # steps between a level face and a steep one
FAINT = 0.6  # share of paper in the colour of a faint body
GLASS = 0.6  # opacity of a transparent body
SHADOW, SLOPE, DARK = 7, 3.3, 0.72  # longest shadow in pixels, height per pixel of it, brightness in it
CREASE = 0.65  # brightness of a line between two faces
SMALL = 24  # pixels across below which a target has a ring instead of an outline
OUTSIDE_RADIUS = 13  # pixels, of the disc for a named body outside of the picture
AXES = {"box": ((0,), (1,), (2,)), "cylinder": ((0, 1), (2,)), "sphere": ((0, 1, 2),)}
"""The axes of a shape by which its faces are bounded: flat ones by one, round ones by several."""


class Body(NamedTuple):
    """A body of a scene with the values that the painter needs."""

    shape: str
    half: Array
    pos: Array
    quat: Array
    colour: Array
    label: str
    target: bool
    transparent: bool


class DepthBuffer:
    """Index of the highest body at each pixel (-1 none), its height `z`, the face, and how level that is (0..SHADES).

    `spots` holds the box of pixels of each visible body.
    """

    def __init__(self, canvas: Canvas, ground: float) -> None:
        shape = canvas.pixels.shape[:2]
        self.body = np.full(shape, -1, np.int16)
        self.z = np.full(shape, ground, np.float32)
        self.face = np.zeros(shape, np.int8)
        self.level = np.zeros(shape, np.int8)
        self.spots: dict[int, tuple[slice, slice]] = {}


def bodies_of(scene: Any) -> list[Body]:
    """The bodies of a scene, except those above its window, which would hide the rest."""
    found = []
    for attributes in (part.attributes for part in scene.marks.values() if part.kind == "bodies"):
        n = len(attributes["pos"])
        shapes = [attributes["shape"]] * n if isinstance(attributes["shape"], str) else attributes["shape"]
        codes = np.broadcast_to(attributes.get("colour", FIRST_OF_PALETTE), n).tolist()
        fills = np.array([coloured(code) for code in codes], float).reshape(n, 3)
        faint = np.broadcast_to(attributes.get("faint", False), n)
        fills[faint] = FAINT * np.array(PAPER) + (1 - FAINT) * fills[faint]
        words = attributes.get("label", [""] * n)
        words = words() if callable(words) else words
        for o in range(n):
            found.append(
                Body(
                    shapes[o],
                    np.maximum(attributes["size"][o] / 2, 1e-9),
                    attributes["pos"][o],
                    attributes["quat"][o],
                    fills[o],
                    words[o],
                    o == attributes["target"],
                    attributes["transparent"],
                )
            )
    return [body for body in found if body.pos[2] - body.half[2] <= scene.high[2]]


def paint_bodies(canvas: Canvas, bodies: list[Body], ground: float) -> None:
    """Paint bodies in the window of the canvas, over a ground of this height."""
    solid = [body for body in bodies if not body.transparent]
    glass = [body for body in bodies if body.transparent]
    seen, over = rasterise_bodies(canvas, solid, ground), rasterise_bodies(canvas, glass, ground)
    over.body[over.z <= seen.z] = -1  # hidden by a solid body
    shades = 0.6 + 0.4 * np.arange(SHADES + 1) / SHADES
    for some, layer, share in ((solid, seen, 1.0), (glass, over, GLASS)):
        hit = layer.body >= 0
        if some:
            table = np.array([body.colour for body in some])[:, None] * shades[:, None]
            table = share * np.stack([table, CREASE * table], axis=2) + 0.5  # plain, between two faces
            table = table.reshape(-1, 3).astype(np.uint8 if share == 1 else np.float32)
            # A shape has at most three faces, so this is another number for each face of each body.
            between = _borders(4 * layer.body + layer.face)[hit]
            own = table[(layer.body[hit].astype(np.int32) * len(shades) + layer.level[hit]) * 2 + between]
            canvas.pixels[hit] = own if share == 1 else own + np.float32(1 - share) * canvas.pixels[hit]
    dark = _shaded(np.maximum(seen.z, over.z), canvas)
    canvas.pixels[dark] = np.float32(DARK) * canvas.pixels[dark] + np.float32(0.5)
    canvas.pixels[_borders(seen.body) & (over.body < 0)] = INK
    _mark(canvas, solid, seen)


def rasterise_bodies(canvas: Canvas, bodies: list[Body], ground: float) -> DepthBuffer:
    """Cast a ray straight down through each pixel; the highest hit stays."""
    seen = DepthBuffer(canvas, ground)
    xs = canvas.from_px(np.stack([np.arange(canvas.width) + 0.5] * 2, axis=1))[:, 0]
    ys = canvas.from_px(np.stack([np.arange(canvas.height) + 0.5] * 2, axis=1))[:, 1]
    for k, body in enumerate(bodies):
        radius = float(np.sqrt(body.half @ body.half))
        if not (xs[0] - radius <= body.pos[0] <= xs[-1] + radius and ys[-1] - radius <= body.pos[1] <= ys[0] + radius):
            continue
        rotation = _matrix(body.quat)
        wide, deep, _ = abs(rotation) @ body.half
        cols, rows = np.flatnonzero(abs(xs - body.pos[0]) <= wide), np.flatnonzero(abs(ys - body.pos[1]) <= deep)
        if not len(cols) or not len(rows):
            continue
        spot = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
        dx, dy = xs[spot[1]][None, :] - body.pos[0], ys[spot[0]][:, None] - body.pos[1]
        up, face, level = _meet(body.shape, rotation, body.half, dx, dy)
        z = body.pos[2] + up
        first = z > seen.z[spot]  # False for nan, where the ray misses
        if not first.any():
            continue
        seen.spots[k] = spot
        seen.body[spot][first] = k
        for array, value in ((seen.z, z), (seen.face, face), (seen.level, np.rint(level * SHADES))):
            array[spot][first] = value[first]
    return seen


def _meet(shape: str, rotation: Array, half: Array, dx: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Where rays straight down hit a body: height above its centre (nan: no hit), face, and how level that is.

    In the body's own axes, scaled by half sizes, every shape has radius 1.
    """
    # An upright face would cause a division by 0. With 1e-9 the ray stays between it and its opposite for a very long
    # way, or meets it far beyond the other faces.
    down = -np.where(abs(rotation[2]) > 1e-9, rotation[2], 1e-9) / half
    start = [rotation[0, k] / half[k] * dx + rotation[1, k] / half[k] * dy for k in range(3)]
    first, last, face = -np.inf, np.inf, np.zeros(start[0].shape, np.int8)
    for number, axes in enumerate(AXES[shape]):
        if len(axes) == 1:
            middle, reach = start[axes[0]] / -down[axes[0]], 1 / abs(down[axes[0]])
        else:
            # A round shape is |start + t down| = 1: `middle` is half the sum of the two solutions t, `reach` half their
            # difference. A negative square means no hit.
            a = sum(down[k] ** 2 for k in axes)
            middle = sum(start[k] * (-down[k] / a) for k in axes)
            square = middle**2 - (sum(start[k] ** 2 for k in axes) - 1) / a
            reach = np.sqrt(np.where(square >= 0, square, np.nan))
        enter = middle - reach
        face[enter > first] = number
        first, last = np.maximum(first, enter), np.minimum(last, middle + reach)
    level = np.array([abs(rotation[2, axes[0]]) for axes in AXES[shape]])[face]
    for number, axes in enumerate(AXES[shape]):
        if len(axes) > 1:  # the normal of a round face
            normal = [(start[k] + first * down[k]) / half[k] for k in axes]
            steep = abs(sum(n * rotation[2, k] for n, k in zip(normal, axes, strict=True)))
            bent = steep / np.sqrt(np.maximum(sum(n * n for n in normal), 1e-12))
            level = np.where(face == number, np.minimum(np.nan_to_num(bent), 1), level)
    return np.where(first <= last, -first, np.nan), face, level


def _matrix(q: Array) -> Array:
    w, x, y, z = q / max(float(np.linalg.norm(q)), 1e-12)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _shaded(z: Array, canvas: Canvas) -> Array:
    """Pixels in the shadow of something higher towards the upper left."""
    slope = SLOPE * _pixel(canvas)
    dark = np.zeros(z.shape, bool)
    for k in range(1, SHADOW + 1):
        dark[k:, k:] |= z[:-k, :-k] - z[k:, k:] > slope * k
    return dark


def _pixel(canvas: Canvas) -> float:
    """Width of a pixel in the world's unit."""
    return float(np.ptp(canvas.from_px([(0, 0), (1, 0)])[:, 0]))


def _borders(key: Array) -> Array:
    """Pixels whose right or lower neighbour has another key."""
    found = np.zeros(key.shape, bool)
    found[:, :-1] |= key[:, :-1] != key[:, 1:]
    found[:-1] |= key[:-1] != key[1:]
    return found


def _mark(canvas: Canvas, bodies: list[Body], seen: DepthBuffer) -> None:
    """Draw the outline of the target and the names of visible bodies.

    A named body outside of the picture becomes a disc at its edge.
    """
    for k, body in enumerate(bodies):
        dark = 0.3 * body.colour[0] + 0.6 * body.colour[1] + 0.1 * body.colour[2] < 140
        if k in seen.spots:
            spot = seen.spots[k]
            shown = seen.body[spot] == k
            if body.target:
                _outline(canvas, body, spot, shown)
            if body.label:
                _name(canvas, shown, spot, body.label, PAPER if dark else INK)
        elif body.label:
            high = np.array([canvas.width, canvas.height])
            at = canvas.to_px(body.pos[:2])
            if ((at < 0) | (at > high)).any():
                at = np.clip(
                    at, [OUTSIDE_RADIUS + 2, OUTSIDE_RADIUS + 26], high - OUTSIDE_RADIUS - 2
                )  # below the caption
                canvas.disc(canvas.from_px(at), OUTSIDE_RADIUS, tuple(body.colour.astype(int).tolist()))
                canvas.text(at, body.label, PAPER if dark else INK, size=2, px=True)


def _outline(canvas: Canvas, body: Body, spot: tuple[slice, slice], shown: Array) -> None:
    """Red with a white inner line, visible on a red body too; around a small body a ring."""
    if 2 * body.half[:2].min() < SMALL * _pixel(canvas):
        turns = np.arange(48) * (np.pi / 24)
        radius = max(shown.shape) / 2 + 6
        circle = canvas.to_px(body.pos[:2]) + radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
        for width, colour in ((5, PAPER), (3, LATE)):
            canvas.polyline(canvas.from_px(circle), colour, width, closed=True)
        return
    left = np.pad(shown, 1)
    for colour in (LATE, LATE, LATE, PAPER):
        inner = _eroded(left)
        canvas.pixels[spot][(left & ~inner)[1:-1, 1:-1]] = colour
        left = inner


def _eroded(mask: Array) -> Array:
    """The mask without its outermost pixels."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return inner


def _name(canvas: Canvas, shown: Array, spot: tuple[slice, slice], name: str, colour: Any) -> None:
    """Write the name at the pixel with the most of the visible body around it."""
    left, depth = np.pad(shown, 1), 0
    while (smaller := _eroded(left)).any():
        left, depth = smaller, depth + 1
    if depth >= 2:
        places = np.argwhere(left)[:, ::-1]
        at = places[abs(places - places.mean(0)).sum(1).argmin()] + [spot[1].start - 0.5, spot[0].start - 0.5]
        canvas.text(at, name, colour, size=2 if depth >= 9 else 1, px=True)
