"""Pickups and deliveries in pairs: the goods of each pickup go to its delivery, on the same route.

Observations: `locs`, `n_nodes`, `n_depots`, `demand`, `capacity`, `vehicles`, `open_route`, `current_node`,
    `current_depot`, `has_vehicle`, `visited`, `aboard`, `load`, `route_length`, `tour_length`, `cost`, `longest`,
    `vehicles_left`, `trips`, `unserved`, `i`; with windows, limits and costs their fields and states, and `plan`.
Actions: the node to go to, Discrete(num_depots + num_loc). Nodes 0..K-1 are depots, then come R pickups, then their R
    deliveries in the same order. A depot returns the vehicle to its own and takes the next vehicle at the one named.
Mask: pickups whose goods fit and deliveries whose goods are aboard, if all goods aboard can still be delivered in time
    and the vehicle is back within all limits; with nothing aboard the depots whose next vehicle can serve a pair.
Ends: terminated on the return after the last delivery, or when a limited fleet can serve no pair that is left.
Reward: minus the cost of the step, or with objective="max" minus the growth of the longest route; minus
    `unserved_cost` for each node left, two a pair.
References: Li & Lim 2001 (with time windows); Li et al. 2021 (learning, the law of places).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.fields import (
    Field,
    bool_,
    constant,
    float32,
    float64,
    instance,
    int16,
    int32,
    int64,
    mask,
    scratch,
    state,
)
from milkrun.core.instances import refuse_where
from milkrun.core.kernels import kernel
from milkrun.render.scene import Chart, Scene
from milkrun.routing.distance import travel
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.pdp import instances, picture
from milkrun.routing.pdp.config import PDPConfig
from milkrun.routing.pdp.generator import generate
from milkrun.routing.pdp.search import GAVE_UP, find_order, is_bound, pairs_of
from milkrun.routing.routes import (
    ONE_BIT,
    advance_clock,
    drive_on,
    leave,
    must_go_on,
    of_use,
    open_depots,
    stand_ready,
    with_vehicles,
)
from milkrun.routing.vehicle import ON_PADDING, OVERLOADED, Routing, clear_record, is_on_padding, write_down
from milkrun.routing.vrp.instances import number_of_depots
from milkrun.routing.vrp.picture import driven
from milkrun.routing.vrp.timetable import timetable

EXISTS = {
    "time_windows": {"time_windows"},
    "limits": {"distance_limit", "duration_limit"},
    "fleet_costs": {"fixed_cost", "distance_cost"},
}
"""The options that given fields switch on."""

MISCOUNTED, NO_SUCH_DEPOT, NOT_AT_HOME, UNPAIRED, UNPLANNED = 3, 4, 5, 6, 7
"""Faults of a loaded state."""


class PDP(Routing):
    """Pickups and deliveries in pairs, with several vehicles and depots, time windows and limits."""

    id = "milkrun/PDP-v0"
    is_cost = True
    Config = PDPConfig
    config: PDPConfig
    task = "milkrun.routing.tasks:PDP"
    file_kinds: ClassVar[Any] = {"PDPTW": {"search_limit": 20_000}}  # of published plans 2,000 refuse one more
    generator = "milkrun.routing.pdp.generator:PDPGenerator"
    default_solver = ""
    figure = "milkrun.replay.figures:figure_of_routes"
    action = discrete("N")
    customer_fields = ("demand",)
    usual = {**Routing.usual, "depot_law": DEPOT_TYPES.index("random")}

    depot_law = constant(int64)
    max_demand = constant(int64)
    truck = constant(int64)
    smallest_fleet = constant(int64)
    largest_fleet = constant(int64)
    search_limit = constant(int64)
    by_longest = constant(bool_)
    unserved_price = constant(float64)
    order = scratch(int32, "planned")
    todo = scratch(int32, "planned")
    is_used = scratch(bool_, "planned")
    choice = scratch(int32, "depths")
    routes = scratch(float64, "depths", 4)

    n_depots = instance(int32, low=1, high="depots", doc="depots of this row; later ones are padding")
    demand = instance(int32, "N", doc="units of a pickup, and their negative at its delivery; 0 at depots")
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
    alone = instance(int64, "choices", low=0, observed=False, doc="bit k: depot k can serve this pair alone")
    has_clock = instance(bool_, observed=False, doc="some window of this row is finite")

    current_depot = state(int64, index="depots", doc="depot of the vehicle in use")
    has_vehicle = state(bool_, doc="a vehicle is in use; False before the first of several depots is chosen")
    aboard = state(bool_, "N", doc="deliveries whose goods are on the vehicle")
    load = state(int32, low=0, doc="units on the vehicle")
    plan = state(
        int16,
        "planned",
        low=-1,
        doc="deliveries aboard in an order that works, then -1; only with time_windows or limits",
    )
    route_length = state(float32, low=0, doc="distance of this route")
    current_time = state(float32, "clock", low=0, doc="earliest end of the last service")
    start_early = state(float32, "clock", low=0, doc="earliest start of this route without a later end")
    start_late = state(float32, "clock", limit=True, doc="latest start of this route in time for all windows")
    route_duration = state(float32, "clock", low=0, doc="least duration of this route so far")
    vehicles_left = state(int32, "depots", low=0, doc="vehicles that have not left")
    cost = state(float32, low=0, doc="cost so far")
    longest = state(float32, low=0, doc="length of the longest finished route")
    trips = state(int32, low=0, doc="vehicles used")
    unserved = state(int32, low=0, doc="nodes not visited, two a pair")
    gave_up = state(int32, low=0, tally=True, doc="searches that hit search_limit, so that a node was refused")
    action_mask = mask("N", remade=True)

    faults: ClassVar[Mapping[int, tuple[str, str]]] = {
        **Routing.faults,
        OVERLOADED: ("load", "over the capacity of the vehicle"),
        MISCOUNTED: ("unserved", "is not the number of nodes that are not visited; n_nodes is {n_nodes}"),
        NO_SUCH_DEPOT: ("current_depot", "is padding: n_depots is {n_depots}"),
        NOT_AT_HOME: ("has_vehicle", "a row without a vehicle is at a depot"),
        UNPAIRED: ("aboard", "goods are aboard between their pickup and their delivery"),
        UNPLANNED: ("plan", "does not hold each delivery aboard once, then -1"),
    }

    @classmethod
    def size_of(cls, config: PDPConfig) -> dict[str, int]:
        depots = config.num_depots
        nodes = depots + config.num_loc
        space = cls.space(config)
        has_clock = config.time_windows or config.limits
        return {
            **space,
            "N": nodes,
            "M": nodes if space["M"] else 0,
            "depots": depots,
            "A": 2 * nodes if config.record else 0,
            "timed": nodes if config.time_windows else 0,
            "stops": nodes if has_clock else 0,
            "clock": int(has_clock),
            "limited": depots if config.limits else 0,
            "priced": depots if config.fleet_costs else 0,
            "choices": nodes if depots > 1 else 0,
            "planned": config.pairs if has_clock else 0,
            "depths": config.pairs + 1 if has_clock else 0,
        }

    @classmethod
    def auto_max_steps(cls, config: PDPConfig) -> int:
        return 4 * (config.num_depots + config.num_loc)

    def constants(self) -> dict[str, Any]:
        return {
            **super().constants(),
            "depot_law": self.depot_code(),
            "smallest_fleet": self.config.vehicles,
            "by_longest": self.config.objective == "max",
        }

    @property
    def first_customer(self) -> int:
        return self.sizes["depots"]

    @property
    def info_fields(self) -> list[Field]:
        names = ("cost", "trips", "longest", "unserved", "gave_up")
        return [*super().info_fields, *(self.fields[name] for name in names)]

    # -- instances ----------------------------------------------------------------------------------------------------

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        return instances.complete(self, super().arrange_instances(values))

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        instances.check(self, arrays)

    @classmethod
    def task_options(cls, config: PDPConfig) -> dict[str, Any]:
        options = {"objective": config.objective, "unserved_cost": config.unserved_price}
        return {**super().task_options(config), **options}

    @classmethod
    def options_for(cls, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The attributes of instances (B, ...) with these fields, and their number of depots."""
        found: dict[str, Any] = {option: True for option, fields in EXISTS.items() if fields & set(given)}
        return {**super().options_for(given), **found, **number_of_depots(given, super().options_for(given)["num_loc"])}

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
        return driven(self, row)

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
        w.aboard[b, j] = False
    for k in range(w.depots):
        w.vehicles_left[b, k] = w.vehicles[q, k]
    for m in range(w.planned):
        w.plan[b, m] = -1
    w.load[b] = 0
    w.tour_length[b] = 0
    w.cost[b] = 0
    w.longest[b] = 0
    w.trips[b] = 0
    w.unserved[b] = w.n_nodes[q] - w.depots
    w.gave_up[b] = 0
    stand_ready(w, b, q, 0)
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
        stand_ready(w, b, q, action)
    write_down(w, b, action)
    mark_allowed(w, b)


