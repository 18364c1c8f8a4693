"""What the references of VRP and PDP have in common: depots, vehicles, the clock of a route, costs, rewards and ends.

One row, plain Python, float64, slow on purpose, written from the rules alone. Nodes 0..K-1 are depots; a depot is a
place with one kind of vehicle. An action is a customer, or the depot of the next vehicle: the one on the road then goes
home to its own depot.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .cvrp import fits
from .tsp import distance_table

INF = math.inf


class Clock(NamedTuple):
    """All schedules of a route so far: when it may leave its depot, and its least duration with service and waiting."""

    start_early: float
    start_late: float
    duration: float

    @property
    def now(self) -> float:
        """The earliest end of the last service."""
        return self.start_early + self.duration

    def after(self, driving: float, opens: float, closes: float, service: float) -> Clock:
        """The clock after a drive and a service that starts within [opens, closes]."""
        offset = self.duration + driving
        wait = max(0.0, opens - offset - self.start_late)
        early = max(opens - offset, self.start_early) - wait
        late = min(closes - offset, self.start_late)
        return Clock(early, late, offset + wait + service)


class FleetModel:
    """One row of a world of vehicles; a problem overrides the named rules that follow the constructor.

    `step` replaces lists and never changes them in place: a shallow copy of a model is a snapshot of it.
    """

    def __init__(
        self,
        locs: Sequence | None,
        *,
        metric: str = "euclid",
        dist: Sequence | None = None,
        num_depots: int = 1,
        n_depots: int | None = None,
        n_nodes: int | None = None,
        capacity: Any = None,
        vehicles: Any = None,
        distance_limit: Any = INF,
        duration_limit: Any = INF,
        fixed_cost: Any = 0.0,
        distance_cost: Any = 1.0,
        time_windows: Sequence | None = None,
        service_time: Sequence[float] | None = None,
        speed: float = 1.0,
        open_route: bool = False,
        objective: str = "sum",
        unserved_cost: float = 10.0,
        reward: str = "dense",
        max_steps: int | None = None,
    ) -> None:
        if objective not in ("sum", "max") or reward not in ("dense", "terminal"):
            raise ValueError(f"objective {objective!r} or reward {reward!r} is unknown")
        self.d = distance_table(metric, locs, dist)
        self.num_nodes = len(self.d)
        self.num_depots = num_depots
        self.n_depots = num_depots if n_depots is None else int(n_depots)
        self.n_nodes = self.num_nodes if n_nodes is None else int(n_nodes)
        self.customers = range(num_depots, self.n_nodes)
        self.capacity = self._per_depot(INF if capacity is None else capacity)
        self.vehicles = self._per_depot(len(self.customers) if vehicles is None else vehicles)
        self.distance_limit = self._per_depot(distance_limit)
        self.duration_limit = self._per_depot(duration_limit)
        self.fixed_cost = self._per_depot(fixed_cost)
        self.distance_cost = self._per_depot(distance_cost)
        free = [(0.0, INF)] * self.num_nodes
        self.time_windows = free if time_windows is None else [(float(a), float(b)) for a, b in time_windows]
        self.service_time = self._per_node(service_time)
        self.speed = float(speed)
        self.open_route = bool(open_route)
        self.objective_mode = objective
        self.unserved_cost = float(unserved_cost)
        self.reward_mode = reward
        self.max_steps = max_steps

    def _per_depot(self, value: Any) -> list:
        return [value] * self.num_depots if not hasattr(value, "__len__") else list(value)

    def _per_node(self, values: Sequence | None) -> list:
        return [0] * self.num_nodes if values is None else list(values)

    # What a problem defines.

    def _start(self) -> None:
        """Sets the fields of this problem to their values at reset."""

    def _fresh_load(self) -> None:
        """Sets the load of a vehicle that is about to leave its depot."""

    def _is_open(self, j: int) -> bool:
        """Whether customer j is allowed for the vehicle in use."""
        raise NotImplementedError

    def _load(self, a: int) -> None:
        """Serves customer a: amounts and marks of service."""
        raise NotImplementedError

    def _can_serve_alone(self, j: int) -> bool:
        """Whether the vehicle in use, at its depot, can serve j in a route of its own."""
        raise NotImplementedError

    def _begins(self, j: int) -> bool:
        """Whether customer j counts when a vehicle is chosen: whether a route may begin for its sake."""
        return True

    def _may_go_home(self) -> bool:
        return True

    # Reset and step.

    def reset(self) -> None:
        self.visited = [False] * self.num_nodes
        self.vehicles_left = list(self.vehicles)
        self.tour_length = 0.0
        self.cost = 0.0
        self.longest = 0.0
        self.trips = 0
        self.unserved = 0
        self.i = 0
        self.tour: list[int] = []
        self.reward = 0.0
        self.terminated = False
        self.truncated = False
        self.illegal = False
        self._start()
        self.alone = [0] * self.num_nodes
        self._take_vehicle(0)
        self.alone = self._alone_bits()
        for j in self.customers:
            if not any(self.vehicles[k] > 0 for k in self._depots_of(j)):
                raise ValueError(f"no vehicle can serve customer {j} alone")
        self.has_vehicle = self.n_depots == 1
        self._mask = self._find_mask()

    def step(self, a: int) -> float:
        """Carries out an action; an illegal one only counts. Returns the reward."""
        if self.finished:
            self.reward = 0.0
            return 0.0
        self.i += 1
        before = self.objective
        self.illegal = a not in self._mask
        if not self.illegal:
            self._act(a)
            self.tour = [*self.tour, a]
        if not self.terminated and self.max_steps is not None and self.i >= self.max_steps:
            self.truncated = True
        if self.reward_mode == "dense":
            self.reward = self.objective - before
        else:
            self.reward = self.objective if self.finished else 0.0
        self._mask = self._find_mask()
        return self.reward

    def mask(self) -> set[int]:
        return set(self._mask)

    @property
    def finished(self) -> bool:
        return self.terminated or self.truncated

    @property
    def objective(self) -> float:
        """Of the episode so far."""
        paid = self.cost if self.objective_mode == "sum" else max(self.longest, self.route_length)
        return -paid - self.unserved_cost * self.unserved

    def _act(self, a: int) -> None:
        if a >= self.num_depots:
            self._serve(a)
        elif self.has_vehicle:
            self._go_home(a)
        else:
            self._take_vehicle(a)

    def _take_vehicle(self, k: int) -> None:
        """A fresh route at depot k."""
        self.current_node = k
        self.current_depot = k
        self.has_vehicle = True
        self.route_length = 0.0
        self._set_clock(self._fresh_clock(k))
        self._fresh_load()

    def _serve(self, a: int) -> None:
        k = self.current_depot
        if self.current_node < self.num_depots:
            self.vehicles_left = [left - (depot == k) for depot, left in enumerate(self.vehicles_left)]
            self.trips += 1
            self.cost += self.fixed_cost[k]
        clock = self._clock_at(self.current_node, self.clock, a)
        self._drive(self.d[self.current_node][a])
        self._set_clock(clock)
        self.current_node = a
        self._load(a)

    def _go_home(self, a: int) -> None:
        k = self.current_depot
        if not self.open_route:
            clock = self._clock_at(self.current_node, self.clock, k)
            self._drive(self.d[self.current_node][k])
            self._set_clock(clock)
        self.current_node = k
        self.longest = max(self.longest, self.route_length)
        if self._all_served() or not self._candidates():
            self.unserved = sum(not self.visited[j] for j in self.customers)
            self.terminated = True
        else:
            self._take_vehicle(a)

    def _drive(self, leg: float) -> None:
        self.tour_length += leg
        self.route_length += leg
        self.cost += self.distance_cost[self.current_depot] * leg

    def _visit(self, a: int) -> None:
        self.visited = [seen or j == a for j, seen in enumerate(self.visited)]

    # Time.

    @property
    def clock(self) -> Clock:
        return Clock(self.start_early, self.start_late, self.route_duration)

    def _set_clock(self, clock: Clock) -> None:
        self.start_early, self.start_late, self.route_duration = clock
        self.current_time = clock.now

    def _fresh_clock(self, k: int) -> Clock:
        opens, closes = self.time_windows[k]
        return Clock(opens, closes, 0.0)

    def _arrival(self, i: int, clock: Clock, j: int) -> float:
        return clock.now + self.d[i][j] / self.speed

    def _clock_at(self, i: int, clock: Clock, j: int) -> Clock:
        """The clock after a drive from i to j and the service there."""
        return clock.after(self.d[i][j] / self.speed, *self.time_windows[j], self.service_time[j])

    def _home_in_limits(self, j: int, length: float, clock: Clock) -> bool:
        """Whether the way home after the service at j keeps window and limits; `length` and `clock` include j."""
        k = self.current_depot
        if not self.open_route:
            if not fits(self._arrival(j, clock, k), self.time_windows[k][1]):
                return False
            length += self.d[j][k]
            clock = self._clock_at(j, clock, k)
        return fits(length, self.distance_limit[k]) and fits(clock.duration, self.duration_limit[k])

    # The mask.

    def _find_mask(self) -> set[int]:
        if self.finished:
            return {0}
        if not self.has_vehicle:
            return self._candidates()
        customers = {j for j in self.customers if self._is_open(j)}
        if self.current_node < self.num_depots:
            return customers
        return customers | self._open_depots(bool(customers))

    def _open_depots(self, some_customer_is_open: bool) -> set[int]:
        if self._all_served():
            return {self.current_depot}
        if not self._may_go_home():
            return set()
        if self._is_covered():
            return self._candidates()
        if some_customer_is_open:
            return set()
        return self._candidates() or {self.current_depot}

    def _candidates(self) -> set[int]:
        """The depots whose vehicles may start: one is left, and some unserved customer can be served from there."""
        waiting = [j for j in self.customers if not self.visited[j] and self._begins(j)]
        return {k for j in waiting for k in self._depots_of(j) if self.vehicles_left[k] > 0}

    def _is_covered(self) -> bool:
        """Whether each unserved customer can be served by a vehicle that is still at its depot."""
        waiting = [j for j in self.customers if not self.visited[j]]
        return all(any(self.vehicles_left[k] > 0 for k in self._depots_of(j)) for j in waiting)

    def _all_served(self) -> bool:
        return all(self.visited[j] for j in self.customers)

    def _depots_of(self, j: int) -> list[int]:
        return [k for k in range(self.n_depots) if self.alone[j] >> k & 1]

    def _alone_bits(self) -> list[int]:
        bits = [0] * self.num_nodes
        for k in range(self.n_depots):
            probe = copy.copy(self)
            probe._take_vehicle(k)
            for j in self.customers:
                bits[j] |= int(probe._can_serve_alone(j)) << k
        return bits


def finished_rows(model: Any) -> Iterator[Any]:
    """Every row that terminates: follows all allowed actions from the state of `model`.

    The sum of the rewards is in `earned`. A live row without an allowed action is an error.
    """
    model.earned = 0.0
    stack = [model]
    while stack:
        row = stack.pop()
        if row.finished:
            yield row
            continue
        actions = row.mask()
        if not actions:
            raise AssertionError(f"no action is allowed after {row.tour}")
        for a in actions:
            after = copy.copy(row)
            after.earned = row.earned + after.step(a)
            stack.append(after)


def count_and_best(build: Callable[[], Any]) -> tuple[int, float]:
    """The number of finished sequences, and the least cost among them."""
    costs = [-row.earned for row in finished_rows(build())]
    return len(costs), min(costs)
