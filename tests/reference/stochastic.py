"""The scalar references of SCWCVRP and SDWCVRP: one row, plain Python, written from the rules alone.

The truck plans on `expected_waste` and finds `real_waste`; a bin that does not fit is a failure with one of two
recourses. SDWCVRP plays several days in sequence: bins fill overnight, and bins that are full in the morning are
charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .collect import CollectModel, enumerate_sequences, is_full, reals
from .cvrp import DEPOT, fits
from .tsp import f32

__all__ = ["SCWCVRPModel", "SDWCVRPModel", "enumerate_sequences"]

RECOURSES = ("return", "round_trip")
MUST_GO_RULES = ("none", "level", "lookahead", "service_level")


def with_entry(values: list, a: int, value: Any) -> list:
    """A new list with entry a replaced, so that snapshots of a model keep theirs."""
    return [*values[:a], value, *values[a + 1 :]]


class SCWCVRPModel(CollectModel):
    """Levels are revealed on arrival. `expected0` is the initial expectation of the mask, `real_waste` the real level.

    `return`: a bin that does not fit is not emptied, and the truck drives home. `round_trip`: the truck fills up,
    empties at the depot, and returns to the bin for the rest.
    """

    def __init__(
        self,
        locs: Sequence | None,
        expected0: Sequence[float],
        real_waste: Sequence[float],
        capacity: float,
        recourse: str = "return",
        failure_weight: float = 1.0,
        trips: str = "multi",
        **rest: Any,
    ) -> None:
        if recourse not in RECOURSES:
            raise ValueError(f"recourse {recourse!r} is none of {RECOURSES}")
        self.expected0 = [f32(x) for x in expected0]
        self.recourse = recourse
        self.failure_weight = failure_weight
        super().__init__(locs, waste=real_waste, capacity=capacity, trips=trips, **rest)

    def _start(self) -> None:
        super()._start()
        self.expected_waste = self.expected0
        self.real_waste = self.waste
        self.revealed = [False] * self.num_nodes
        self.failures = 0

    def _known_weight(self) -> list[float]:
        return self.expected_waste

    def _serve(self, a: int) -> float:
        leg = self.d[self.current_node][a]
        real = self.real_waste[a]
        self._reveal(a)
        if fits(self.load + real, self.capacity):
            self.load = f32(self.load + real)
            self._take(a)
            self._arrive(a, leg)
            return leg
        self.failures += 1
        self._due -= self.failure_weight
        return self._fail_and_return(a, leg) if self.recourse == "return" else self._fail_and_come_back(a, leg)

    def _reveal(self, a: int) -> None:
        self.expected_waste = with_entry(self.expected_waste, a, self.real_waste[a])
        self.revealed = with_entry(self.revealed, a, True)

    def _take(self, a: int) -> None:
        self._collect(self.real_waste[a])

    def _fail_and_return(self, a: int, leg: float) -> float:
        self._empty_at_depot()
        if not self.multi or not self._open_customers():
            self._end()
        return leg + self.d[a][DEPOT]

    def _fail_and_come_back(self, a: int, leg: float) -> float:
        self.load = f32(self.real_waste[a] - (self.capacity - self.load))
        self._take(a)
        self._arrive(a, leg)
        self.trip_length = f32(self.d[DEPOT][a])
        self.trips += 1
        # Not 2 d(a,0): on an asymmetric matrix home and out again are two different legs.
        return leg + self.d[a][DEPOT] + self.d[DEPOT][a]

    def _objective(self) -> float:
        return super()._objective() - self.failure_weight * self.failures


class SDWCVRPModel(SCWCVRPModel):
    """T = len(daily_fill) days of SCWCVRP. `tour` has one list of actions for each day.

    The argument `must_go` is the rule evaluated each morning on `expected_waste`; the state field `must_go` is its
    result. The rules use `fill_mean` and `fill_std`; `sensor_noise` (T rows) is the noise of the morning's readings.
    """

    def __init__(
        self,
        locs: Sequence | None,
        initial_waste: Sequence[float],
        daily_fill: Sequence[Sequence[float]],
        capacity: float,
        sensor_noise: Sequence[Sequence[float]] | None = None,
        must_go: str = "none",
        must_go_level: float = 0.9,
        must_go_k: float = 1.0,
        fill_mean: Sequence[float] | None = None,
        fill_std: Sequence[float] | None = None,
        lost_weight: float = 0.0,
        **rest: Any,
    ) -> None:
        if must_go not in MUST_GO_RULES:
            raise ValueError(f"must_go {must_go!r} is none of {MUST_GO_RULES}")
        self.must_go_rule = must_go
        self.must_go_level = must_go_level
        self.must_go_k = must_go_k
        self.daily_fill = [reals(fill, len(fill)) for fill in daily_fill]
        self.sensor_noise = None if sensor_noise is None else [reals(noise, len(noise)) for noise in sensor_noise]
        self.horizon = len(self.daily_fill)
        self.fill_mean = reals(fill_mean, len(initial_waste))
        self.fill_std = reals(fill_std, len(initial_waste))
        self.lost_weight = lost_weight
        super().__init__(locs, expected0=initial_waste, real_waste=initial_waste, capacity=capacity, **rest)

    @property
    def tour_len(self) -> list[int]:
        return [len(actions) for actions in self.tour]

    @property
    def skipped(self) -> int:
        """Unserved customers, summed over the days that ended."""
        return self._skipped

    @property
    def missed_must_go(self) -> int:
        """Unserved mandatory customers, summed over the days that ended."""
        return self._missed_must_go

    def _start(self) -> None:
        super()._start()
        self.tour = [[] for _ in range(self.horizon)]
        self.day = 0
        self.lost = 0.0
        self._skipped = 0
        self._missed_must_go = 0
        self._wake()

    def step(self, action: int) -> None:
        was_finished, today, tours = self.finished, self.day, self.tour
        super().step(action)
        if not was_finished:
            self.tour = tours if self.illegal else with_entry(tours, today, [*tours[today], action])

    def _wake(self) -> None:
        """Morning: read the sensors, then determine the mandatory customers of the day."""
        self.expected_waste = self.real_waste
        if self.sensor_noise is not None:
            pairs = zip(self.real_waste, self.sensor_noise[self.day], strict=True)
            self.expected_waste = [f32(min(self.max_waste, real * noise)) for real, noise in pairs]
        self.must_go = [self._is_must_go(j) for j in range(self.num_nodes)]

    def _is_must_go(self, j: int) -> bool:
        if j not in self._customers() or self.must_go_rule == "none":
            return False
        level = self.expected_waste[j]
        if self.must_go_rule == "level":
            return level >= self.must_go_level * self.max_waste
        if self.must_go_rule == "lookahead":
            return level + self.fill_mean[j] >= self.max_waste
        return level + self.fill_mean[j] + self.must_go_k * self.fill_std[j] >= self.max_waste

    def _take(self, a: int) -> None:
        super()._take(a)
        self.real_waste = with_entry(self.real_waste, a, 0.0)
        self.expected_waste = with_entry(self.expected_waste, a, 0.0)

    def _end(self) -> None:
        """The end of a day instead of the end of the episode."""
        self._skipped += super().skipped
        self._missed_must_go += super().missed_must_go
        self._pass_the_night()
        self.day += 1
        self.visited = [False] * self.num_nodes
        self.revealed = [False] * self.num_nodes
        self.load = 0.0
        self.trip_length = 0.0
        if self.day == self.horizon:
            self.terminated = True
        else:
            self._wake()

    def _pass_the_night(self) -> None:
        lost = 0.0
        morning = list(self.real_waste)
        for j in self._customers():
            level = self.real_waste[j] + self.daily_fill[self.day][j]
            lost += max(level - self.max_waste, 0.0)
            morning[j] = f32(min(level, self.max_waste))
        self.real_waste = morning
        self.lost = f32(self.lost + lost)
        self._due -= self.lost_weight * lost
        self._charge_overflows(sum(is_full(morning[j], self.max_waste) for j in self._customers()))

    def _objective(self) -> float:
        return super()._objective() - self.lost_weight * self.lost
