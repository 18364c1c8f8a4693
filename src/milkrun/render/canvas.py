"""The rasteriser behind `World.render`: numpy only, so the first picture needs no compilation and no display.

A `Canvas` is an image and a window on the plane. Points are in world coordinates (y up), sizes in pixels. Edges are
antialiased by the distance of a pixel's centre. Figures, animations and pages belong to `replay`.
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

# Okabe and Ito's colours without black and yellow, and four more; tests measure that colour-blind eyes tell them apart.
PALETTE: tuple[Colour, ...] = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (51, 34, 136),
    (136, 34, 85),
    (128, 128, 64),
    (128, 192, 96),
)
PAPER: Colour = (255, 255, 255)
INK: Colour = (38, 44, 54)
GRID: Colour = (228, 231, 236)
DEPOT: Colour = (38, 44, 54)
CUSTOMER: Colour = (150, 157, 168)
OPEN: Colour = (240, 190, 40)
LATE: Colour = (204, 51, 51)
SERVED: Colour = (46, 155, 87)
MEANINGS: dict[str, Colour] = {
    "waiting": PAPER,
    "open": OPEN,
    "late": LATE,
    "served": SERVED,
    "ink": INK,
    "muted": CUSTOMER,
    "grid": GRID,
}
"""Colours of scenes by name, with the codes 0, 1, ...; colour k of the palette has the code FIRST_OF_PALETTE + k."""
FIRST_OF_PALETTE = 16

# The printable ASCII characters in order, 19 per strip of four lines; each line holds two rows of pixels.
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
# A line of text is two rows of pixels, its upper and its lower half blocks. The eighth row is empty.
SIGNS = np.concatenate([np.isin(_ART, ["▀", "█"]), np.isin(_ART, ["▄", "█"])], axis=2)
SIGNS = SIGNS.reshape(5, 8, 19, 6).swapaxes(1, 2).reshape(95, 8, 6)[:, :7]
DROP = {"g": 2, "p": 2, "q": 2, "y": 2, ",": 1, ";": 1}  # rows that a character reaches below the line
ANCHORS = {
    "nw": (0.0, 0.0),
    "n": (0.5, 0.0),
    "ne": (1.0, 0.0),
    "w": (0.0, 0.5),
    "centre": (0.5, 0.5),
    "e": (1.0, 0.5),
    "sw": (0.0, 1.0),
    "s": (0.5, 1.0),
    "se": (1.0, 1.0),
}
"""Of a text's box: which point is put at its position, as shares of width and height."""


