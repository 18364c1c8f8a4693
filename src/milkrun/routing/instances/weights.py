"""TSPLIB95's distances: what each EDGE_WEIGHT_TYPE and EDGE_WEIGHT_FORMAT means.

A law is a measure and what is done with it: rounded, rounded up, cut. Measures are float64, from differences of
coordinates; where one lies so near to a step of the rounding that float64 may be on the wrong side of it, the leg is
measured again in whole numbers, so a distance is that of the decimals in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PI = 3.141592  # as TSPLIB95 prints it: the published values depend on it
EARTH_RADIUS_KM = 6378.388
BLOCK = 256
NARROW = 2.0**20  # whole coordinates in a box of this side have exact distances in float64
DOUBT = 1e-13  # of coordinates and measure: ten times what float64 can be wrong by


def nearest(x: Floats) -> Floats:
    """TSPLIB's nint: halves go up."""
    whole: Floats = np.floor(x + 0.5)
    return whole


def euclid(a: Floats, b: Floats) -> Floats:
    d: Floats = np.sqrt(((a - b) ** 2).sum(-1))
    return d


def tenths(a: Floats, b: Floats) -> Floats:
    return 10.0 * euclid(a, b)


def blocks(a: Floats, b: Floats) -> Floats:
    d: Floats = np.abs(a - b).sum(-1)
    return d


def longer_side(a: Floats, b: Floats) -> Floats:
    d: Floats = np.abs(a - b).max(-1)
    return d


def pseudo_euclid(a: Floats, b: Floats) -> Floats:
    """A tenth of the square under the root."""
    d: Floats = np.sqrt(((a - b) ** 2).sum(-1) / 10.0)
    return d


def great_circle(a: Floats, b: Floats) -> Floats:
    """Kilometres between places given as DDD.MM, and one; 0 from a node to itself is the caller's."""
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


def _root_up(p: int, q: int) -> int:
    """The square root of p / q, rounded up."""
    # ceil(sqrt(x)) = floor(sqrt(ceil(x) - 1)) + 1 for x > 0; -(-p // q) is p / q rounded up.
    return math.isqrt(-(-p // q) - 1) + 1 if p else 0


class Law(NamedTuple):
    """What is measured, how it is rounded, and both at once in whole numbers."""

    measure: Callable[[Floats, Floats], Floats]
    rounded: Callable[[Floats], Floats] | None
    """None: it stays as measured"""
    exactly: Callable[[int, int, int], int] | None = None
    """the distance of two places whose coordinates differ by these numbers of parts, so many to a unit; None: float64
    is all the law there is"""


def _rounded(dx: int, dy: int, unit: int) -> int:
    # nint(d) = floor((floor(2 d) + 1) / 2), and isqrt of a floor is the floor of the root.
    return (math.isqrt(4 * (dx * dx + dy * dy) // (unit * unit)) + 1) // 2


def _nint(x: int, unit: int) -> int:
    return (2 * x + unit) // (2 * unit)


LAWS: dict[str, Law] = {
    "EUC_2D": Law(euclid, nearest, _rounded),
    "CEIL_2D": Law(euclid, np.ceil, lambda dx, dy, unit: _root_up(dx * dx + dy * dy, unit * unit)),
    "MAN_2D": Law(blocks, nearest, lambda dx, dy, unit: _nint(abs(dx) + abs(dy), unit)),
    "MAX_2D": Law(longer_side, nearest, lambda dx, dy, unit: _nint(max(abs(dx), abs(dy)), unit)),
    # nint, and one more where that is below: rounded up
    "ATT": Law(pseudo_euclid, np.ceil, lambda dx, dy, unit: _root_up(dx * dx + dy * dy, 10 * unit * unit)),
    "GEO": Law(great_circle, np.floor),
}
"""By EDGE_WEIGHT_TYPE."""
EUCLID = Law(euclid, None)
TRUNC1 = Law(tenths, np.floor, lambda dx, dy, unit: math.isqrt(100 * (dx * dx + dy * dy) // (unit * unit)))


def _whole(x: Decimal, digits: int) -> int:
    """x times 10**digits, which is whole; Decimal's own product would be rounded."""
    sign, figures, exponent = x.as_tuple()
    return (-1) ** sign * int("".join(map(str, figures))) * 10 ** (digits + int(exponent))


class Places:
    """Where the nodes are: (N, 2) in float64, and as the decimals that the file has."""

    def __init__(self, words: list[tuple[Decimal, Decimal]]) -> None:
        self.at = np.array([[float(x), float(y)] for x, y in words], np.float64)
        digits = max(0, *(-int(x.as_tuple().exponent) for pair in words for x in pair))
        self.unit = 10**digits
        self.parts = [(_whole(x, digits), _whole(y, digits)) for x, y in words]
        # Squares then sum to at most 2^41, exactly, and a root that is not on a step of the rounding is at least 1e-8
        # away from it, farther than float64 errs. Up to 2^50 the differences of whole coordinates are exact too.
        narrow = np.ptp(self.at, axis=0).max(initial=0.0) <= NARROW and np.abs(self.at).max(initial=0.0) <= 2.0**50
        self.certain = bool(narrow and (self.at == np.floor(self.at)).all())

    def __len__(self) -> int:
        return len(self.at)

    def distances(self, law: Law, first: int, last: int) -> Floats:
        """From nodes first..last - 1 to all, (last - first, N); 0 on the diagonal."""
        raw = law.measure(self.at[first:last, None], self.at[None])
        d = raw if law.rounded is None else law.rounded(raw)
        if law.rounded is not None and law.exactly is not None and not self.certain:
            # The coordinates count too: float64 has rounded them, and a small difference of large ones keeps the error.
            doubt = DOUBT * (np.abs(self.at).max() + raw)
            for i, j in np.argwhere(law.rounded(raw - doubt) != law.rounded(raw + doubt)).tolist():
                (x, y), (u, v) = self.parts[first + i], self.parts[j]
                d[i, j] = law.exactly(x - u, y - v, self.unit)
        # GEO adds one kilometre, also from a node to itself.
        d[np.arange(last - first), np.arange(first, last)] = 0.0
        return d

    def matrix(self, law: Law) -> Floats:
        """All distances (N, N)."""
        d = np.empty((len(self), len(self)))
        for first in range(0, len(self), BLOCK):
            last = min(first + BLOCK, len(self))
            d[first:last] = self.distances(law, first, last)
        return d

    def suffice(self, law: Law, tolerance: float) -> bool:
        """Whether the law on the places gives every distance, in double precision and in the single one of the worlds:
        to the last digit where it rounds, else within the tolerance of a unit or of the distance."""
        kept = self.at.astype(np.float32).astype(np.float64)
        if self.certain and np.array_equal(kept, self.at):
            return True
        for first in range(0, len(self), BLOCK):
            last = min(first + BLOCK, len(self))
            d = self.distances(law, first, last)
            for at in (self.at, kept):
                raw = law.measure(at[first:last, None], at[None])
                if law.rounded is not None and not np.array_equal(law.rounded(raw), d):
                    return False
                if law.rounded is None and (np.abs(raw - d) > tolerance * np.maximum(1.0, d)).any():
                    return False
        return True


FORMATS = ("FULL_MATRIX", "UPPER_ROW", "LOWER_ROW", "UPPER_DIAG_ROW", "LOWER_DIAG_ROW")


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
        # This doubles the diagonal, which is cleared below.
        d += d.T
    np.fill_diagonal(d, 0.0)
    return d
