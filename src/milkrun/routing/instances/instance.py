"""The problem in a file, ready to be played, checked and written.

Arrays are float64 or int64 as read, and read-only; a world rounds its copies. Node 0 is the depot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count, check_number
from milkrun.core.errors import ConfigError
from milkrun.core.registry import each_world, list_worlds, world_spec
from milkrun.routing.tasks.distances import distance_matrix

TOURS = ("TSP", "ATSP")
NOT_YET = {"VRPB": "milkrun/MTVRP-v0"}
"""Kinds of files that can be read and written only, and the world that will play them."""


@dataclass(frozen=True, eq=False)
class Instance:
    """The problem in a file."""

    name: str
    kind: str
    """TSP, ATSP, CVRP, CVRPTW, PCVRPTW or VRPB"""
    n: int
    """customers; in the TSP and ATSP, nodes"""
    locs: NDArray[np.float64] | None
    """coordinates (N, 2) as in the file, or None"""
    dist: NDArray[np.float64] | None
    """distances (N, N) used by the world, or None if `metric` and `locs` define them"""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """the world's other instance fields"""
    scale: float = 1.0
    """factor between distances, times and prizes here and in the file"""
    best: float | None = None
    """the best known cost stated by the file or by a solution file next to it"""
    metric: str = "round"
    """the metric of the literature: round, ceil, euclid, trunc1 or matrix; with `dist`, that of the matrix"""
    edge: str = "EUC_2D"
    """TSPLIB's EDGE_WEIGHT_TYPE"""
    vehicles: int | None = None
    """the fleet stated in the file; not enforced"""
    fixed_edges: tuple[tuple[int, int], ...] = ()
    """edges, in either direction, that a TSP tour must contain; no world supports them"""

    def __post_init__(self) -> None:
        for name in ("locs", "dist"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        object.__setattr__(self, "fields", MappingProxyType({k: _frozen(v) for k, v in self.fields.items()}))

    def __eq__(self, other: object) -> bool:
        """Compares the problems; `best` does not count."""
        if not isinstance(other, Instance):
            return NotImplemented
        plain = ("name", "kind", "n", "scale", "metric", "edge", "vehicles", "fixed_edges")
        return (
            all(getattr(self, a) == getattr(other, a) for a in plain)
            and _same(self.locs, other.locs)
            and _same(self.dist, other.dist)
            and self.fields.keys() == other.fields.keys()
            and all(_same(value, other.fields[name]) for name, value in self.fields.items())
        )

    def __hash__(self) -> int:
        return hash((self.name, self.kind, self.n))

    @property
    def world_id(self) -> str:
        """The id of the first world with this kind among its `file_kinds`."""
        return next((spec.id for spec, cls in each_world() if self.kind in cls.file_kinds), NOT_YET.get(self.kind, ""))

    @property
    def is_tour(self) -> bool:
        """True if there is no depot: node 0 is an ordinary node."""
        return self.kind in TOURS

    @property
    def config(self) -> dict[str, Any]:
        """The options of the world for this instance."""
        served = {"service_times": True} if self.service else {}
        options = {} if self.kind in NOT_YET else world_spec(self.world_id).load().file_kinds[self.kind]
        return {**options, **served, "metric": self.metric if self.dist is None else "matrix"}

    @property
    def service(self) -> float:
        """The service time of a CVRP stop, which counts against `max_length` but not in the cost."""
        return float(np.max(self.fields.get("service_time", 0.0))) if self.kind == "CVRP" else 0.0

    def arrays(self) -> dict[str, Any]:
        """The instance fields by name, without a row axis: what `from_instances` takes."""
        if self.fixed_edges:
            raise ConfigError(
                f"{self.name}: its tour must contain {len(self.fixed_edges)} fixed edges, which no world "
                "supports; dataclasses.replace(instance, fixed_edges=()) is the problem without them"
            )
        places = {"locs": self.locs, "dist": self.dist}
        return {**{name: value for name, value in places.items() if value is not None}, **self.fields}

    def world(self, repeat: int = 1, **make: Any) -> Any:
        """A reset world with this instance in `repeat` rows."""
        repeat = check_count("repeat", repeat, 1)
        if self.world_id not in list_worlds():
            raise ConfigError(f"{self.name}: a {self.kind} plays in {self.world_id}, which this version does not have")
        return world_spec(self.world_id).load().from_instances([self.arrays()], repeat, **{**self.config, **make})

    def in_published_units(self) -> Instance:
        """The problem in the units of published costs: for Solomon's files units instead of tenths, with a matrix."""
        if self.kind != "CVRPTW" or (self.locs is None and self.dist is None):
            return self
        dist = self.dist
        if dist is None:
            dist = distance_matrix(self.locs, self.metric)
        times = {name: self.fields[name] / self.scale for name in ("time_windows", "service_time", "prize")}
        return replace(self, dist=dist / self.scale, fields={**self.fields, **times}, scale=1.0)

    def published(self, objective: float) -> float:
        """The published cost of an objective (- length + collected prizes), uncollected prizes included."""
        cost = float(np.sum(self.fields.get("prize", 0.0))) - check_number("objective", objective)
        # Costs of Solomon's files are printed in units, those of PCVRPTW files in tenths.
        return cost / self.scale if self.kind == "CVRPTW" else cost


def _frozen(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    kept = value.copy()
    kept.flags.writeable = False
    return kept


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)
