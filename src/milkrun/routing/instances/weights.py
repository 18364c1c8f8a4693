"""TSPLIB95's distances: the laws of EDGE_WEIGHT_TYPE and the layouts of EDGE_WEIGHT_FORMAT.

A law is a measure and a rounding, computed in float64 operation by operation as TSPLIB95 states them. Published optima
were found with that arithmetic: if a decimal distance ends in exactly .5, float64 may fall on either side, and the
optimum depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


def tenths(a: Floats, b: Floats) -> Floats:
    return 10.0 * euclid(a, b)


def thousandths(a: Floats, b: Floats) -> Floats:
    return 1000.0 * euclid(a, b)


def blocks(a: Floats, b: Floats) -> Floats:
    d: Floats = np.abs(a - b).sum(-1)
    return d


def longer_side(a: Floats, b: Floats) -> Floats:
    d: Floats = np.abs(a - b).max(-1)
    return d


def pseudo_euclid(a: Floats, b: Floats) -> Floats:
    """The root of a tenth of the squared distance."""
    d: Floats = np.sqrt(((a - b) ** 2).sum(-1) / 10.0)
    return d


def great_circle(a: Floats, b: Floats) -> Floats:
    """Kilometres between places given as DDD.MM, plus one; the caller sets the diagonal to 0."""
    latitude_a, longitude_a = np.moveaxis(_radians(a), -1, 0)
    latitude_b, longitude_b = np.moveaxis(_radians(b), -1, 0)
    q1 = np.cos(longitude_a - longitude_b)
    q2 = np.cos(latitude_a - latitude_b)
    q3 = np.cos(latitude_a + latitude_b)
    arc = np.arccos(np.clip(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3), -1.0, 1.0))
    km: Floats = EARTH_RADIUS_KM * arc + 1.0
    return km


def _radians(place: Floats) -> Floats:
    degrees = np.trunc(place)
    return PI * (degrees + 5.0 * (place - degrees) / 3.0) / 180.0


class Law(NamedTuple):
    """A measure and its rounding."""

    measure: Callable[[Floats, Floats], Floats]
    rounded: Callable[[Floats], Floats] | None
    """None: no rounding"""

    def distances(self, at: Floats, first: int, last: int) -> Floats:
        """From places first..last - 1 to all, (last - first, N); 0 on the diagonal."""
        raw = self.measure(at[first:last, None], at[None])
        d = raw if self.rounded is None else self.rounded(raw)
        # GEO adds one kilometre to every distance, also on the diagonal.
        d[np.arange(last - first), np.arange(first, last)] = 0.0
        return d

    def matrix(self, at: Floats) -> Floats:
        """All distances (N, N)."""
        d = np.empty((len(at), len(at)))
        for first, last in _blocks(len(at)):
            d[first:last] = self.distances(at, first, last)
        return d

    def survives_float32(self, at: Floats, tolerance: float) -> bool:
        """Whether single precision preserves every distance.

        Rounded distances must be equal; others must agree within the tolerance, absolute or relative.
        """
        kept = at.astype(np.float32).astype(np.float64)
        if np.array_equal(kept, at):
            return True
        for first, last in _blocks(len(at)):
            d, close = self.distances(at, first, last), self.distances(kept, first, last)
            slack = 0.0 if self.rounded is not None else tolerance * np.maximum(1.0, d)
            if (np.abs(close - d) > slack).any():
                return False
        return True


def _blocks(n: int) -> list[tuple[int, int]]:
    """Blocks of rows first..last - 1, since all pairs of 10 000 places would take gigabytes."""
    return [(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]


LAWS: dict[str, Law] = {
    "EUC_2D": Law(euclid, nearest),
    "CEIL_2D": Law(euclid, np.ceil),
    "MAN_2D": Law(blocks, nearest),
    "MAX_2D": Law(longer_side, nearest),
    "ATT": Law(pseudo_euclid, np.ceil),  # TSPLIB's rule for ATT, nint plus one if that is below, is rounding up
    "GEO": Law(great_circle, np.floor),
}
"""By EDGE_WEIGHT_TYPE."""
EUCLID = Law(euclid, None)
TRUNC1 = Law(tenths, np.floor)
THOUSANDTHS = Law(thousandths, nearest)


FORMATS = ("FULL_MATRIX", "UPPER_ROW", "LOWER_ROW", "UPPER_DIAG_ROW", "LOWER_DIAG_ROW")


def cells(form: str, n: int) -> int:
    """The number of entries of an n by n matrix in a format."""
    half = n * (n - 1) // 2
    return {"FULL_MATRIX": n * n, "UPPER_ROW": half, "LOWER_ROW": half}.get(form, half + n)


def explicit(form: str, n: int, numbers: list[float]) -> Floats:
    """The matrix (n, n) in a stream of numbers; the diagonal is set to 0."""
    d = np.zeros((n, n))
    if form == "FULL_MATRIX":
        d[:] = np.reshape(numbers, (n, n))
    else:
        offset = int("DIAG" not in form)
        where = np.triu_indices(n, offset) if form.startswith("UPPER") else np.tril_indices(n, -offset)
        d[where] = numbers
        # This doubles the diagonal, which is cleared below.
        d += d.T
    np.fill_diagonal(d, 0.0)
    return d
