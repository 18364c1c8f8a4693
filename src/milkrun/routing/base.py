"""The base of all routing worlds: nodes in space, and the layouts in which instances are accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import Config, option
from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.core.fields import constant, float32, float64, instance, int32, int64, scratch
from milkrun.core.instances import as_array, padded, refuse, refuse_where
from milkrun.core.world import World
from milkrun.routing.distance import EARTH_RADIUS_KM, METRICS, legs
from milkrun.routing.generators.laws import DEPOT_TYPES, PLACED
from milkrun.routing.maps import Map, load_map

LOCATION_LAWS = ("uniform", "normal", "clustered", "mixed", "map")
LARGEST = 1e30
"""Bound of coordinates and distances, and of the reward of a leg or a customer. Rewards are float32, up to 3.4e38,
which leaves room for the sum of an episode of some 1e7 legs (1000 days of 10 000 customers)."""
HEURISTICS = ("nearest", "insertion", "2opt", "oropt", "ls")
SOLVER = "milkrun.solvers.routing:solve_job"
"""Runs every method of the routing worlds; each world names its own methods."""


@dataclass(frozen=True, kw_only=True)
class PlacesConfig(Config):
    """Options of every world of nodes in space."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {f"n{n}": {"num_loc": n} for n in (20, 50, 100)}

    num_loc: int = option(20, "customers; in the TSP, nodes", low=1, high=10_000)
    min_loc: float = option(0.0, "lower end of both coordinates")
    max_loc: float = option(1.0, "upper end of both coordinates")
    loc_distribution: str | Callable[..., Any] = option(
        "uniform", "law of the places, or a function (rng, n) -> (n, 2), which is slow", choices=LOCATION_LAWS
    )
    map_name: str | None = option(None, "places of a map file instead of drawn ones (the maps page of the docs)")
    map_path: str | None = option(None, "folder to look for the map in, before MILKRUN_MAPS and the bundled maps")
    stream: str | None = option(None, "of the map's bins, only those of this stream (paper, glass, ...)")
    num_clusters: int = option(3, "centres of the clustered and mixed laws", low=1, high=1000)
    metric: str = option("euclid", "distance between nodes", choices=METRICS)

    def validate(self) -> None:
        if not -LARGEST <= self.min_loc < self.max_loc <= LARGEST:
            raise ConfigError(
                f"min_loc = {self.min_loc}, max_loc = {self.max_loc}: the box needs min_loc < max_loc, "
                f"both within -{LARGEST:g}..{LARGEST:g}"
            )

        law = self.loc_distribution
        if self.map_name is None:
            if law == "map" or self.stream is not None or self.map_path is not None:
                raise ConfigError("loc_distribution='map', map_path and stream go with a map_name, which is not given")
            if self.metric == "haversine" and not -90 <= self.min_loc < self.max_loc <= 90:
                raise ConfigError(
                    f"min_loc = {self.min_loc}, max_loc = {self.max_loc}: under metric='haversine' they "
                    "bound latitudes, which lie within -90..90"
                )
            return
        if law not in ("uniform", "map"):
            raise ConfigError(f"map_name = {self.map_name!r} and loc_distribution = {law!r}: the map gives the places")
        if self.metric not in ("euclid", "haversine", "matrix"):
            raise ConfigError(f"metric = {self.metric!r}: on a map it is 'euclid', 'haversine' or 'matrix'")
        if self.num_loc > self.map.n:
            raise ConfigError(
                f"num_loc = {self.num_loc}: the map {self.map_name!r} has {self.map.n} bins"
                + (f" of the stream {self.stream!r}" if self.stream else "")
            )

    @cached_property
    def map(self) -> Map:
        """The map in force."""
        assert self.map_name is not None
        return load_map(self.map_name, self.map_path).filter(self.stream)

    @property
    def side(self) -> float:
        """The side of the box, on a map or a globe that of a square as large, in the metric's unit of length."""
        if self.map_name is None:
            width = self.max_loc - self.min_loc
            if self.metric == "haversine":
                # The area between two latitudes and two meridians is R^2 dlon (sin north - sin south).
                south, north = math.radians(self.min_loc), math.radians(self.max_loc)
                return EARTH_RADIUS_KM * math.sqrt(math.radians(width) * (math.sin(north) - math.sin(south)))
            # trunc1 counts in tenths of a unit.
            return 10.0 * width if self.metric == "trunc1" else width
        by_road = self.metric == "matrix" and self.map.dist is not None
        return self.map.side("euclid" if self.metric != "haversine" and not by_road else self.metric)