@kernel(inline=True)
def visit(w, b, q, j):
    """Drives to a pickup or a delivery and serves it."""
    here = w.current_node[b]
    if w.planned > 0:
        plan_on(w, b, q, j)
    leg = travel(w, q, here, j)
    fixed = leave(w, b, q) if here < w.depots else 0.0
    if w.clock > 0:
        advance_clock(w, b, q, j, leg)
    w.reward[b] = -(drive_on(w, b, q, j, leg) + fixed)
    pairs = pairs_of(w, q)
    if j < w.depots + pairs:
        w.aboard[b, j + pairs] = True
    else:
        w.aboard[b, j] = False
    w.load[b] += w.demand[q, j]
    w.visited[b, j] = True
    w.unserved[b] -= 1


@kernel(inline=True)
def plan_on(w, b, q, j):
    """Keeps the order that the search finds for the deliveries aboard after node j."""
    count = find_order(w, b, q, j)
    for m in range(w.planned):
        w.plan[b, m] = w.order[m] if m < count else -1


@kernel(inline=True)
def go_home(w, b, q, following):
    """Ends the route at its own depot; the next vehicle stands at the depot named, if it has one."""
    k = w.current_depot[b]
    leg = 0.0 if w.open_route[q] else travel(w, q, w.current_node[b], k)
    w.reward[b] = -drive_on(w, b, q, k, leg)
    w.longest[b] = max(w.longest[b], w.route_length[b])
    if w.unserved[b] > 0 and (candidates(w, b, q) >> following) & ONE_BIT != 0:
        stand_ready(w, b, q, following)
    else:
        w.terminated[b] = True
        w.reward[b] -= w.unserved_price * w.unserved[b]


