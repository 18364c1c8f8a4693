"""What the profit and waste worlds share: a truck that chooses whom to serve, and the rules of its day.

The rules are kernels with the names of the trade. Each world says what a customer gives and weighs; the mask and the
step of all of them call the functions here. Weights and mandatory customers are handed in with the row
they stand in, since they belong to the instance in some worlds (row q) and to the state in others (row b).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import option
from milkrun.core.errors import ShapeError
from milkrun.core.fields import (
    Field,
    Role,
    bool_,
    constant,
    float32,
    float64,
    instance,
    int32,
    int64,
    mask,
    state,
    view,
)
from milkrun.core.instances import refuse
from milkrun.core.kernels import eight_flags, kernel, lowest_bit
from milkrun.routing.base import HEURISTICS, SOLVER
from milkrun.routing.distance import TOL, fits, travel
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.vehicle import Routing, RoutingConfig

TRIPS = ("single", "multi")
NO_FLAG, ONE_FLAG = np.uint64(0), np.uint64(1)
GATHER, TOP_BYTE = np.uint64(0x0102040810204080), np.uint64(56)  # times a word of flags: its top byte has a bit a flag


@dataclass(frozen=True, kw_only=True)
class CollectConfig(RoutingConfig):
    """Options of every world in which customers are chosen."""

    synonyms: ClassVar[Mapping[str, str]] = {"vehicle_cap": "capacity"}

    depot_type: str = option("random", "where the depot stands", choices=DEPOT_TYPES)
    trips: str = option("single", "single: the first return ends the tour; multi: it empties the truck", choices=TRIPS)
    max_length: float | None = option(None, "limit of one trip's length, the leg home included; None = none", low=0)
    length_weight: float | str = option(
        "auto", "price of a unit of length; auto makes skipping worth while at any size", low=0, high=1e30,
        words=("auto",),
    )  # fmt: skip
    must_go_reserve: bool = option(True, "single trips keep room for the mandatory customers still to come")

    @property
    def beta(self) -> float:
        """The length weight in force."""
        return self.auto_length_weight() if isinstance(self.length_weight, str) else self.length_weight

    def auto_length_weight(self) -> float:
        raise NotImplementedError("each world has its own")


class Collect(Routing):
    """A truck leaves the depot, serves customers of its choice, and comes home."""

    Config = CollectConfig
    config: CollectConfig
    policies = {"greedy": "milkrun.solvers.policies:greedy", **Routing.policies}
    solvers: ClassVar[Any] = dict.fromkeys((*HEURISTICS, "exact", "pyvrp"), SOLVER)
    action = discrete("N")

    depot_law = constant(int64)
    multi = constant(int64)
    reserves = constant(int64)
    trip_limit = constant(float64)
    beta = constant(float64)
    gain_weight = constant(float64)

    must_go = instance(bool_, "N", doc="mandatory customers")
    max_length = instance(float32, low=0, limit=True, doc="limit of one trip's length, the leg home included")
    time_windows = instance(float32, "V", 2, low=0, doc="earliest and latest arrival; only with time_windows")
    service_time = instance(float32, "V", low=0, doc="time a stop takes; only with time_windows")
    speed = instance(float32, "U", low=0, doc="length driven in a unit of time; only with time_windows")
    collected = state(float32, low=0, doc="collected so far")
    load = state(float32, low=0, column=True, doc="on the truck")
    trip_length = state(float32, low=0, doc="distance driven since the depot")
    current_time = state(float32, "U", low=0, doc="when the truck is ready to leave; only with time_windows")
    trips = state(int32, low=0, observed=False, tally=True, doc="returns to the depot from a customer")
    skipped = state(int32, low=0, observed=False, tally=True, doc="customers not served")
    missed_must_go = state(int32, low=0, observed=False, tally=True, doc="mandatory customers not served")
    length = view(float32, doc="distance driven, the same as `tour_length`")
    action_mask = mask("N")

    windows: ClassVar[bool] = False  # the world has the option `time_windows`

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        timed = cls.windows and config.time_windows
        return {**cls.space(config), "A": cls.record_size(config), "V": config.num_loc + 1 if timed else 0,
                "U": int(timed)}  # fmt: skip

    @classmethod
    def record_size(cls, config: Any) -> int:
        """How many actions an episode may take; every other one is a customer not yet served."""
        return 2 * (config.num_loc + 1) if config.record else 0

    def constants(self) -> dict[str, Any]:
        limit = self.config.max_length
        return {
            **super().constants(),
            "depot_law": self.depot_code(),
            "multi": TRIPS.index(self.config.trips),
            "reserves": int(self.config.must_go_reserve),
            "trip_limit": math.inf if limit is None else limit,
        }

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        return {**super().task_options(config), "trips": config.trips, "must_go_reserve": config.must_go_reserve}

    @property
    def info_fields(self) -> list[Field]:
        """Also what a report of a finished row is made of."""
        told = ("collected", "trips", "skipped", "missed_must_go", "overflows", "failures", "lost")
        return [*super().info_fields, *(self.fields[name] for name in told if name in self.fields)]

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "start_time" in values and "end_time" in values:
            values["time_windows"] = np.stack([values.pop("start_time"), values.pop("end_time")], axis=-1)
        if "depot" in values and getattr(values.get("time_windows"), "ndim", 0) == 3:
            values = _with_depot_window(values)
        values = super().arrange_instances(values)
        rows = len(values["n_nodes"])
        values.setdefault("max_length", np.full(rows, self.trip_limit, np.float32))
        if self.fields["must_go"].role is Role.INSTANCE:
            values.setdefault("must_go", np.zeros((rows, self.sizes["N"]), bool))
        if self.sizes["U"]:
            values.setdefault("service_time", np.zeros((rows, self.sizes["N"]), np.float32))
            values["speed"] = np.asarray(values.get("speed", np.ones(rows, np.float32))).reshape(rows, 1)
        return values

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """A load is a sum of numbers that each fitted within the tolerance."""
        super().check_states(arrays)
        if "capacity" in self.fields:
            capacity = arrays["capacity"].astype(np.float64)
            if (over := arrays["load"] > capacity + 2 * TOL * np.maximum(1, capacity)).any():
                refuse("load", arrays["load"], over, f"over the capacity {capacity[over][0]}")

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        at_depot = np.eye(1, self.sizes["N"], dtype=bool)
        for name in (*self.customer_fields, "service_time"):
            if name in arrays and arrays[name].size and arrays[name][..., 0].any() and name != "sensor_noise":
                refuse(name, arrays[name], at_depot & (arrays[name] != 0), "the depot has none")
        if "time_windows" in arrays:
            opens, closes = arrays["time_windows"][..., 0], arrays["time_windows"][..., 1]
            if (opens > closes).any():
                refuse("time_windows", closes, opens > closes, "the window closes before it opens")
            if (still := arrays["speed"] <= 0).any():
                refuse("speed", arrays["speed"], still, "must be above 0")

    def check_weights(self, arrays: dict[str, np.ndarray], name: str) -> None:
        """No customer may outweigh the truck."""
        weight, capacity = arrays[name].astype(np.float64), arrays["capacity"].astype(np.float64)
        if (wrong := capacity <= 0).any():
            refuse("capacity", capacity, wrong, "must be above 0")
        over = weight > capacity[:, None] + np.minimum(0.5, TOL * np.maximum(1.0, capacity))[:, None]
        over &= self.true_nodes(arrays)
        if over.any():
            row = int(np.argwhere(over)[0][0])
            refuse(name, weight, over, f"over the capacity {capacity[row]:g}: no truck can take it")

    def true_nodes(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """(Q, N) which nodes are no padding."""
        return np.arange(self.sizes["N"]) < arrays["n_nodes"][:, None]

    # -- why an action is closed ------------------------------------------------------------------------------

    def why_illegal(self, row: int, action: int) -> str:
        q = self.instance_row[row]
        if not 0 <= action < self.n_nodes[q]:
            return f"out of range 0..{self.n_nodes[q] - 1}"
        if action == 0:
            must = self.must_go_of(row)
            waits = np.flatnonzero(self.action_mask[row] & must)
            return f"depot closed by must-go {int(waits[0])}" if len(waits) else "the depot is closed"
        if self.visited[row, action]:
            return "visited"
        weight, room = self.weight_of(row, action), self.room_of(row)
        if weight > room:
            return f"over capacity: {float(self.load[row]):g} + {weight:g} is over it"
        limit = float(self.max_length[q])
        if limit < math.inf and self.map_rows(detour_fits, np.int64, action, row)[row] == 0:
            return f"too long: the trip would be over {limit:g}"
        if self.sizes["U"] and self.map_rows(in_time, np.int64, action, row)[row] == 0:
            return "too late for its window, or for the depot's after it"
        return "over capacity: room is kept for the must-go customers"

    def must_go_of(self, row: int) -> np.ndarray:
        return self.must_go[self.instance_row[row]]

    def weight_of(self, row: int, node: int) -> float:
        return 0.0

    def room_of(self, row: int) -> float:
        return math.inf


def _with_depot_window(values: dict[str, Any]) -> dict[str, Any]:
    """Windows and service times of customers alone, the depot's own open at all times."""
    windows, customers = values["time_windows"], values["locs"].shape[1]
    if windows.shape[1] == customers:
        always = np.zeros_like(windows[:, :1])
        always[..., 1] = np.finfo(np.float32).max
        values["time_windows"] = np.concatenate([always, windows], axis=1)
    service = values.get("service_time")
    if service is not None:
        if service.ndim != 2:
            raise ShapeError(f"service_time {service.shape} must be (B, n), one a customer")
        if service.shape[1] == customers:
            values["service_time"] = np.concatenate([np.zeros_like(service[:, :1]), service], axis=1)
    return values


