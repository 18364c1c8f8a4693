"""The small rasteriser behind `render()`: numpy alone, so the first picture waits for no compile and needs no display.

A `Canvas` is an image and a window on the plane. Points are in world coordinates (y up), sizes in pixels, and an edge
is blended by how far it is from the centre of the pixel. Figures, animations and pages belong to `replay`.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.core.errors import ConfigError, did_you_mean

Colour: TypeAlias = tuple[int, int, int]
Array: TypeAlias = NDArray[Any]
Box: TypeAlias = tuple[float, float, float, float]
"""centre and half sides, in pixels"""

# Okabe and Ito's colours without black and yellow, and four more; tests measure that colour-blind eyes tell them apart.
PALETTE: tuple[Colour, ...] = (
    (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (230, 159, 0),
    (86, 180, 233), (51, 34, 136), (136, 34, 85), (128, 128, 64), (128, 192, 96),
)  # fmt: skip
PAPER: Colour = (255, 255, 255)
INK: Colour = (38, 44, 54)
GRID: Colour = (228, 231, 236)
DEPOT: Colour = (38, 44, 54)
CUSTOMER: Colour = (150, 157, 168)
OPEN: Colour = (240, 190, 40)
LATE: Colour = (204, 51, 51)
SERVED: Colour = (46, 155, 87)
MEANINGS: dict[str, Colour] = {
    "waiting": PAPER, "open": OPEN, "late": LATE, "served": SERVED, "ink": INK, "muted": CUSTOMER, "grid": GRID,
}  # fmt: skip
"""The colours of scenes by name; their codes are 0, 1, ..., that of colour k of the palette is FIRST_OF_PALETTE + k."""
FIRST_OF_PALETTE = 16

# The printable ASCII signs in order, 19 a strip of four lines; each line holds two rows of pixels.
FONT = """
        █    █ █   █ █   ▄█▄▄ ██  ▄ ▄▀▀▄    █     ▄▀   ▀▄     ▄     ▄                         ▄ ▄▀▀▀▄  ▄█   ▄▀▀▀▄
        █    ▀ ▀  ▀█▀█▀ ▀▄█▄    ▄▀  ▀▄▀     ▀    █       █  ▀▄█▄▀ ▄▄█▄▄       ▄▄▄▄▄         ▄▀  █ ▄ █   █      ▄▀
        ▀         ▀█▀█▀ ▄▄█▄▀ ▄▀ ▄▄ █ ▀▄▀        ▀▄     ▄▀  ▀ █ ▀   █     █▀         ▄▄   ▄▀    █   █   █    ▄▀
        ▀          ▀ ▀    ▀      ▀▀  ▀▀ ▀          ▀   ▀                 ▀           ▀▀          ▀▀▀   ▀▀▀  ▀▀▀▀▀
▄▀▀▀▄   ▄█  █▀▀▀▀  ▄▀▀  ▀▀▀▀█ ▄▀▀▀▄ ▄▀▀▀▄         ▄▄    ▄▀         ▀▄   ▄▀▀▀▄ ▄▀▀▀▄ ▄▀▀▀▄ █▀▀▀▄ ▄▀▀▀▄ █▀▀▄  █▀▀▀▀
  ▄▄▀ ▄▀ █  ▀▀▀▀▄ █▄▄▄    ▄▀  ▀▄▄▄▀ ▀▄▄▄█  ██     ▀▀  ▄▀    ▀▀▀▀▀    ▀▄    ▄▀ █ █▀█ █▄▄▄█ █▄▄▄▀ █     █   █ █▄▄▄
▄   █ ▀▀▀█▀ ▄   █ █   █  █    █   █    ▄▀  ▄▄     █▀   ▀▄   ▀▀▀▀▀   ▄▀    ▀   █ ▀▀▀ █   █ █   █ █   ▄ █  ▄▀ █
 ▀▀▀     ▀   ▀▀▀   ▀▀▀   ▀     ▀▀▀   ▀▀    ▀▀    ▀       ▀         ▀      ▀    ▀▀▀  ▀   ▀ ▀▀▀▀   ▀▀▀  ▀▀▀   ▀▀▀▀▀
