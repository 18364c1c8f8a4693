"""The scalar reference of VRPP, CVRPP, WCVRP and CWCVRP: one row, plain Python, written from the rules alone.

A truck chooses the customers that are worth their detour. Profit worlds have `gain` (the prize) and optionally
`weight`. Waste worlds have `waste`, which is both gain and weight; full bins that are skipped are charged. The
stochastic references extend this model and override its named rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .cvrp import DEPOT, fits
from .tsp import RowModel, distance_table, enumerate_sequences, f32

__all__ = ["CollectModel", "enumerate_sequences", "fits", "is_full", "reals"]


def is_full(level: float, max_waste: float) -> bool:
    """Levels are capped at max_waste, so a full bin overflows."""
    return level >= max_waste * (1 - 1e-6)


def reals(values: Sequence[float] | None, num_nodes: int) -> list[float]:
    """A float32 field of one number a node; an absent one is all zeros."""
    return [0.0] * num_nodes if values is None else [f32(x) for x in values]


class CollectModel(RowModel):
    """Visit customers for their gain, end at the depot. `single`: the first return ends the episode; `multi`: a return
    empties the truck.

    VRPP gives gain; CVRPP gain, weight and capacity; WCVRP (`single`) and CWCVRP (`multi`) waste and capacity.
    With `time_windows`, `service_time` and `speed` the mask also applies the rule of windows. The argument `trips` is
    the mode, the state field `trips` the number of depot arrivals.
    """

    def __init__(
        self,
        locs: Sequence | None,
        gain: Sequence[float] | None = None,
        weight: Sequence[float] | None = None,
        capacity: float = math.inf,
        waste: Sequence[float] | None = None,
        max_waste: float = 1.0,
        must_go: Sequence[bool] | None = None,
        max_length: float = math.inf,
        trips: str = "single",
        must_go_reserve: bool = True,
        prize_weight: float = 1.0,
        waste_weight: float = 1.0,
        length_weight: float = 1.0,
        overflow_weight: float = 10.0,
        time_windows: Sequence | None = None,
        service_time: Sequence[float] | None = None,
        speed: float = 1.0,
        metric: str = "euclid",
        dist: Sequence | None = None,
        n_nodes: int | None = None,
        max_steps: int | None = None,
        reward: str = "dense",
    ) -> None:
        if (gain is None) == (waste is None):
            raise ValueError("give either gain (profit worlds) or waste (waste worlds)")
        if trips not in ("single", "multi"):
            raise ValueError(f"trips {trips!r} is neither single nor multi")
        super().__init__(distance_table(metric, locs, dist), n_nodes, max_steps, reward)
        self.gain = reals(waste if gain is None else gain, self.num_nodes)
        self.weight = reals(weight if waste is None else waste, self.num_nodes)
        self.waste = None if waste is None else self.gain
        self.gain_weight = prize_weight if waste is None else waste_weight
        self.length_weight = length_weight
        self.overflow_weight = overflow_weight
        self.capacity = f32(capacity)
        self.max_waste = f32(max_waste)
        self.must_go = [False] * self.num_nodes if must_go is None else [bool(must) for must in must_go]
        self.max_length = f32(max_length)
        self.multi = trips == "multi"
        self.must_go_reserve = must_go_reserve
        self.time_windows = None if time_windows is None else [(f32(a), f32(b)) for a, b in time_windows]
        self.service_time = reals(service_time, self.num_nodes)
        self.speed = f32(speed)
        self.reset()

    def _customers(self) -> range:
        return range(1, self.n_nodes)

    def _start(self) -> None:
        self.collected = 0.0
        self.load = 0.0
        self.trip_length = 0.0
        self.trips = 0
        self.current_time = 0.0
        self.overflows = 0

    @property
    def skipped(self) -> int:
        return sum(not self.visited[j] for j in self._customers())

    @property
    def missed_must_go(self) -> int:
        return sum(self.must_go[j] and not self.visited[j] for j in self._customers())

    # The mask.

    def _known_weight(self) -> list[float]:
        """Each customer's addition to the load, as known to the mask."""
        return self.weight

    def _reserve(self) -> float:
        """W: capacity reserved for unserved mandatory customers that a trip of their own could reach."""
        if self.multi or not self.must_go_reserve:
            return 0.0
        weight = self._known_weight()
        return sum(
            weight[j]
            for j in self._customers()
            if self.must_go[j] and not self.visited[j] and fits(self.d[DEPOT][j] + self.d[j][DEPOT], self.max_length)
        )

    def _service_ends(self, j: int) -> float:
        """Departure time from customer j; the truck waits without cost until the window opens."""
        arrive = self.current_time + self.d[self.current_node][j] / self.speed
        return max(arrive, self.time_windows[j][0]) + self.service_time[j]

    def _in_time(self, j: int) -> bool:
        arrive = self.current_time + self.d[self.current_node][j] / self.speed
        home = self._service_ends(j) + self.d[j][DEPOT] / self.speed
        return fits(arrive, self.time_windows[j][1]) and fits(home, self.time_windows[DEPOT][1])

    def _open_customers(self) -> list[int]:
        weight = self._known_weight()
        reserve = self._reserve()
        from_here = self.d[self.current_node]
        unlimited = math.isinf(self.max_length)
        return [
            j
            for j in self._customers()
            if not self.visited[j]
            and fits(self.load + weight[j], self.capacity)
            and (unlimited or fits(self.trip_length + from_here[j] + self.d[j][DEPOT], self.max_length))
            and (self.time_windows is None or self._in_time(j))
            and (self.must_go[j] or reserve == 0.0 or fits(self.load + weight[j] + reserve, self.capacity))
        ]

    def _depot_would_end(self) -> bool:
        return not self.multi or self.current_node == DEPOT

    def _mask(self) -> list[bool]:
        mask = [False] * self.num_nodes
        mask[DEPOT] = True
        if self.finished:
            return mask
        for j in self._open_customers():
            mask[j] = True
            if self.must_go[j] and self._depot_would_end():
                mask[DEPOT] = False
        return mask

    # The step. `_due` sums the gains and charges of the step, without its length.

    def _move(self, a: int) -> float:
        self._due = 0.0
        return self._go_home() if a == DEPOT else self._serve(a)

    def _serve(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        self._collect(self.gain[a])
        self.load = f32(self.load + self.weight[a])
        self._arrive(a, leg)
        return leg

    def _collect(self, gain: float) -> None:
        self.collected = f32(self.collected + gain)
        self._due += self.gain_weight * gain

    def _arrive(self, a: int, leg: float) -> None:
        if self.time_windows is not None:
            self.current_time = f32(self._service_ends(a))
        self.trip_length = f32(self.trip_length + leg)
        self.current_node = a
        self._visit(a)

    def _go_home(self) -> float:
        leg = self.d[self.current_node][DEPOT]
        if self._depot_would_end():
            self.trips += self.current_node != DEPOT
            self.trip_length = f32(self.trip_length + leg)
            self.current_node = DEPOT
            self.current_time = 0.0
            self._end()
        else:
            self._empty_at_depot()
            if not self._open_customers():
                self._end()
        return leg

    def _empty_at_depot(self) -> None:
        self.current_node = DEPOT
        self.load = 0.0
        self.trip_length = 0.0
        self.current_time = 0.0
        self.trips += 1

    def _end(self) -> None:
        if self.waste is not None:
            self._charge_overflows(
                sum(not self.visited[j] and is_full(self.waste[j], self.max_waste) for j in self._customers())
            )
        self.terminated = True

    def _charge_overflows(self, overflows: int) -> None:
        self.overflows += overflows
        self._due -= self.overflow_weight * overflows

    # The reward.

    def _objective(self) -> float:
        return (
            self.gain_weight * self.collected
            - self.length_weight * self.tour_length
            - self.overflow_weight * self.overflows
        )

    def _pay(self, leg: float) -> float:
        if self.reward_mode == "terminal":
            return f32(self._objective()) if self.finished else 0.0
        return 0.0 if self.illegal else f32(self._due - self.length_weight * leg)
