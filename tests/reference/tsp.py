"""The scalar reference of the travelling salesman world, and the base class of the routing references.

One row, plain Python, slow on purpose, written from the rules alone and never from `src/`, so that it is an independent
implementation. `RowModel` has the common code (counters, illegal actions, ends, rewards); `TSPModel` has the rules of
the problem.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

EARTH_RADIUS_KM = 6371.0088


def f32(x: float) -> float:
    """x rounded to float32, as a Python float, so that later sums are float64."""
    return float(np.float32(x))


def distance(metric: str, p: tuple[float, float], q: tuple[float, float]) -> float:
    """In float64. p and q have float32 values; for haversine (latitude, longitude) in degrees."""
    dx = p[0] - q[0]
    dy = p[1] - q[1]
    e = math.sqrt(dx * dx + dy * dy)
    if metric == "euclid":
        return e
    if metric == "manhattan":
        return abs(dx) + abs(dy)
    if metric == "round":
        return float(math.floor(e + 0.5))
    if metric == "ceil":
        return float(math.ceil(e))
    if metric == "trunc1":
        return float(math.floor(10 * e))
    if metric == "haversine":
        lat_p, lon_p, lat_q, lon_q = (math.radians(x) for x in (*p, *q))
        h = math.sin((lat_q - lat_p) / 2) ** 2 + math.cos(lat_p) * math.cos(lat_q) * math.sin((lon_q - lon_p) / 2) ** 2
        return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))
    raise ValueError(f"metric {metric!r} is none of euclid, manhattan, round, ceil, trunc1, haversine, matrix")


def distance_table(metric: str, locs: Any, dist: Any) -> list[list[float]]:
    """d[i][j] from node i to node j; `matrix` uses the entries of `dist`, all others compute from `locs`."""
    if metric == "matrix":
        return [[f32(x) for x in row] for row in dist]
    points = [(f32(x), f32(y)) for x, y in locs]
    return [[distance(metric, p, q) for q in points] for p in points]


class RowModel:
    """One row of a routing world. A problem defines `_start`, `_is_open` (its mask) and `_move` (its step).

    `step` replaces lists and never changes them in place: a shallow copy of a model is a snapshot of it.
    """

    def __init__(self, d: list[list[float]], n_nodes: int | None, max_steps: int | None, reward: str) -> None:
        if reward not in ("dense", "terminal"):
            raise ValueError(f"reward {reward!r} is neither dense nor terminal")
        self.d = d
        self.num_nodes = len(d)
        self.n_nodes = self.num_nodes if n_nodes is None else int(n_nodes)
        if not 2 <= self.n_nodes <= self.num_nodes:
            raise ValueError(f"n_nodes {self.n_nodes} is outside 2..{self.num_nodes}")
        self.max_steps = max_steps
        self.reward_mode = reward

    def _start(self) -> None:
        """Set the fields of this problem to their values at reset."""
        raise NotImplementedError

    def _is_open(self, j: int) -> bool:
        """Whether node j is allowed, on a live row, for a real node j."""
        raise NotImplementedError

    def _move(self, a: int) -> float:
        """Execute the legal action a; return the driven length, in float64."""
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        return self.terminated or self.truncated

    def allowed(self) -> list[int]:
        return [j for j, is_allowed in enumerate(self.action_mask) if is_allowed]

    def reset(self) -> None:
        self.current_node = 0
        self.visited = [False] * self.num_nodes
        self.tour_length = 0.0
        self.i = 0
        self.tour: list[int] = []
        self.reward = 0.0
        self.terminated = False
        self.truncated = False
        self.illegal = False
        self._start()
        self.action_mask = self._mask()

    def step(self, action: int) -> None:
        if self.finished:
            self.reward = 0.0
            return
        self.i += 1
        self.illegal = action not in self.allowed()
        leg = 0.0
        if not self.illegal:
            leg = self._move(action)
            self.tour_length = f32(self.tour_length + leg)
            self.tour = [*self.tour, action]
        if not self.terminated and self.max_steps is not None and self.i >= self.max_steps:
            self.truncated = True
        self.reward = self._pay(leg)
        self.action_mask = self._mask()

    def _pay(self, leg: float) -> float:
        if self.reward_mode == "dense":
            return f32(-leg)
        return -self.tour_length if self.finished else 0.0

    def _mask(self) -> list[bool]:
        if self.finished:
            return [j == 0 for j in range(self.num_nodes)]
        return [j < self.n_nodes and self._is_open(j) for j in range(self.num_nodes)]

    def _visit(self, a: int) -> None:
        self.visited = [seen or j == a for j, seen in enumerate(self.visited)]


class TSPModel(RowModel):
    """Visit every node once and come back. `depot` starts at node 0, `free` lets the first action choose the start."""

    def __init__(
        self,
        locs: Sequence | None,
        start: str = "depot",
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
        max_steps: int | None = None,
        reward: str = "dense",
    ) -> None:
        if start not in ("depot", "free"):
            raise ValueError(f"start {start!r} is neither depot nor free")
        super().__init__(distance_table(metric, locs, dist), n_nodes, max_steps, reward)
        self.start = start
        self.reset()

    def _start(self) -> None:
        self.first_node = 0
        if self.start == "depot":
            self._visit(0)

    def _all_visited(self) -> bool:
        return all(self.visited[: self.n_nodes])

    def _is_open(self, j: int) -> bool:
        if self.start == "depot" and j == 0:
            return self._all_visited()
        return not self.visited[j]

    def _move(self, a: int) -> float:
        return self._move_from_depot(a) if self.start == "depot" else self._move_free(a)

    def _move_from_depot(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        self._visit(a)
        self.current_node = a
        # The mask allows node 0 only after all others: going there is always the way home.
        self.terminated = a == 0
        return leg

    def _move_free(self, a: int) -> float:
        if not any(self.visited):
            self.first_node = a
            leg = 0.0
        else:
            leg = self.d[self.current_node][a]
        self._visit(a)
        self.current_node = a
        if self._all_visited():
            leg += self.d[a][self.first_node]
            self.terminated = True
        return leg


def enumerate_sequences(model_factory: Callable[[], RowModel]) -> tuple[int, float]:
    """Follow every allowed action from a new row: (number of sequences that terminate, best return among them).

    Sequences truncated by `max_steps` are not counted; without any complete sequence the best return is -inf.
    """

    def explore(model: RowModel, earned: float) -> tuple[int, float]:
        if model.finished:
            return (1, earned) if model.terminated else (0, -math.inf)
        count, best = 0, -math.inf
        for action in model.allowed():
            after = copy.copy(model)
            after.step(action)
            more, value = explore(after, earned + after.reward)
            count, best = count + more, max(best, value)
        return count, best

    fresh = model_factory()
    fresh.reset()
    return explore(fresh, 0.0)
