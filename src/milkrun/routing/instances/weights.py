"""TSPLIB95's distances: what each EDGE_WEIGHT_TYPE and EDGE_WEIGHT_FORMAT means.

A world has the metrics `round` and `ceil` of its own; the other laws become a matrix of whole numbers here. Float64
throughout, from differences of coordinates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PI = 3.141592  # as TSPLIB95 prints it: the published values depend on it
EARTH_RADIUS_KM = 6378.388
BLOCK = 256


def nearest(x: Floats) -> Floats:
    """TSPLIB's nint: halves go up."""
    whole: Floats = np.floor(x + 0.5)
    return whole


def euclid(a: Floats, b: Floats) -> Floats:
    d: Floats = np.sqrt(((a - b) ** 2).sum(-1))
    return d


def euc_2d(a: Floats, b: Floats) -> Floats:
    return nearest(euclid(a, b))


def ceil_2d(a: Floats, b: Floats) -> Floats:
    up: Floats = np.ceil(euclid(a, b))
    return up


def man_2d(a: Floats, b: Floats) -> Floats:
    return nearest(np.abs(a - b).sum(-1))


def max_2d(a: Floats, b: Floats) -> Floats:
    longer: Floats = nearest(np.abs(a - b)).max(-1)
    return longer


def att(a: Floats, b: Floats) -> Floats:
    """Pseudo-Euclidean: a tenth of the square under the root, rounded up."""
    r = np.sqrt(((a - b) ** 2).sum(-1) / 10.0)
    t = nearest(r)
    return t + (t < r)


def geo(a: Floats, b: Floats) -> Floats:
    """Great circle between places given as DDD.MM, whole kilometres begun; 0 from a node to itself is the caller's."""
    latitude_a, longitude_a = np.moveaxis(_radians(a), -1, 0)
    latitude_b, longitude_b = np.moveaxis(_radians(b), -1, 0)
    q1 = np.cos(longitude_a - longitude_b)
    q2 = np.cos(latitude_a - latitude_b)
    q3 = np.cos(latitude_a + latitude_b)
    arc = np.arccos(np.clip(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3), -1.0, 1.0))
    km: Floats = np.floor(EARTH_RADIUS_KM * arc + 1.0)
    return km


def _radians(place: Floats) -> Floats:
    degrees = np.trunc(place)
    return PI * (degrees + 5.0 * (place - degrees) / 3.0) / 180.0


LAWS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "EUC_2D": euc_2d, "CEIL_2D": ceil_2d, "MAN_2D": man_2d, "MAX_2D": max_2d, "ATT": att, "GEO": geo,
}  # fmt: skip
FORMATS = ("FULL_MATRIX", "UPPER_ROW", "LOWER_ROW", "UPPER_DIAG_ROW", "LOWER_DIAG_ROW")


def matrix(law: Callable[[Floats, Floats], Floats], places: Floats) -> Floats:
    """All distances (N, N) of places (N, 2); 0 on the diagonal."""
    d = np.empty((len(places), len(places)))
    for first in range(0, len(places), BLOCK):
        d[first : first + BLOCK] = law(places[first : first + BLOCK, None], places[None])
    np.fill_diagonal(d, 0.0)
    return d


def survives_float32(law: Callable[[Floats, Floats], Floats], places: Floats) -> bool:
    """Whether every distance stays the same when the world keeps the places in single precision."""
    kept = places.astype(np.float32).astype(np.float64)
    if np.array_equal(kept, places):
        return True
    for first in range(0, len(places), BLOCK):
        block = slice(first, first + BLOCK)
        if not np.array_equal(law(places[block, None], places[None]), law(kept[block, None], kept[None])):
            return False
    return True


def cells(form: str, n: int) -> int:
    """How many numbers an n by n matrix takes in a format."""
    half = n * (n - 1) // 2
    return {"FULL_MATRIX": n * n, "UPPER_ROW": half, "LOWER_ROW": half}.get(form, half + n)


def explicit(form: str, n: int, numbers: list[float]) -> Floats:
    """The matrix (n, n) behind one stream of numbers; whatever is on the diagonal reads 0."""
    d = np.zeros((n, n))
    if form == "FULL_MATRIX":
        d[:] = np.reshape(numbers, (n, n))
    else:
        offset = int("DIAG" not in form)
        where = np.triu_indices(n, offset) if form.startswith("UPPER") else np.tril_indices(n, -offset)
        d[where] = numbers
        d += d.T
    np.fill_diagonal(d, 0.0)
    return d
