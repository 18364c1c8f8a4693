"""The solver of `VRP-v0`, which is PyVRP.

An instance becomes a `Fleet`: one instance in float64, with its depots, limits and windows. The solver returns actions,
which `solve_job` prices by the checker of the world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError, missing_extra
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers import workers as pool
from milkrun.solvers.given import read_given
from milkrun.solvers.problem import Floats
from milkrun.solvers.routing import pricer_of
from milkrun.solvers.solve import Job, Solution

Ints = NDArray[np.int64]
Route = tuple[int, list[int]]
"""depot and customers, as node numbers"""


@dataclass(frozen=True, eq=False)
class Fleet:
    """One instance of the vehicle routing problem, without padding customers; K depots, then the customers."""

    dist: Floats  # (n, n)
    depots: int  # K, padding included
    n_depots: int
    linehaul: Ints  # (n,)
    backhaul: Ints  # (n,)
    backhaul_class: int
    backhaul_only: bool
    capacity: Ints  # (K,)
    vehicles: Ints  # (K,)
    distance_limit: Floats  # (K,), inf = none
    duration_limit: Floats  # (K,), inf = none
    fixed_cost: Floats  # (K,)
    distance_cost: Floats  # (K,)
    opens: Floats  # (n,)
    closes: Floats  # (n,), inf = never
    service: Floats  # (n,)
    speed: float
    open_route: bool
    serves: NDArray[np.bool_]  # (K, n)

    @property
    def has_times(self) -> bool:
        """Whether some rule depends on time."""
        limited = bool(np.isfinite(self.duration_limit).any() or np.isfinite(self.closes).any())
        return limited or bool(self.opens.any())


def fleet_of(world: Any, arrays: Mapping[str, NDArray[Any]], b: int) -> Fleet:
    """Instance b of validated instance fields of a VRP world."""
    depots, n = world.sizes["depots"], int(arrays["n_nodes"][b])

    def per_node(name: str, absent: float) -> Floats:
        found = arrays.get(name)
        return np.full(n, absent) if found is None else found[b, :n].astype(np.float64)

    def per_depot(name: str, absent: float) -> Floats:
        found = arrays.get(name)
        return np.full(depots, absent) if found is None else found[b].astype(np.float64)

    windows = arrays.get("time_windows")
    bits = arrays["serves"][b, :n] if "serves" in arrays else np.full(n, -1, np.int64)
    return Fleet(
        dist=(
            arrays["dist"][b, :n, :n].astype(np.float64)
            if "dist" in arrays
            else distance_matrix(arrays["locs"][b, :n], world.config.metric)
        ),
        depots=depots,
        n_depots=int(arrays["n_depots"][b]),
        linehaul=arrays["linehaul"][b, :n].astype(np.int64),
        backhaul=per_node("backhaul", 0).astype(np.int64),
        backhaul_class=int(arrays["backhaul_class"][b, 0]) if "backhaul_class" in arrays else 1,
        backhaul_only=world.config.backhaul_only,
        capacity=arrays["capacity"][b].astype(np.int64),
        vehicles=arrays["vehicles"][b].astype(np.int64),
        distance_limit=per_depot("distance_limit", math.inf),
        duration_limit=per_depot("duration_limit", math.inf),
        fixed_cost=per_depot("fixed_cost", 0.0),
        distance_cost=per_depot("distance_cost", 1.0),
        opens=np.zeros(n) if windows is None else windows[b, :n, 0].astype(np.float64),
        closes=np.full(n, math.inf) if windows is None else windows[b, :n, 1].astype(np.float64),
        service=per_node("service_time", 0.0),
        speed=float(arrays["speed"][b, 0]) if "speed" in arrays else 1.0,
        open_route=bool(arrays["open_route"][b]),
        serves=(bits[None] >> np.arange(depots)[:, None] & 1).astype(bool),
    )


def solve_job(job: Job) -> Solution:
    """Runs a method of the world on each instance."""
    world, arrays = read_given(job.spec, job.instances, dict(job.config))
    config = world.config
    if config.split or config.objective == "max":
        asked = "split deliveries" if config.split else "objective='max'"
        raise ConfigError(f"method={job.method!r} does not support {asked}; the policy 'nearest' does")
    try:
        import pyvrp  # noqa: F401  # a worker process would report its absence as its own failure
    except ImportError:
        raise missing_extra("pyvrp", "solvers") from None
    count = len(arrays["n_nodes"])
    with job.bar(count) as advance:
        found = pool.solve_each(
            "fleet_pyvrp",
            lambda b: (fleet_of(world, arrays, b), job.time_limit, job.seed, job.iterations),
            count,
            job.workers,
            advance,
        )
    actions = np.zeros((count, max(1, *(len(plan) for plan, _ in found))), np.int32)
    for b, (plan, _) in enumerate(found):
        actions[b, : len(plan)] = plan
    return Solution(actions, pricer_of(world, arrays)(actions), np.zeros(count, np.bool_))


def in_actions(fleet: Fleet, routes: Sequence[Route]) -> list[int]:
    """Routes as actions: with several depots the first one names a depot, and each return names the next."""
    driven = [route for route in routes if route[1]]
    if not driven:
        return []
    actions = [driven[0][0]] if fleet.n_depots > 1 else []
    for r, (_, customers) in enumerate(driven):
        actions += [*customers, driven[min(r + 1, len(driven) - 1)][0]]
    return actions
