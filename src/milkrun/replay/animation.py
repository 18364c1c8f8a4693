"""An episode as an animated GIF: the pictures that a world's `render(row)` returns, one per step.

A film stores the compressed difference of each picture to the one before. All pictures share one palette. Up to 256
colours the GIF is exact; with some more, blends at edges become the nearest colour of the palette. Pictures with
thousands of colours are photographs: they get the best-fitting palette, and a pixel that hardly changes keeps its
colour, so that camera noise does not fill the file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import Rows, check_count, read_rows
from milkrun.core.errors import missing_extra
from milkrun.render.hooks import StepHooks

try:
    from PIL import Image
except ImportError as e:
    raise missing_extra("pillow", "cli") from e

Picture = NDArray[np.uint8]
Colours = NDArray[np.int32]
"""red, green and blue in one number"""

COLOURS = 256  # that a GIF can hold
PHOTOGRAPH = 3072  # more colours than this are a photograph; a film of TruckDrone has about 2,100
PHOTO_COLOURS = 64  # of a photograph, one of them transparent; with all 256 a file is twice as large
SIMILAR = 18  # of 255: largest change of a colour of a photograph that keeps the pixel
SAMPLE = 32  # photographs from which the palette is made
MOST_FRAMES = 400
STEP_MS, FIRST_MS, LAST_MS = 90, 600, 2500  # durations of pictures
LEAST_MS = 20  # browsers slow down a GIF with shorter durations


class Film(StepHooks):
    """Wrapper that stores the pictures of a row, from its present state on; step it in place of the world.

    `every=n` keeps the pictures of every n-th step and of the last one. `scale=2` halves pictures in height and width,
    each pixel the mean of four.
    """

    def __init__(self, world: Any, row: int = 0, every: int = 1, scale: int = 1) -> None:
        super().__init__(world)
        self.row = row
        self.every = every
        self.scale = check_count("scale", scale, 1)
        self._last = np.zeros_like(self._picture())
        self._changes: list[bytes] = []
        self.keep()

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def step_ms(self) -> int:
        """Duration of a picture between the first and the last."""
        return STEP_MS

    def frames(self) -> Iterator[Picture]:
        """The pictures in order."""
        shown = np.zeros_like(self._last)
        for change in self._changes:
            shown = shown ^ np.frombuffer(zlib.decompress(change), np.uint8).reshape(shown.shape)
            yield shown

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the GIF: it loops and pauses on its last picture. Equal consecutive pictures become one."""
        seen = colours_of(self.frames())
        shown = self._photographs() if seen is None else self._drawings(palette_of(*seen))
        count = len(self)
        times = [FIRST_MS, *[self.step_ms] * (count - 2), LAST_MS] if count > 1 else LAST_MS
        next(shown).save(Path(path), "GIF", save_all=True, append_images=shown, duration=times, loop=0)

    def after_step(self, rows: Rows) -> None:
        if rows is not None and self.row not in read_rows(rows, self.world.num_envs):
            return
        ended = bool(self.world.terminated[self.row] | self.world.truncated[self.row])
        if int(self.world.i[self.row]) % self.every and not ended:
            return
        self.keep()

    def keep(self) -> None:
        """Append a picture of the row's present state."""
        picture = self._picture()
        self._changes.append(
            zlib.compress((picture ^ self._last).tobytes(), 1)
        )  # unchanged pixels are 0 and compress well
        self._last = picture

    def picture(self) -> Picture:
        """A picture of the row's present state, in full size."""
        picture: Picture = self.world.render(self.row)
        return picture

    def _picture(self) -> Picture:
        picture = self.picture()
        if self.scale == 1:
            return picture
        high, wide = (side // self.scale * self.scale for side in picture.shape[:2])
        return np.asarray(Image.fromarray(picture[:high, :wide]).reduce(self.scale))

    def _drawings(self, palette: Colours) -> Iterator[Image.Image]:
        """The pictures as palette indices."""
        indices, before = np.zeros(self._last.shape[:2], np.uint8), None
        for picture in self.frames():
            colours = _packed(picture)
            changed = ... if before is None else colours != before
            indices[changed] = _nearest(palette, colours[changed])
            before = colours
            yield _image(indices, _unpacked(palette))

    def _photographs(self) -> Iterator[Image.Image]:
        """Photographs as palette indices, by tables over colours of five bits a channel.

        One palette entry stays free: the GIF uses it as "unchanged".
        """
        counts = np.zeros(len(FIVE_BITS), np.int64)
        for k, picture in enumerate(self.frames()):
            if k % -(-len(self) // SAMPLE) == 0:
                counts += np.bincount(_packed(picture, 5).ravel(), minlength=len(counts))
        palette = photograph_palette(counts, PHOTO_COLOURS - 1)
        place, near = _tables(palette)
        indices: Picture | None = None
        for picture in self.frames():
            coarse = _packed(picture, 5)
            fresh = place[coarse]
            indices = fresh if indices is None else np.where(near[indices, coarse], indices, fresh)
            yield _image(indices, palette)


def stride(steps: int) -> int:
    """The smallest `every` that keeps a film of this many steps below MOST_FRAMES."""
    return max(1, -(-steps // (MOST_FRAMES - 2)))


# -- drawings ---------------------------------------------------------------------------------------------------------


def colours_of(frames: Iterable[Picture]) -> tuple[Colours, NDArray[np.int64]] | None:
    """All colours of pictures, and how many pixels changed to each; None for photographs."""
    seen, counts, before = np.zeros(0, np.int32), np.zeros(0, np.int64), None
    for picture in frames:
        packed = _packed(picture)
        found, many = np.unique(packed if before is None else packed[packed != before], return_counts=True)
        both = np.concatenate([seen, found])
        seen, which = np.unique(both, return_inverse=True)
        counts = np.bincount(which.ravel(), np.concatenate([counts, many]), len(seen)).astype(np.int64)
        if len(seen) > PHOTOGRAPH:
            return None
        before = packed
    return seen, counts


def palette_of(seen: Colours, counts: NDArray[np.int64]) -> Colours:
    """All colours if they fit into a GIF; else the most frequent 128, then the colours farthest from those chosen."""
    if len(seen) <= COLOURS:
        return seen
    order = np.argsort(-counts, kind="stable")
    kept = order[: COLOURS // 2].tolist()
    rgb = _unpacked(seen).astype(np.int64)
    apart = np.min([((rgb - rgb[k]) ** 2).sum(axis=1) for k in kept], axis=0)
    while len(kept) < COLOURS:
        kept.append(int(apart.argmax()))
        apart = np.minimum(apart, ((rgb - rgb[kept[-1]]) ** 2).sum(axis=1))
    return seen[np.sort(kept)]


def _packed(picture: Picture, bits: int = 8) -> Colours:
    """The colour of each pixel as one number, with this many bits a channel."""
    red, green, blue = (picture[..., k].astype(np.int32) >> (8 - bits) for k in range(3))
    packed: Colours = (red << 2 * bits) | (green << bits) | blue
    return packed


def _unpacked(colours: Colours) -> Picture:
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)


def _nearest(palette: Colours, wanted: Colours) -> Picture:
    """The palette index of each colour, or of the nearest one."""
    colours, which = np.unique(wanted, return_inverse=True)
    return _closest(_unpacked(palette), _unpacked(colours)).astype(np.uint8)[which].reshape(wanted.shape)


# -- photographs ------------------------------------------------------------------------------------------------------

FIVE_BITS = np.stack(np.meshgrid(*[np.arange(32)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
# The high bits are repeated as the low ones: 31 becomes 255, and white stays white.
FIVE_BITS = (FIVE_BITS << 3) | (FIVE_BITS >> 2)
"""The colours of five bits a channel, indexed by `_packed(picture, 5)`."""


def photograph_palette(counts: NDArray[np.int64], size: int) -> Picture:
    """At most `size` colours for the colours of FIVE_BITS with these counts.

    Median cut: the box with the largest spread is split at its median. Then four rounds of k-means.
    """
    used = np.flatnonzero(counts)
    colours, weights = FIVE_BITS[used].astype(np.float32), np.sqrt(counts[used]).astype(np.float32)
    boxes = [_box(colours, weights, np.arange(len(used)))]
    while len(boxes) < min(size, len(used)):
        # With fewer boxes than colours, some box has two colours or more. Only such a box has a gain above 0, so
        # neither part is empty.
        k = int(np.argmax([gain for gain, _, _ in boxes]))
        _, axis, box = boxes[k]
        box = box[np.argsort(colours[box, axis], kind="stable")]
        half = np.cumsum(weights[box])
        cut = min(int(np.searchsorted(half, half[-1] / 2)) + 1, len(box) - 1)
        boxes[k : k + 1] = [_box(colours, weights, part) for part in (box[:cut], box[cut:])]
    palette = np.array([np.average(colours[box], axis=0, weights=weights[box]) for *_, box in boxes], np.float32)
    for _ in range(4):
        nearest = _closest(palette, colours)
        sums = [np.bincount(nearest, weights * colours[:, k], len(palette)) for k in range(3)]
        mass = np.bincount(nearest, weights, len(palette))
        palette = np.where(mass[:, None] > 0, np.stack(sums, 1) / np.maximum(mass, 1e-9)[:, None], palette)
    return np.rint(palette).astype(np.uint8)


def _box(colours: NDArray[np.float32], weights: NDArray[np.float32], box: NDArray[np.intp]) -> tuple[float, int, Any]:
    """The largest squared spread of a box along one axis, that axis, and the box."""
    mean = np.average(colours[box], axis=0, weights=weights[box])
    squares = (weights[box, None] * (colours[box] - mean) ** 2).sum(axis=0)
    return float(squares.max()), int(squares.argmax()), box


def _closest(palette: NDArray[Any], colours: NDArray[Any]) -> NDArray[np.intp]:
    """The nearest palette index of each colour; exact for integers, since float32 holds their sums."""
    p, c = palette.astype(np.float32), colours.astype(np.float32)
    return ((p**2).sum(axis=1) - 2 * c @ p.T).argmin(axis=1)


def _tables(palette: Picture) -> tuple[Picture, NDArray[np.bool_]]:
    """The palette index of each colour of FIVE_BITS, and which indices are similar enough, (index, colour)."""
    place = _closest(palette, FIVE_BITS).astype(np.uint8)
    near = np.ones((len(palette), len(FIVE_BITS)), np.bool_)
    for k in range(3):
        near &= abs(palette[:, None, k].astype(np.int16) - FIVE_BITS[:, k].astype(np.int16)) <= SIMILAR
    return place, near


def _image(indices: Picture, palette: Picture) -> Image.Image:
    # A copy, since `_drawings` reuses its array while Pillow still reads the previous picture.
    image = Image.fromarray(indices.copy())
    image.putpalette(palette.tobytes())
    return image
