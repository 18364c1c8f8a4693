"""The travelling salesman problem with drone as data: costs of legs, and restrictions of the drone.

One truck carries one drone; node 0 is the depot. A plan is a chain of operations: the drone leaves the truck, covers
one node and rejoins, while the truck drives and covers others; both wait for each other (Agatz, Bouman and Schmidt,
Optimization Approaches for the Traveling Salesman Problem with Drone, 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.core.instances import InstanceRecord

EPS = 1e-9  # tolerance of max_fly
NO_FLY = -1
LARGEST = 1e30
"""The largest absolute coordinate."""
DEAREST = 1e34
"""The largest cost of a leg, so that the return of a plan of 1000 nodes fits float32. A flight limit may be larger."""


class Operation(NamedTuple):
    """The truck drives start, internal..., end; the drone leaves it at start, covers `fly`, rejoins at end."""

    start: int
    end: int
    fly: int = NO_FLY
    """-1: the drone stays aboard"""
    internal: tuple[int, ...] = ()


@dataclass(frozen=True)
class Solution:
    """The plan of a file, with the costs stated there."""

    operations: tuple[Operation, ...]
    op_costs: tuple[float, ...] | None = None
    total: float | None = None


@dataclass(frozen=True, eq=False)
class TSPDInstance(InstanceRecord):
    """N nodes, including the depot. Arrays are read-only copies."""

    locs: NDArray[np.float64]
    """coordinates (N, 2)"""
    c_truck: NDArray[np.float64]
    """cost of the truck from row to column (N, N)"""
    c_drone: NDArray[np.float64]
    """the same of the drone"""
    max_fly: float
    """largest cost of both legs of a flight, without waiting; inf: no limit"""
    no_visit: NDArray[np.bool_]
    """nodes that the drone may not cover (N,)"""
    forbid: NDArray[np.bool_]
    """nodes where the drone may not launch, rejoin or serve (N,)"""
    truck_factor: float | None = None
    """cost per distance, if `c_truck` is this factor times the distances"""
    drone_factor: float | None = None

    def __post_init__(self) -> None:
        n = len(self._keep("locs", np.float64, (len(np.atleast_1d(self.locs)), 2)))
        if n < 2:
            raise ShapeError(f"{self.name}: locs has {n} nodes, expected a depot and at least one more")
        for name in ("c_truck", "c_drone"):
            self._keep(name, np.float64, (n, n))
        for name in ("no_visit", "forbid"):
            self._keep(name, np.bool_, (n,))
        for name in ("max_fly", "truck_factor", "drone_factor"):
            value = getattr(self, name)
            if value is not None or name == "max_fly":
                self._keep_number(name)
                if not value >= 0:
                    raise BadInstance(f"{self.name}: {name} is {value}, must be >= 0")
        self._refuse("locs", np.asarray(~np.isfinite(self.locs).all(axis=1)), "must be finite")
        far = np.asarray((np.abs(self.locs) > LARGEST).any(axis=1))
        self._refuse("locs", far, f"must be within -{LARGEST:g}..{LARGEST:g}")
        for name in ("c_truck", "c_drone"):
            costs = getattr(self, name)
            self._refuse(name, ~(np.isfinite(costs) & (costs >= 0)), "must be finite and >= 0")
            self._refuse(name, costs > DEAREST, f"must be <= {DEAREST:g}")
            self._refuse(name, (costs != 0) & np.eye(n, dtype=np.bool_), "must be 0 on the diagonal")

    def __hash__(self) -> int:
        # + 0.0: a cost of -0.0 equals 0.0, but not by its bytes.
        return hash((self.max_fly, (self.c_truck + 0.0).tobytes(), (self.c_drone + 0.0).tobytes()))

    @classmethod
    def of_places(
        cls,
        name: str,
        locs: ArrayLike,
        truck_factor: float = 1.0,
        drone_factor: float = 0.5,
        *,
        max_fly: float = np.inf,
        no_visit: ArrayLike = (),
        forbid: ArrayLike = (),
    ) -> TSPDInstance:
        """The instance with costs proportional to Euclidean distances; `no_visit` and `forbid` list nodes."""
        xy = np.asarray(locs, np.float64)
        way = distances(xy)
        node = np.arange(len(xy))
        return cls(
            name=name,
            locs=xy,
            c_truck=truck_factor * way,
            c_drone=drone_factor * way,
            max_fly=max_fly,
            no_visit=np.isin(node, no_visit),
            forbid=np.isin(node, forbid),
            truck_factor=truck_factor,
            drone_factor=drone_factor,
        )

    @classmethod
    def of_row(cls, name: str, row: Mapping[str, Any]) -> TSPDInstance:
        """The instance in the fields of one row of a world."""
        limit = float(np.reshape(row["max_fly"], ()))
        arrays = ("locs", "c_truck", "c_drone", "no_visit", "forbid")
        return cls(name=name, max_fly=limit, **{field: row[field] for field in arrays})

    @property
    def num_nodes(self) -> int:
        """The depot included."""
        return len(self.locs)

    def fields(self) -> dict[str, NDArray[Any]]:
        """The instance fields as one row, as the `reset(instance=...)` of a world takes them."""
        names = ("locs", "c_truck", "c_drone", "max_fly", "no_visit", "forbid")
        return {name: np.asarray(getattr(self, name))[None] for name in names}


def distances(locs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean distances between all places (N, N)."""
    if locs.ndim != 2 or locs.shape[1] != 2:
        raise ShapeError(f"locs has shape {locs.shape}, expected (N, 2)")
    with np.errstate(over="ignore", invalid="ignore"):  # such places are refused later
        dx, dy = (locs[:, None, axis] - locs[None, :, axis] for axis in (0, 1))
        between: NDArray[np.float64] = np.sqrt(dx * dx + dy * dy)
    return between
