"""Layouts of observations: one view, a dict, or one flat vector a row.

`World.observe` and all bindings use these functions, so key, order, dtype and shape agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.fields import Field, float32, int8, int64, is_finite, mask_field

Observed = np.ndarray | dict[str, np.ndarray]


def layouts(world: Any) -> tuple[str, ...]:
    """The layouts of a world; the first is its default."""
    if any(f.primary for f in world.observed):
        return "view", "dict", "flat"
    return "dict", "flat"


def check_layout(world: Any, layout: str | None) -> str:
    """A layout of the world; None is its default."""
    known = layouts(world)
    if layout is not None and (not isinstance(layout, str) or layout not in known):
        raise ConfigError(f"{type(world).__name__} has no layout {layout!r}{did_you_mean(str(layout), known)}")
    return layout or known[0]


def entries(world: Any) -> dict[str, Field]:
    """The observed fields by key, in declaration order; a group's view `<group>_obs` has the group's name as key."""
    names = {f"{group}_obs": group for group in world.groups}
    return {names.get(f.name, f.name): f for f in world.observed if is_finite(f, world.config)}


def split_entries(world: Any, layout: str) -> tuple[dict[str, Field], dict[str, Field]]:
    """The fields by key that a layout shows, and the others. The mask is shown in a dict only."""
    seen, aside = entries(world), {}
    if layout == "view":
        aside = {key: f for key, f in seen.items() if not f.primary}
        seen = {key: f for key, f in seen.items() if f.primary}
    if (mask := mask_field(world.fields, world.sizes)) is not None:
        (seen if layout == "dict" else aside)["action_mask"] = mask
    return seen, aside


def lay_out(
    world: Any, layout: str, fields: Mapping[str, Field], arrays: Mapping[str, np.ndarray], count: int
) -> Observed:
    """The observation of `count` rows from their fields by name; a vector is a copy, other layouts are views where
    dtype and shape allow."""
    if layout == "flat":
        buffer, fills = flat(fields, arrays, world.sizes, count)
        for fill in fills:
            fill.all()
        return buffer
    shown = {key: show(f, arrays[f.name]) for key, f in fields.items()}
    return next(iter(shown.values())) if layout == "view" else shown


def show(f: Field, array: np.ndarray) -> np.ndarray:
    """Rows of a field in the dtype and shape of its space: bool as int8, a scalar as (1,), a choice as int64, floats as
    float32."""
    if is_choice(f):
        return array.astype(int64, copy=False)
    if array.ndim == 1:
        array = array[:, None]
    kind = f.dtype.kind
    return array.view(int8) if kind == "b" else array.astype(float32, copy=False) if kind == "f" else array


def is_choice(f: Field) -> bool:
    return f.index is not None and not f.dims


# -- the flat layout --------------------------------------------------------------------------------------------


class Copied:
    """A slice of the vectors that holds a field's numbers."""

    def __init__(self, piece: np.ndarray, source: np.ndarray) -> None:
        self.target = piece.reshape(source.shape)
        self.source = source

    def all(self) -> None:
        np.copyto(self.target, self.source, casting="unsafe")

    def some(self, rows: np.ndarray) -> None:
        self.target[rows] = self.source[rows]


class OneHot:
    """A slice that holds a choice, one-hot: moves the ones, in a seventh of the time of a comparison."""

    def __init__(self, buffer: np.ndarray, first: int, width: int, source: np.ndarray) -> None:
        buffer[:, first : first + width] = 0
        self.numbers = buffer.reshape(-1)
        self.source = source
        self.starts = np.arange(len(buffer)) * buffer.shape[1] + first
        self.hot = self.starts

    def all(self) -> None:
        self.numbers[self.hot] = 0
        self.hot = self.starts + self.source
        self.numbers[self.hot] = 1

    def some(self, rows: np.ndarray) -> None:
        self.all()


Fill = Copied | OneHot


def width_of(f: Field, sizes: dict[str, int]) -> int:
    """How many numbers of a flat vector a field takes."""
    return sizes[str(f.index)] if is_choice(f) else math.prod(f.shape(sizes))


def flat(
    fields: Mapping[str, Field], arrays: Mapping[str, np.ndarray], sizes: dict[str, int], rows: int
) -> tuple[np.ndarray, list[Fill]]:
    """A vector a row, and its slices with their sources: a choice one-hot, other fields in C order."""
    buffer = np.empty((rows, sum(width_of(f, sizes) for f in fields.values())), np.float32)
    fills: list[Fill] = []
    first = 0
    for f in fields.values():
        width = width_of(f, sizes)
        if is_choice(f):
            fills.append(OneHot(buffer, first, width, arrays[f.name]))
        else:
            fills.append(Copied(buffer[:, first : first + width], arrays[f.name]))
        first += width
    return buffer, fills
