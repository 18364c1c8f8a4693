"""A dial-a-ride problem as data: requests, times, limits and the fleet.

Node 0 is the depot; request r is picked up at node 2r+1 and dropped off at node 2r+2. The instance validates rules of
every such problem. Whether a request can be served depends on the speed and is checked by `unservable`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.core.instances import InstanceRecord
from milkrun.routing.darp.windows import FAULTS, faults_alone, tightened

MOST = 1e9
"""The largest absolute coordinate, distance and time, so that float64 errors over a day stay well below `TIME_EPS`.
A limit (the end of a window, a ride, a route) may be larger or infinite."""
MOST_RIDERS = 2**30
"""The largest group, and the most seats of a vehicle."""


@dataclass(frozen=True, eq=False)
class DARPInstance(InstanceRecord):
    """R requests, V vehicles, N = 2R + 1 nodes. Arrays are copies that cannot be written to."""

    locs: NDArray[np.float32]
    """coordinates (N, 2); distances are float64 between these float32 points"""
    demand: NDArray[np.int64]
    """riders (N,): at least 1 at a pickup, the negative at its dropoff, 0 at the depot"""
    capacity: NDArray[np.int64]
    """seats of each vehicle (V,)"""
    time_windows: NDArray[np.float64]
    """latest start of service (N,); of the depot: the end of the day"""
    window_open: NDArray[np.float64]
    """earliest start of service (N,); of the depot: the start of the day"""
    service_time: NDArray[np.float64]
    """how long a stop takes (N,)"""
    max_ride_time: NDArray[np.float64]
    """from the end of service at the pickup to the start of service at the dropoff (R,); inf: no limit"""
    max_route_duration: float
    """from departure to return"""
    dist: NDArray[np.float64] | None = None
    """distance row -> column (N, N), in place of the coordinates"""

    def __post_init__(self) -> None:
        locs = self._keep("locs", np.float32, (len(np.atleast_1d(self.locs)), 2))
        n = len(locs)
        if n < 3 or n % 2 == 0:
            raise ShapeError(f"{self.name}: locs has {n} nodes, expected a depot and two nodes for each request")
        self._keep("demand", np.int64, (n,))
        self._keep("capacity", np.int64, (max(1, np.size(self.capacity)),))
        for name in ("time_windows", "window_open", "service_time"):
            self._keep(name, np.float64, (n,))
        self._keep("max_ride_time", np.float64, (n // 2,))
        self._keep_number("max_route_duration")
        if self.dist is not None:
            self._keep("dist", np.float64, (n, n))
        self._check_places()
        self._check_riders()
        self._check_times()

    def __hash__(self) -> int:
        return hash((self.num_requests, self.num_agents, self.max_route_duration, self.locs.tobytes()))

    @classmethod
    def of_row(cls, name: str, row: Mapping[str, Any]) -> DARPInstance:
        """The instance in the fields of one row of a world, without padding.

        Missing limits, as under the rule `deadlines`, are infinite.
        """
        n = int(row.get("n_nodes", len(row["demand"])))
        seats, dist = np.asarray(row["capacity"]), row.get("dist")
        return cls(
            name=name,
            locs=row["locs"][:n],
            demand=row["demand"][:n],
            capacity=seats[seats > 0],
            time_windows=row["time_windows"][:n],
            window_open=row.get("window_open", np.zeros(n))[:n],
            service_time=row.get("service_time", np.zeros(n))[:n],
            max_ride_time=row.get("max_ride_time", np.full(n // 2, np.inf))[: n // 2],
            max_route_duration=float(np.reshape(row.get("max_route_duration", np.inf), ())),
            dist=None if dist is None or not np.size(dist) else dist[:n, :n],
        )

    @property
    def num_requests(self) -> int:
        return len(self.locs) // 2

    @property
    def num_agents(self) -> int:
        return len(self.capacity)

    def fields(self) -> dict[str, NDArray[Any]]:
        """The instance fields as one row, as the `reset(instance=...)` of a world takes them."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "name" and getattr(self, f.name) is not None]
        return {name: np.asarray(getattr(self, name))[None] for name in names}

    def distances(self) -> NDArray[np.float64]:
        """From each node to each (N, N): `dist`, or between the coordinates."""
        if self.dist is not None:
            return self.dist
        xy = self.locs.astype(np.float64)
        dx, dy = (xy[:, None, axis] - xy[None, :, axis] for axis in (0, 1))
        between: NDArray[np.float64] = np.sqrt(dx * dx + dy * dy)
        return between

    def unservable(self, speed: float = 1.0) -> dict[int, str]:
        """The requests that no vehicle could serve even alone, with the fault: window, ride, duration or capacity.

        Windows are tightened by the travel times to and from the depot, the partner's window and the ride limit.
        """
        p = np.arange(1, len(self.locs), 2)
        d = p + 1
        way = self.distances() / speed
        legs = way[0, p], way[p, d], way[d, 0]
        opens, closes, s, limit = self.window_open, self.time_windows, self.service_time, self.max_ride_time
        tight = tightened(opens[p], closes[p], opens[d], closes[d], opens[0], closes[0], s[p], s[d], limit, *legs)
        wrong = np.array(
            faults_alone(tight, self.demand[p], self.capacity.max(), s[p], s[d], limit, *legs, self.max_route_duration)
        )
        return {int(r): FAULTS[int(wrong[:, r].argmax())] for r in np.flatnonzero(wrong.any(axis=0))}

    def _check_places(self) -> None:
        self._refuse("locs", np.asarray(~np.isfinite(self.locs).all(axis=1)), "must be finite")
        self._refuse("locs", np.asarray((np.abs(self.locs) > MOST).any(axis=1)), f"must be within -{MOST:g}..{MOST:g}")
        if self.dist is not None:
            self._refuse("dist", ~(np.isfinite(self.dist) & (self.dist >= 0)), "must be finite and >= 0")
            self._refuse("dist", self.dist > MOST, f"must be <= {MOST:g}")
            self._refuse("dist", (self.dist != 0) & np.eye(len(self.dist), dtype=np.bool_), "must be 0 on the diagonal")

    def _check_riders(self) -> None:
        node = np.arange(len(self.demand))
        picked = np.concatenate([[0, 0], self.demand[1:-1]])  # of the node before; read at dropoffs only
        self._refuse("demand", (node == 0) & (self.demand != 0), "must be 0 at the depot")
        self._refuse("demand", (node % 2 == 1) & (self.demand < 1), "must be at least 1 at a pickup")
        unpaired = (node > 0) & (node % 2 == 0) & (self.demand != -picked)
        self._refuse("demand", unpaired, "must be the negative of its pickup's")
        self._refuse("demand", np.abs(self.demand) > MOST_RIDERS, f"must be <= {MOST_RIDERS}")
        self._refuse("capacity", self.capacity < 1, "must be at least 1", "vehicle")
        self._refuse("capacity", self.capacity > MOST_RIDERS, f"must be <= {MOST_RIDERS}", "vehicle")

    def _check_times(self) -> None:
        node = np.arange(len(self.locs))
        opens, closes, service = self.window_open, self.time_windows, self.service_time
        self._refuse("window_open", ~np.isfinite(opens), "must be finite")
        self._refuse("window_open", np.abs(opens) > MOST, f"must be within -{MOST:g}..{MOST:g}")
        self._refuse("time_windows", (node == 0) & ~np.isfinite(closes), "must be finite at the depot")
        self._refuse("time_windows", (node == 0) & (closes > MOST), f"must be <= {MOST:g} at the depot")
        self._refuse("time_windows", ~(opens <= closes), "must not be before window_open")
        self._refuse("service_time", ~(np.isfinite(service) & (service >= 0)), "must be finite and >= 0")
        self._refuse("service_time", service > MOST, f"must be <= {MOST:g}")
        self._refuse("service_time", (node == 0) & (service != 0), "must be 0 at the depot")
        self._refuse("max_ride_time", ~(self.max_ride_time > 0), "must be > 0", "request")
        if not self.max_route_duration > 0:
            raise BadInstance(f"{self.name}: max_route_duration is {self.max_route_duration}, must be > 0")
