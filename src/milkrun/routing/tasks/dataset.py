"""Reads the dataset of a checker: a dict of arrays or a TensorDict, numpy or torch, in either layout.

Layouts: a separate `depot` with arrays over customers only, or arrays over all nodes with the depot as node 0. Torch is
recognised by its methods and never imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ConfigError, ShapeError, did_you_mean
from milkrun.routing.tasks.distances import METRICS, Floats, distance

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BLOCK = 1024  # rows gathered at once: 1e5 rows of 101 legs take 0.4 s of CPU, in one piece 1.4 s (page faults)


def is_torch(x: Any) -> bool:
    return hasattr(x, "detach")


def to_numpy(x: Any, name: str = "pi") -> NDArray[Any]:
    """The argument `name` as an array of numbers or bools."""
    try:
        array = np.asarray(x.detach().cpu().numpy() if is_torch(x) else x)
    except Exception as e:
        raise ShapeError(f"{name} is not an array: {e}") from None
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{name} is a {type(x).__name__} of dtype {array.dtype}, expected numbers")
    return array


def like(x: Any, array: NDArray[Any]) -> Any:
    """`array` as the type of `x`: for torch a tensor on the same device."""
    return sys.modules["torch"].from_numpy(array).to(x.device) if is_torch(x) else array


class Dataset:
    """The instances of B solutions, validated.

    Solution row b belongs to instance row `rows[b]`: the dataset's `instance_row`, else b itself, else the only
    instance. `num_nodes` is the width N of the arrays, `n_nodes` (B,) the true count of each solution row's
    instance. `overrides` (the limits of a call) replace keys of the dataset; `modes` are the rules that the
    call chose.
    """

    def __init__(
        self,
        dataset: Any,
        batch: int,
        *,
        metric: str | None = None,
        dist_matrix: Any = None,
        overrides: Mapping[str, Any] | None = None,
        modes: Mapping[str, Any] | None = None,
    ) -> None:
        self.modes = dict(modes or {})
        self.overrides = dict(overrides or {})
        self._data = _with_hidden(dataset) | self.overrides
        self._batch = batch
        if metric is not None and not isinstance(metric, str):
            raise ConfigError(f"metric is {metric!r}, expected one of {', '.join(METRICS)}")
        self.locs = self._read_locs()
        self.dist = self._read_dist(dist_matrix)
        self.metric = metric or ("euclid" if self.dist is None else "matrix")
        if self.metric not in METRICS:
            raise ConfigError(f"metric {self.metric!r} is unknown{did_you_mean(self.metric, METRICS)}")
        needed = "dist" if self.metric == "matrix" else "locs"
        if getattr(self, needed) is None:
            raise ShapeError(f"metric {self.metric!r} needs `{needed}` in the dataset")
        places = self.dist if self.locs is None else self.locs
        assert places is not None
        self.num_instances, self.num_nodes = places.shape[:2]
        square = (self.num_nodes, self.num_nodes)
        if self.dist is not None and self.dist.shape not in ((1, *square), (self.num_instances, *square)):
            raise ShapeError(f"dist has shape {self.dist.shape}, expected {(self.num_instances, *square)}")
        self.rows = self._read_rows()
        nodes = self.scalar("n_nodes", default=self.num_nodes)
        if (wrong := ~((nodes >= 2) & (nodes <= self.num_nodes)) | (nodes != np.floor(nodes))).any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: n_nodes is {nodes[b]:.10g}, allowed are the whole numbers 2..{self.num_nodes}")
        self.n_nodes = nodes.astype(np.int64)

    def find(self, *names: str) -> NDArray[Any] | None:
        """The first of these keys that the dataset has, as numpy; fields of width 0 count as absent."""
        found = (to_numpy(self._data[name], name) for name in names if self._data.get(name) is not None)
        return next((value for value in found if 0 not in value.shape[1:]), None)

    def keeper(self, *names: str) -> Callable[[Floats], Floats]:
        """The rounding of a running sum of this field after each stop.

        The worlds sum in float32. On float32 data the checker rounds alike, so that plans on the edge of a limit get
        the same result. Other data are summed in float64.
        """
        value = self.find(*names)
        if value is None or value.dtype != np.float32:
            return lambda x: x
        return lambda x: x.astype(np.float32).astype(np.float64)

    def scalar(self, *names: str, default: float) -> Floats:
        """One number for each solution row (B,), from a plain number, (Q,) or (Q, 1)."""
        value = self.find(*names)
        if value is None:
            return np.full(self._batch, default, np.float64)
        if value.shape not in ((), (1,), (self.num_instances,), (self.num_instances, 1)):
            raise ShapeError(f"{names[0]} has shape {value.shape}, expected ({self.num_instances},) or one number")
        flat = np.broadcast_to(value.reshape(-1).astype(np.float64), self.num_instances)
        return flat[self.rows]

    def per_node(self, *names: str, default: float | None = None) -> Floats:
        """A value >= 0 for each node of each solution row (B, N), 0 at the depot; the dataset may omit the depot."""
        value = self.find(*names)
        if value is None and default is None:
            raise ShapeError(f"the dataset lacks `{names[0]}`{did_you_mean(names[0], self._data)}")
        if value is None:
            return np.full((self._batch, self.num_nodes), default, np.float64)
        full = (self.num_instances, self.num_nodes)
        if value.shape not in (full, (full[0], full[1] - 1)):
            raise ShapeError(f"{names[0]} has shape {value.shape}, expected {full}, or one column less: customers only")
        value = value.astype(np.float64)
        if value.shape[1] < self.num_nodes:
            value = np.concatenate([np.zeros((len(value), 1)), value], axis=1)
        refuse(~(np.isfinite(value) & (value >= 0)), names[0], value, "must be finite and >= 0")
        refuse(value[:, :1] != 0, names[0], value, "must be 0 at the depot")
        return value[self.rows]

    def flags(self, *names: str) -> Bools | None:
        """A flag for each node of each solution row (B, N), False for padding; None if the dataset has none."""
        if self.find(*names) is None:
            return None
        value = self.per_node(*names)
        if (wrong := (value != 0) & (value != 1)).any():
            b, i = (int(k) for k in np.argwhere(wrong)[0])
            raise BadInstance(f"row {b}: {names[0]} of node {i} is {value[b, i]:.10g}, must be 0 or 1")
        return (value > 0) & self.exists()

    def per_day(self, name: str, days: int) -> Callable[[int], Floats] | None:
        """Values >= 0 of day t for each node (B, N), 0 at the depot, as a function of t; None if there are none."""
        value = self.find(name)
        if value is None:
            return None
        full = (self.num_instances, days, self.num_nodes)
        if value.shape not in (full, (*full[:2], full[2] - 1)):
            raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or one column less: customers only")
        refuse(~(np.isfinite(value) & (value >= 0)), name, value, "must be finite and >= 0")
        # Starts at 1 if the depot has a column, else at 0. The value of the depot is ignored; noise has one too.
        customers = value[:, :, value.shape[2] - self.num_nodes + 1 :]

        def of(day: int) -> Floats:
            return np.pad(customers[self.rows, day].astype(np.float64), ((0, 0), (1, 0)))

        return of

    def windows(self) -> tuple[Floats, Floats] | None:
        """The earliest and latest start of service (B, N), from `time_windows` or `start_time` and `end_time`, or None.

        If the dataset omits the depot, the depot never closes.
        """
        both = self.find("time_windows")
        if both is not None and (both.ndim != 3 or both.shape[2] != 2):
            raise ShapeError(f"time_windows has shape {both.shape}, expected (instances, nodes, 2)")
        start = self.find("start_time") if both is None else both[:, :, 0]
        end = self.find("end_time") if both is None else both[:, :, 1]
        if start is None and end is None:
            return None
        full = (self.num_instances, self.num_nodes)
        sides = []
        for value, name, free in ((start, "start_time", 0.0), (end, "end_time", np.inf)):
            side = np.full(full, free)
            if value is not None:
                if value.shape not in (full, (full[0], full[1] - 1)):
                    raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or one column less")
                side[:, full[1] - value.shape[1] :] = value
            sides.append(side)
        opens, closes = sides
        refuse(~(opens <= closes), "time_windows", np.stack(sides, axis=2), "must not close before it opens")
        return opens[self.rows], closes[self.rows]

    def exists(self) -> Bools:
        """True at nodes that are no padding (B, N)."""
        real: Bools = np.arange(self.num_nodes) < self.n_nodes[:, None]
        return real

    def in_unit_square(self) -> bool:
        """Whether lengths fit the unit square: no distance of a matrix, and none of a place to the depot, exceeds 2."""
        if self.metric == "matrix":
            assert self.dist is not None
            return bool((self.dist <= 2).all())
        assert self.locs is not None
        exists = np.arange(self.num_nodes) < self.n_nodes[:, None]
        apart = np.abs(self.locs - self.locs[:, :1])[self.rows]
        return self.metric not in ("trunc1", "haversine") and bool((apart[exists] <= 2).all())

    def between(self, start: Any, stop: Any, at: Ints | None = None) -> Floats:
        """Distances from nodes `start` to nodes `stop`, (K,) or (K, M), for the solution rows `at` (default: all)."""
        rows = self.rows if at is None else self.rows[at]
        rows = rows.reshape(-1, *(1,) * (max(np.ndim(start), np.ndim(stop)) - 1))
        if self.metric == "matrix":
            assert self.dist is not None
            return self.dist[rows if len(self.dist) > 1 else np.zeros_like(rows), start, stop]
        assert self.locs is not None
        return distance(self.locs[rows, start], self.locs[rows, stop], self.metric)

    def legs(self, nodes: Ints) -> Floats:
        """Lengths of the legs between neighbours in `nodes` (B, M), as (B, M - 1)."""
        if self.metric == "matrix":
            assert self.dist is not None
            q = self.rows if len(self.dist) > 1 else np.zeros_like(self.rows)
            return self.dist[q[:, None], nodes[:, :-1], nodes[:, 1:]]
        assert self.locs is not None
        legs = np.empty((len(nodes), nodes.shape[1] - 1))
        for first in range(0, len(nodes), BLOCK):
            block = slice(first, first + BLOCK)
            xy = self.locs[self.rows[block, None], nodes[block]]
            legs[block] = distance(xy[:, :-1], xy[:, 1:], self.metric)
        return legs

    def length(self, nodes: Ints) -> Floats:
        """The sum of these legs, (B,)."""
        total: Floats = self.legs(nodes).sum(axis=1)
        return total

    def _read_locs(self) -> Floats | None:
        locs, depot = self.find("locs"), self.find("depot")
        if locs is None:
            return None
        if locs.ndim != 3 or locs.shape[2] != 2:
            raise ShapeError(f"locs has shape {locs.shape}, expected (instances, nodes, 2)")
        if depot is not None:
            if depot.shape != (len(locs), 2):
                raise ShapeError(f"depot has shape {depot.shape}, expected {(len(locs), 2)} with locs {locs.shape}")
            locs = np.concatenate([depot[:, None], locs], axis=1)
        locs = locs.astype(np.float64)
        refuse(~np.isfinite(locs).all(axis=2), "locs", locs, "must be finite")
        return locs

    def _read_dist(self, dist_matrix: Any) -> Floats | None:
        dist = self.find("dist", "dist_matrix") if dist_matrix is None else to_numpy(dist_matrix, "dist_matrix")
        if dist is None:
            return None
        dist = (dist[None] if dist.ndim == 2 else dist).astype(np.float64)
        if dist.ndim != 3 or dist.shape[1] != dist.shape[2]:
            raise ShapeError(f"dist has shape {dist.shape}, expected (instances, nodes, nodes)")
        refuse(~(np.isfinite(dist) & (dist >= 0)), "dist", dist, "must be finite and >= 0")
        refuse((dist != 0) & np.eye(dist.shape[1], dtype=np.bool_), "dist", dist, "must be 0 on the diagonal")
        return dist

    def _read_rows(self) -> Ints:
        rows = self.find("instance_row")
        if rows is None:
            if self.num_instances not in (1, self._batch):
                raise ShapeError(f"{self._batch} solutions for {self.num_instances} instances need `instance_row`")
            return np.arange(self._batch) if self.num_instances == self._batch else np.zeros(self._batch, np.int64)
        if rows.dtype.kind not in "iu":
            raise ShapeError(f"instance_row is of dtype {rows.dtype}, expected integers: numbers of instances")
        rows = rows.reshape(-1).astype(np.int64)
        if len(rows) != self._batch:
            raise ShapeError(f"instance_row has {len(rows)} entries for {self._batch} solutions")
        if (wrong := (rows < 0) | (rows >= self.num_instances)).any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: instance_row is {rows[b]}, allowed are 0..{self.num_instances - 1}")
        return rows


def _with_hidden(dataset: Any) -> dict[str, Any]:
    """The fields of a dataset, including those nested under `hidden`."""
    fields = _items("the dataset", dataset)
    hidden = fields.pop("hidden", None)
    return fields if hidden is None else _items("hidden", hidden) | fields


def _items(what: str, fields: Any) -> dict[str, Any]:
    if not hasattr(fields, "items"):
        raise ShapeError(f"{what} is a {type(fields).__name__}, expected a dict or TensorDict of arrays by name")
    return dict(fields.items())


def refuse(wrong: Bools, field: str, value: NDArray[Any], rule: str) -> None:
    """Raises BadInstance for the first wrong value."""
    if wrong.any():
        q, *where = (int(k) for k in np.argwhere(wrong)[0])
        raise BadInstance(f"instance {q}: {field}{where} is {value[(q, *where)].tolist()}, {rule}")