class Places(World):
    """Nodes in space, 0..N-1; those from `n_nodes` on are padding."""

    Config = PlacesConfig
    config: Any
    default_solver = "ls"

    metric = constant(int64)
    min_loc = constant(float64)
    max_loc = constant(float64)
    loc_law = constant(int64)
    num_clusters = constant(int64)
    side = constant(float64)
    map_locs = constant(float32, "K", 2)
    map_dist = constant(float32, "D", "D")
    map_mean = constant(float64, "F")
    map_std = constant(float64, "F")
    deck = scratch(int32, "K")

    locs = instance(float32, "N", 2, doc="coordinates")
    dist = instance(float32, "M", "M", low=0, doc="d(i, j) = row i, column j; only with metric='matrix'")
    n_nodes = instance(int32, low=2, high="N", doc="true node count; higher indices are padding")

    usual: ClassVar[Mapping[str, int]] = {"loc_law": LOCATION_LAWS.index("uniform"), "metric": METRICS.index("euclid")}
    depot_apart: ClassVar[bool] = True  # instances may have a separate `depot` and customer-only arrays
    node_sizes: ClassVar[tuple[str, ...]] = ("N", "V")  # names of the sizes of per-node fields
    customer_fields: ClassVar[tuple[str, ...]] = ()  # per-node fields that such arrays hold without the depot

    @classmethod
    def space(cls, config: Any) -> dict[str, int]:
        """The sizes of the spatial fields: N nodes, and those of a matrix or a map."""
        n = config.num_loc + cls.depot_apart
        sizes = {"N": n, "M": n if config.metric == "matrix" else 0, "K": 0, "D": 0, "F": 0}
        if config.map_name is not None:
            # The depot of the map counts too, also for the TSP, which uses bins only (`deal_bins`).
            places = config.map.n + 1
            sizes["K"] = places
            sizes["D"] = places if config.metric == "matrix" and config.map.dist is not None else 0
            sizes["F"] = places if config.map.fill_mean is not None and config.map.fill_std is not None else 0
        return sizes

    def constants(self) -> dict[str, Any]:
        law = self.config.loc_distribution
        self.amends_instances = callable(law)
        on_map = self.config.map_name is not None
        return {
            "metric": METRICS.index(self.config.metric),
            "loc_law": PLACED if callable(law) else LOCATION_LAWS.index("map" if on_map else law),
            **self._map_tables(),
        }

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        return {"metric": config.metric}

    def depot_code(self) -> int:
        """The law of the depot as the kernels number it; a function that places customers may place the depot too."""
        kind = self.config.depot_type
        by_function = kind == "customer" and callable(self.config.loc_distribution)
        return PLACED if by_function else DEPOT_TYPES.index(kind)

    def _map_tables(self) -> dict[str, np.ndarray]:
        places, by_road, filled = (self.sizes[name] for name in "KDF")
        tables: dict[str, Any] = {
            "map_locs": np.zeros((0, 2)),
            "map_dist": np.zeros((0, 0)),
            "map_mean": np.zeros(0),
            "map_std": np.zeros(0),
        }
        if places:
            found = self.config.map
            tables["map_locs"] = found.degrees if self.config.metric == "haversine" else found.locs
            if by_road:
                tables["map_dist"] = found.dist
            if filled:
                tables["map_mean"], tables["map_std"] = found.fill_mean, found.fill_std
        return tables

    def leg(self, q: int, i: int, j: int) -> float:
        """d(i, j) of instance q."""
        if self.sizes["M"]:
            return float(self.dist[q, i, j])
        places = self.locs[q].astype(float)
        return float(legs(METRICS.index(self.config.metric), *places[i], *places[j]))

    # -- instances ------------------------------------------------------------------------------------------

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """Accepts a separate `depot` with customer-only arrays, and fills in missing fields."""
        if "dist_matrix" in values:
            values["dist"] = values.pop("dist_matrix")
        if self.depot_apart and "depot" in values:
            values = self._join_depot(values)
        rows = len(next(iter(values.values()), ()))
        nodes = self.sizes["N"]
        if "n_nodes" not in values:
            values["n_nodes"] = np.full(rows, nodes, np.int32)
        if self.sizes["M"] and "locs" not in values:
            values["locs"] = np.zeros((rows, nodes, 2), np.float32)  # a matrix alone is a valid instance
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        for name in ("locs", "dist"):
            if name in arrays:
                refuse_beyond(name, arrays[name], LARGEST, "too large")
        if self.config.metric == "haversine":
            refuse_where("locs", arrays["locs"], no_latitudes(arrays["locs"]), "a latitude lies within -90..90")
        if "dist" in arrays:
            diagonal = np.einsum("bii->bi", arrays["dist"])
            if diagonal.any():
                refuse("dist", diagonal, diagonal != 0, "the diagonal of a distance matrix is 0")

    @classmethod
    def from_instances(cls, instances: Sequence[Mapping[str, Any]], repeat: int = 1, **make: Any) -> Any:
        """A world that plays these instances (one dict each, no row axis), each in `repeat` rows without a copy.

        The largest instance sets the sizes; smaller ones are padded, with their true size in `n_nodes`. Row r plays
        instance r // repeat. The world is already reset.
        """
        from milkrun.core.registry import make as make_world

        for one in instances:
            if not isinstance(one, Mapping) or not ({"locs", "dist", "dist_matrix"} & set(one)):
                raise ShapeError("each instance is a mapping of field names to arrays, `locs` or `dist` among them")
        if not instances:
            raise ShapeError("from_instances needs at least one instance")
        rows = [cls._whole(one) for one in instances]
        for one in rows:
            for name in sorted(set(one) ^ set(rows[0])):
                raise ShapeError(f"{name!r} is given in some instances and not in others")
            for name in one:
                if name not in cls.fields:
                    raise ShapeError(f"{cls.__name__} has no instance field {name!r}{did_you_mean(name, cls.fields)}")
        nodes = [len(one["dist" if "dist" in one else "locs"]) for one in rows]
        widest = {name: array[None] for name, array in rows[nodes.index(max(nodes))].items()}
        make = {**cls.options_for(widest), **make}
        world = make_world(cls.id, num_envs=len(rows) * repeat, **make)
        for one, count in zip(rows, nodes, strict=True):
            _check_lengths(world, one, count)
        batch: dict[str, Any] = {name: np.stack([_pad(one[name], world, name) for one in rows]) for name in rows[0]}
        batch.setdefault("n_nodes", np.array(nodes, np.int32))
        world.reset(instance={**batch, "instance_row": np.arange(len(rows) * repeat) // repeat})
        return world

    @classmethod
    def options_for(cls, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The options that instances (B, ...) with these fields need."""
        places = given["dist" if "dist" in given else "locs"]
        apart = cls.depot_apart and ("depot" not in given or "dist" in given)
        return {"num_loc": places.shape[1] - apart, **({"metric": "matrix"} if "dist" in given else {})}

    @classmethod
    def _whole(cls, one: Mapping[str, Any]) -> dict[str, np.ndarray]:
        values = {k: as_array(k, v)[None] for k, v in one.items()}
        if "dist_matrix" in values:
            values["dist"] = values.pop("dist_matrix")
        if cls.depot_apart and "depot" in values:
            values = cls._join_depot(values)
        return {k: v[0] for k, v in values.items()}

    @classmethod
    def _join_depot(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Joins depot (B, 2), or several (B, K, 2), and customer arrays (B, n, ...) into one array for each field, the
        depots first."""
        depot = values.pop("depot")
        locs = values.get("locs")
        if locs is None:
            raise ShapeError("the instance has a `depot`, but no `locs`")
        depots = depot[:, None, :] if depot.ndim == 2 else depot
        if depots.ndim != 3 or locs.ndim != 3 or (len(depots), depots.shape[2]) != (len(locs), locs.shape[2]):
            raise ShapeError(f"depot {depot.shape} and locs {locs.shape} do not match (B, 2) and (B, n, 2)")
        joined = {**values, "locs": np.concatenate([depots, locs], axis=1)}
        for name in cls.customer_fields:
            if name in joined:
                array, axis = joined[name], cls.node_axis(name)
                if array.ndim <= axis:
                    raise ShapeError(f"{name} {array.shape} must be (B, {'T, ' * (axis - 1)}n), one for each customer")
                # Without customers there is no column to copy. The array stays empty; its shape is refused later.
                zeros = np.zeros_like(np.take(array, [0] * depots.shape[1], axis)) if array.shape[axis] else array
                joined[name] = np.concatenate([zeros, array], axis=axis)
        return joined

    @classmethod
    def node_axis(cls, name: str) -> int:
        """The node axis of a per-node field; an optional one, whose size has a name of its own, has the nodes first."""
        dims = cls.fields[name].dims
        return 1 + (dims.index("N") if "N" in dims else 0)

    @classmethod
    def without_depots(cls, name: str, array: np.ndarray, depots: int = 1) -> np.ndarray:
        """A per-node field without its depots."""
        return array[(slice(None),) * cls.node_axis(name) + (slice(depots, None),)]

    @property
    def first_customer(self) -> int:
        """The number of depots: the node of the first customer."""
        return int(self.depot_apart)

    # -- places from Python -----------------------------------------------------------------------------

    _standing: tuple[np.ndarray | None, np.ndarray | None] = None, None

    def stand_at(self, places: Any = None, depots: Any = None) -> None:
        """Fixes the places of customers (B, n, 2) and depots (B, 2) for later draws; None keeps the law."""
        if places is not None:
            if self.config.map_name is not None:
                raise ConfigError(f"places and map_name = {self.config.map_name!r}: the map gives the places")
            if depots is None and self.depot_apart and self.config.depot_type == "customer":
                raise ConfigError(
                    "depot_type = 'customer': places alone do not fix the depot; give depots "
                    "too, in a generator by _generate_depot"
                )
            places = self._as_places("places", places, (self.num_envs, self.config.num_loc, 2))
        if depots is not None:
            if self.sizes["D"]:
                raise ConfigError(
                    f"depots and metric = 'matrix': the map {self.config.map_name!r} has no distances from other depots"
                )
            depots = self._as_places("depots", depots, (self.num_envs, 2))
        self._standing = places, depots
        for name, given in (("loc_law", places), ("depot_law", depots)):
            if given is not None:
                # A constant is stored twice: as an attribute for Python, and in the table that kernels read.
                setattr(self, name, PLACED)
                self._launcher_layout.put(self._table, name, PLACED)
                self.amends_instances = True

    def place_instances(self, rows: np.ndarray) -> None:
        """Writes customers and depots from `stand_at`, or from a law that is a function, before the kernel runs."""
        places, depots = self._standing
        owned, first = self.instance_row[rows], self.first_customer
        if places is None and callable(self.config.loc_distribution):
            also_depot = depots is None and self.depot_apart and self.depot_code() == PLACED
            drawn = self._call_law(rows, self.config.num_loc + also_depot)
            self.locs[owned, first:] = drawn[:, : self.config.num_loc]
            if also_depot:
                self.locs[owned, 0] = drawn[:, -1]
        elif places is not None:
            self.locs[owned, first:] = places[rows]
        if depots is not None:
            self.locs[owned, 0] = depots[rows]

    def _call_law(self, rows: np.ndarray, count: int) -> np.ndarray:
        """(rows, count, 2) places by a law that is a Python function, called row by row."""
        law: Any = self.config.loc_distribution
        drawn = np.zeros((len(rows), count, 2), np.float32)
        for r, b in enumerate(rows):
            seed, row, episode = (int(k) for k in self.stream[b])
            # Philox counts up in the first word of its counter. Row and episode in the next two words keep the streams
            # of rows disjoint; the last word separates them from other uses of the seed.
            rng = np.random.Generator(np.random.Philox(key=[seed, 0], counter=[0, row, episode, 1]))
            source = f"loc_distribution, called for {count} places of row {b},"
            drawn[r] = self._as_places(source, law(rng, count), (count, 2))
        return drawn

    def _as_places(self, source: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = as_array(source, given)
        # Non-numbers become nan, numbers beyond float32 become inf; the test below refuses both.
        with np.errstate(over="ignore"):
            places = array.astype(np.float32) if array.dtype.kind in "fiu" else np.full(array.shape, np.nan, np.float32)
        if places.shape != shape or not (np.abs(places) <= LARGEST).all():
            raise ConfigError(
                f"{source} gave {array.dtype} {array.shape} (or non-finite places); it must be {shape} "
                f"finite numbers within -{LARGEST:g}..{LARGEST:g}"
            )
        if self.config.metric == "haversine" and (wrong := no_latitudes(places)).any():
            raise ConfigError(
                f"{source} gave the latitude {places[wrong][0]}: under metric='haversine' it must lie within -90..90"
            )
        return places


def refuse_beyond(name: str, array: np.ndarray, limit: float, rule: str) -> None:
    """Refuses the first number whose size is above a limit; two passes without a copy, for large matrices."""
    if max(array.max(initial=0.0), -array.min(initial=0.0)) > limit:
        refuse(name, array, np.abs(array) > limit, f"{rule}; at most {limit:g} is allowed")


def no_latitudes(places: np.ndarray) -> np.ndarray:
    """Marks places (..., 2) in degrees whose first number is no latitude."""
    return (np.abs(places) > 90) & (np.arange(2) == 0)


def _check_lengths(world: Any, one: Mapping[str, np.ndarray], nodes: int) -> None:
    """Refuses arrays that are not as long as their instance has nodes, before they are padded."""
    for name, array in one.items():
        dims = world.fields[name].dims
        axis = next((k for k, dim in enumerate(dims) if dim in world.node_sizes), None)
        if axis is not None and array.ndim > axis and array.shape[axis] != nodes:
            raise ShapeError(f"{name} of an instance has {array.shape[axis]} entries for {nodes} nodes")


def _pad(array: Any, world: World, name: str) -> np.ndarray:
    array, shape = np.asarray(array), world.fields[name].shape(world.sizes)
    if array.ndim == 0 and len(shape) == 1:  # one number for all entries, or one that a size of 0 switches off
        array = np.full(shape, array)
    return padded(world, name, array)
