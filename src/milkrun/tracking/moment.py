"""One moment of one environment, as the classes of the benchmark DAT see it, and the resizing of its picture.

Rows of a world in this process and environments behind a link both return moments, so callers treat them alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

GREY = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue."""


@dataclass(slots=True)
class Moment:
    """What a reset or a step of one environment returns. The caller owns the arrays."""

    image: np.ndarray  # uint8 (C, S, S), or the last H of them (H, C, S, S), oldest first
    reward: float = 0.0
    r_c: float = 0.0
    r_d: float = 0.0
    terminated: bool = False
    truncated: bool = False
    reason: int = 0  # index into REASONS; 0 while the episode lasts
    sim_step: int = 0
    kind: str = ""  # of the target
    visible: bool = False
    illegal: bool = False  # whether the action was out of range
    other_state: np.ndarray | None = None  # float64 (19,)
    params: np.ndarray | None = None  # float64 (60,)
    cloud: np.ndarray | None = None  # float32 (5 L,)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


def resize(image: np.ndarray, channels: int, size: int) -> np.ndarray:
    """A picture uint8 (C, H, W) as a new one (channels, size, size).

    Each pixel is the mean of the area that it covers; one channel is grey.
    """
    if image.shape == (channels, size, size):
        return image.copy()
    pixels = image.astype(np.float64)
    if len(pixels) > channels:
        pixels = np.tensordot(GREY, pixels, 1)[None]
    if pixels.shape[1:] != (size, size):
        pixels = _overlaps(pixels.shape[1], size) @ pixels @ _overlaps(pixels.shape[2], size).T
    # Rounds half up, also where the overlaps of a pixel sum to slightly less than 1.
    resized = np.clip(np.floor(pixels + 0.5 + 1e-9), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(resized, (channels, size, size)))


@lru_cache(maxsize=32)
def _overlaps(before: int, after: int) -> np.ndarray:
    """(after, before): the share of each old pixel in each new one, along one side."""
    edges = np.arange(after + 1) * (before / after)
    low, high = np.arange(before), np.arange(before) + 1
    overlap = np.minimum(edges[1:, None], high) - np.maximum(edges[:-1, None], low)
    return np.maximum(overlap, 0.0) * (after / before)
