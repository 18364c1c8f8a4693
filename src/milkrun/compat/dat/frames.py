"""Converts pictures to the states of the benchmark's networks: square, channel first, normalised."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numba import njit, types

from milkrun.core.cache import compile_module
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.kernels import KERNEL_OPTIONS, array_at
from milkrun.core.memory import address_of
from milkrun.core.threads import Entry
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.files import SECTIONS, LunarLanderConfig
from milkrun.tracking.moment import resize

NORMS = {0: (0, 255), 1: (128, 128)}
"""For each `norm` what is subtracted from a pixel, and what it is then divided by."""
BOUNDS = {0: (0.0, 1.0), 1: (-1.0, 1.0)}


class Form(NamedTuple):
    """The form of a state."""

    size: int
    channels: int
    norm: int | None
    stack: int = 0
    renders: bool = False  # the picture comes from the environment's own render

    @property
    def shape(self) -> tuple[int, ...]:
        one = self.channels, self.size, self.size
        return (self.stack, *one) if self.stack else one

    @property
    def space(self) -> spaces.Box:
        """The space of states."""
        if self.norm is None:
            return spaces.Box(0, 255, self.shape, np.uint8)
        return spaces.Box(*BOUNDS[self.norm], self.shape, np.float32)


def form_of(conf: Any) -> Form:
    """Reads the form of states from a configuration: of the world, of LunarLander, or a section of the file."""
    if isinstance(conf, Mapping):
        if found := [name for name in SECTIONS if name in conf]:
            raise ConfigError(f"conf holds the sections {', '.join(found)}: give one of them, conf[{found[0]!r}]")
        seen = {key: value for key, value in conf.items() if key != "Action_dim"}  # LunarLander has another number
        conf = TrackingConfig.from_dat(seen)
    if isinstance(conf, TrackingConfig):
        return Form(conf.size, conf.channels, conf.norm, conf.frame_stack, bool(conf.need_render))
    if isinstance(conf, LunarLanderConfig):
        return Form(conf.State_size, conf.State_channel, conf.Norm_Type, 0, bool(conf.Need_render))
    raise ConfigError(f"conf must be a configuration or a section of the original's file, not a {type(conf).__name__}")


def process_frame(image: Any, conf: Any, env: Any = None) -> np.ndarray:
    """A picture uint8 (H, W, 3), or grey (H, W, 1) or (H, W), as a state of the form of `conf`: (C, S, S) float32,
    or uint8 where Norm_Type is null.

    Each pixel of another size is the mean of the area that it covers. `env`: where `conf` says Need_render, the
    environment whose picture is taken in place of `image`.
    """
    form = form_of(conf)
    if env is not None and form.renders:
        image = env.render()
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3) or 0 in pixels.shape or pixels.dtype != np.uint8:
        raise ShapeError(f"image: {pixels.dtype} {pixels.shape}: must be uint8 (height, width, 3), or 1 for grey")
    fitted = resize(pixels.transpose(2, 0, 1), form.channels, form.size)
    return normalise(fitted, form.norm)


def normalise(pixels: np.ndarray, norm: int | None, chunks: int = 1) -> np.ndarray:
    """Converts uint8 pixels to float32 of the same shape, or copies them; `chunks` threads share the work."""
    if norm is None:
        return pixels.copy()
    # Compiled code gets addresses only: this name keeps their memory alive.
    pixels = np.ascontiguousarray(pixels)
    states = np.empty(pixels.shape, np.float32)
    _scale().run((address_of(pixels), address_of(states), *NORMS[norm]), pixels.size, chunks)
    return states


@cache
def _scale() -> Entry:
    names = {
        "njit": njit,
        "OPTIONS": KERNEL_OPTIONS,
        "array_at": array_at,
        "uint8": types.uint8,
        "float32": types.float32,
    }
    return Entry(compile_module("scale_pixels", _SCALE, names).scale_pixels)


_SCALE = """# Written by milkrun.compat.dat.frames; the module's name is a hash of this.

@njit(**OPTIONS)
def scale_pixels(source, target, less, by, lo, hi, slot):
    n = hi - lo  # counted from 0: an index that might be negative keeps the loop from being vectorised
    pixels = array_at(source + lo, (n,), None, uint8)
    states = array_at(target + 4 * lo, (n,), None, float32)
    offset, scale = float32(less), float32(by)
    for k in range(n):
        states[k] = (float32(pixels[k]) - offset) / scale
    return 0
"""
