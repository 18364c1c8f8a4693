"""A map: one depot and bins, in degrees or kilometres, with the units in which reports count waste and driving.

Node 0 is the depot, then follow the bins in the order of the file. A part of a map keeps the unit of length of the
whole map, so parts can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import MapError, did_you_mean
from milkrun.routing.distance import EARTH_RADIUS_KM

Floats = NDArray[np.float64]

BIN_M3 = 2.5
"""volume of a bin, m³, where a map states none"""

KG_PER_M3: Mapping[str, float] = MappingProxyType({"paper": 21.0, "plastic": 19.0, "glass": 190.0})
"""density in the bin by stream"""

EUR_PER_KG: Mapping[str, float] = MappingProxyType({"paper": 0.1625, "plastic": 0.5837, "glass": 0.0756})
"""price of a kilogram by stream"""

EUR_PER_KM = 1.0
"""cost of a kilometre"""


@dataclass(frozen=True, eq=False)
class Map:
    """Places of bins around a depot; every array has an entry for each node, 0 or "" at the depot."""

    name: str
    title: str
    synthetic: bool
    """True if the places are invented"""
    source: str
    licence: str
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    """depot or bin"""
    lat: Floats | None
    lon: Floats | None
    """degrees WGS84, or None for a map drawn in kilometres"""
    x: Floats
    y: Floats
    """kilometres east and north of the corner of the whole map"""
    width_km: float
    height_km: float
    """of the whole map"""
    stream: tuple[str, ...] | None = None
    volume_m3: Floats | None = None
    fill_mean: Floats | None = None
    fill_std: Floats | None = None
    """of a bin's daily increment, as a share of the bin"""
    dist: Floats | None = None
    """kilometres by road, row from, column to, or None"""

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), np.ndarray):
                value.flags.writeable = False

    @property
    def n(self) -> int:
        """Bins."""
        return len(self.ids) - 1

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of the map, in order of appearance."""
        return tuple(dict.fromkeys(self.stream[1:])) if self.stream else ()

    @property
    def km_per_unit(self) -> float:
        """Kilometres in one unit of `locs`: the longer side of the whole map."""
        return max(self.width_km, self.height_km)

    @property
    def locs(self) -> Floats:
        """(N, 2) places in units, within 0..1: for `metric="euclid"`."""
        return np.column_stack([self.x, self.y]) / self.km_per_unit

    @property
    def degrees(self) -> Floats:
        """(N, 2) latitude and longitude: for `metric="haversine"`."""
        if self.lat is None or self.lon is None:
            raise MapError(f"map {self.name!r} is drawn in kilometres: it has no coordinates in degrees")
        return np.column_stack([self.lat, self.lon])

    def side(self, metric: str = "euclid") -> float:
        """The side of a square as large as the map, in units (`euclid`) or kilometres (the other metrics)."""
        # A map on one line has no area; then its length is used.
        km = math.sqrt(self.width_km * self.height_km) or self.km_per_unit
        return km / self.km_per_unit if metric == "euclid" else km

    def matrix(self, bins: Sequence[int] | None = None) -> Floats:
        """(k + 1, k + 1) road kilometres between the depot and these bins, by default all."""
        if self.dist is None:
            raise MapError(f"map {self.name!r} has no distance matrix: put {self.name}.dist.csv next to it")
        nodes = self._nodes(range(1, self.n + 1) if bins is None else bins)
        return self.dist[np.ix_(nodes, nodes)]

    def filter(self, stream: str | None = None) -> Map:
        """The map restricted to the bins of one stream; None keeps all."""
        if stream is None:
            return self
        if stream not in self.streams:
            raise MapError(f"map {self.name!r} has no stream {stream!r}{did_you_mean(stream, self.streams)}")
        assert self.stream is not None
        return self.choose([j for j in range(1, self.n + 1) if self.stream[j] == stream])

    def choose(self, bins: Sequence[int]) -> Map:
        """The map with these bins, in this order."""
        nodes = self._nodes(bins)
        changed: dict[str, Any] = {"dist": None if self.dist is None else self.dist[np.ix_(nodes, nodes)]}
        for name in ("ids", "kinds", "stream"):
            if (column := getattr(self, name)) is not None:
                changed[name] = tuple(column[j] for j in nodes)
        for name in ("lat", "lon", "x", "y", "volume_m3", "fill_mean", "fill_std"):
            if (column := getattr(self, name)) is not None:
                changed[name] = column[nodes]
        return replace(self, **changed)

    def _nodes(self, bins: Sequence[int]) -> list[int]:
        chosen = [int(j) for j in bins]
        for j in chosen:
            if not 1 <= j <= self.n:
                raise MapError(f"map {self.name!r} has no bin {j}: bins are 1..{self.n}")
        if len(set(chosen)) < len(chosen):
            raise MapError(f"map {self.name!r}: a bin is chosen twice")
        return [0, *chosen]


def project(lat: Floats, lon: Floats) -> tuple[Floats, Floats]:
    """Kilometres east and north of the corner: x = R cos(mean latitude) dlon, y = R dlat. Node 0 is the depot.

    Longitudes are measured from the depot in the shorter direction, so a map may cross the 180th meridian.
    """
    east = (lon - lon[0] + 180.0) % 360.0 - 180.0
    x = EARTH_RADIUS_KM * math.cos(math.radians(float(lat.mean()))) * np.radians(east)
    y = EARTH_RADIUS_KM * np.radians(lat)
    return x - x.min(), y - y.min()
