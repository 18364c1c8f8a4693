"""The scalar reference of the vehicle routing world with all its attributes: one row, plain Python, from the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cvrp import fits
from .fleet import FleetModel, count_and_best, finished_rows

__all__ = ["VRP", "count_and_best", "finished_rows"]


class VRP(FleetModel):
    """Serve every customer: linehaul is delivered from the depot, backhaul picked up for it.

    `backhaul_class` 1: in a route no linehaul after a backhaul; 2: any order, and both at one stop.
    `backhaul_only=False`: while a linehaul is unserved, no route picks up before it delivers. `split`: a visit delivers
    as much as there is room for, and a customer is served when nothing remains.
    """

    def __init__(
        self,
        locs: Sequence | None,
        *,
        linehaul: Sequence[int] | None = None,
        backhaul: Sequence[int] | None = None,
        backhaul_class: int = 1,
        serves: Sequence[int] | None = None,
        backhaul_only: bool = True,
        split: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(locs, **options)
        self.linehaul = [int(units) for units in self._per_node(linehaul)]
        self.backhaul = [int(units) for units in self._per_node(backhaul)]
        self.backhaul_class = int(backhaul_class)
        self.serves = [-1] * self.num_nodes if serves is None else [int(bits) for bits in serves]
        self.backhaul_only = backhaul_only
        self.split = split
        if self.backhaul_class == 1 and any(a and b for a, b in zip(self.linehaul, self.backhaul, strict=True)):
            raise ValueError("class 1 has no stop with linehaul and backhaul")
        if split and any(self.backhaul):
            raise ValueError("split deliveries and backhauls exclude each other")
        if split and options.get("vehicles") is None:
            # A route serves some customer to the end or is full, so that many are no limit.
            self.vehicles = [len(self.customers) + sum(self.linehaul) // min(self.capacity)] * self.num_depots
        self.reset()

    def _start(self) -> None:
        self.remaining = list(self.linehaul)
        self.backhaul_only_routes = 0

    def _fresh_load(self) -> None:
        self.delivered = 0
        self.picked = 0
        self.peak = 0

    def _load(self, a: int) -> None:
        amount = self.linehaul[a]
        if self.split:
            amount = min(self.remaining[a], self.capacity[self.current_depot] - self.delivered)
            self.remaining = [left - amount * (j == a) for j, left in enumerate(self.remaining)]
        self.peak = max(self.peak + amount, self.picked + self.backhaul[a])
        self.delivered += amount
        self.picked += self.backhaul[a]
        if not self.split or self.remaining[a] == 0:
            self._visit(a)

    def _go_home(self, a: int) -> None:
        self.backhaul_only_routes += self.picked > 0 and self.delivered == 0
        super()._go_home(a)

    # The mask.

    def _is_open(self, j: int) -> bool:
        return not self.visited[j] and self._in_order(j) and self._can_serve_alone(j)

    def _can_serve_alone(self, j: int) -> bool:
        """All rules of one vehicle, from where it stands."""
        return bool(self.serves[j] >> self.current_depot & 1) and self._has_room(j) and self._is_in_time(j)

    def _has_room(self, j: int) -> bool:
        capacity = self.capacity[self.current_depot]
        if self.split:
            return self.linehaul[j] == 0 or self.delivered < capacity
        if self.backhaul_class == 1 and self.linehaul[j] > 0 and self.picked > 0:
            return False
        return self.peak + self.linehaul[j] <= capacity and self.picked + self.backhaul[j] <= capacity

    def _in_order(self, j: int) -> bool:
        """With `backhaul_only=False`, no pick-up before a delivery while a linehaul is unserved."""
        return self.delivered > 0 or self._begins(j)

    def _begins(self, j: int) -> bool:
        return self.backhaul_only or self.linehaul[j] > 0 or self.backhaul[j] == 0 or self._linehauls_done()

    def _linehauls_done(self) -> bool:
        return all(self.visited[j] or self.linehaul[j] == 0 for j in self.customers)

    def _is_in_time(self, j: int) -> bool:
        if not fits(self._arrival(self.current_node, self.clock, j), self.time_windows[j][1]):
            return False
        length = self.route_length + self.d[self.current_node][j]
        return self._home_in_limits(j, length, self._clock_at(self.current_node, self.clock, j))
