"""The input of every routing solver: a batch of instances in one form for all worlds.

A solver sees places, gains, weights and limits, but no fields, objective weights or rules of a world.
`milkrun.solvers.solve` converts the instances of a world to this form and the plans back to actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.distances import distance_matrix
from milkrun.routing.wcvrp import FULL

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """B instances of up to N nodes. Trips start and end at node 0; value = sum of `gain` - `beta` * length."""

    metric: str
    locs: NDArray[np.float32] | None  # (B, N, 2)
    dist: NDArray[np.float32] | None  # (B, N, N), with metric "matrix"
    n_nodes: NDArray[np.int32]  # (B,), nodes beyond are padding
    gain: Floats  # (B, N)
    weight: Floats  # (B, N)
    capacity: Floats  # (B,), inf = none
    max_length: Floats  # (B,), of one trip, inf = none
    required: NDArray[np.bool_]  # (B, N), customers that must be served if possible
    beta: float  # price of a unit of length
    side: float  # of the box, in units of length
    multi: bool  # a return empties the truck; False = one trip
    reserves: bool  # a single trip reserves room for required customers
    circular: bool  # node 0 is an ordinary node (TSP)
    unit: float  # of weights: a full bin, or the heaviest customer
    stops: Floats | None = None  # (B, N) service times counted against max_length, if all customers are served
    windows: Floats | None = None  # (B, N, 2) earliest and latest start of service
    service: Floats | None = None  # (B, N)
    speed: Floats | None = None  # (B,)

    def __len__(self) -> int:
        return len(self.n_nodes)

    @property
    def nodes(self) -> int:
        """N, the width of the arrays."""
        return int(self.gain.shape[1])

    def rows(self, chosen: Any) -> Problem:
        """Some of the instances."""
        per_row = (
            "locs",
            "dist",
            "n_nodes",
            "gain",
            "weight",
            "capacity",
            "max_length",
            "required",
            "stops",
            "windows",
            "service",
            "speed",
        )
        kept = {name: getattr(self, name) for name in per_row}
        some: dict[str, Any] = {name: None if value is None else value[chosen] for name, value in kept.items()}
        return replace(self, **some)

    def distances(self, b: int) -> Floats:
        """(n, n) of one instance, without padding."""
        n = int(self.n_nodes[b])
        if self.dist is not None:
            return self.dist[b, :n, :n].astype(np.float64)
        assert self.locs is not None
        return distance_matrix(self.locs[b, :n], self.metric)

    def ways(self, b: int) -> Floats:
        """(n, n) lengths of legs as max_length counts them, with the service time at the end.

        All customers are served once, so service times add the same to every plan and keep the optimum.
        """
        d = self.distances(b)
        if self.stops is not None:
            d = d + self.stops[b, None, : len(d)]
            np.fill_diagonal(d, 0.0)
        return d

    def with_stops_in_the_legs(self) -> Problem:
        """The problem for solvers without service times: half of a stop is added to each leg to and from it.

        Symmetric distances stay symmetric.
        """
        if self.stops is None:
            return self
        dist = np.zeros((len(self), self.nodes, self.nodes), np.float32)
        for b, n in enumerate(self.n_nodes.tolist()):
            half = self.stops[b, :n] / 2
            dist[b, :n, :n] = self.distances(b) + half[:, None] + half
            np.fill_diagonal(dist[b], 0.0)
        return replace(self, metric="matrix", locs=None, dist=dist, stops=None)


def of_world(world: Any, arrays: dict[str, NDArray[Any]]) -> Problem:
    """The problem of validated instance fields of a routing world."""
    config = world.config
    n_nodes = arrays["n_nodes"]
    rows, nodes = len(n_nodes), world.sizes["N"]
    nothing = np.zeros((rows, nodes))
    no_limit = np.full(rows, np.inf)
    everyone = (np.arange(nodes) < n_nodes[:, None]) & (np.arange(nodes) > 0)
    known: dict[str, Any] = {
        "metric": config.metric,
        "locs": arrays.get("locs") if config.metric != "matrix" else None,
        "dist": arrays.get("dist"),
        "n_nodes": n_nodes,
        "gain": nothing,
        "weight": nothing,
        "capacity": no_limit,
        "max_length": arrays["max_length"].astype(np.float64) if "max_length" in arrays else no_limit,
        "required": everyone,
        "beta": 1.0,
        "side": float(config.side),
        "multi": "demand_units" in arrays,
        "reserves": False,
        "circular": not world.depot_apart,
        "unit": 1.0,
    }
    if "must_go" not in world.fields:  # all customers are served
        if "demand_units" in arrays:
            known["weight"] = arrays["demand_units"].astype(np.float64)
            known["capacity"] = arrays["capacity"].astype(np.float64)
            if "service_time" in arrays:
                known["stops"] = np.where(everyone, arrays["service_time"].astype(np.float64), 0.0)
        return Problem(**known)
    known |= {
        "required": arrays["must_go"] & everyone,
        "beta": float(config.beta),
        "multi": config.trips == "multi",
        "reserves": bool(config.must_go_reserve),
    }
    if "waste" in arrays:
        waste, most = arrays["waste"].astype(np.float64), arrays["max_waste"].astype(np.float64)
        full = (waste >= FULL * most[:, None]) & everyone
        known["gain"] = config.waste_weight * waste + config.overflow_price * full
        known["weight"], known["unit"] = waste, float(most.max(initial=0.0))
    else:
        known["gain"] = config.prize_weight * arrays["prize"].astype(np.float64)
        if "weight" in arrays:
            known["weight"] = arrays["weight"].astype(np.float64)
            known["unit"] = max(float(known["weight"].max(initial=0.0)), 1e-12)
    if "capacity" in arrays:
        known["capacity"] = arrays["capacity"].astype(np.float64)
    if "time_windows" in arrays:
        known["windows"] = arrays["time_windows"].astype(np.float64)
        known["service"] = arrays["service_time"].astype(np.float64)
        known["speed"] = arrays["speed"].reshape(rows).astype(np.float64)
    for key in ("gain", "weight"):
        known[key] = np.where(everyone, known[key], 0.0)
    return Problem(**known)