# -- the state at the start, and moves ------------------------------------------------------------------------------


@kernel
def set_out(w, b):
    """The truck at the depot, empty, nobody served; all but the mask."""
    q = w.instance_row[b]
    for j in range(w.N):
        w.visited[b, j] = False
    w.current_node[b] = 0
    w.tour_length[b] = 0
    w.length[b] = 0
    w.collected[b] = 0
    w.trips[b] = 0
    w.skipped[b] = w.n_nodes[q] - 1
    unload(w, b)


@kernel
def begin_tour(w, b):
    """A tour of one day: the truck at the depot, nothing written down, its mandatory customers counted."""
    set_out(w, b)
    w.tour_len[b] = 0
    for k in range(w.A):
        w.tour[b, k] = 0
    w.missed_must_go[b] = count_must_go(w, b, w.must_go, w.instance_row[b])


@kernel
def count_must_go(w, b, must, s):
    n = w.n_nodes[w.instance_row[b]]
    total = 0
    for j in range(1, n):
        total += must[s, j]
    return total


@kernel(inline=True)
def unload(w, b):
    """At the depot: an empty truck, a new trip, and with windows a new clock."""
    w.load[b] = 0
    w.trip_length[b] = 0
    if w.U > 0:
        w.current_time[b, 0] = 0


