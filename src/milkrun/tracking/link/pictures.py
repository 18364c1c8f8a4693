"""Pictures of another camera, another size or in colour, made into those that were asked for."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

GREY = np.array([0.299, 0.587, 0.114])
"""Shares of red, green and blue."""


class Fitter:
    """From (C, H, W) to (channels, size, size): grey where one channel is asked for, each pixel the mean of the area of
    the original that it covers."""

    def __init__(self, image: tuple[int, int, int], channels: int, size: int) -> None:
        self.shape = channels, size, size
        self._same = image == self.shape
        self._down, self._across = _shares(image[1], size), _shares(image[2], size).T

    def fit(self, image: np.ndarray) -> np.ndarray:
        """A picture of its own, uint8."""
        if self._same:
            return image.copy()
        pixels = image.astype(np.float64)
        if len(pixels) > self.shape[0]:
            pixels = np.tensordot(GREY, pixels, 1)[None]
        if pixels.shape[1:] != self.shape[1:]:
            pixels = self._down @ pixels @ self._across
        # half up, also where the shares of a pixel sum to a little less than 1
        fitted = np.clip(np.floor(pixels + 0.5 + 1e-9), 0, 255).astype(np.uint8)
        return np.ascontiguousarray(np.broadcast_to(fitted, self.shape))


def _shares(before: int, after: int) -> np.ndarray:
    """(after, before): how much of each new pixel each old one makes up, along one side."""
    edges = np.arange(after + 1) * (before / after)
    low, high = np.arange(before), np.arange(before) + 1
    overlap = np.minimum(edges[1:, None], high) - np.maximum(edges[:-1, None], low)
    return np.maximum(overlap, 0.0) * (after / before)


fitter = lru_cache(maxsize=16)(Fitter)
"""The same, kept for the pictures that come after."""
