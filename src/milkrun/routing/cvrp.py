"""Capacitated vehicle routing: serve every customer once, return to the depot to empty the truck.

Observations: `locs`, `demand_units`, `capacity`, `n_nodes`, `current_node`, `visited`, `load`, `tour_length`,
    `trip_length`, `i` (and `dist` with a matrix, `max_length` and `service_time` where given).
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: customers not yet visited whose demand fits the room left (and whose trip, with the service at its stops, fits
    `max_length`); the depot unless the truck is there.
Ends: terminated on the return to the depot after the last customer.
Reward: minus the distance driven; the return is minus the length of all trips.
References: Kool, van Hoof, Welling 2019 (instances); Uchoa et al. 2017 (files).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import option
from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.core.fields import constant, float32, float64, instance, int32, int64, mask, state
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.render.scene import Scene
from milkrun.routing.base import HEURISTICS, SOLVER
from milkrun.routing.distance import METRICS, TOL, fits, legs, travel
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.generators.tours import generate_cvrp as generate
from milkrun.routing.reach import farthest_drawn
from milkrun.routing.trips import reachable, short_enough
from milkrun.routing.vehicle import (
    ON_PADDING,
    OVER_CAPACITY,
    OVERLOADED,
    Routing,
    RoutingConfig,
    check_costs,
    clear_record,
    is_on_padding,
    write_down,
)

CAPACITY = {10: 20, 15: 25, 20: 30, 30: 33, 40: 37, 50: 40, 60: 43, 75: 45, 100: 50, 125: 55, 150: 60, 200: 70,
            500: 100, 1000: 150}  # fmt: skip
"""Truck sizes of the literature by number of customers; between them the nearest, ties to the smaller."""

MILLIONTHS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class CVRPConfig(RoutingConfig):
    """Options of the CVRP."""

    presets: ClassVar[Any] = {
        **RoutingConfig.presets,
        **{f"kool{n}": {"num_loc": n, "capacity": CAPACITY[n]} for n in (20, 50, 100)},
    }
    synonyms: ClassVar[Any] = {"vehicle_cap": "capacity"}

    depot_type: str = option("random", "place of the depot", choices=DEPOT_TYPES)
    capacity: int | None = option(None, "units a truck holds; None = that of the literature", low=1, high=2**30)
    max_demand: int = option(9, "largest demand drawn, in units", low=1, high=2**30)
    max_length: float | None = option(None, "limit of one trip's length, the leg home included; None = none", low=0)
    service_times: bool = option(False, "stops take their `service_time` of max_length; drawn instances have none")

    def validate(self) -> None:
        super().validate()
        if self.truck < self.max_demand:
            raise ConfigError(f"capacity = {self.truck} is below max_demand = {self.max_demand}: no truck can take it")
        if self.max_length is not None and not callable(self.loc_distribution):
            farthest, where = farthest_drawn(self)
            # The limit in float32, as instances store it. `py_func` checks a configuration without compiling.
            if not fits.py_func(farthest, float(np.float32(self.max_length))):
                raise ConfigError(
                    f"max_length = {self.max_length} is below {farthest:g}, there and back {where}: a "
                    "customer drawn there could not be served"
                )

    @property
    def truck(self) -> int:
        """The capacity in force."""
        if self.capacity is not None:
            return self.capacity
        nearest = min(CAPACITY, key=lambda n: (abs(n - self.num_loc), n))
        if nearest != self.num_loc:
            logging.getLogger("milkrun").info(
                "no capacity is listed for %d customers: using that of %d, %d units",
                self.num_loc,
                nearest,
                CAPACITY[nearest],
            )
        return CAPACITY[nearest]


class CVRP(Routing):
    """Capacitated vehicle routing: serve every customer once, return to the depot to empty the truck."""

    id = "milkrun/CVRP-v0"
    is_cost = True
    Config = CVRPConfig
    config: CVRPConfig
    task = "milkrun.routing.tasks:CVRP"
    generator = "milkrun.routing.generators:CVRPGenerator"
    solvers = dict.fromkeys((*HEURISTICS, "savings", "exact", "pyvrp", "ortools"), SOLVER)
    file_kinds = {"CVRP": {}}
    environments = {"rl4co": "milkrun.api.rl4co.envs:CVRPEnv"}
    action = discrete("N")
    customer_fields = ("demand_units",)
    policy_sees = {"nodes": ("locs", "demand_units"), "places": ("current_node",), "numbers": ("load",)}
    usual = {**Routing.usual, "depot_law": DEPOT_TYPES.index("random")}

    depot_law = constant(int64)
    max_demand = constant(int64)
    truck = constant(int64)
    trip_limit = constant(float64)

    demand_units = instance(int32, "N", low=0, doc="units to collect; 0 at the depot")
    capacity = instance(int32, low=1, column=True, doc="capacity of the truck in units")
    max_length = instance(float32, low=0, limit=True, doc="limit of one trip's length, the leg home included")
    service_time = instance(float32, "V", low=0, doc="of a stop, counted against max_length; only with service_times")
    load = state(int32, low=0, doc="units on the truck")
    trip_length = state(float32, low=0, doc="distance driven since the depot, and service on the way")
    trips = state(int32, low=0, tally=True, doc="returns to the depot")
    action_mask = mask("N", remade=True)

    faults = {**Routing.faults, **OVER_CAPACITY}

    @classmethod
    def size_of(cls, config: CVRPConfig) -> dict[str, int]:
        nodes = config.num_loc + 1
        # At most one return for each customer.
        return {**cls.space(config), "A": 2 * nodes if config.record else 0, "V": nodes if config.service_times else 0}

    def constants(self) -> dict[str, Any]:
        limit = self.config.max_length
        return {
            **super().constants(),
            "depot_law": self.depot_code(),
            "truck": self.config.truck,
            "trip_limit": math.inf if limit is None else limit,
        }

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "demand" in values and "demand_units" not in values:
            values = in_units(values, self.config.truck)
        service = values.get("service_time")
        if self.sizes["V"] and service is not None and service.ndim == 2 and service.shape[1] == self.sizes["V"] - 1:
            values["service_time"] = np.pad(service, ((0, 0), (1, 0)))  # given for customers only
        values = super().arrange_instances(values)
        rows = len(values["n_nodes"])
        values.setdefault("max_length", np.full(rows, self.trip_limit, np.float32))
        if self.sizes["V"]:
            values.setdefault("service_time", np.zeros((rows, self.sizes["V"]), np.float32))
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        demand, real = arrays["demand_units"], np.arange(self.sizes["N"]) < arrays["n_nodes"][:, None]
        real[:, 0] = False
        if demand[:, 0].any():
            refuse("demand_units", demand, np.eye(1, demand.shape[1], dtype=bool) & (demand != 0), "the depot's is 0")
        if (real & (demand < 1)).any():
            refuse("demand_units", demand, real & (demand < 1), "must be 1..capacity")
        service = arrays.get("service_time", np.zeros((len(demand), 0)))
        if service[:, :1].any():
            refuse("service_time", service[:, :1], service[:, :1] != 0, "the depot's is 0")
        over = real & (demand > arrays["capacity"][:, None])
        if over.any():
            row = np.argwhere(over)[0][0]
            refuse("demand_units", demand, over, f"over the capacity {arrays['capacity'][row]}: no truck can take it")
        self._check_reach(arrays, real)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        check_costs(arrays)

    def _check_reach(self, arrays: dict[str, np.ndarray], real: np.ndarray) -> None:
        """Every customer must be served, so a trip to each alone must be within the limit."""
        limited = np.flatnonzero(arrays["max_length"] < math.inf)
        if not len(limited):
            return
        alone = self._there_and_back(arrays, limited)
        limit = arrays["max_length"][limited].astype(np.float64)[:, None]
        far = (alone > limit + np.minimum(0.5, TOL * np.maximum(1.0, limit))) & real[limited]
        for k, j in np.argwhere(far)[:1].tolist():
            self._refuse_far(int(limited[k]), j, alone[k, j], limit[k, 0])

    def _refuse_far(self, row: int, j: int, alone: float, limit: float) -> NoReturn:
        raise BadInstance(f"row {row}: customer {j}: there and back {alone:g} is over max_length = {limit:g}")

    def _there_and_back(self, arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
        """(rows, N) the length of a trip to each customer alone, with its service time."""
        stop = arrays["service_time"][rows].astype(np.float64) if self.sizes["V"] else 0.0
        if self.sizes["M"]:
            dist = arrays["dist"][rows].astype(np.float64)
            return dist[:, 0] + dist[:, :, 0] + stop
        x, y = np.moveaxis(arrays["locs"][rows].astype(np.float64), 2, 0)
        return 2 * legs(METRICS.index(self.config.metric), x[:, :1], y[:, :1], x, y) + stop

    def amend_instances(self, rows: np.ndarray) -> None:
        """Refuses customers that a Python law has placed out of reach; the configuration checks all other laws."""
        if self.trip_limit == math.inf:
            return
        beyond = self.map_rows(first_beyond)[rows]
        for r in np.flatnonzero(beyond)[:1].tolist():
            row, j = int(rows[r]), int(beyond[r])
            arrays = {name: getattr(self, name) for name in ("locs", "dist", "service_time")}
            owner = self.instance_row[[row]]
            self._refuse_far(row, j, self._there_and_back(arrays, owner)[0, j], float(self.max_length[owner[0]]))

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        q = self.instance_row[row]
        units = self.demand_units[q]
        s = self.scene_of_nodes(row, "customers", units, lambda: [f"demand {d}" for d in units.tolist()])
        s.gauge("load", self.load[row], self.capacity[q])
        return s

    def why_illegal(self, row: int, action: int) -> str:
        q = self.instance_row[row]
        if not 0 <= action < self.n_nodes[q]:
            return f"out of range 0..{self.n_nodes[q] - 1}"
        if action == 0:
            return "the truck is at the depot"
        if self.visited[row, action]:
            return "visited"
        load, more, room = int(self.load[row]), int(self.demand_units[q, action]), int(self.capacity[q])
        if load + more > room:
            return f"over capacity: {load} + {more} > {room}"
        return f"too long: the trip would be over {self.max_length[q]:g}"


def in_units(values: dict[str, Any], truck: int) -> dict[str, Any]:
    """Converts `demand` to whole units.

    Floats are RL4CO's shares of the vehicle. They are multiplied by `capacity` where that gives whole numbers, within
    1e-3, and otherwise by a million.
    """
    demand = values["demand"]
    rest = {name: array for name, array in values.items() if name != "demand"}
    if demand.dtype.kind != "f":
        return {**rest, "demand_units": demand}
    capacity = np.asarray(rest.get("capacity", np.full(len(demand), truck)), np.float64)
    if demand.ndim != 2 or capacity.size != len(demand):
        raise ShapeError(f"demand must be (B, n) and capacity (B,), not {demand.shape} and {capacity.shape}")
    capacity = capacity.reshape(-1)
    if (wrong := ~(np.isfinite(demand) & (demand >= 0))).any():
        refuse("demand", demand, wrong, "must be a share of the vehicle, finite and >= 0")
    if (wrong := ~(np.isfinite(capacity) & (capacity >= 1))).any():
        refuse("capacity", capacity, wrong, "must be finite and >= 1")
    units = demand.astype(np.float64) * capacity[:, None]
    whole = (np.abs(units - np.rint(units)) <= 1e-3).all(axis=1) & (capacity == np.rint(capacity))
    # A share below half a millionth counts as one unit, since a customer without demand is refused.
    fine = np.maximum(np.rint(demand.astype(np.float64) * MILLIONTHS), demand > 0)
    return {
        **rest,
        "demand_units": np.where(whole[:, None], np.rint(units), fine).astype(np.int64),
        "capacity": np.where(whole, capacity, MILLIONTHS).astype(np.int64),
    }


@kernel
def reset(w, b):
    for j in range(w.N):
        w.visited[b, j] = False
    w.current_node[b] = 0
    w.load[b] = 0
    w.tour_length[b] = 0
    w.trip_length[b] = 0
    w.trips[b] = 0
    clear_record(w, b)
    mark_allowed(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    leg = travel(w, q, w.current_node[b], action)
    w.reward[b] = -leg
    w.tour_length[b] = w.tour_length[b] + leg
    w.current_node[b] = action
    if action == 0:
        w.load[b] = 0
        w.trip_length[b] = 0
        w.trips[b] += 1
        w.terminated[b] = all_served(w, b, q)
    else:
        w.load[b] += w.demand_units[q, action]
        w.trip_length[b] = w.trip_length[b] + leg + (np.float64(w.service_time[q, action]) if w.V > 0 else 0.0)
        w.visited[b, action] = True
    write_down(w, b, action)
    mark_allowed(w, b)


@kernel
def all_served(w, b, q):
    for j in range(1, w.n_nodes[q]):
        if not w.visited[b, j]:
            return False
    return True


@kernel(inline=True)
def mark_allowed(w, b):
    q = w.instance_row[b]
    n = w.n_nodes[q]
    # The room is 32 bits like the demands (checks bound both). Then the loop below has neither branches nor widening,
    # and one vector instruction handles eight nodes.
    room = np.int32(w.capacity[q] - w.load[b])
    for j in range(n):
        w.action_mask[b, j] = (not w.visited[b, j]) & (w.demand_units[q, j] <= room)
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    if w.max_length[q] < math.inf:
        for j in range(1, n):
            w.action_mask[b, j] &= short_enough(w, b, q, j)
        for j in range(1, w.V):  # a separate loop, which costs nothing without service times
            w.action_mask[b, j] = w.action_mask[b, j] and short_enough_with_stop(w, b, q, j)
    w.action_mask[b, 0] = w.current_node[b] != 0


@kernel
def first_beyond(w, b, _, __):
    """The first customer out of reach of every trip, 0 if there is none."""
    q = w.instance_row[b]
    for j in range(1, w.n_nodes[q]):
        if not reachable(w, q, j):
            return j
    return 0


@kernel
def short_enough_with_stop(w, b, q, j):
    """The trip via customer j and home, with the service time at j, stays within its limit."""
    way = travel(w, q, w.current_node[b], j) + np.float64(w.service_time[q, j]) + travel(w, q, j, 0)
    return fits(w.trip_length[b] + way, w.max_length[q])


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    if is_on_padding(w, b):
        return ON_PADDING
    return OVERLOADED if w.load[b] > w.capacity[w.instance_row[b]] else 0


CVRP.bind(generate=generate, reset=reset, step=step, derive_mask=mark_allowed, fault=fault)

__all__ = ["CAPACITY", "CVRP", "CVRPConfig", "generate", "reset", "step"]
