"""Instances for the dial-a-ride checker, read from a DARPInstance or from a batch of fields.

The rules measure differently. `classic` uses float64 distances and distance / speed; `deadlines` uses float32 distances
and integer times, the float32 quotient rounded half to even. Padding is removed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, ShapeError, did_you_mean
from milkrun.routing.instances.darp import MOST, MOST_RIDERS, DARPInstance
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints, refuse
from milkrun.routing.tasks.distances import Floats

SPEEDS = {"classic": 1.0, "deadlines": 25.0}
SLOWEST, FASTEST = 1e-6, 1e9


@dataclass(frozen=True)
class Case:
    """One instance without padded nodes; a vehicle of capacity 0 is padding."""

    rule: str
    speed: float
    places: NDArray[Any] | None  # (N, 2), float64 under classic, float32 under deadlines
    matrix: Floats | None
    demand: list[int]
    capacity: list[int]
    opens: list[float]
    closes: list[float]
    service: list[float]
    ride: list[float]
    duration: float

    @property
    def num_nodes(self) -> int:
        return len(self.demand)

    def distance(self, start: Ints, stop: Ints) -> Floats:
        """Distances from nodes `start` to nodes `stop`, in the precision of the rule."""
        if self.matrix is not None:
            return self.matrix[start, stop]
        assert self.places is not None
        d = self.places[start] - self.places[stop]
        way: Floats = np.sqrt(d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1])
        return way

    def travel(self, distance: Floats) -> NDArray[Any]:
        """The travel times of distances."""
        if self.rule == "deadlines":
            return np.rint(distance / np.float32(self.speed)).astype(np.int64)
        return distance / self.speed


def speed_of(rule: str, speed: float | None) -> float:
    """The speed of a call, by default that of the rule; validates both."""
    if not isinstance(rule, str) or rule not in SPEEDS:
        raise ConfigError(f"rule {rule!r} is unknown{did_you_mean(str(rule), SPEEDS)}")
    value: Any = SPEEDS[rule] if speed is None else speed
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not SLOWEST <= value <= FASTEST:
        raise ConfigError(f"speed is {speed}, must be a number within {SLOWEST:g}..{FASTEST:g}")
    return float(value)


def of_instance(instance: DARPInstance, rule: str, speed: float | None) -> Case:
    """The case of an instance; the rule `deadlines` reads places, demand, capacity and deadlines only."""
    if rule == "deadlines" and instance.dist is not None:
        raise ConfigError(f"{instance.name}: rule 'deadlines' drives straight lines, the instance has a matrix")
    classic = rule != "deadlines"
    n = len(instance.locs)
    return Case(
        rule=rule,
        speed=speed_of(rule, speed),
        places=instance.locs.astype(np.float64 if classic else np.float32),
        matrix=instance.dist,
        demand=instance.demand.tolist(),
        capacity=instance.capacity.tolist(),
        opens=instance.window_open.tolist() if classic else [0.0] * n,
        closes=instance.time_windows.tolist(),
        service=instance.service_time.tolist() if classic else [0.0] * n,
        ride=instance.max_ride_time.tolist() if classic else [np.inf] * (n // 2),
        duration=instance.max_route_duration if classic else np.inf,
    )


def of_dataset(
    dataset: Any, batch: int, rule: str, speed: float | None, metric: str | None
) -> tuple[Ints, Callable[[int], Case]]:
    """For each of `batch` solution rows its instance (B,), and the case of an instance.

    Accepts both layouts. With a separate `depot` only the rule `deadlines` knows the depot's deadline: none.
    """
    pace = speed_of(rule, speed)
    if metric not in (None, "euclid", "matrix") or (rule == "deadlines" and metric == "matrix"):
        raise ConfigError(f"metric is {metric!r}, allowed is 'euclid'" + (" or 'matrix'" if rule == "classic" else ""))
    data = Dataset(dataset, batch, metric="euclid" if rule == "deadlines" else metric)
    count, width = data.num_instances, data.num_nodes
    sizes = np.full(count, width)
    # `Dataset` has sizes by solution row; an instance without a solution keeps the full width.
    sizes[data.rows] = data.n_nodes
    if (sizes % 2 == 0).any():
        q = int((sizes % 2 == 0).argmax())
        raise ShapeError(f"instance {q}: {sizes[q]} nodes, expected a depot and two nodes a request")
    real: Bools = np.arange(width) < sizes[:, None]
    demand = _per_node(data, "demand", "iu", 0)
    closes = _per_node(data, "time_windows", "iuf", None if rule == "classic" else np.inf)
    capacity = _field(data, "capacity", "iu", (count, None))
    _check_demand(demand, real)
    refuse(capacity < 0, "capacity", capacity, "must be >= 0")
    for name, value, most in (
        ("demand", demand, MOST_RIDERS),
        ("capacity", capacity, MOST_RIDERS),
        ("locs", data.locs, MOST),
        ("dist", data.dist, MOST),
    ):
        if value is not None:
            refuse((value > most) | (value < -most), name, value, f"must be within -{most:g}..{most:g}")
    if rule == "classic":
        opens, service = (_per_node(data, name, "iuf", None) for name in ("window_open", "service_time"))
        ride = _field(data, "max_ride_time", "iuf", (count, width // 2))
        if data.find("max_route_duration") is None:
            raise ShapeError("the dataset lacks `max_route_duration`")
        duration = np.full(count, np.inf)
        duration[data.rows] = data.scalar("max_route_duration", default=np.inf)
        refuse(~(duration > 0), "max_route_duration", duration, "must be > 0")
        refuse(real[:, 1::2] & ~(ride > 0), "max_ride_time", ride, "must be > 0")
        refuse(real & ~(np.isfinite(service) & (service >= 0)), "service_time", service, "must be finite and >= 0")
        refuse(real & (service > MOST), "service_time", service, f"must be <= {MOST:g}")
        refuse(real & ~(np.abs(opens) <= MOST), "window_open", opens, f"must be within -{MOST:g}..{MOST:g}")
    else:
        opens, service, duration = np.zeros(real.shape), np.zeros(real.shape), np.full(count, np.inf)
        ride = np.full((count, width // 2), np.inf)
    refuse(real & ~(opens <= closes), "time_windows", closes, "must be a number that is not before window_open")
    rounded = None if data.locs is None else data.locs.astype(np.float32)  # as a world stores them

    def case(q: int) -> Case:
        n = int(sizes[q])
        matrix = None
        if data.metric == "matrix":
            assert data.dist is not None
            matrix = data.dist[q if len(data.dist) > 1 else 0]
        places = None if rounded is None else rounded[q, :n].astype(np.float32 if rule == "deadlines" else np.float64)
        return Case(
            rule=rule,
            speed=pace,
            places=places,
            matrix=matrix,
            demand=demand[q, :n].tolist(),
            capacity=capacity[q].tolist(),
            opens=opens[q, :n].tolist(),
            closes=closes[q, :n].tolist(),
            service=service[q, :n].tolist(),
            ride=ride[q, : n // 2].tolist(),
            duration=float(duration[q]),
        )

    return data.rows, case


def _field(data: Dataset, name: str, kinds: str, shape: tuple[int, int | None]) -> NDArray[Any]:
    value = data.find(name)
    if value is None:
        raise ShapeError(f"the dataset lacks `{name}`")
    if value.ndim != 2 or value.shape[0] != shape[0] or shape[1] not in (None, value.shape[1]):
        raise ShapeError(f"{name} has shape {value.shape}, expected {tuple('V' if k is None else k for k in shape)}")
    if value.dtype.kind not in kinds:
        raise ShapeError(f"{name} has dtype {value.dtype}, expected {'integers' if kinds == 'iu' else 'numbers'}")
    return value


def _per_node(data: Dataset, name: str, kinds: str, depot: float | None) -> NDArray[Any]:
    """A value for each node (Q, N); if the dataset omits the depot, `depot` is its value."""
    value = data.find(name)
    short = depot is not None and value is not None and value.ndim == 2 and value.shape[1] == data.num_nodes - 1
    value = _field(data, name, kinds, (data.num_instances, data.num_nodes - int(short)))
    return np.concatenate([np.full((len(value), 1), depot), value], axis=1) if short else value


def _check_demand(demand: NDArray[Any], real: Bools) -> None:
    pickups, dropoffs = demand[:, 1::2], demand[:, 2::2]
    refuse(demand[:, :1] != 0, "demand", demand, "must be 0 at the depot")
    wrong = np.zeros(demand.shape, np.bool_)
    wrong[:, 1::2] = pickups < 1
    refuse(wrong & real, "demand", demand, "must be at least 1 at a pickup")
    wrong[:] = False
    wrong[:, 2::2] = dropoffs != -pickups
    refuse(wrong & real, "demand", demand, "must be the negative of its pickup's")
