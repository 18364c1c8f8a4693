"""Base class of the scalar references of both dial-a-ride rules: one row, plain Python, written from the rules alone.

Node 0 is the depot, request r has its pickup at node 2r+1 and its dropoff at 2r+2. `DARPBaseModel` has the counters,
illegal actions, ends, rewards and features; `DARPModel` (`classic`) and `DARPDeadlinesModel` (`deadlines`) have the
moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from .tsp import f32


class Reason(IntEnum):
    """Why an action is illegal; `NONE` is a legal one."""

    NONE = 0
    OUT_OF_RANGE = 1
    VISITED = 2
    NOT_ABOARD = 3
    RIDERS_ABOARD = 4
    FROM_DEPOT = 5
    CAPACITY = 6
    TOO_MANY = 7
    TOO_LATE = 8
    STRANDS = 9


def is_pickup(j: int) -> bool:
    return j % 2 == 1


def is_dropoff(j: int) -> bool:
    return j > 0 and j % 2 == 0


def request_of(j: int) -> int:
    return (j - 1) // 2


def squeeze(values: Sequence[float]) -> list[float]:
    """Features are clipped to [-10, 10] and stored as float32."""
    return [f32(min(10.0, max(-10.0, x))) for x in values]


class DARPBaseModel:
    """One row of either rule. `step` replaces lists and never changes them: a shallow copy is a snapshot."""

    def __init__(
        self,
        demand: Sequence[int],
        capacity: Sequence[int],
        n_nodes: int | None,
        penalty: float,
        reward: str,
        max_steps: int | None,
    ) -> None:
        if reward not in ("dense", "terminal"):
            raise ValueError(f"reward {reward!r} is neither dense nor terminal")
        self.demand = [int(x) for x in demand]
        self.capacity = [int(x) for x in capacity]
        self.num_nodes = len(self.demand)
        self.n_nodes = self.num_nodes if n_nodes is None else int(n_nodes)
        self.penalty = float(penalty)
        self.reward_mode = reward
        self.max_steps = 4 * (self.num_nodes - 1 + len(self.capacity)) if max_steps is None else int(max_steps)

    def illegal_reason(self, action: int) -> Reason:
        """NONE if a live row allows the action, else the first reason that applies."""
        raise NotImplementedError

    def _start(self) -> None:
        """Set the fields of this rule to their values at reset."""
        raise NotImplementedError

    def _drive(self, a: int) -> float:
        """Execute the legal action a; returns the driven distance."""
        raise NotImplementedError

    def _live_mask(self) -> list[bool]:
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        return self.terminated or self.truncated

    @property
    def illegal(self) -> bool:
        return self.reason != Reason.NONE

    @property
    def unvisited(self) -> int:
        return sum(not self.visited[j] for j in range(1, self.n_nodes))

    @property
    def unserved(self) -> int:
        return sum(not self.visited[j] for j in range(2, self.n_nodes, 2))

    @property
    def cost(self) -> float:
        return self.total_distance + self.penalty * self.unvisited

    def allowed(self) -> list[int]:
        return [j for j, is_allowed in enumerate(self.action_mask) if is_allowed]

    def reset(self) -> None:
        self.current_node = 0
        self.current_agent = 0
        self.current_load = 0
        self.visited = [j >= self.n_nodes for j in range(self.num_nodes)]
        self.picked_up_by_current = [False] * self.num_nodes
        self.vehicle_finished = [seats == 0 for seats in self.capacity]
        self.vehicles_used = 0
        self.total_distance = 0.0
        self.i = 0
        self.reward = self.reward_exact = 0.0
        self.terminated = self.truncated = False
        self.reason = Reason.NONE
        self._start()
        self.action_mask = self.mask()

    def step(self, action: int) -> None:
        if self.finished:
            self.reward = self.reward_exact = 0.0
            return
        self.i += 1
        self.reason = Reason.NONE if action in self.allowed() else self.illegal_reason(action)
        leg = 0.0 if self.illegal else self._drive(action)
        self.truncated = not self.terminated and self.i >= self.max_steps
        if self.reward_mode == "dense":
            self.reward_exact = -leg - (self.penalty * self.unvisited if self.terminated else 0.0)
        else:
            self.reward_exact = -self.cost if self.terminated else 0.0
        self.reward = f32(self.reward_exact)
        self.action_mask = self.mask()

    def mask(self) -> list[bool]:
        if self.finished:
            return [j == 0 for j in range(self.num_nodes)]
        return self._live_mask()

    def _serve(self, a: int) -> None:
        """Pickup or dropoff at customer a, in both rules."""
        self.visited = [seen or j == a for j, seen in enumerate(self.visited)]
        self.current_load += self.demand[a]
        if is_pickup(a):
            self.picked_up_by_current = [done or j == a for j, done in enumerate(self.picked_up_by_current)]

    def _finish_vehicle(self, k: int) -> None:
        self.vehicle_finished = [over or q == k for q, over in enumerate(self.vehicle_finished)]

    def _activate(self, k: int) -> None:
        self.current_agent = k
        self.current_load = 0
        self.picked_up_by_current = [False] * self.num_nodes

    # The features. A rule defines its windows, its clock, and the methods below.

    @property
    def riding(self) -> list[int]:
        """The requests aboard."""
        raise NotImplementedError

    def _travel_time(self, j: int) -> float:
        """From the current node to node j."""
        raise NotImplementedError

    def _earliest_start(self, j: int) -> float:
        """Of service at node j, if visited next."""
        raise NotImplementedError

    def _vehicle_shares(self) -> tuple[float, float]:
        """Riders aboard relative to the maximum, and time on the road relative to the maximum."""
        raise NotImplementedError

    @property
    def horizon(self) -> float:
        return max(self.tight_close[0] - self.tight_open[0], 1e-9)

    @property
    def nodes(self) -> list[list[float]]:
        x0, y0 = self.locs[0]
        scale = max(1e-9, *(max(abs(x - x0), abs(y - y0)) for x, y in self.locs))
        return [self._node_features(j, scale) for j in range(self.num_nodes)]

    def _node_features(self, j: int, scale: float) -> list[float]:
        (x0, y0), (x, y), start, hz = self.locs[0], self.locs[j], self.tight_open[0], self.horizon
        earliest = self._earliest_start(j)
        return squeeze(
            [
                (x - x0) / scale,
                (y - y0) / scale,
                self.demand[j] / max(self.capacity),
                self.service_time[j] / hz,
                (self.tight_open[j] - start) / hz,
                (self.tight_close[j] - start) / hz,
                is_pickup(j),
                is_dropoff(j),
                self.visited[j],
                j > 0 and request_of(j) in self.riding,
                self._travel_time(j) / hz,
                (earliest - start) / hz,
                (self.tight_close[j] - earliest) / hz,
                self.action_mask[j],
            ]
        )

    @property
    def vehicle(self) -> list[float]:
        """Shares refer to real vehicles and requests, without padding."""
        fleet = [over for over, seats in zip(self.vehicle_finished, self.capacity, strict=True) if seats > 0]
        requests = (self.n_nodes - 1) // 2
        aboard, on_the_road = self._vehicle_shares()
        return squeeze(
            [
                (self.current_time - self.tight_open[0]) / self.horizon,
                self.current_load / self.capacity[self.current_agent],
                aboard,
                on_the_road,
                sum(fleet) / len(fleet),
                (requests - self.unserved) / requests,
                self.i / self.max_steps,
            ]
        )
