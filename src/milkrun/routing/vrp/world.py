"""Vehicle routing: serve every customer, with any set of attributes.

Observations: `locs`, `n_nodes`, `n_depots`, `linehaul`, `capacity`, `vehicles`, `open_route`, `current_node`,
    `current_depot`, `has_vehicle`, `visited`, `delivered`, `picked`, `peak`, `route_length`, `tour_length`, `cost`,
    `longest`, `vehicles_left`, `trips`, `unserved`, `i`; with the attribute `backhaul`, `time_windows`, limits, costs
    and their states.
Actions: the node to go to, Discrete(num_depots + num_loc). Nodes 0..K-1 are depots: one returns the vehicle to its own
    depot and takes the next vehicle at the node named.
Mask: customers whose goods fit, that are reached in time and from which the vehicle is back within all limits; the
    depots that have a vehicle left which can serve a customer.
Ends: terminated on the return after the last customer, or when a limited fleet can serve no other customer.
Reward: minus the cost of the step, or with objective="max" minus the growth of the longest route; minus
    `unserved_cost` for each customer left.
References: Berto et al. 2024 (RouteFinder: the 48 variants); Vidal et al. 2014 (attributes); Kool et al. 2019 (split).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.fields import Field, bool_, constant, float32, float64, instance, int32, int64, mask, scratch, state
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.render.scene import Chart, Scene
from milkrun.routing.distance import travel
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.routes import NO_BITS, ONE_BIT, advance_clock, drive_on, leave, must_go_on, open_depots
from milkrun.routing.vehicle import ON_PADDING, OVERLOADED, Routing, clear_record, is_on_padding, write_down
from milkrun.routing.vrp import instances, picture
from milkrun.routing.vrp.config import LAWS, VRPConfig
from milkrun.routing.vrp.generator import generate
from milkrun.routing.vrp.rules import (
    candidates,
    close_far,
    close_forbidden,
    close_late,
    close_long,
    measure,
    open_by_load,
    start_route,
)
from milkrun.routing.vrp.timetable import timetable
from milkrun.routing.vrp.variants import variant_name

EXISTS = {
    "time_windows": {"time_windows"},
    "limits": {"distance_limit", "duration_limit", "service_time", "speed"},
    "backhauls": {"backhaul", "backhaul_class"},
    "fleet_costs": {"fixed_cost", "distance_cost"},
    "restricted": {"serves"},
}
"""The options that given fields switch on."""

MISCOUNTED, NO_SUCH_DEPOT, NOT_AT_HOME, OVER_PICKED, OVER_DELIVERED = 3, 4, 5, 6, 7
"""Faults of a loaded state."""


class VRP(Routing):
    """Vehicle routing with capacity, backhauls, windows, limits, open routes, several depots and mixed fleets."""

    id = "milkrun/VRP-v0"
    is_cost = True
    Config = VRPConfig
    config: VRPConfig
    task = "milkrun.routing.tasks:VRP"
    file_kinds: ClassVar[Any] = {
        "CVRPTW": {},
        "VRPB": {"backhaul_only": False},
        "VRPSPD": {},
        "MDVRP": {},
        "MDVRPTW": {},
        "HFVRP": {},
        "CVRP": {},
    }
    generator = "milkrun.routing.vrp.generator:VRPGenerator"
    solvers: ClassVar[Any] = {"pyvrp": "milkrun.solvers.fleet:solve_job"}
    default_solver = "pyvrp"
    figure = "milkrun.replay.figures:figure_of_routes"
    action = discrete("N")
    node_sizes = ("N", "pickups", "timed", "stops", "restrictions")
    customer_fields = ("linehaul", "backhaul")
    policy_sees = {
        "nodes": ("locs", "linehaul", "backhaul", "time_windows", "service_time", "serves"),
        "places": ("current_node", "current_depot"),
        "numbers": (
            "capacity",
            "backhaul_class",
            "open_route",
            "distance_limit",
            "duration_limit",
            "fixed_cost",
            "distance_cost",
            "speed",
            "has_vehicle",
            "delivered",
            "picked",
            "peak",
            "route_length",
            "current_time",
            "route_duration",
            "vehicles_left",
            "longest",
        ),
        "changing": ("remaining",),
    }
    synonyms = {"demand_linehaul": "linehaul", "demand_backhaul": "backhaul", "demand": "linehaul"}
    usual = {**Routing.usual, "depot_law": DEPOT_TYPES.index("random"), "law": LAWS.index("routefinder")}

    depot_law = constant(int64)
    law = constant(int64)
    max_demand = constant(int64)
    truck = constant(int64)
    fleet = constant(int64)
    backhaul_ratio = constant(float64)
    odds = constant(float64, 6)
    single = constant(int64)
    may_begin_with_pickup = constant(bool_)
    by_longest = constant(bool_)
    unserved_price = constant(float64)
    way = scratch(float64, "N")
    home = scratch(float64, "N")

    n_depots = instance(int32, low=1, high="depots", doc="depots of this row; later ones are padding")
    linehaul = instance(int32, "N", low=0, doc="units to deliver; 0 at depots")
    backhaul = instance(int32, "pickups", low=0, doc="units to pick up; 0 at depots; only with backhauls")
    backhaul_class = instance(int32, "either", low=1, high=2, doc="1: no linehaul after a backhaul; 2: any order")
    capacity = instance(int32, "depots", low=1, doc="units that a vehicle of this depot holds")
    vehicles = instance(int32, "depots", low=0, doc="vehicles of this depot")
    distance_limit = instance(float32, "limited", low=0, limit=True, doc="limit of a route's length; only with limits")
    duration_limit = instance(
        float32, "limited", low=0, limit=True, doc="limit of the time from leaving to the return; only with limits"
    )
    fixed_cost = instance(float32, "priced", low=0, doc="cost of a vehicle that is used; only with fleet_costs")
    distance_cost = instance(float32, "priced", low=0, doc="cost of a unit of distance; only with fleet_costs")
    time_windows = instance(
        float32,
        "timed",
        2,
        low=0,
        limit=True,
        doc="earliest and latest start of service; of a depot: leaving and return; only with time_windows",
    )
    service_time = instance(float32, "stops", low=0, doc="time of a stop; only with time_windows or limits")
    speed = instance(float32, "clock", low=0, doc="distance in a unit of time; only with time_windows or limits")
    open_route = instance(bool_, doc="vehicles do not drive home")
    serves = instance(int64, "restrictions", low=0, doc="bit k: depot k may serve this customer; only with restricted")
    alone = instance(int64, "choices", low=0, observed=False, doc="bit k: depot k can serve this customer alone")
    has_clock = instance(bool_, observed=False, doc="some window of this row is finite")

    current_depot = state(int64, index="depots", doc="depot of the vehicle in use")
    has_vehicle = state(bool_, doc="a vehicle is in use; False before the first of several depots is chosen")
    remaining = state(int32, "parts", low=0, doc="units still to deliver; only with split")
    delivered = state(int32, low=0, doc="units delivered on this route")
    picked = state(int32, low=0, doc="units picked up on this route")
    peak = state(int32, low=0, doc="largest load of this route so far")
    route_length = state(float32, low=0, doc="distance of this route")
    current_time = state(float32, "clock", low=0, doc="earliest end of the last service")
    start_early = state(float32, "clock", low=0, doc="earliest start of this route without a later end")
    start_late = state(float32, "clock", limit=True, doc="latest start of this route in time for all windows")
    route_duration = state(float32, "clock", low=0, doc="least duration of this route so far")
    vehicles_left = state(int32, "depots", low=0, doc="vehicles that have not left")
    cost = state(float32, low=0, doc="cost so far")
    longest = state(float32, low=0, doc="length of the longest finished route")
    trips = state(int32, low=0, doc="vehicles used")
    unserved = state(int32, low=0, doc="customers not served")
    backhaul_only_routes = state(int32, low=0, tally=True, doc="finished routes without a linehaul")
    action_mask = mask("N", remade=True)

    faults: ClassVar[Mapping[int, tuple[str, str]]] = {
        **Routing.faults,
        OVERLOADED: ("peak", "over the capacity of the vehicle"),
        OVER_PICKED: ("picked", "over the capacity of the vehicle"),
        OVER_DELIVERED: ("delivered", "over the capacity of the vehicle"),
        MISCOUNTED: ("unserved", "is not the number of customers that are not visited; n_nodes is {n_nodes}"),
        NO_SUCH_DEPOT: ("current_depot", "is padding: n_depots is {n_depots}"),
        NOT_AT_HOME: ("has_vehicle", "a row without a vehicle is at a depot"),
    }

    @classmethod
    def size_of(cls, config: VRPConfig) -> dict[str, int]:
        depots = config.depots
        nodes = depots + config.num_loc
        space = cls.space(config)
        visits = 1 + config.num_loc + 2 * config.most_routes if config.split else 2 * nodes
        return {
            **space,
            "N": nodes,
            "M": nodes if space["M"] else 0,
            "depots": depots,
            "A": visits if config.record else 0,
            "pickups": nodes if config.has_backhauls else 0,
            "either": int(config.has_backhauls),
            "timed": nodes if config.has_windows else 0,
            "stops": nodes if config.has_windows or config.has_limits else 0,
            "clock": int(config.has_windows or config.has_limits),
            "limited": depots if config.has_limits else 0,
            "priced": depots if config.fleet_costs else 0,
            "restrictions": nodes if config.restricted else 0,
            "choices": nodes if depots > 1 else 0,
            "parts": nodes if config.split else 0,
        }

    @classmethod
    def auto_max_steps(cls, config: VRPConfig) -> int:
        usual = 4 * (config.depots + config.num_loc)
        return max(usual, 2 * (config.num_loc + 2 * config.most_routes)) if config.split else usual

    def constants(self) -> dict[str, Any]:
        config = self.config
        return {
            **super().constants(),
            "depot_law": self.depot_code(),
            "law": LAWS.index(config.law),
            "odds": np.array(config.odds[:6]),
            "single": config.odds.single,
            "may_begin_with_pickup": config.backhaul_only,
            "by_longest": config.objective == "max",
        }

    @property
    def first_customer(self) -> int:
        return self.sizes["depots"]

    @property
    def info_fields(self) -> list[Field]:
        names = ("cost", "trips", "longest", "unserved", "backhaul_only_routes")
        return [*super().info_fields, *(self.fields[name] for name in names)]

    def variant_names(self) -> list[str]:
        """The variant of each row, by what its instance has."""
        names = []
        for q in self.instance_row.tolist():
            backhaul = int(self.backhaul_class[q, 0]) if self.sizes["pickups"] and self.backhaul[q].any() else 0
            limit = bool(self.sizes["limited"] and np.isfinite(self.distance_limit[q]).any())
            names.append(
                variant_name(
                    bool(self.n_depots[q] > 1), bool(self.open_route[q]), backhaul, limit, bool(self.has_clock[q])
                )
            )
        return names

    # -- instances ----------------------------------------------------------------------------------------------------

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return instances.complete(self, super().arrange_instances(values))

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        instances.check(self, arrays)

    @classmethod
    def task_options(cls, config: VRPConfig) -> dict[str, Any]:
        rules = {name: getattr(config, name) for name in ("objective", "backhaul_only", "split")}
        return {**super().task_options(config), **rules, "unserved_cost": config.unserved_price}

    @classmethod
    def options_for(cls, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The attributes of instances (B, ...) with these fields, and their number of depots."""
        found: dict[str, Any] = {option: True for option, fields in EXISTS.items() if fields & set(given)}
        if "time_windows" in given and not {"distance_limit", "duration_limit"} & set(given):
            found.pop("limits", None)  # stops and speed belong to the windows
        base = super().options_for(given)
        return {**base, **found, **instances.number_of_depots(given, base["num_loc"])}

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_states(arrays)
        visited = arrays["visited"]
        at_depot = np.arange(visited.shape[1]) < self.first_customer
        refuse_where("visited", visited, visited & at_depot, "a depot is never visited")

    # -- pictures and reasons -----------------------------------------------------------------------------------------

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return picture.scene(self, row)

    def driven(self, row: int) -> list[int]:
        return picture.driven(self, row)

    chart_fields: ClassVar[tuple[str, ...]] = ("current_node", "current_depot")

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
        return timetable(self, row, frames)

    def why_illegal(self, row: int, action: int) -> str:
        return instances.why_illegal(self, row, action)