█▀▀▀▀ ▄▀▀▀▄ █   █  ▀█▀    ▀█▀ █  ▄▀ █     █▄ ▄█ █▄  █ ▄▀▀▀▄ █▀▀▀▄ ▄▀▀▀▄ █▀▀▀▄ ▄▀▀▀▀ ▀▀█▀▀ █   █ █   █ █   █ █   █
█▄▄▄  █ ▄▄▄ █▄▄▄█   █      █  █▄▀   █     █ █ █ █▀▄ █ █   █ █▄▄▄▀ █   █ █▄▄▄▀ ▀▄▄▄    █   █   █ █   █ █ ▄ █  ▀▄▀
█     █   █ █   █   █   ▄  █  █ ▀▄  █     █   █ █  ██ █   █ █     █ ▀▄▀ █ ▀▄      █   █   █   █  █ █  █▄▀▄█ ▄▀ ▀▄
▀      ▀▀▀▀ ▀   ▀  ▀▀▀   ▀▀   ▀   ▀ ▀▀▀▀▀ ▀   ▀ ▀   ▀  ▀▀▀  ▀      ▀▀ ▀ ▀   ▀ ▀▀▀▀    ▀    ▀▀▀    ▀   ▀   ▀ ▀   ▀
█   █ ▀▀▀▀█  █▀▀  ▄      ▀▀█   ▄▀▄         ▀▄         █               █        ▄▀▀▄ ▄▀▀▀█ █       ▀      ▀  █
 ▀▄▀    ▄▀   █     ▀▄      █  ▀   ▀              ▀▀▀▄ █▀▀▀▄ ▄▀▀▀  ▄▀▀▀█ ▄▀▀▀▄ ▄█▄   █   █ █▄▀▀▄  ▀█     ▀█  █ ▄▀
  █   ▄▀     █       ▀▄    █                    ▄▀▀▀█ █   █ █   ▄ █   █ █▀▀▀▀  █     ▀▀▀█ █   █   █   ▄  █  █▀▄
  ▀   ▀▀▀▀▀  ▀▀▀         ▀▀▀        ▀▀▀▀▀        ▀▀▀▀ ▀▀▀▀   ▀▀▀   ▀▀▀▀  ▀▀▀   ▀     ▀▀▀  ▀   ▀  ▀▀▀   ▀▀   ▀  ▀
 ▀█                     █▀▀▀▄ ▄▀▀▀█              █                            █   █         ▄▀▀   █   ▀▀▄
  █   █▀▄▀▄ █▄▀▀▄ ▄▀▀▀▄ █   █ █   █ █▄▀▀▄ ▄▀▀▀▀ ▀█▀   █   █ █   █ █   █ ▀▄ ▄▀ █   █ ▀▀▀█▀  ▄▀     █     ▀▄  ▄▀▄ ▄
  █   █ ▀ █ █   █ █   █ █▀▀▀   ▀▀▀█ █      ▀▀▀▄  █  ▄ █  ▄█ ▀▄ ▄▀ █ █ █  ▄▀▄   ▀▀▀█  ▄▀     █     █     █      ▀
 ▀▀▀  ▀   ▀ ▀   ▀  ▀▀▀  ▀         ▀ ▀     ▀▀▀▀    ▀▀   ▀▀ ▀   ▀    ▀ ▀  ▀   ▀  ▀▀▀  ▀▀▀▀▀    ▀▀   ▀   ▀▀