@kernel(inline=True)
def drive(w, b, q, node):
    """To a node; the length of the leg."""
    here = w.current_node[b]
    leg = travel(w, q, here, node)
    w.tour_length[b] = w.tour_length[b] + leg
    w.trip_length[b] = w.trip_length[b] + leg
    w.length[b] = w.tour_length[b]
    w.current_node[b] = node
    if w.U > 0:
        w.current_time[b, 0] = 0.0 if node == 0 else ready(w, b, q, here, node)
    return leg


@kernel(inline=True)
def ends_tour(w, b, was_out):
    """At the depot: a truck that was out empties itself for a further trip, any other's tour is over."""
    w.trips[b] += was_out
    if w.multi and was_out:
        unload(w, b)
        return False
    return True


@kernel(inline=True)
def take(w, b, node, gain, weight, must):
    """Serves a customer."""
    w.collected[b] = np.float64(w.collected[b]) + gain
    w.load[b] = np.float64(w.load[b]) + weight
    w.visited[b, node] = True
    w.skipped[b] -= 1
    w.missed_must_go[b] -= must


@kernel(inline=True)
def write_down(w, b, action):
    if w.tour_len[b] < w.A:
        w.tour[b, w.tour_len[b]] = action
    w.tour_len[b] += 1


# -- rules ----------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def room_left(capacity, load):
    """What still fits: weight <= room_left is fits(load + weight, capacity)."""
    return capacity + min(0.5, TOL * max(1.0, abs(capacity))) - load


@kernel(inline=True)
def below32(x):
    """The largest float32 that is not above x: comparing float32 numbers with it is comparing them with x."""
    y = np.float32(x)
    return y if np.float64(y) <= x else np.nextafter(y, np.float32(-np.inf))


