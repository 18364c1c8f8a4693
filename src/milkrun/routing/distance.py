"""Distances between nodes: the metrics of the routing family, as kernels.

Legs are float64, computed from differences of float32 coordinates: no expanded squares, no banker's rounding. So
published values are reproduced to the last digit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.kernels import kernel

METRICS = ("euclid", "manhattan", "round", "ceil", "trunc1", "haversine", "matrix")
EUCLID, MANHATTAN, ROUND, CEIL, TRUNC1, HAVERSINE, MATRIX = range(7)

EARTH_RADIUS_KM = 6371.0088
TOL = 1e-5  # the one tolerance of the family


@kernel(inline=True)
def travel(w, q, i, j):
    """d(i, j) of instance row q."""
    if w.metric == MATRIX:
        return np.float64(w.dist[q, i, j])
    x1, y1 = np.float64(w.locs[q, i, 0]), np.float64(w.locs[q, i, 1])
    x2, y2 = np.float64(w.locs[q, j, 0]), np.float64(w.locs[q, j, 1])
    return leg(w.metric, x1, y1, x2, y2)


@kernel(inline=True)
def leg(metric, x1, y1, x2, y2):
    """The distance between two places.

    Rounds by `np`: `math` returns an int64, in which legs of 2**63 and more overflow.
    """
    dx, dy = x1 - x2, y1 - y2
    e = np.sqrt(dx * dx + dy * dy)
    if metric == EUCLID:
        return e
    if metric == MANHATTAN:
        return abs(dx) + abs(dy)
    # TSPLIB95's nint: halves go up.
    if metric == ROUND:
        return np.floor(e + 0.5)
    if metric == CEIL:
        return np.ceil(e)
    # In tenths, rounded down, as the exact solvers of Solomon's files count.
    if metric == TRUNC1:
        return np.floor(10.0 * e)
    return great_circle(x1, y1, x2, y2)


def legs(metric: int, x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
    """`leg` for whole arrays, in numpy, so that checks of instances compile nothing."""
    if metric == HAVERSINE:
        return np.vectorize(great_circle.py_func, otypes=[np.float64])(x1, y1, x2, y2)
    return leg.py_func(metric, x1, y1, x2, y2)


@kernel
def great_circle(lat1, lon1, lat2, lon2):
    """Kilometres between two points given in degrees (haversine)."""
    a = math.radians(lat1)
    b = math.radians(lat2)
    h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    # Between antipodes rounding can bring h above 1, where asin is nan.
    return 2.0 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


@kernel
def fits(x, limit):
    """x <= limit within the family's tolerance; exact on whole numbers at any scale. An infinite limit fits all."""
    return x <= limit + min(0.5, TOL * max(1.0, abs(limit)))