"""
_ART = np.array([list(line.ljust(114)) for line in FONT.split("\n")[1:-1]]).reshape(5, 4, 1, 19, 6)
SIGNS = np.concatenate([np.isin(_ART, ["▀", "█"]), np.isin(_ART, ["▄", "█"])], axis=2)
SIGNS = SIGNS.reshape(5, 8, 19, 6).swapaxes(1, 2).reshape(95, 8, 6)[:, :7]
DROP = {"g": 2, "p": 2, "q": 2, "y": 2, ",": 1, ";": 1}  # rows a sign hangs below the line
ANCHORS = {
    "nw": (0.0, 0.0), "n": (0.5, 0.0), "ne": (1.0, 0.0), "w": (0.0, 0.5), "centre": (0.5, 0.5),
    "e": (1.0, 0.5), "sw": (0.0, 1.0), "s": (0.5, 1.0), "se": (1.0, 1.0),
}  # fmt: skip


class Canvas:
    """An RGB image, `pixels` uint8 (height, width, 3), drawn upon in world coordinates.

    Before the first `fit` one unit of the world is one pixel and the origin is the lower left corner. What lies outside
    the image is cut off, and a point that is not finite draws nothing.
    """

    def __init__(self, width: int = 512, height: int = 512, background: Colour = PAPER) -> None:
        self.width, self.height, self.background = width, height, background
        paper = np.frombuffer(bytearray(background) * (width * height), np.uint8)  # np.full takes 1 ms for this
        self.pixels: NDArray[np.uint8] = paper.reshape(height, width, 3)
        self._x, self._y = np.arange(width)[None, :] + 0.5, np.arange(height)[:, None] + 0.5
        self._scale = np.array([1.0, -1.0])
        self._origin = np.array([0.0, float(height)])

    def fit(self, xy_min: ArrayLike, xy_max: ArrayLike, margin: float = 0.06, keep_aspect: bool = True) -> None:
        """Look at the box from `xy_min` to `xy_max`, centred, with `margin` of the shorter side left free all around.

        A side without extent does not bound the scale; without any (all points on one) the window is one unit wide.
        """
        lo, hi = np.asarray(xy_min, np.float64), np.asarray(xy_max, np.float64)
        if not np.isfinite(lo + hi).all():
            raise ConfigError(f"a window must be finite, not from {lo.tolist()} to {hi.tolist()}")
        size = np.array([self.width, self.height], np.float64)
        span = np.abs(hi - lo)
        flat = span <= 1e-12 * np.maximum(np.abs(lo), np.abs(hi))
        scale = (size - 2 * margin * size.min()) / np.where(flat, 1.0, span)
        if keep_aspect:
            scale[:] = scale.min() if flat.all() else scale[~flat].min()
        self._scale = scale * [1.0, -1.0]
        self._origin = size / 2 - (lo + hi) / 2 * self._scale

    def to_px(self, points: ArrayLike) -> Array:
        """World points (..., 2) as pixels right and down from the top left corner; a pixel's centre is at +0.5."""
        return np.asarray(points, np.float64) * self._scale + self._origin

    def from_px(self, pixels: ArrayLike) -> Array:
        """The points of the world that are drawn at pixels."""
        return (np.asarray(pixels, np.float64) - self._origin) / self._scale

    def line(self, p: ArrayLike, q: ArrayLike, colour: Colour, width: float = 1.5) -> None:
        """A straight line with round ends; from p (n, 2) to q (n, 2) n of them, quicker than one by one."""
        self._lines(self._legs(p, q), colour, width)

    def polyline(
        self, points: ArrayLike, colour: Colour, width: float = 1.5, closed: bool = False, arrow: bool = False
    ) -> None:
        """Lines from point to point, back to the first if `closed`; `arrow` puts a head on the middle of each."""
        stops = np.asarray(points, np.float64).reshape(-1, 2)
        legs = self._legs(stops, np.roll(stops, -1, axis=0)) if closed else self._legs(stops[:-1], stops[1:])
        self._lines(legs, colour, width)
        if arrow:
            self._heads(legs, colour, 5 + 2 * width, middle=True)

    def arrow(self, p: ArrayLike, q: ArrayLike, colour: Colour, width: float = 1.5, middle: bool = False) -> None:
        """A line from p to q, or n of them as in `line`, with a head at q or on the middle of the way."""
        legs, head = self._legs(p, q), 5 + 2 * width
        self._heads(legs, colour, head, middle)
        if not middle:  # the round end of the line must not show at the tip
            way = legs[:, 1] - legs[:, 0]
            legs[:, 1] -= way * np.minimum(1, 0.6 * head / np.maximum(np.hypot(*way.T), 1e-9))[:, None]
        self._lines(legs, colour, width)

    def disc(self, centre: ArrayLike, radius_px: float, colour: Colour, outline: Colour | None = None) -> None:
        """A filled circle; an `outline` takes the outer 1.5 pixels of the radius."""
        self.discs(centre, radius_px, colour, outline)

    def discs(
        self, centres: ArrayLike, radius_px: ArrayLike, colours: ArrayLike, outline: Colour | None = None
    ) -> None:
        """Filled circles at centres (n, 2), the later over the earlier; one radius and colour for all, or one each."""
        xy = self.to_px(np.asarray(centres, np.float64).reshape(-1, 2))
        radii = np.broadcast_to(np.asarray(radius_px, np.float64), len(xy)).tolist()
        fills = np.broadcast_to(np.asarray(colours, np.float32), (len(xy), 3))
        for (x, y), radius, fill in zip(xy.tolist(), radii, fills, strict=True):
            spot, px, py = self._box(x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1)
            cover = np.minimum(radius + 0.5 - np.hypot(px - x, py - y), 2 * radius)
            paint = fill if outline is None else _mix(np.asarray(outline, np.float32), cover - 1.5, fill)
            spot[:] = _mix(spot, cover, paint) + 0.5

    def square(self, centre: ArrayLike, half_px: float, colour: Colour) -> None:
        """A filled square, 2 * half_px wide."""
        x, y = self.to_px(centre).tolist()
        self._rect(x - half_px, y - half_px, x + half_px, y + half_px, colour)

    def rect(self, p: ArrayLike, q: ArrayLike, colour: Colour) -> None:
        """The filled rectangle with corners p and q, sides along the axes."""
        (x0, x1), (y0, y1) = np.sort(self.to_px(np.stack([p, q])), axis=0).T.tolist()
        self._rect(x0, y0, x1, y1, colour)

    def polygon(self, points: ArrayLike, colour: Colour) -> None:
        """A filled polygon, convex or not; where it crosses itself the even-odd rule holds."""
        xy = self.to_px(np.asarray(points, np.float64).reshape(-1, 2))
        if len(xy) == 0 or not np.isfinite(xy).all():
            return
        spot, px, py = self._box(*(xy.min(0) - 1).tolist(), *(xy.max(0) + 1).tolist())
        inside = np.zeros(spot.shape[:2], bool)
        edge = np.full(spot.shape[:2], np.inf)
        for p, q in zip(xy, np.roll(xy, -1, axis=0), strict=True):
            edge = np.minimum(edge, _distance(px, py, p, q))
            if p[1] != q[1]:  # count the sides to the left of a pixel
                inside ^= ((p[1] > py) != (q[1] > py)) & (px > p[0] + (q[0] - p[0]) / (q[1] - p[1]) * (py - p[1]))
        spot[:] = _mix(spot, np.where(inside, 0.5 + edge, 0.5 - edge), colour) + 0.5

    def bar(self, centre: ArrayLike, width_px: int, height_px: int, share: float, colour: Colour) -> None:
        """A gauge filled to `share` (0 to 1) along its longer side, from the left or from the bottom."""
        x0, y0 = np.rint(self.to_px(centre) - np.array([width_px, height_px]) / 2).tolist()
        x1, y1 = x0 + width_px, y0 + height_px
        self._rect(x0, y0, x1, y1, INK)
        self._rect(x0 + 1, y0 + 1, x1 - 1, y1 - 1, self.background)
        empty = 1 - min(1.0, max(0.0, share))
        if width_px >= height_px:
            self._rect(x0 + 1, y0 + 1, x1 - 1 - empty * (width_px - 2), y1 - 1, colour)
        else:
            self._rect(x0 + 1, y0 + 1 + empty * (height_px - 2), x1 - 1, y1 - 1, colour)

    def text(
        self, p: ArrayLike, string: str, colour: Colour = INK, size: int = 1, anchor: str = "centre", px: bool = False
    ) -> None:
        """One line of text in signs of 5 x 7 times `size` pixels; the side or corner `anchor` of its box is put at p.

        `px`: p is in pixels, as `to_px` gives them, instead of in world coordinates.
        """
        if anchor not in ANCHORS:
            raise ConfigError(f"there is no anchor {anchor!r}{did_you_mean(anchor, ANCHORS)}")
        ink = np.zeros((9, 6 * len(string)), bool)
        for k, sign in enumerate(string):
            drop = DROP.get(sign, 0)
            ink[drop : drop + 7, 6 * k : 6 * k + 6] = SIGNS[ord(sign if " " <= sign <= "~" else "?") - 32]
        ink = ink.repeat(size, axis=0).repeat(size, axis=1)
        extent = np.array([6 * len(string) - 1, 7]) * size
        left, top = np.rint((np.asarray(p) if px else self.to_px(p)) - extent * ANCHORS[anchor]).tolist()
        spot, x, y = self._box(left, top, left + ink.shape[1], top + ink.shape[0])
        spot[ink[(y - top).astype(int), (x - left).astype(int)]] = colour

    def caption(self, string: str, colour: Colour = INK) -> None:
        """A line of text in the top left corner, on a clean ground; smaller if it would not fit."""
        size = 2 if 12 * len(string) + 16 <= self.width else 1
        self._rect(0, 0, 6 * size * len(string) + 12, 9 * size + 7, self.background)
        self.text((8, 7), string, colour, size, "nw", px=True)

    def to_png(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as a PNG file."""

        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
        lines = np.pad(self.pixels.reshape(self.height, -1), ((0, 0), (1, 0)))  # each line says "not filtered" first
        body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + body)

    def _box(self, x0: float, y0: float, x1: float, y1: float) -> tuple[Array, Array, Array]:
        """The pixels that a box touches, maybe none, as a view, and their centres' x (1, w) and y (h, 1)."""
        if not (math.isfinite(x0 + x1) and math.isfinite(y0 + y1)):
            x0 = y0 = x1 = y1 = 0.0
        cols = slice(max(math.floor(x0), 0), max(min(math.ceil(x1), self.width), 0))
        rows = slice(max(math.floor(y0), 0), max(min(math.ceil(y1), self.height), 0))
        return self.pixels[rows, cols], self._x[:, cols], self._y[rows]

    def _rect(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        spot, px, py = self._box(x0, y0, x1, y1)
        across = np.minimum(px + 0.5, x1) - np.maximum(px - 0.5, x0)
        down = np.minimum(py + 0.5, y1) - np.maximum(py - 0.5, y0)
        spot[:] = _mix(spot, np.maximum(across, 0) * down, colour) + 0.5

    def _legs(self, p: ArrayLike, q: ArrayLike) -> Array:
        """The ways from p to q in pixels (n, 2, 2), without those that are not finite."""
        legs = self.to_px(np.stack([p, q], axis=-2)).reshape(-1, 2, 2)
        return legs[np.isfinite(legs).all((1, 2))]

    def _lines(self, legs: Array, colour: Colour, width: float) -> None:
        """All legs (n, 2, 2) at once, as one shape: walk the longer axis, look only at the few pixels across."""
        run = np.abs(legs[:, 1] - legs[:, 0])
        steep = run[:, 1] > run[:, 0]
        (a, c), (b, d) = np.where(steep[:, None, None], legs[..., ::-1], legs).transpose(1, 2, 0)  # walk from a to b
        low, high, end = np.minimum(a, b), np.maximum(a, b), np.where(steep, self.height, self.width)
        slope = (d - c) / np.where(a == b, 1, b - a)
        stretch, radius = np.hypot(1, slope), width / 2 + 0.5
        start = np.clip(np.floor(low - radius), 0, end).astype(np.int64)
        count = np.clip(np.ceil(high + radius), start, end).astype(np.int64) - start
        leg = np.repeat(np.arange(len(legs)), count)
        walked = np.arange(len(leg)) - (np.cumsum(count) - count - start)[leg]
        slope, stretch, low, high, turn = (value[leg, None] for value in (slope, stretch, low, high, steep))
        walked, middle = walked[:, None], c[leg, None] + slope * (walked[:, None] + 0.5 - a[leg, None])
        across = np.clip(np.floor(middle - radius * stretch), -1e6, 1e6).astype(np.int64)
        across = across + np.arange(math.ceil(2 * math.sqrt(2) * radius) + 1)
        gap = across + 0.5 - middle
        foot = walked + 0.5 + gap * slope / stretch**2  # of the perpendicular from the pixel
        distance = np.hypot((foot - np.clip(foot, low, high)) * stretch, gap / stretch)
        cover = np.minimum(radius - distance, width)  # a line thinner than a pixel is paler
        self._paint(np.where(turn, across, walked), np.where(turn, walked, across), cover, colour)

    def _heads(self, legs: Array, colour: Colour, length: float, middle: bool) -> None:
        """Arrow heads along the legs, at the end or on the middle; none where a leg is too short to show one."""
        run = np.hypot(*(legs[:, 1] - legs[:, 0]).T)
        legs, run = legs[run > 1.5 * length], run[run > 1.5 * length, None]
        way = (legs[:, 1] - legs[:, 0]) / run
        tip = legs[:, 0] + way * (run + length) / 2 if middle else legs[:, 1]
        ux, uy = way.T[:, :, None, None]
        corner = np.clip(np.floor(tip - length - 1), -1e6, 1e6).astype(np.int64)
        span = np.arange(math.ceil(2 * length) + 3)
        x, y = np.broadcast_arrays(corner[:, 0, None, None] + span, corner[:, 1, None, None] + span[:, None])
        dx, dy = tip[:, 0, None, None] - x - 0.5, tip[:, 1, None, None] - y - 0.5
        behind, aside = dx * ux + dy * uy, np.abs(dx * uy - dy * ux)
        flank = (0.42 * behind - aside) / math.hypot(1, 0.42)  # pixels inside of the slanted sides
        self._paint(x, y, 0.5 + np.minimum(flank, length - behind), colour)

    def _paint(self, x: Array, y: Array, cover: Array, colour: Colour) -> None:
        """Blend scattered pixels; one met more than once counts once, by its highest cover: joints do not darken."""
        hit = (cover > 0) & (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        x, y, cover = x[hit], y[hit], np.minimum(cover[hit], 1)
        order = np.argsort((cover * 255).astype(np.uint8), kind="stable")  # the last of equal indices is what stays
        x, y = x[order], y[order]
        self.pixels[y, x] = _mix(self.pixels[y, x], cover[order], colour) + 0.5


def _distance(x: Array, y: Array, p: Array, q: Array) -> Array:
    """From each (x, y) to the segment from p to q."""
    length = math.hypot(*(q - p))
    ux, uy = (q - p) / max(length, 1e-9)
    dx, dy = x - p[0], y - p[1]
    along = dx * ux + dy * uy
    return np.hypot(along - np.clip(along, 0.0, length), dx * uy - dy * ux)


def _mix(under: Array, cover: Array, over: ArrayLike) -> Array:
    """`over` where `cover` is 1, `under` where it is 0, shares of both between; add 0.5 to round it into uint8."""
    share = np.minimum(np.maximum(cover, 0), 1).astype(np.float32)[..., None]
    return under + (np.asarray(over, np.float32) - under) * share


def coloured(code: int) -> Colour:
    """The colour of a scene's code."""
    return PALETTE[code - FIRST_OF_PALETTE] if code >= FIRST_OF_PALETTE else tuple(MEANINGS.values())[code]


def trips_of(stops: ArrayLike, cut: int | None = None, closed: bool = False) -> list[list[int]]:
    """The stops of a route trip by trip: one ends where it comes to node `cut`, and the next begins there."""
    trips: list[list[int]] = []
    for j in np.asarray(stops).tolist():
        if not trips or (cut is not None and trips[-1][-1] == cut and len(trips[-1]) > 1):
            trips.append([j] if cut is None or j == cut else [cut, j])
        elif j != trips[-1][-1]:
            trips[-1].append(j)
    if closed and trips and len(trips[-1]) > 1:
        trips[-1].append(trips[-1][0])
    return [trip for trip in trips if len(trip) > 1]


def paint(canvas: Canvas, scene: Any, caption: str = "") -> None:
    """Paints a `Scene`, the rasteriser behind `render`: caption, figures and gauges above, the legend below.

    Of bodies the view from above is drawn; an image stands alone where there is no mark.
    """
    if scene.images and not scene.marks:
        _paint_image(canvas, next(iter(scene.images.values())))
    else:
        canvas.fit(scene.low[:2], scene.high[:2], margin=0.1)
    visited, taken = visited_colours(scene), list[Box]()
    for kind, put in PAINTERS.items():
        for name, part in scene.marks.items():
            if part.kind == kind and part.attributes.get("shown", True):
                put(canvas, part.attributes, visited.get(name, {}) if kind == "points" else scene.marks, taken)
    words = [f"{name} {f'{value:.4f}'.rstrip('0').rstrip('.')}" for name, value in scene.figures.items()]
    while len(words) > 1 and 12 * len("  ".join([caption, *words])) + 16 > canvas.width:
        words.pop()
    canvas.caption("  ".join([caption, *words]))
    _paint_gauges(canvas, list(scene.gauges.items()))
    _paint_legend(canvas, scene.legends)


def visited_colours(scene: Any) -> dict[str, dict[int, Colour]]:
    """Which points take the colour of the trip that has visited them."""
    found: dict[str, dict[int, Colour]] = {}
    for part in scene.marks.values():
        if part.kind == "route" and part.attributes["paint"]:
            cut, on = part.attributes.get("cut"), part.attributes["on"]
            for trip, colour in coloured_trips(part.attributes):
                found.setdefault(on, {}).update(dict.fromkeys((j for j in trip if j != cut), colour))
    return found


def coloured_trips(said: dict[str, Any]) -> list[tuple[list[int], Colour]]:
    """The trips of a route with their colours."""
    trips = trips_of(said["stops"], said.get("cut"), said["closed"])
    given = said.get("colour")
    return [(trip, PALETTE[k % len(PALETTE)] if given is None else coloured(given)) for k, trip in enumerate(trips)]


def _paint_route(canvas: Canvas, said: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """Legs that end at the depot are thin: many meet there and would hide the rest."""
    nodes, cut = marks[said["on"]].attributes["xy"], said.get("cut")
    for trip, colour in coloured_trips(said):
        canvas.polyline(nodes[trip], colour, 1.0)
        canvas.polyline(nodes[[j for j in trip if j != cut]], colour, 2.0)


def _paint_line(canvas: Canvas, said: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """Dashed; what belongs to the ground is not."""
    colour = coloured(said["colour"])
    if colour == GRID:
        canvas.line(said["start"], said["end"], GRID, width=4)
        return
    dashes = max(1, round(math.dist(canvas.to_px(said["start"]), canvas.to_px(said["end"])) / 10))
    ends = np.linspace(said["start"], said["end"], 2 * dashes)
    canvas.line(ends[::2], ends[1::2], colour, 1.5)


def _paint_points(canvas: Canvas, said: dict[str, Any], visited: Any, taken: list[Box]) -> None:
    """Discs with their names inside where all have one size, else as large as they are said to be."""
    n = len(said["xy"])
    shapes = [said["shape"]] * n if isinstance(said["shape"], str) else said["shape"]
    codes = np.broadcast_to(said.get("colour", 0), n).tolist()
    names = said.get("label", [""] * n) if "size" not in said and "level" not in said and n <= 40 else [""] * n
    names = names() if callable(names) else names
    room = min(1.0, 14 / math.sqrt(n + 1))  # many are small
    radii = np.broadcast_to(3.0 + 6.0 * room * said["size"] if "size" in said else 8.0 if any(names) else 6.0 * room, n)
    rings, levels = np.broadcast_to(said.get("ring", False), n), np.broadcast_to(said.get("level", np.nan), n)
    for j, (place, radius) in enumerate(zip(said["xy"], radii.tolist(), strict=True)):
        fill, at = visited.get(j, coloured(codes[j])), canvas.to_px(place)
        if rings[j]:
            canvas.disc(place, radius + 3.5, PAPER, outline=INK)
        if shapes[j] == "square":
            canvas.square(place, max(5.0, 0.75 * radius), fill if j in visited or "colour" in said else DEPOT)
        elif np.isnan(levels[j]):
            canvas.disc(place, radius, fill, outline=INK if any(names) else CUSTOMER if fill == PAPER else None)
        else:
            canvas.disc(place, radius, PAPER, outline=visited.get(j, CUSTOMER))
            _fill(canvas, at, radius - 1.5, float(levels[j]), visited.get(j, LATE if levels[j] >= 1 else OPEN))
        if names[j]:
            dark = 0.3 * fill[0] + 0.6 * fill[1] + 0.1 * fill[2] < 140
            hidden = any(_overlap((*at, 4, 4), other) > 0 for other in taken)
            spot = _beside(taken, at, 6, (3 * len(names[j]), 5)) if hidden else at
            canvas.text(spot, names[j], PAPER if dark and not hidden else INK, px=True)
        taken.append((*at.tolist(), radius, radius))


def _fill(canvas: Canvas, at: Array, radius: float, share: float, colour: Colour) -> None:
    """A disc filled from below to a share of its height."""
    x, y = at.tolist()
    spot, px, py = canvas._box(x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1)
    inside = np.minimum(radius + 0.5 - np.hypot(px - x, py - y), py + 0.5 - (y + radius - 2 * radius * min(1.0, share)))
    spot[:] = _mix(spot, inside, colour) + 0.5


def _paint_vehicle(canvas: Canvas, said: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """With its name and gauge beside it, where they hide least."""
    place, colour = said["xy"], coloured(said["colour"])
    x, y = canvas.to_px(place).tolist()
    _shape(canvas, said["shape"], x, y, colour)
    taken.append((x, y, 8, 8))
    if said.get("label") or "gauge" in said:
        name = said.get("label", "")
        half = (max(13.0, 3.0 * len(name)), 14.0 if "gauge" in said else 6.0)
        x, y = _beside(taken, np.array([x, y]), 5, half)
        taken.append((x, y, *half))
        canvas.text((x, y - 5 * ("gauge" in said)), name, colour, px=True)
        if "gauge" in said:
            canvas.bar(canvas.from_px((x, y + 5)), 22, 6, said["gauge"], colour)


def _shape(canvas: Canvas, shape: str, x: float, y: float, colour: Colour) -> None:
    """A vehicle or an entry of the legend about a pixel."""
    if shape in ("truck", "car"):
        canvas._rect(x - 9, y - 6, x + 9, y + 6, PAPER)
        canvas._rect(x - 8, y - 5, x + 2, y + 5, colour)
        canvas._rect(x + 3, y - 3, x + 8, y + 5, colour)
    elif shape == "drone":
        for dx, dy in ((-4, -4), (4, -4), (-4, 4), (4, 4)):
            canvas.disc(canvas.from_px((x + dx, y + dy)), 3.0, colour, outline=PAPER)
        canvas.disc(canvas.from_px((x, y)), 4.0, colour)
    elif shape == "square":
        canvas._rect(x - 5, y - 5, x + 5, y + 5, colour)
    elif shape == "ring":
        canvas.disc(canvas.from_px((x, y)), 6.0, PAPER, outline=colour)
    else:
        canvas.disc(canvas.from_px((x, y)), 5.0, colour, outline=CUSTOMER if colour == PAPER else INK)


def _paint_bodies(canvas: Canvas, said: dict[str, Any], marks: Any, taken: list[Box]) -> None:
    """From above, the lower first."""
    n = len(said["pos"])
    codes = np.broadcast_to(said.get("colour", FIRST_OF_PALETTE), n).tolist()
    shapes = [said["shape"]] * n if isinstance(said["shape"], str) else said["shape"]
    for o in np.argsort(said["pos"][:, 2], kind="stable").tolist():
        (w, x, y, z), (a, b, _), centre = said["quat"][o], said["size"][o] / 2, said["pos"][o, :2]
        turn = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        angles = np.arange(24) * (math.pi / 12)
        corners = np.array([(a, b), (-a, b), (-a, -b), (a, -b)])
        if shapes[o] != "box":
            corners = np.stack([a * np.cos(angles), b * np.sin(angles)], axis=1)
        about = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        outline = centre + corners @ about
        if not said["transparent"]:
            canvas.polygon(outline, coloured(codes[o]))
        canvas.polyline(outline, INK if o == said["target"] else GRID, 2.5 if o == said["target"] else 1.0, closed=True)


PAINTERS = {"line": _paint_line, "route": _paint_route, "bodies": _paint_bodies, "points": _paint_points,
            "vehicle": _paint_vehicle}  # fmt: skip
"""What of a scene is painted over what."""


def _paint_image(canvas: Canvas, pixels: Array) -> None:
    """As large as fits by a whole factor, or thinned out."""
    shown = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    up = max(1, min(canvas.height // shown.shape[0], canvas.width // shown.shape[1]))
    down = max(1, -(-shown.shape[0] // canvas.height), -(-shown.shape[1] // canvas.width))
    shown = shown[::down, ::down].repeat(up, axis=0).repeat(up, axis=1)
    top, left = (canvas.height - shown.shape[0]) // 2, (canvas.width - shown.shape[1]) // 2
    canvas.pixels[top : top + shown.shape[0], left : left + shown.shape[1]] = shown


def _paint_gauges(canvas: Canvas, gauges: list[tuple[str, tuple[float, float]]]) -> None:
    """In a line below the caption, as many as there is room for."""
    x = 9.0
    for name, (value, high) in gauges:
        wide = 6 * len(name) + 48
        if x + wide > canvas.width:
            return
        canvas.text((x, 34), name, INK, anchor="w", px=True)
        canvas.bar(canvas.from_px((x + wide - 30, 34)), 32, 7, value / high if high > 0 else 0.0, PALETTE[0])
        x += wide


def _paint_legend(canvas: Canvas, entries: list[tuple[str, int, str]]) -> None:
    """In up to three lines at the bottom."""
    x, lines = 14.0, [list[tuple[float, str, int, str]]()]
    for words, code, shape in entries:
        if x + 6 * len(words) + 16 > canvas.width and lines[-1]:
            x = 14.0
            lines.append([])
        lines[-1].append((x, words, code, shape))
        x += 6 * len(words) + 30
    for k, line in enumerate(lines[-3:]):
        y = canvas.height - 12.0 - 17 * (len(lines[-3:]) - 1 - k)
        for x, words, code, shape in line:
            _shape(canvas, shape, x, y, coloured(code))
            canvas.text((x + 12, y), words, INK, anchor="w", px=True)


SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2] + other[2] - abs(one[0] - other[0]), 2 * one[2])
    down = min(one[3] + other[3] - abs(one[1] - other[1]), 2 * one[3])
    return max(0.0, across) * max(0.0, down)


def _beside(taken: list[Box], at: Array, away: float, half: tuple[float, float]) -> tuple[float, float]:
    """The centre of a label beside a point, where it covers least, the nearer the better; above if nothing is there."""
    gaps = (away, away + 8, away + 16)
    tried = [(at[0] + sx * (gap + half[0]), at[1] + sy * (gap + half[1])) for gap in gaps for sx, sy in SIDES]
    hidden = [sum(_overlap((x, y, *half), other) for other in taken) for x, y in tried]
    x, y = tried[int(np.argmin(hidden))]
    return float(x), float(y)
