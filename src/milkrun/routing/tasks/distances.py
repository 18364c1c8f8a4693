"""Distances for the checkers.

The worlds have their own distance code. This one follows the same rules but shares no code with it, so that a mistake
on either side shows. Everything is float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, did_you_mean

METRICS = ("euclid", "manhattan", "round", "ceil", "trunc1", "haversine", "matrix")
EARTH_RADIUS_KM = 6371.0088

Floats = NDArray[np.float64]


def distance(a: Any, b: Any, metric: str = "euclid") -> Floats:
    """Distances from points `a` to `b`, arrays (..., 2) that broadcast; `trunc1` is in tenths, `haversine` in km."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if metric == "haversine":
        return _haversine(a, b)
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    if metric == "manhattan":
        blocks: Floats = np.abs(dx) + np.abs(dy)
        return blocks
    e: Floats = np.sqrt(dx * dx + dy * dy)
    if metric == "euclid":
        return e
    if metric == "round":
        return np.floor(e + 0.5)  # TSPLIB's nint: halves go up, where np.round would go to even
    if metric == "ceil":
        return np.ceil(e)
    if metric == "trunc1":
        return np.floor(10.0 * e)
    if metric == "matrix":
        raise ConfigError("metric 'matrix' has no formula: give `dist` in the dataset or `dist_matrix`")
    raise ConfigError(f"metric {metric!r} is unknown{did_you_mean(metric, METRICS)}")


def distance_matrix(locs: Any, metric: str = "euclid") -> Floats:
    """All distances between points `locs` (..., N, 2) as (..., N, N), from row to column."""
    xy = np.asarray(locs, np.float64)
    return distance(xy[..., :, None, :], xy[..., None, :, :], metric)


def _haversine(a: Floats, b: Floats) -> Floats:
    """Great-circle km between (latitude, longitude) in degrees, on a sphere of the Earth's mean radius."""
    a, b = np.radians(a), np.radians(b)
    half = np.sin((b - a) / 2.0) ** 2
    h = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    km: Floats = 2.0 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
    return km
