"""The scalar reference of the dial-a-ride world, rule `deadlines`: one row, plain Python, written from the rules alone.

Deadlines only, whole hours of travel, a mask with a lookahead of one node, and a return to the depot for stranded
vehicles. Distances are float32 at every operation; their quotient by the speed is rounded half to even.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .darp_base import DARPBaseModel, Reason, is_dropoff, is_pickup, request_of
from .tsp import f32


def distance32(p: tuple[float, float], q: tuple[float, float]) -> np.float32:
    dx, dy = np.float32(p[0]) - np.float32(q[0]), np.float32(p[1]) - np.float32(q[1])
    return np.sqrt(dx * dx + dy * dy)


class DARPDeadlinesModel(DARPBaseModel):
    """A row of the rule `deadlines`; `time_windows` are deadlines in whole hours, and only the last step has a
    reward."""

    def __init__(
        self,
        locs: Sequence,
        demand: Sequence[int],
        capacity: Sequence[int],
        time_windows: Sequence[int],
        penalty: float = 100.0,
        speed: float = 25.0,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(demand, capacity, None, penalty, "terminal", max_steps)
        self.locs = [(f32(x), f32(y)) for x, y in locs]
        self.d = [[distance32(p, q) for q in self.locs] for p in self.locs]
        self.t = [[int(np.rint(x / np.float32(speed))) for x in row] for row in self.d]
        self.time_windows = [int(x) for x in time_windows]
        self.tight_open = [0] * self.num_nodes
        self.tight_close = self.time_windows
        self.service_time = [0] * self.num_nodes
        self.reset()

    def _start(self) -> None:
        self.current_time = 0

    def _in_time(self, j: int) -> bool:
        return self.current_time + self.t[self.current_node][j] <= self.time_windows[j]

    def _fits(self, j: int) -> bool:
        return self.current_load + self.demand[j] <= self.capacity[self.current_agent]

    def _customer_open(self, j: int) -> bool:
        if self.visited[j] or not self._in_time(j):
            return False
        return self._fits(j) if is_pickup(j) else self.picked_up_by_current[j - 1]

    def _live_mask(self) -> list[bool]:
        customers = [self._customer_open(j) for j in range(1, self.num_nodes)]
        home = self.i > 0 and self.current_load == 0 and self.current_node > 0
        return [home or not any(customers), *customers]

    def illegal_reason(self, action: int) -> Reason:
        if not 0 <= action < self.num_nodes:
            return Reason.OUT_OF_RANGE
        if self._live_mask()[action]:
            return Reason.NONE
        if self.visited[action]:
            return Reason.VISITED
        if is_dropoff(action) and not self.picked_up_by_current[action - 1]:
            return Reason.NOT_ABOARD
        if action == 0:
            return Reason.RIDERS_ABOARD if self.current_load > 0 else Reason.FROM_DEPOT
        return Reason.TOO_LATE if is_dropoff(action) or self._fits(action) else Reason.CAPACITY

    def _drive(self, a: int) -> float:
        before = self.current_node
        leg = self.d[before][a]
        self.current_time += self.t[before][a]
        self.total_distance = float(np.float32(self.total_distance) + leg)
        if a > 0:
            self._serve(a)
        elif before > 0:
            self._return()
        self.current_node = a
        self.terminated = self.unvisited == 0 or all(self.vehicle_finished) or (a == 0 and before == 0)
        return float(leg)

    def _return(self) -> None:
        self.vehicles_used += 1
        self._finish_vehicle(self.current_agent)
        waiting = [k for k, over in enumerate(self.vehicle_finished) if not over]
        if waiting and self.unvisited > 0:
            self._activate(waiting[0])
            self.current_time = 0

    # Values of this rule for the features.

    @property
    def riding(self) -> list[int]:
        pickups = range(1, self.num_nodes, 2)
        return [request_of(p) for p in pickups if self.picked_up_by_current[p] and not self.visited[p + 1]]

    def _travel_time(self, j: int) -> float:
        return self.t[self.current_node][j]

    def _earliest_start(self, j: int) -> float:
        return self.current_time + self.t[self.current_node][j]

    def _vehicle_shares(self) -> tuple[float, float]:
        return len(self.riding) / ((self.num_nodes - 1) // 2), self.current_time / self.horizon
