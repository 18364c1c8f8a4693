"""Reads the dataset of a checker of vehicles: depots, limits and costs of their vehicles, windows and permissions.

Nodes 0..K-1 are depots; a depot is a place with one kind of vehicle. The number K is the length of the second axis of
`capacity` (B, K), or of another field of the depots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ShapeError, did_you_mean
from milkrun.routing.tasks.dataset import Bools, Dataset, refuse, to_numpy
from milkrun.routing.tasks.distances import Floats

DEPOT_FIELDS = ("capacity", "vehicles", "distance_limit", "duration_limit", "fixed_cost", "distance_cost")


class FleetData(Dataset):
    """The instances of B solutions with their depots, vehicles and times."""

    def __init__(self, dataset: Any, batch: int, **options: Any) -> None:
        fields = dict(dataset.items()) if hasattr(dataset, "items") else {}
        self.num_depots = _count_depots(fields)
        super().__init__(dataset, batch, **options)
        if self.num_nodes <= self.num_depots:
            raise ShapeError(f"the dataset has {self.num_nodes} nodes, {self.num_depots} of them depots: no customer")
        count = self.scalar("n_depots", default=self.num_depots)
        if (wrong := ~((count >= 1) & (count <= self.num_depots)) | (count != np.floor(count))).any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: n_depots is {count[b]:.10g}, allowed are 1..{self.num_depots}")
        self.n_depots = count.astype(np.int64)
        self.capacity = self.per_depot("capacity", np.inf)
        self.vehicles = self.per_depot("vehicles", np.inf)
        self.distance_limit = self.per_depot("distance_limit", np.inf)
        self.duration_limit = self.per_depot("duration_limit", np.inf)
        self.fixed_cost = self.per_depot("fixed_cost", 0.0)
        self.distance_cost = self.per_depot("distance_cost", 1.0)
        self.service = self.per_node("service_time", default=0.0)
        self.speed = self.scalar("speed", default=1.0)
        if (wrong := ~(self.speed > 0)).any():
            raise BadInstance(f"row {int(wrong.argmax())}: speed is {self.speed[wrong][0]:.10g}, must be > 0")
        self.is_open = self.scalar("open_route", default=0.0) != 0
        self.has_windows = self.find("time_windows") is not None
        self.opens, self.closes = self._read_windows()
        self.serves = self._read_serves()

    def customers(self) -> Bools:
        """True at nodes that are neither depots nor padding (B, N)."""
        return self.exists() & (np.arange(self.num_nodes) >= self.num_depots)

    def per_depot(self, name: str, default: float) -> Floats:
        """A value >= 0 for each depot of each solution row (B, K), from (Q, K), or one number for all depots."""
        value = self.find(name)
        if value is None:
            return np.full((self._batch, self.num_depots), default)
        full = (self.num_instances, self.num_depots)
        if value.shape == (full[0],):
            value = value[:, None]
        if value.shape not in ((), (1,), (1, 1), (full[0], 1), full):
            raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or one number for all depots")
        value = np.broadcast_to(value.astype(np.float64), full)
        refuse(~(value >= 0), name, value, "must be >= 0")
        return value[self.rows]

    def per_node(self, *names: str, default: float | None = None) -> Floats:
        """A value >= 0 for each node of each solution row (B, N), 0 at depots; the dataset may omit the depots."""
        value = self.signed(*names, default=default)
        if (wrong := value < 0).any():
            b, i = (int(k) for k in np.argwhere(wrong)[0])
            raise BadInstance(f"row {b}: {names[0]}[{i}] is {value[b, i]:.10g}, must be >= 0")
        return value

    def signed(self, *names: str, default: float | None = None) -> Floats:
        """A finite value for each node of each solution row (B, N), 0 at depots."""
        value = self.find(*names)
        if value is None and default is None:
            raise ShapeError(f"the dataset lacks `{names[0]}`{did_you_mean(names[0], self._data)}")
        if value is None:
            return np.full((self._batch, self.num_nodes), default, np.float64)
        value = self._with_depots(names[0], value.astype(np.float64), 0.0)
        refuse(~np.isfinite(value), names[0], value, "must be finite")
        refuse(value[:, : self.num_depots] != 0, names[0], value, "must be 0 at a depot")
        return value[self.rows]

    def _with_depots(self, name: str, value: NDArray[Any], at_depots: Any) -> NDArray[Any]:
        full = (self.num_instances, self.num_nodes)
        given = value.shape[:2]
        if given not in (full, (full[0], full[1] - self.num_depots)):
            raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or without depots")
        if given == full:
            return value
        depots = np.broadcast_to(np.asarray(at_depots, value.dtype), (full[0], self.num_depots, *value.shape[2:]))
        return np.concatenate([depots, value], axis=1)

    def _read_locs(self) -> Floats | None:
        depots = self.find("depot")
        if depots is not None and depots.ndim == 3:
            locs = self._data.pop("locs")
            del self._data["depot"]
            self._data["locs"] = np.concatenate([depots, to_numpy(locs, "locs")], axis=1)
        return super()._read_locs()

    def _read_windows(self) -> tuple[Floats, Floats]:
        value = self.find("time_windows")
        if value is None:
            return np.zeros((self._batch, self.num_nodes)), np.full((self._batch, self.num_nodes), np.inf)
        if value.ndim != 3 or value.shape[2] != 2:
            raise ShapeError(f"time_windows has shape {value.shape}, expected (instances, nodes, 2)")
        value = self._with_depots("time_windows", value.astype(np.float64), (0.0, np.inf))
        refuse(~(value[..., 0] <= value[..., 1]), "time_windows", value, "must not close before it opens")
        return value[self.rows, :, 0], value[self.rows, :, 1]

    def _read_serves(self) -> Bools | None:
        """Whether a depot may serve a node (B, N, K), from the bits of `serves`; None if all may."""
        bits = self.find("serves")
        if bits is None:
            return None
        if bits.dtype.kind not in "iu":
            raise ShapeError(f"serves is of dtype {bits.dtype}, expected integers: bit k for depot k")
        bits = self._with_depots("serves", bits.astype(np.int64), 0)[self.rows]
        allowed: Bools = bits[:, :, None] >> np.arange(self.num_depots) & 1 == 1
        return allowed


def _count_depots(fields: Mapping[str, Any]) -> int:
    """The number K of depots, from the width of their fields."""
    given = {name: to_numpy(fields[name], name) for name in (*DEPOT_FIELDS, "depot") if fields.get(name) is not None}
    axes = {name: 3 if name == "depot" else 2 for name in given}
    widths = {name: value.shape[1] for name, value in given.items() if value.ndim == axes[name] and value.size}
    most = max(widths.values(), default=1)
    for name, width in widths.items():
        if width not in (1, most):
            raise ShapeError(f"{name} is for {width} depots, another field for {most}")
    return most