class Canvas:
    """An RGB image, `pixels` uint8 (height, width, 3), with drawing in world coordinates.

    Before the first `fit` one unit of the world is one pixel and the origin is the lower left corner. Drawing is
    clipped to the image, and a point that is not finite draws nothing.
    """

    def __init__(self, width: int = 512, height: int = 512, background: Colour = PAPER) -> None:
        self.width = width
        self.height = height
        self.background = background
        paper = np.frombuffer(bytearray(background) * (width * height), np.uint8)  # np.full takes 1 ms for this
        self.pixels: NDArray[np.uint8] = paper.reshape(height, width, 3)
        self._x = np.arange(width)[None, :] + 0.5
        self._y = np.arange(height)[:, None] + 0.5
        self._scale = np.array([1.0, -1.0])
        self._origin = np.array([0.0, float(height)])

    def fit(
        self,
        xy_min: ArrayLike,
        xy_max: ArrayLike,
        margin: float = 0.06,
        keep_aspect: bool = True,
        above: float = 0,
        below: float = 0,
    ) -> None:
        """Set the window to the box from `xy_min` to `xy_max`, centred.

        `margin` of the shorter side stays free on all sides, and `above` and `below` more pixels. A side without extent
        does not bound the scale; if no side has one, the window is one unit wide.
        """
        lo, hi = np.asarray(xy_min, np.float64), np.asarray(xy_max, np.float64)
        if not np.isfinite(lo + hi).all():
            raise ConfigError(f"a window must be finite, not from {lo.tolist()} to {hi.tolist()}")
        size = np.array([self.width, self.height - above - below], np.float64)
        span = np.abs(hi - lo)
        flat = span <= 1e-12 * np.maximum(np.abs(lo), np.abs(hi))
        scale = (size - 2 * margin * size.min()) / np.where(flat, 1.0, span)
        if keep_aspect:
            scale[:] = scale.min() if flat.all() else scale[~flat].min()
        self._scale = scale * [1.0, -1.0]
        self._origin = size / 2 + [0, above] - (lo + hi) / 2 * self._scale

    def to_px(self, points: ArrayLike) -> Array:
        """World points (..., 2) as pixels right and down from the top left corner; a pixel's centre is at +0.5."""
        return np.asarray(points, np.float64) * self._scale + self._origin

    def from_px(self, pixels: ArrayLike) -> Array:
        """World points of pixels; the inverse of `to_px`."""
        return (np.asarray(pixels, np.float64) - self._origin) / self._scale

    def line(self, p: ArrayLike, q: ArrayLike, colour: Colour, width: float = 1.5) -> None:
        """A straight line with round ends, or n lines from p (n, 2) to q (n, 2), faster than one by one."""
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
        """A line from p to q, or n of them as in `line`, with a head at q or in its middle."""
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
        """Filled circles at centres (n, 2), later ones on top; one radius and colour for all, or one each."""
        xy = self.to_px(np.asarray(centres, np.float64).reshape(-1, 2))
        radii = np.broadcast_to(np.asarray(radius_px, np.float64), len(xy)).tolist()
        fills = np.broadcast_to(np.asarray(colours, np.float32), (len(xy), 3))
        for (x, y), radius, fill in zip(xy.tolist(), radii, fills, strict=True):
            spot, px, py = self._box(x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1)
            # At most 2 * radius: a disc smaller than a pixel is paler instead of invisible.
            cover = np.minimum(radius + 0.5 - np.hypot(px - x, py - y), 2 * radius)
            paint = fill if outline is None else _mix(np.asarray(outline, np.float32), cover - 1.5, fill)
            spot[:] = _mix(spot, cover, paint) + 0.5

    def fill_disc(self, centre: ArrayLike, radius_px: float, share: float, colour: Colour) -> None:
        """A circle filled from below to a share (0 to 1) of its height."""
        x, y = self.to_px(centre).tolist()
        spot, px, py = self._box(x - radius_px - 1, y - radius_px - 1, x + radius_px + 1, y + radius_px + 1)
        top = y + radius_px - 2 * radius_px * min(1.0, share)
        spot[:] = _mix(spot, np.minimum(radius_px + 0.5 - np.hypot(px - x, py - y), py + 0.5 - top), colour) + 0.5

    def square(self, centre: ArrayLike, half_px: float, colour: Colour) -> None:
        """A filled square, 2 * half_px wide."""
        x, y = self.to_px(centre).tolist()
        self._rect(x - half_px, y - half_px, x + half_px, y + half_px, colour)

    def rect(self, p: ArrayLike, q: ArrayLike, colour: Colour, px: bool = False) -> None:
        """The filled rectangle with corners p and q, sides along the axes; `px` as in `text`."""
        corners = np.stack([p, q])
        (x0, x1), (y0, y1) = np.sort(corners if px else self.to_px(corners), axis=0).T.tolist()
        self._rect(x0, y0, x1, y1, colour)

    def polygon(self, points: ArrayLike, colour: Colour) -> None:
        """A filled polygon, convex or not; self-intersections follow the even-odd rule."""
        xy = self.to_px(np.asarray(points, np.float64).reshape(-1, 2))
        if len(xy) == 0 or not np.isfinite(xy).all():
            return
        spot, px, py = self._box(*(xy.min(0) - 1).tolist(), *(xy.max(0) + 1).tolist())
        inside = np.zeros(spot.shape[:2], bool)
        edge = np.full(spot.shape[:2], np.inf)
        for p, q in zip(xy, np.roll(xy, -1, axis=0), strict=True):
            edge = np.minimum(edge, _distance(px, py, p, q))
            # `>` at both ends: a corner at the height of a pixel's centre counts for one of its two sides only.
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
        """One line of text in characters of 5 x 7 times `size` pixels, the side or corner `anchor` of its box at p.

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
        """A line of text in the top left corner, on a blank ground; smaller if it would not fit."""
        size = 2 if 12 * len(string) + 16 <= self.width else 1
        self._rect(0, 0, 6 * size * len(string) + 12, 9 * size + 7, self.background)
        self.text((8, 7), string, colour, size, "nw", px=True)

    def to_png(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as a PNG file."""

        def chunk(kind: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)  # 8 bits a channel, RGB
        lines = np.pad(
            self.pixels.reshape(self.height, -1), ((0, 0), (1, 0))
        )  # each line begins with 0, "not filtered"
        body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + body)

    def _box(self, x0: float, y0: float, x1: float, y1: float) -> tuple[Array, Array, Array]:
        """A view of the pixels that a box touches, and their centres' x (1, w) and y (h, 1); may be empty."""
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
        """The lines from p to q in pixels (n, 2, 2), without those that are not finite."""
        legs = self.to_px(np.stack([p, q], axis=-2)).reshape(-1, 2, 2)
        return legs[np.isfinite(legs).all((1, 2))]

    def _lines(self, legs: Array, colour: Colour, width: float) -> None:
        """Paint all legs (n, 2, 2) at once, as one shape: along the longer axis, only the few pixels across it."""
        run = np.abs(legs[:, 1] - legs[:, 0])
        steep = run[:, 1] > run[:, 0]
        (a, c), (b, d) = np.where(steep[:, None, None], legs[..., ::-1], legs).transpose(1, 2, 0)  # walk from a to b
        low, high, end = np.minimum(a, b), np.maximum(a, b), np.where(steep, self.height, self.width)
        slope = (d - c) / np.where(a == b, 1, b - a)
        stretch, radius = np.hypot(1, slope), width / 2 + 0.5
        start = np.clip(np.floor(low - radius), 0, end).astype(np.int64)
        count = np.clip(np.ceil(high + radius), start, end).astype(np.int64) - start
        leg = np.repeat(np.arange(len(legs)), count)
        # The pixels of all legs in one array; `walked` counts from the start of each leg.
        walked = np.arange(len(leg)) - (np.cumsum(count) - count - start)[leg]
        slope, stretch, low, high, turn = (value[leg, None] for value in (slope, stretch, low, high, steep))
        walked, middle = walked[:, None], c[leg, None] + slope * (walked[:, None] + 0.5 - a[leg, None])
        # Clipped before the cast, which is undefined for a float beyond int64. Along the longer axis the slope is at
        # most 1 and `stretch` at most sqrt(2), so the pixels of the next line cover the whole width.
        across = np.clip(np.floor(middle - radius * stretch), -1e6, 1e6).astype(np.int64)
        across = across + np.arange(math.ceil(2 * math.sqrt(2) * radius) + 1)
        gap = across + 0.5 - middle
        foot = walked + 0.5 + gap * slope / stretch**2  # of the perpendicular from the pixel
        distance = np.hypot((foot - np.clip(foot, low, high)) * stretch, gap / stretch)
        cover = np.minimum(radius - distance, width)  # a line thinner than a pixel is paler
        self._paint(np.where(turn, across, walked), np.where(turn, walked, across), cover, colour)

    def _heads(self, legs: Array, colour: Colour, length: float, middle: bool) -> None:
        """Arrow heads at the end or in the middle of each leg that is long enough."""
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
        """Blend scattered pixels. Of repeated ones the highest cover counts, so that joints do not darken."""
        hit = (cover > 0) & (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        x, y, cover = x[hit], y[hit], np.minimum(cover[hit], 1)
        # As uint8 numpy uses radix sort, in linear time; a 255th of cover is invisible.
        order = np.argsort((cover * 255).astype(np.uint8), kind="stable")  # the last of equal indices is kept
        x, y = x[order], y[order]
        self.pixels[y, x] = _mix(self.pixels[y, x], cover[order], colour) + 0.5


def _distance(x: Array, y: Array, p: Array, q: Array) -> Array:
    """The distance of each (x, y) to the segment from p to q."""
    length = math.hypot(*(q - p))
    ux, uy = (q - p) / max(length, 1e-9)
    dx, dy = x - p[0], y - p[1]
    along = dx * ux + dy * uy
    return np.hypot(along - np.clip(along, 0.0, length), dx * uy - dy * ux)


def _mix(under: Array, cover: Array, over: ArrayLike) -> Array:
    """Blend: `over` where `cover` is 1, `under` where it is 0. Add 0.5 to round the result into uint8."""
    share = np.minimum(np.maximum(cover, 0), 1).astype(np.float32)[..., None]
    return under + (np.asarray(over, np.float32) - under) * share


def coloured(code: int) -> Colour:
    """The colour of a scene's code."""
    return PALETTE[code - FIRST_OF_PALETTE] if code >= FIRST_OF_PALETTE else tuple(MEANINGS.values())[code]