# -- step -------------------------------------------------------------------------------------------------------------


@kernel
def reset(w, b):
    q = w.instance_row[b]
    for j in range(w.N):
        w.visited[b, j] = False
    for j in range(w.parts):
        w.remaining[b, j] = w.linehaul[q, j]
    for k in range(w.depots):
        w.vehicles_left[b, k] = w.vehicles[q, k]
    w.tour_length[b] = 0
    w.cost[b] = 0
    w.longest[b] = 0
    w.trips[b] = 0
    w.unserved[b] = w.n_nodes[q] - w.depots
    w.backhaul_only_routes[b] = 0
    start_route(w, b, q, 0)
    w.has_vehicle[b] = w.n_depots[q] == 1
    clear_record(w, b)
    mark_allowed(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    if action >= w.depots:
        visit(w, b, q, action)
    elif w.has_vehicle[b]:
        go_home(w, b, q, action)
    else:
        start_route(w, b, q, action)
    write_down(w, b, action)
    mark_allowed(w, b)


@kernel(inline=True)
def visit(w, b, q, j):
    """Drives to a customer and serves it."""
    k, here = w.current_depot[b], w.current_node[b]
    leg = travel(w, q, here, j)
    fixed = leave(w, b, q) if here < w.depots else 0.0
    if w.clock > 0:
        advance_clock(w, b, q, j, leg)
    pay(w, b, drive_on(w, b, q, j, leg), fixed)
    is_served = True
    if w.parts > 0:
        given = min(w.remaining[b, j], w.capacity[q, k] - w.delivered[b])
        w.remaining[b, j] -= given
        w.delivered[b] += given
        w.peak[b] = w.delivered[b]
        is_served = w.remaining[b, j] == 0
    else:
        # The goods of a linehaul were aboard from the start of the route.
        w.peak[b] += w.linehaul[q, j]
        w.delivered[b] += w.linehaul[q, j]
        if w.pickups > 0:
            w.picked[b] += w.backhaul[q, j]
            w.peak[b] = max(w.peak[b], w.picked[b])
    if is_served:
        w.visited[b, j] = True
        w.unserved[b] -= 1


@kernel(inline=True)
def go_home(w, b, q, following):
    """Ends the route at its own depot; the next vehicle stands at the depot named, if it has one."""
    k = w.current_depot[b]
    leg = 0.0 if w.open_route[q] else travel(w, q, w.current_node[b], k)
    pay(w, b, drive_on(w, b, q, k, leg), 0.0)
    w.longest[b] = max(w.longest[b], w.route_length[b])
    if w.pickups > 0:
        w.backhaul_only_routes[b] += (w.delivered[b] == 0) & (w.picked[b] > 0)
    if w.unserved[b] > 0 and (candidates(w, b, q) >> following) & ONE_BIT != 0:
        start_route(w, b, q, following)
    else:
        w.terminated[b] = True
        w.reward[b] -= w.unserved_price * w.unserved[b]


@kernel(inline=True)
def pay(w, b, amount, fixed):
    w.reward[b] = -(amount + fixed)


@kernel(inline=True)
def mark_allowed(w, b):
    q = w.instance_row[b]
    n = w.n_nodes[q]
    for j in range(w.depots):
        w.action_mask[b, j] = False
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    if w.has_vehicle[b]:
        mark_customers(w, b, q, n)
    else:
        for j in range(w.depots, n):
            w.action_mask[b, j] = False
    mark_depots(w, b, q, n)


@kernel(inline=True)
def mark_customers(w, b, q, n):
    k = w.current_depot[b]
    open_by_load(w, b, q, k, n)
    if w.restrictions > 0:
        close_forbidden(w, b, q, k, n)
    is_far = w.limited > 0 and w.distance_limit[q, k] < math.inf
    is_long = w.limited > 0 and w.duration_limit[q, k] < math.inf
    is_timed = w.timed > 0 and w.has_clock[q]
    if is_far or is_long or is_timed:
        measure(w, q, w.current_node[b], k, n)
        if is_timed:
            close_late(w, b, q, k, n)
        if is_far:
            close_far(w, b, q, k, n)
        if is_long:
            close_long(w, b, q, k, n)


@kernel(inline=True)
def mark_depots(w, b, q, n):
    """Opens the depots of the next vehicle; without one, the vehicle's own depot, which ends the row."""
    if not must_go_on(w, b, q, n):
        open_depots(w, b, q, candidates(w, b, q) if w.unserved[b] > 0 else NO_BITS)


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    if is_on_padding(w, b):
        return ON_PADDING
    q, k = w.instance_row[b], w.current_depot[b]
    if k >= w.n_depots[q]:
        return NO_SUCH_DEPOT
    if w.peak[b] > w.capacity[q, k]:
        return OVERLOADED
    if w.picked[b] > w.capacity[q, k]:
        return OVER_PICKED
    if w.delivered[b] > w.capacity[q, k]:
        return OVER_DELIVERED
    if not w.has_vehicle[b] and w.current_node[b] >= w.depots:
        return NOT_AT_HOME
    left = 0
    for j in range(w.depots, w.n_nodes[q]):
        left += not w.visited[b, j]
    return MISCOUNTED if left != w.unserved[b] else 0


VRP.bind(generate=generate, reset=reset, step=step, derive_mask=mark_allowed, fault=fault)
