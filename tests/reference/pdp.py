"""The scalar reference of the pickup and delivery world: one row, plain Python, written from the rules alone.

A node is allowed if afterwards all goods aboard can still be delivered within windows and limits. The search for such
an order is bounded, and a candidate on which it gives up is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .cvrp import fits
from .fleet import Clock, FleetModel, count_and_best, finished_rows

__all__ = ["PDP", "count_and_best", "finished_rows"]


class Stop(NamedTuple):
    """A vehicle after a service: its node, the length of its route so far, and its clock."""

    node: int
    length: float
    clock: Clock


class SearchLimit(Exception):
    """The search has tried as many nodes as it may."""


class PDP(FleetModel):
    """R pairs: pickup K + r, its delivery K + R + r, in the same route and in this order.

    `demand` is the amount at pickups and its negative at deliveries. `plan` is a feasible order of all deliveries
    aboard; `gave_up` counts the searches that hit `search_limit`.
    """

    def __init__(
        self,
        locs: Sequence | None,
        *,
        demand: Sequence[int] | None = None,
        vehicles: Any = 1,
        search_limit: int = 2000,
        **options: Any,
    ) -> None:
        super().__init__(locs, vehicles=vehicles, **options)
        self.pairs = len(self.customers) // 2
        self.pickups = range(self.num_depots, self.num_depots + self.pairs)
        self.demand = [int(units) for units in self._per_node(demand)]
        self.search_limit = search_limit
        if len(self.customers) % 2 or any(self.demand[j] + self.demand[j + self.pairs] for j in self.pickups):
            raise ValueError("a pickup has no delivery of the same amount")
        self.reset()

    def _start(self) -> None:
        self.aboard = [False] * self.num_nodes
        self.gave_up = 0

    def _fresh_load(self) -> None:
        self.load = 0
        self.plan: list[int] = []

    def _serve(self, a: int) -> None:
        plan = self._plan_after(a)
        assert plan is not None
        super()._serve(a)
        self.plan = plan

    def _load(self, a: int) -> None:
        self.load += self.demand[a]
        self._visit(a)
        delivery = a + self.pairs if a in self.pickups else a
        self.aboard = [a in self.pickups if j == delivery else on for j, on in enumerate(self.aboard)]

    # The mask.

    def _is_open(self, j: int) -> bool:
        if self.visited[j]:
            return False
        if j in self.pickups:
            if self.load + self.demand[j] > self.capacity[self.current_depot]:
                return False
        elif not self.aboard[j]:
            return False
        try:
            return self._plan_after(j) is not None
        except SearchLimit:
            self.gave_up += 1
            return False

    def _can_serve_alone(self, j: int) -> bool:
        """A pair is served alone or not at all: the bits of a delivery are those of its pickup."""
        pickup = j if j in self.pickups else j - self.pairs
        return self.demand[pickup] <= self.capacity[self.current_depot] and self._plan_after(pickup) is not None

    def _may_go_home(self) -> bool:
        return not any(self.aboard)

    # The search.

    def _plan_after(self, j: int) -> list[int] | None:
        """An order of all deliveries that are aboard after j, then home, or None if there is none."""
        if self.plan and self.plan[0] == j:
            return self.plan[1:]
        stop = self._go(Stop(self.current_node, self.route_length, self.clock), j)
        left = [x for x in self.plan if x != j]
        if stop is None:
            return None
        new = [j + self.pairs] if j in self.pickups else []
        if not self._reaches_each(stop, left + new):
            return None
        kept = self._insert(stop, left, new[0]) if new else self._keep(stop, left)
        if kept is None and len(left + new) > 1:  # of one delivery there is one order, which was tried
            return self._search(stop, left + new)
        return kept

    def _go(self, stop: Stop, j: int) -> Stop | None:
        """The vehicle after its service at j, or None if it comes too late."""
        if not fits(self._arrival(stop.node, stop.clock, j), self.time_windows[j][1]):
            return None
        return Stop(j, stop.length + self.d[stop.node][j], self._clock_at(stop.node, stop.clock, j))

    def _reaches_each(self, stop: Stop, deliveries: list[int]) -> bool:
        return all(fits(self._arrival(stop.node, stop.clock, x), self.time_windows[x][1]) for x in deliveries)

    def _end_of(self, stop: Stop, order: list[int]) -> float | None:
        """When the route ends, at home or, if it is open, after the last service; None if it breaks a rule."""
        for x in order:
            after = self._go(stop, x)
            if after is None:
                return None
            stop = after
        if not self._home_in_limits(stop.node, stop.length, stop.clock):
            return None
        return stop.clock.now if self.open_route else self._arrival(stop.node, stop.clock, self.current_depot)

    def _keep(self, stop: Stop, order: list[int]) -> list[int] | None:
        return None if self._end_of(stop, order) is None else order

    def _insert(self, stop: Stop, order: list[int], delivery: int) -> list[int] | None:
        """The order with the delivery at the place that ends earliest, the first of equal ones."""
        orders = [[*order[:p], delivery, *order[p:]] for p in range(len(order) + 1)]
        ends = [(end, p) for p, each in enumerate(orders) if (end := self._end_of(stop, each)) is not None]
        return orders[min(ends)[1]] if ends else None

    def _search(self, stop: Stop, deliveries: list[int]) -> list[int] | None:
        """Depth-first, earliest closing first; a node is a delivery appended to an order."""
        self._tried = 0
        return self._extend(stop, sorted(deliveries, key=lambda x: (self.time_windows[x][1], x)))

    def _extend(self, stop: Stop, left: list[int]) -> list[int] | None:
        if not left:
            return self._keep(stop, [])
        if not self._reaches_each(stop, left):
            return None
        for x in left:
            if self._tried >= self.search_limit:
                raise SearchLimit
            self._tried += 1
            after = self._go(stop, x)
            assert after is not None
            rest = self._extend(after, [y for y in left if y != x])
            if rest is not None:
                return [x, *rest]
        return None
