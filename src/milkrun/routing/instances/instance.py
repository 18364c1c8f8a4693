"""The problem in a file, ready to be played, checked and written.

Arrays are float64 or int64 as read, and read-only; a world rounds its copies. The depots are the first nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count, check_number
from milkrun.core.errors import ConfigError
from milkrun.core.registry import each_world, named_world, world_spec
from milkrun.routing.instances.translations import TRANSLATIONS, VRP, WITH_FLEETS
from milkrun.routing.tasks.distances import distance_matrix

TOURS = ("TSP", "ATSP")


@dataclass(frozen=True, eq=False)
class Instance:
    """The problem in a file."""

    name: str
    kind: str
    """TSP, ATSP, CVRP, CVRPTW, PCVRPTW, VRPB, VRPSPD, MDVRP, MDVRPTW, HFVRP, PDPTW or OP"""
    n: int
    """customers; in the TSP and ATSP, nodes"""
    locs: NDArray[np.float64] | None
    """coordinates (N, 2) as in the file, or None"""
    dist: NDArray[np.float64] | None
    """distances (N, N) used by the world, or None if `metric` and `locs` define them"""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """the other instance fields, named as in the first world of this kind"""
    scale: float = 1.0
    """factor between distances, times and prizes here and in the file"""
    best: float | None = None
    """the best known cost stated by the file or by a solution file next to it"""
    metric: str = "round"
    """the metric of the literature: round, ceil, euclid, trunc1 or matrix; with `dist`, that of the matrix"""
    edge: str = "EUC_2D"
    """TSPLIB's EDGE_WEIGHT_TYPE"""
    vehicles: int | None = None
    """the fleet stated in the file"""
    fleet: str = "ignore"
    """enforce: no more vehicles than stated may be used; ignore: any number"""
    vehicle_depots: tuple[int, ...] = ()
    """with several depots, the depot of each vehicle: route k of a solution is driven by vehicle k"""
    first_customer: int = 1
    """the number of the first customer in solutions of this file"""
    numbers: tuple[int, ...] = ()
    """the number in the file of each node, if that is another one"""
    depot_score: float = 0.0
    """in orienteering, what the depot adds to the published score"""
    fixed_edges: tuple[tuple[int, int], ...] = ()
    """edges, in either direction, that a TSP tour must contain; no world supports them"""
    in_world: str = ""
    """the id of the world that plays it; by default the first of its kind"""

    def __post_init__(self) -> None:
        for name in ("locs", "dist"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        object.__setattr__(self, "fields", MappingProxyType({k: _frozen(v) for k, v in self.fields.items()}))

    def __eq__(self, other: object) -> bool:
        """Compares the problems; `best` does not count."""
        if not isinstance(other, Instance):
            return NotImplemented
        arrays = ("locs", "dist", "fields", "best")
        plain = [a.name for a in dataclass_fields(self) if a.name not in arrays]
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
    def worlds(self) -> Iterator[str]:
        """The ids of the worlds that play this kind, the first one first."""
        return (spec.id for spec, cls in each_world() if self.kind in cls.file_kinds)

    @property
    def world_id(self) -> str:
        """The id of the world that plays it: `in_world`, or the first one with this kind among its `file_kinds`."""
        return self.in_world or next(id for id in self.worlds if self.fleet != "enforce" or id in WITH_FLEETS)

    def for_world(self, world: str) -> Instance:
        """The same problem, played in another world of its kind."""
        spec = named_world(world)
        if self.kind not in spec.load().file_kinds:
            raise ConfigError(f"{self.name}: {spec.id} plays no {self.kind} file")
        if self.fleet == "enforce" and spec.id not in WITH_FLEETS:
            raise ConfigError(f"{self.name}: fleet='enforce', but {spec.id} has no limit of vehicles")
        return replace(self, in_world=spec.id)

    def with_fleet(self, fleet: str) -> Instance:
        """The same problem with the stated fleet as a limit (`enforce`) or without it (`ignore`)."""
        if fleet not in ("enforce", "ignore"):
            raise ConfigError(f"fleet is {fleet!r}, allowed are 'enforce' and 'ignore'")
        if fleet == "enforce" and self.vehicles is None:
            raise ConfigError(f"{self.name}: fleet='enforce', but the file states no number of vehicles")
        if fleet == "enforce" and not any(id in WITH_FLEETS for id in self.worlds):
            raise ConfigError(f"{self.name}: fleet='enforce', but no world limits the vehicles of a {self.kind}")
        return replace(self, fleet=fleet)

    @property
    def num_depots(self) -> int:
        """The number of depots; in the TSP and ATSP 0."""
        return 0 if self.is_tour else max(1, np.size(self.fields.get("capacity", 1)))

    @property
    def is_tour(self) -> bool:
        """True if there is no depot: node 0 is an ordinary node."""
        return self.kind in TOURS

    @property
    def config(self) -> dict[str, Any]:
        """The options of the world for this instance."""
        served = {"service_times": True} if self.service and self.world_id != VRP else {}
        options = world_spec(self.world_id).load().file_kinds[self.kind]
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
        translate = TRANSLATIONS.get((self.kind, self.world_id), dict)
        fields = translate(self.fields)
        if self.fleet == "enforce":
            fields["vehicles"] = np.bincount(self.vehicle_depots) if self.vehicle_depots else self.vehicles
        return {**{name: value for name, value in places.items() if value is not None}, **fields}

    def world(self, repeat: int = 1, **make: Any) -> Any:
        """A reset world with this instance in `repeat` rows."""
        repeat = check_count("repeat", repeat, 1)
        return world_spec(self.world_id).load().from_instances([self.arrays()], repeat, **{**self.config, **make})

    def in_published_units(self) -> Instance:
        """The problem in the units of published costs: for Solomon's files units instead of tenths, with a matrix."""
        if self.kind != "CVRPTW" or (self.locs is None and self.dist is None):
            return self
        dist = self.dist
        if dist is None:
            dist = distance_matrix(self.locs, self.metric)
        times = {name: self.fields[name] / self.scale for name in ("time_windows", "service_time")}
        return replace(self, dist=dist / self.scale, fields={**self.fields, **times}, scale=1.0)

    def in_units(self, cost: float) -> float:
        """A cost in a solution file, in the units of `published`: files of mixed fleets print it as such, or 1e5 times
        it."""
        if self.kind != "HFVRP":
            return cost
        dist = distance_matrix(self.locs) if self.dist is None else self.dist
        alone = (dist[0] + dist[:, 0]).sum() * self.fields.get("distance_cost", np.ones(1)).max()
        most = alone + self.n * self.fields.get("fixed_cost", np.zeros(1)).max()
        return cost / 1e5 if cost > most else cost

    def published(self, objective: float) -> float:
        """The published cost of an objective (- length + collected prizes), uncollected prizes included, or the
        score of orienteering."""
        if self.kind == "OP":
            return check_number("objective", objective) + self.depot_score
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