@kernel(inline=True)
def candidates(w, b, q):
    """The depots whose next vehicle has a pair to serve, a bit each. Needs an unserved pair."""
    ready = with_vehicles(w, b, q)
    return ready if w.choices == 0 else ready & of_use(w, b, q)


@kernel(inline=True)
def mark_allowed(w, b):
    q = w.instance_row[b]
    n = w.n_nodes[q]
    for j in range(w.depots):
        w.action_mask[b, j] = False
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    if w.has_vehicle[b]:
        mark_nodes(w, b, q, n)
    else:
        for j in range(w.depots, n):
            w.action_mask[b, j] = False
    is_empty = w.plan[b, 0] < 0 if w.planned > 0 else not any_aboard(w, b, n)
    if is_empty and not must_go_on(w, b, q, n):
        open_depots(w, b, q, candidates(w, b, q) if w.unserved[b] > 0 else np.int64(0))


@kernel
def any_aboard(w, b, n):
    found = False
    for j in range(w.depots, n):
        found |= w.aboard[b, j]
    return found


@kernel(inline=True)
def mark_nodes(w, b, q, n):
    k = w.current_depot[b]
    first_delivery = w.depots + pairs_of(w, q)
    room = np.int32(w.capacity[q, k] - w.load[b])
    for j in range(w.depots, first_delivery):
        w.action_mask[b, j] = (not w.visited[b, j]) & (w.demand[q, j] <= room)
    for j in range(first_delivery, n):
        w.action_mask[b, j] = w.aboard[b, j]
    if w.planned > 0 and is_bound(w, q, k):
        close_late(w, b, q, n)


@kernel
def close_late(w, b, q, n):
    """Closes the nodes after which not all goods aboard can be delivered in time."""
    for j in range(w.depots, n):
        if w.action_mask[b, j]:
            found = find_order(w, b, q, j)
            w.action_mask[b, j] = found >= 0
            w.gave_up[b] += found == GAVE_UP


@kernel
def derive_mask(w, b):
    """The mask of a loaded state, whose searches are counted already."""
    before = w.gave_up[b]
    mark_allowed(w, b)
    w.gave_up[b] = before


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    if is_on_padding(w, b):
        return ON_PADDING
    q, k = w.instance_row[b], w.current_depot[b]
    if k >= w.n_depots[q]:
        return NO_SUCH_DEPOT
    if w.load[b] > w.capacity[q, k]:
        return OVERLOADED
    if not w.has_vehicle[b] and w.current_node[b] >= w.depots:
        return NOT_AT_HOME
    left = 0
    for j in range(w.depots, w.n_nodes[q]):
        left += not w.visited[b, j]
    if left != w.unserved[b]:
        return MISCOUNTED
    pairs = pairs_of(w, q)
    for j in range(w.N):
        is_delivery = w.depots + pairs <= j < w.depots + 2 * pairs
        expected = is_delivery and w.visited[b, j - pairs] and not w.visited[b, j]
        if w.aboard[b, j] != expected or (is_delivery and w.visited[b, j] and not w.visited[b, j - pairs]):
            return UNPAIRED
    return 0 if w.planned == 0 or is_planned(w, b) else UNPLANNED


@kernel
def is_planned(w, b):
    """`plan` holds each delivery aboard once, then -1."""
    count = 0
    for j in range(w.depots, w.N):
        count += w.aboard[b, j]
    for m in range(w.planned):
        j = w.plan[b, m]
        if m >= count:
            if j != -1:
                return False
            continue
        if j < 0 or j >= w.N or not w.aboard[b, j]:
            return False
        for other in range(m):
            if w.plan[b, other] == j:
                return False
    return True


PDP.bind(generate=generate, reset=reset, step=step, derive_mask=derive_mask, fault=fault)