@kernel(inline=True)
def mark_allowed(w, b, weight, r, must, s, room):
    """Opens the customers that are unvisited and fit truck, trip, windows and reserve, then the depot."""
    q = w.instance_row[b]
    n = w.n_nodes[q]
    most = below32(room)
    kept = reserve(w, b, q, weight, r, must, s) if w.reserves and not w.multi and room < math.inf else 0.0
    spare = below32(room - kept)
    for j in range(n):
        fits_in = (weight[r, j] <= spare) | (must[s, j] & (weight[r, j] <= most))
        w.action_mask[b, j] = (not w.visited[b, j]) & fits_in
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    if w.max_length[q] < math.inf:
        for j in range(1, n):
            w.action_mask[b, j] &= short_enough(w, b, q, j)
    if w.U > 0:
        for j in range(1, n):
            w.action_mask[b, j] &= on_time(w, b, q, j)
    w.action_mask[b, 0] = may_go_home(w, b, n, must, s)


@kernel
def short_enough(w, b, q, j):
    """The trip over customer j and home stays within its limit."""
    return fits(w.trip_length[b] + travel(w, q, w.current_node[b], j) + travel(w, q, j, 0), w.max_length[q])


@kernel
def on_time(w, b, q, j):
    """The truck reaches customer j before its window closes, and from there the depot before its own does."""
    here = w.current_node[b]
    arrival = w.current_time[b, 0] + travel(w, q, here, j) / w.speed[q, 0]
    home = ready(w, b, q, here, j) + travel(w, q, j, 0) / w.speed[q, 0]
    return fits(arrival, w.time_windows[q, j, 1]) and fits(home, w.time_windows[q, 0, 1])


@kernel
def ready(w, b, q, here, j):
    """When customer j is served: arrival, waiting for the window, service."""
    arrival = w.current_time[b, 0] + travel(w, q, here, j) / w.speed[q, 0]
    return max(arrival, np.float64(w.time_windows[q, j, 0])) + w.service_time[q, j]


@kernel(inline=True)
def reserve(w, b, q, weight, r, must, s):
    """What the mandatory customers still to be served weigh, of those that a trip can reach: optional ones must leave
    room for it."""
    n = np.int64(w.n_nodes[q])
    limited = w.max_length[q] < math.inf
    kept = 0.0
    for first in range(0, n, 64):
        waiting = still_to_come(w, b, must, s, first, min(n, first + 64))
        while waiting != NO_FLAG:
            j = first + lowest_bit(waiting)
            if not limited or reachable(w, q, j):
                kept += weight[r, j]
            waiting &= waiting - ONE_FLAG
    return kept


@kernel(inline=True)
def still_to_come(w, b, must, s, first, last):
    """The mandatory customers not yet served among up to 64 nodes, a bit each."""
    waiting = NO_FLAG
    j = first
    while j + 8 <= last:
        flags = eight_flags(must, s, j) & ~eight_flags(w.visited, b, j)
        waiting |= ((flags * GATHER) >> TOP_BYTE) << np.uint64(j - first)
        j += 8
    while j < last:
        waiting |= np.uint64(must[s, j] & (not w.visited[b, j])) << np.uint64(j - first)
        j += 1
    return waiting


@kernel
def reachable(w, q, j):
    """A trip to customer j alone fits."""
    limit = w.max_length[q]
    return not limit < math.inf or fits(travel(w, q, 0, j) + travel(w, q, j, 0), limit)


@kernel(inline=True)
def may_go_home(w, b, n, must, s):
    """Emptying the truck is always allowed; ending the tour only when no mandatory customer is open."""
    if w.multi and w.current_node[b] != 0:
        return True
    open_ones = NO_FLAG  # all are looked at: a way out of the loop would be guessed wrong half of the time
    j = 1
    while j + 8 <= n:
        open_ones |= eight_flags(must, s, j) & eight_flags(w.action_mask, b, j)
        j += 8
    while j < n:
        open_ones |= np.uint64(must[s, j] & w.action_mask[b, j])
        j += 1
    return open_ones == NO_FLAG


@kernel(inline=True)
def any_customer(w, b):
    j = 1
    while j + 8 <= w.N:
        if eight_flags(w.action_mask, b, j) != NO_FLAG:
            return True
        j += 8
    while j < w.N:
        if w.action_mask[b, j]:
            return True
        j += 1
    return False


@kernel
def detour_fits(w, b, j, row):
    return b != row or short_enough(w, b, w.instance_row[b], j)


@kernel
def in_time(w, b, j, row):
    return b != row or on_time(w, b, w.instance_row[b], j)
