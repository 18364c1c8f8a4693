"""The scalar references of the prize-collecting TSP and of the shortest path through all nodes.

One row, plain Python, float64, written from the rules alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tsp import distance_table

DEPOT = 0


class PCTSP:
    """Collect at least `prize_required`, pay the length of the tour and the penalties of the customers left out.

    Stochastic: `real_prize` is what a visit collects, and `prize` shows it afterwards.
    """

    def __init__(
        self,
        locs: Sequence | None,
        prize: Sequence[float],
        penalty: Sequence[float],
        prize_required: float = 1.0,
        real_prize: Sequence[float] | None = None,
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
    ) -> None:
        self.d = distance_table(metric, locs, dist)
        self.customers = range(1, len(self.d) if n_nodes is None else n_nodes)
        self.prize = list(prize)
        self.penalty = list(penalty)
        self.prize_required = prize_required
        self.real_prize = list(prize if real_prize is None else real_prize)
        self.current_node = DEPOT
        self.visited = [False] * len(self.d)
        self.tour_length = 0.0
        self.collected = 0.0
        self.penalty_left = sum(self.penalty[j] for j in self.customers)
        self.tour: list[int] = []
        self.terminated = False

    @property
    def finished(self) -> bool:
        return self.terminated

    @property
    def objective(self) -> float:
        """Of the episode so far: penalties are due at the end."""
        return -self.tour_length - self.penalty_left * self.terminated

    def mask(self) -> set[int]:
        if self.terminated:
            return {DEPOT}
        left = {j for j in self.customers if not self.visited[j]}
        return left | {DEPOT} if not left or self.collected >= self.prize_required - 1e-5 else left

    def step(self, a: int) -> float:
        before = self.objective
        self.tour_length += self.d[self.current_node][a]
        self.current_node = a
        self.tour = [*self.tour, a]
        if a == DEPOT:
            self.terminated = True
        else:
            self.collected += self.real_prize[a]
            self.penalty_left -= self.penalty[a]
            self.prize = [self.real_prize[j] if j == a else prize for j, prize in enumerate(self.prize)]
            self.visited = [seen or j == a for j, seen in enumerate(self.visited)]
        return self.objective - before


class TSPPath:
    """From node 0 through all nodes to node n - 1, without a closing leg."""

    def __init__(
        self,
        locs: Sequence | None,
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
    ) -> None:
        self.d = distance_table(metric, locs, dist)
        self.n_nodes = len(self.d) if n_nodes is None else n_nodes
        self.current_node = 0
        self.visited = [j == 0 for j in range(len(self.d))]
        self.tour_length = 0.0
        self.tour: list[int] = []
        self.terminated = False

    @property
    def finished(self) -> bool:
        return self.terminated

    def mask(self) -> set[int]:
        if self.terminated:
            return {0}
        left = {j for j in range(self.n_nodes) if not self.visited[j]}
        return left - {self.n_nodes - 1} or left

    def step(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        self.tour_length += leg
        self.current_node = a
        self.tour = [*self.tour, a]
        self.visited = [seen or j == a for j, seen in enumerate(self.visited)]
        self.terminated = a == self.n_nodes - 1
        return -leg
