"""The scalar reference of the capacitated vehicle routing world: one row, plain Python, from the rules alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .tsp import RowModel, distance_table, enumerate_sequences, f32

__all__ = ["CVRPModel", "enumerate_sequences", "fits"]

DEPOT = 0
TOL = 1e-5


def fits(x: float, limit: float) -> bool:
    """The tolerance of the routing worlds; at most 0.5, so integers are compared exactly at any scale."""
    return x <= limit + min(0.5, TOL * max(1.0, abs(limit)))


class CVRPModel(RowModel):
    """Serve every customer once; a return to the depot empties the truck, the return after the last customer ends the
    episode.

    Node 0 is the depot, never marked as visited; `n_nodes` counts it. `max_length` limits a trip, leg home included.
    """

    def __init__(
        self,
        locs: Sequence | None,
        demand_units: Sequence[int],
        capacity: int,
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
        max_length: float = math.inf,
        max_steps: int | None = None,
        reward: str = "dense",
    ) -> None:
        super().__init__(distance_table(metric, locs, dist), n_nodes, max_steps, reward)
        self.demand_units = [int(units) for units in demand_units]
        self.capacity = int(capacity)
        self.max_length = f32(max_length)
        self.reset()
        # Valid instances can serve each customer by a trip of its own, so a live row always has an action: at the depot
        # every unvisited customer is allowed, elsewhere the depot.
        stranded = [j for j in self._customers() if not self.action_mask[j]]
        if stranded:
            raise ValueError(f"customers {stranded} cannot be served even alone: demand over capacity or trip too long")

    def _customers(self) -> range:
        return range(1, self.n_nodes)

    def _start(self) -> None:
        self.load = 0
        self.trip_length = 0.0
        self.trips = 0

    def _is_open(self, j: int) -> bool:
        if j == DEPOT:
            return self.current_node != DEPOT
        there_and_home = self.trip_length + self.d[self.current_node][j] + self.d[j][DEPOT]
        return (
            not self.visited[j]
            and fits(self.load + self.demand_units[j], self.capacity)
            and fits(there_and_home, self.max_length)
        )

    def _move(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        self.current_node = a
        if a == DEPOT:
            self.load = 0
            self.trip_length = 0.0
            self.trips += 1
            self.terminated = all(self.visited[j] for j in self._customers())
        else:
            self.load += self.demand_units[a]
            self.trip_length = f32(self.trip_length + leg)
            self._visit(a)
        return leg
