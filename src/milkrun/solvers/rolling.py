"""A rolling-horizon policy for the stochastic waste worlds: plans each morning, and again after a failure.

A router solves one day as a CWCVRP: a bin is worth its expected waste, plus its overflow cost times the probability
that the coming night fills it. Mandatory bins follow from the rule of the world, and optionally from one of the policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count, check_number, check_seconds, check_seed
from milkrun.core.errors import ConfigError
from milkrun.core.world import World
from milkrun.routing.wcvrp import FULL
from milkrun.solvers.heuristics import METHODS, run_heuristic
from milkrun.solvers.policies import require_fields
from milkrun.solvers.problem import Floats, Problem
from milkrun.solvers.routing import solve_by_package

ROUTERS = (*METHODS, "pyvrp")
MUST_GO_RULES = (None, "level", "lookahead", "service_level")


@dataclass
class RollingHorizon:
    """`actions = policy(world)`; each world needs its own policy object."""

    router: str = "ls"
    """a method of `solve`: nearest, insertion, 2opt, oropt, ls, savings, pyvrp"""
    rule: str | None = None
    """additional mandatory bins: level (waste >= level * max_waste), lookahead (full with the mean of a day),
    service_level (full with the mean plus k deviations)"""
    level: float = 0.9
    k: float = 1.0
    time_limit: float = 0.2
    """seconds for each day and row, for pyvrp"""
    seed: int = 0
    workers: int = 1
    _plans: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32), init=False, repr=False)
    _cursor: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), init=False, repr=False)
    _key: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64), init=False, repr=False)
    _step: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.router, str) or self.router not in ROUTERS:
            raise ConfigError(f"router={self.router!r}: allowed are {', '.join(ROUTERS)}")
        if not isinstance(self.rule, (str, NoneType)) or self.rule not in MUST_GO_RULES:
            raise ConfigError(f"rule={self.rule!r}: allowed are {', '.join(str(r) for r in MUST_GO_RULES)}")
        for name in ("level", "k"):
            setattr(self, name, check_number(name, getattr(self, name)))
        self.time_limit = check_seconds("time_limit", self.time_limit)
        self.seed = check_seed(self.seed)
        self.workers = check_count("workers", self.workers, 1)

    def __call__(self, world: World) -> np.ndarray:
        w: Any = world
        require_fields("rolling", w, "the uncertain waste worlds", "failures", "expected_waste", "must_go")
        rows = np.arange(w.num_envs)
        day = w.day if "day" in w.fields else np.zeros(len(rows), np.int64)
        key = np.stack([w.stream[:, 2], day.reshape(len(rows)), w.failures], axis=1).astype(np.int64)
        if self._key.shape != key.shape or self._plans.shape[1] != 2 * w.sizes["N"] + 4:
            self._key = np.full_like(key, -1)
            self._step = np.full(len(rows), -1, np.int64)
            self._plans = np.zeros((len(rows), 2 * w.sizes["N"] + 4), np.int32)
            self._cursor = np.zeros(len(rows), np.int64)
        # With fewer steps than before, or none, the row was reset; its new episode may have the same key.
        fresh = (key != self._key).any(axis=1) | (w.i < self._step) | (w.i == 0)
        # under same_step the flags belong to the episode before
        ended = w.terminated | w.truncated if w.autoreset != "same_step" else np.zeros(len(rows), bool)
        due = np.flatnonzero(fresh & (w.current_node == 0) & ~ended)
        # Advances by steps played, so that repeated calls return the same action.
        self._cursor = np.minimum(self._cursor + (w.i > self._step), self._plans.shape[1] - 1)
        if len(due):
            self._plans[due] = self._plan(day_problem(w, due, self._required(w, due)))
            self._cursor[due] = 0
        self._key = key
        self._step = w.i.copy()
        return self._next(w, rows)

    def _next(self, w: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next allowed entry of each plan; if a return is not allowed, an allowed bin."""
        last = self._plans.shape[1] - 1
        while True:
            action = self._plans[rows, self._cursor]
            closed = (action > 0) & ~w.action_mask[rows, action] & (self._cursor < last)
            if not closed.any():
                break
            self._cursor += closed
        stuck = ~w.action_mask[rows, action]
        return np.where(stuck, w.action_mask.argmax(axis=1), action).astype(np.int64)

    def _plan(self, problem: Problem) -> NDArray[np.int32]:
        if self.router == "pyvrp":
            return solve_by_package(problem, "pyvrp", self.time_limit, self.seed, self.workers)[0]
        return run_heuristic(problem, self.router, workers=self.workers)

    def _required(self, w: Any, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Bins that must be emptied today."""
        q = w.instance_row[rows]
        named: NDArray[np.bool_] = w.must_go[rows if "day" in w.fields else q] & ~w.visited[rows]
        if self.rule is None:
            return named
        waste, most = w.expected_waste[rows].astype(np.float64), w.max_waste[q].astype(np.float64)[:, None]
        if self.rule == "level":
            return named | ((waste >= self.level * most) & ~w.visited[rows])
        if "fill_mean" not in w.fields:
            raise ConfigError(f"rule={self.rule!r} needs the moments of a day, which {type(w).__name__} does not have")
        more = w.fill_mean[q] + (self.k * w.fill_std[q] if self.rule == "service_level" else 0.0)
        return named | ((waste + more >= most * FULL) & ~w.visited[rows])


def day_problem(w: Any, rows: NDArray[np.int64], required: NDArray[np.bool_]) -> Problem:
    """The rest of today as a problem, for these rows."""
    q = w.instance_row[rows]
    waste = np.where(w.visited[rows], 0.0, w.expected_waste[rows].astype(np.float64))
    most = w.max_waste[q].astype(np.float64)
    customers = (np.arange(w.sizes["N"]) < w.n_nodes[q, None]) & (np.arange(w.sizes["N"]) > 0)
    if "fill_mean" in w.fields:
        chance = chance_full(most[:, None] * FULL - waste, w.fill_mean[q], w.fill_std[q])
    else:
        chance = (waste >= most[:, None] * FULL).astype(np.float64)
    open_bins = customers & ~w.visited[rows]
    gain = np.where(open_bins, w.config.waste_weight * waste + w.config.overflow_price * chance, 0.0)
    matrix = w.config.metric == "matrix"
    return Problem(
        metric=w.config.metric,
        locs=None if matrix else w.locs[q],
        dist=w.dist[q] if matrix else None,
        n_nodes=w.n_nodes[q],
        gain=gain,
        weight=waste,
        capacity=w.capacity[q].astype(np.float64),
        max_length=w.max_length[q].astype(np.float64),
        required=required & customers,
        beta=float(w.config.beta),
        side=float(w.config.side),
        multi=w.config.trips == "multi",
        reserves=bool(w.config.must_go_reserve),
        circular=False,
        unit=float(most.max()),
    )


def chance_full(room: Floats, mean: Any, std: Any) -> Floats:
    """P(a day adds at least `room`) for a gamma of this mean and deviation (Wilson and Hilferty 1931)."""
    mean, std = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(std, np.float64))
    certain = (mean <= 0) | (std <= 0)
    safe_mean, safe_std = np.where(certain, 1.0, mean), np.where(certain, 1.0, std)
    shape = (safe_mean / safe_std) ** 2
    z = (np.cbrt(np.maximum(room, 0.0) / safe_mean) - (1 - 1 / (9 * shape))) * np.sqrt(9 * shape)
    tail = 0.5 * np.asarray(np.frompyfunc(math.erfc, 1, 1)(z / math.sqrt(2)), np.float64)
    chance: Floats = np.where(room <= 0, 1.0, np.where(certain, (mean >= room).astype(np.float64), tail))
    return chance
