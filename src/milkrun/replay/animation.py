"""An episode as an animated GIF: the pictures that a world's `render(row)` gives, one a step.

A film keeps of each picture only what changed since the one before. All pictures share one palette; up to 256 colours
the GIF shows exactly what was rendered; of more, some blends at edges become the nearest that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import Rows, read_rows
from milkrun.core.errors import missing_extra
from milkrun.core.watch import Watched

try:
    from PIL import Image
except ImportError as e:
    raise missing_extra("pillow", "cli") from e

Picture = NDArray[np.uint8]
Colours = NDArray[np.int32]
"""red, green and blue in one number"""

COLOURS = 256  # that a GIF can hold
MOST_FRAMES = 400
STEP_MS, FIRST_MS, LAST_MS = 90, 600, 2500  # how long a picture stands


class Film(Watched):
    """A world that keeps the pictures of a row, from where it stands when the film begins.

    Step it instead of the world. `every` leaves out pictures of a long episode: its steps that are no multiple of it,
    except the one that ends it.
    """

    def __init__(self, world: Any, row: int = 0, every: int = 1) -> None:
        super().__init__(world)
        self.row, self.every = row, every
        first = world.render(row)
        self._last: Colours = _packed(first)
        self._size = first.shape[:2]
        self._changes = [(np.arange(self._last.size), self._last)]

    def __len__(self) -> int:
        return len(self._changes)

    def frames(self) -> Iterator[Picture]:
        """The pictures in order."""
        shown = np.zeros_like(self._last)
        for where, colours in self._changes:
            shown[where] = colours
            yield _unpacked(shown).reshape(*self._size, 3)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the GIF: it runs for ever and rests on its last picture. Pictures that do not differ become one."""
        palette = palette_of(self._changes)
        table = _unpacked(palette).tobytes()
        shown: list[Image.Image] = []
        indices = np.zeros(self._last.size, np.uint8)
        for where, colours in self._changes:
            indices[where] = _nearest(palette, colours)
            image = Image.fromarray(indices.reshape(self._size).copy())
            image.putpalette(table)
            shown.append(image)
        times = [FIRST_MS, *[STEP_MS] * (len(shown) - 2), LAST_MS] if len(shown) > 1 else LAST_MS
        shown[0].save(Path(path), "GIF", save_all=True, append_images=shown[1:], duration=times, loop=0)

    def see(self, rows: Rows) -> None:
        if rows is not None and self.row not in read_rows(rows, self.world.num_envs):
            return
        ended = bool(self.world.terminated[self.row] | self.world.truncated[self.row])
        if int(self.world.i[self.row]) % self.every and not ended:
            return
        self.keep()

    def keep(self) -> None:
        """The row as it stands is the next picture."""
        picture = _packed(self.world.render(self.row))
        where = np.flatnonzero(picture != self._last)
        self._changes.append((where, picture[where]))
        self._last = picture


def stride(steps: int) -> int:
    """Which steps of so many to film, so that no film is longer than MOST_FRAMES."""
    return max(1, -(-steps // (MOST_FRAMES - 2)))


def palette_of(changes: Iterable[tuple[NDArray[np.intp], Colours]]) -> Colours:
    """All colours if a GIF can hold them; else the commonest half of what it can, and those farthest from the rest."""
    seen, counts = np.unique(np.concatenate([colours for _, colours in changes]), return_counts=True)
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


def _packed(picture: Picture) -> Colours:
    """A number a pixel, one after the other."""
    red, green, blue = picture.reshape(-1, 3).T.astype(np.int32)
    packed: Colours = (red << 16) | (green << 8) | blue
    return packed


def _unpacked(colours: Colours) -> Picture:
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)


def _nearest(palette: Colours, wanted: Colours) -> Picture:
    """The place in the palette of each colour, or of the one nearest to it."""
    colours, which = np.unique(wanted, return_inverse=True)
    apart = _unpacked(colours)[:, None].astype(np.int64) - _unpacked(palette).astype(np.int64)
    return (apart**2).sum(axis=2).argmin(axis=1).astype(np.uint8)[which]
