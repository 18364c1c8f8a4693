"""Planning day by day in the worlds whose bins are not known for sure: each morning a route on what is expected.

A bin is worth its waste and the overflow that emptying it spares; what that makes is a problem of prizes and weights,
which any router of `solve` can plan. The plan is then driven stop by stop; where a bin turns out heavier than expected,
the truck goes on with what is left of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError
from milkrun.routing.wcvrp import FULL

Floats = NDArray[np.float64]

UNPLANNED = np.iinfo(np.int32).max
PLANS_AS = "CVRPP"  # the world of prizes and weights
ROUTERS = ("ls", "2opt", "oropt", "insertion", "nearest", "greedy", "pyvrp")

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(eq=False)
class RollingHorizon:
    """A policy of the SCWCVRP and the SDWCVRP: `actions = policy(world)`.

    `router` is the policy `greedy` or a method of `solve`, of which `pyvrp` takes `time_limit` seconds for each row and
    morning. `nights` is how many nights' overflows today's plan looks ahead to (SDWCVRP).
    """

    router: str = "ls"
    time_limit: float = 0.2
    nights: int = 1
    seed: int = 0
    _rank: NDArray[np.int32] = field(init=False, repr=False, default_factory=lambda: np.zeros((0, 0), np.int32))
    _trip: NDArray[np.int32] = field(init=False, repr=False, default_factory=lambda: np.zeros((0, 0), np.int32))
    _seen: list[bytes] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.router not in ROUTERS:
            raise ConfigError(f"router={self.router!r}: allowed are {', '.join(ROUTERS)}")
        if self.nights < 1:
            raise ConfigError(f"nights={self.nights!r}: must be at least 1")

    def __call__(self, world: Any) -> NDArray[np.int64]:
        if "expected_waste" not in world.fields:
            raise ConfigError(f"{type(world).__name__} has no expected waste to plan on: SCWCVRP and SDWCVRP have")
        mask, here = world.action_mask, np.asarray(world.current_node).reshape(-1)
        if self._rank.shape != mask.shape:
            self._rank, self._trip = np.full(mask.shape, UNPLANNED, np.int32), np.full(mask.shape, -1, np.int32)
            self._seen = [b""] * len(mask)
        self._plan_mornings(world, here)

        row = np.arange(len(mask))
        later = self._rank > self._rank[row, here][:, None]
        on_this_trip = (self._trip == self._trip[row, here][:, None]) & later
        goes = mask & (self._rank < UNPLANNED) & ((here == 0)[:, None] | on_this_trip)
        next_stop = np.where(goes, self._rank, UNPLANNED).argmin(axis=1)
        actions = np.where(goes.any(axis=1), next_stop, 0)
        closed = ~mask[row, actions]  # the depot, by a mandatory bin that the plan put elsewhere or could not serve
        return np.where(closed, np.where(mask, self._rank.astype(np.int64), UNPLANNED + 1).argmin(axis=1), actions)

    def _plan_mornings(self, world: Any, here: NDArray[np.int64]) -> None:
        """New plans for the rows whose day begins. A row that waits at the same morning keeps the plan it has."""
        waits = ~((world.visited | world.revealed).any(axis=1) | (here != 0))
        if world.autoreset != "same_step":  # there the flags tell of the episode before
            waits &= ~(world.terminated | world.truncated)
        mornings = np.flatnonzero(waits)
        told = [_morning(world, int(b)) for b in mornings]
        fresh = [k for k, b in enumerate(mornings) if told[k] != self._seen[b]]
        if not fresh:
            return
        for k in fresh:
            self._seen[mornings[k]] = told[k]
        rows = mornings[fresh]
        plans = self._route(world, instances_of(world, rows, self.nights))
        self._rank[rows], self._trip[rows] = UNPLANNED, -1
        position = np.broadcast_to(np.arange(plans.shape[1]), plans.shape)
        self._rank[rows[:, None], plans] = position
        self._trip[rows[:, None], plans] = np.cumsum(plans == 0, axis=1)
        self._rank[rows, 0], self._trip[rows, 0] = UNPLANNED, -1

    def _route(self, world: Any, instances: dict[str, Any]) -> NDArray[Any]:
        config = world.config
        told = {"metric": config.metric, "trips": config.trips, "length_weight": float(world.beta),
                "must_go_reserve": config.must_go_reserve}  # fmt: skip
        if self.router != "greedy":
            from milkrun.solvers.solve import solve

            return solve(PLANS_AS, instances, self.router, self.time_limit, self.seed, **told).actions
        from milkrun.core.registry import make
        from milkrun.solvers.evaluate import rollout
        from milkrun.solvers.policies import greedy

        rows, nodes = instances["prize"].shape
        plans = make(f"milkrun/{PLANS_AS}-v0", num_envs=rows, num_loc=nodes - 1, autoreset="disabled", **told)
        plans.reset(instance=instances)
        rollout(plans, greedy)
        return plans.solution()


def instances_of(world: Any, rows: NDArray[np.int64], nights: int = 1) -> dict[str, Any]:
    """Today's problem of these rows: prizes and weights, as `solve` reads them for the CVRPP."""
    q = world.instance_row[rows]
    places = "dist" if world.config.metric == "matrix" else "locs"
    must = world.must_go
    daily = "day" in world.fields
    return {
        places: getattr(world, places)[q],
        "n_nodes": world.n_nodes[q],
        "prize": worth(world, rows, nights).astype(np.float32),
        "weight": world.expected_waste[rows],
        "capacity": world.capacity[q],
        "max_length": world.max_length[q],
        "must_go": must[rows] if daily else must[q],
    }


def worth(world: Any, rows: NDArray[np.int64], nights: int = 1) -> Floats:
    """What emptying each bin today brings (rows, N): its waste, and the price of an overflow times its chance."""
    q = world.instance_row[rows]
    level = world.expected_waste[rows].astype(np.float64)
    size = np.asarray(world.max_waste, np.float64).reshape(-1)[q][:, None]
    chance = (level >= size * FULL).astype(np.float64)
    if "day" in world.fields:
        mean, std = (getattr(world, name)[q].astype(np.float64) for name in ("fill_mean", "fill_std"))
        chance = np.maximum(chance, chance_full(level, size, nights * mean, math.sqrt(nights) * std))
    bins = np.arange(level.shape[1])
    real = (bins > 0) & (bins < world.n_nodes[q][:, None])
    gain: Floats = np.where(real, world.gain_weight * level + world.overflow_price * chance, 0.0)
    return gain


def chance_full(level: Floats, size: Floats, mean: Floats, std: Floats) -> Floats:
    """That a normal fill of these moments makes a bin full."""
    missing = size * FULL - level - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        chance: Floats = np.where(std > 0, 0.5 * _erfc(missing / (math.sqrt(2.0) * std)), missing <= 0)
    return chance


def _morning(world: Any, b: int) -> bytes:
    """What tells one morning of a row from every other: the episode, the step, and all that the plan is made of."""
    q = world.instance_row[b]
    where = world.dist[q] if world.config.metric == "matrix" else world.locs[q]
    return b"".join(x.tobytes() for x in (world.stream[b], world.i[b], world.expected_waste[b], where))
