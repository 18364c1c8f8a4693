"""An episode as an animated GIF: the pictures that a world's `render(row)` gives, one a step.

A film keeps of each picture only what changed since the one before. All pictures share one palette; up to 256 colours
the GIF shows exactly what was rendered, rarer ones beyond become the nearest that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import Rows
from milkrun.core.errors import missing_extra
from milkrun.replay.watch import Watched

try:
    from PIL import Image
except ImportError as e:
    raise missing_extra("pillow", "cli") from e

Picture = NDArray[np.uint8]

COLOURS = 256  # that a GIF can hold
MOST_FRAMES = 400
STEP_MS, FIRST_MS, LAST_MS = 90, 600, 2500  # how long a picture stands


class Film(Watched):
    """A world that keeps the pictures of a row, from where it stands when the film begins.

    Step it instead of the world. `every` leaves out pictures of a long episode: its steps that are no multiple of it,
    except the one that ends it.
    """

    def __init__(self, world: Any, row: int = 0, every: int = 1) -> None:
        super().__init__(world, self._shoot)
        self.row, self.every = row, every
        self._last: Picture = world.render(row)
        self._changes: list[tuple[int, int, Picture]] = [(0, 0, self._last)]

    def __len__(self) -> int:
        return len(self._changes)

    def frames(self) -> Iterator[Picture]:
        """The pictures in order; each may be written to."""
        shown = self._changes[0][2].copy()
        for top, left, patch in self._changes:
            shown[top : top + patch.shape[0], left : left + patch.shape[1]] = patch
            yield shown.copy()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the GIF: it runs for ever and rests on its last picture."""
        palette = self._palette()
        shown: list[Image.Image] = []
        indices = np.zeros(self._last.shape[:2], np.uint8)
        for top, left, patch in self._changes:
            indices[top : top + patch.shape[0], left : left + patch.shape[1]] = _nearest(palette, _packed(patch))
            image = Image.fromarray(indices.copy())
            image.putpalette(_unpacked(palette).tobytes())
            shown.append(image)
        times = [FIRST_MS, *[STEP_MS] * (len(shown) - 2), LAST_MS] if len(shown) > 1 else LAST_MS
        shown[0].save(Path(path), "GIF", save_all=True, append_images=shown[1:], duration=times, loop=0)

    def _shoot(self, rows: Rows) -> None:
        ended = bool(self.world.terminated[self.row] | self.world.truncated[self.row])
        if int(self.world.i[self.row]) % self.every and not ended:
            return
        picture = self.world.render(self.row)
        changed = (picture != self._last).any(axis=2)
        ys, xs = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        box = (slice(ys[0], ys[-1] + 1), slice(xs[0], xs[-1] + 1)) if len(ys) else (slice(0), slice(0))
        self._changes.append((box[0].start or 0, box[1].start or 0, picture[box].copy()))
        self._last = picture

    def _palette(self) -> NDArray[np.int64]:
        """The commonest colours, in order."""
        counts: dict[int, int] = {}
        for _, _, patch in self._changes:
            for colour, count in zip(*np.unique(_packed(patch), return_counts=True), strict=True):
                counts[int(colour)] = counts.get(int(colour), 0) + int(count)
        common = sorted(counts, key=lambda colour: (-counts[colour], colour))[:COLOURS]
        return np.array(sorted(common), np.int64)


def stride(steps: int) -> int:
    """Which steps of so many to film, so that no film is longer than MOST_FRAMES."""
    return -(-steps // (MOST_FRAMES - 1))


def _packed(picture: Picture) -> NDArray[np.int64]:
    red, green, blue = np.moveaxis(picture.astype(np.int64), -1, 0)
    packed: NDArray[np.int64] = (red << 16) | (green << 8) | blue
    return packed


def _unpacked(colours: NDArray[np.int64]) -> Picture:
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)


def _nearest(palette: NDArray[np.int64], wanted: NDArray[np.int64]) -> Picture:
    """The place in the palette of each colour, or of the one nearest to it."""
    colours, which = np.unique(wanted, return_inverse=True)
    apart = _unpacked(colours)[:, None].astype(np.int64) - _unpacked(palette).astype(np.int64)
    return (apart**2).sum(axis=2).argmin(axis=1).astype(np.uint8)[which].reshape(wanted.shape)
