"""The base of both rules of the dial-a-ride problem: fields, reasons of masked actions, stops, the end of the day.

Node 0 is the depot; request r is picked up at node 2r+1 and dropped off at node 2r+2. Routes are built vehicle by
vehicle, one node for each action. The rules themselves are in `world` (classic) and `deadlines`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.fields import Field, bool_, constant, float32, float64, instance, int32, int64, mask, state, view
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.render.scene import Chart, Scene
from milkrun.routing.darp.config import DARPConfig
from milkrun.routing.darp.picture import scene
from milkrun.routing.darp.states import check_fleet, check_record
from milkrun.routing.darp.timetable import chart
from milkrun.routing.instances.darp import MOST, MOST_RIDERS
from milkrun.routing.vehicle import Recorded, clear_record

REASONS = (
    "allowed",
    "out of range",
    "visited already, or no node of this instance",
    "its rider is not aboard",
    "riders are aboard",
    "the vehicle is at the depot",
    "over the capacity",
    "too many requests aboard",
    "too late at the node itself",
    "would strand a rider, or break a ride or route limit later",
)
(ALLOWED, OUT_OF_RANGE, VISITED, NOT_ABOARD, RIDERS_ABOARD, AT_DEPOT, OVER_CAPACITY, TOO_MANY, TOO_LATE, STRANDS) = (
    range(10)
)
UNKNOWN = -1
VARIANTS = {"classic": "milkrun.routing.darp.world:DARP", "deadlines": "milkrun.routing.darp.deadlines:DARPDeadlines"}
"""The class that plays each rule."""

OVERLOADED = 1
"""A fault of a loaded state under both rules; each rule adds higher numbers."""


class DARPBase(Recorded):
    """Vehicles that pick riders up and drop them off, one vehicle after the other."""

    is_cost = True
    Config = DARPConfig
    config: DARPConfig
    action = discrete("N")
    task = "milkrun.routing.tasks:DARPProblem"
    generator = "milkrun.routing.darp.generator:DARPGenerator"
    policies = {"soonest": "milkrun.solvers.policies:soonest"}
    solvers = dict.fromkeys(("insertion", "improve", "ortools", "exact"), "milkrun.solvers.darp.rows:solve_job")
    default_solver = "improve"
    solver_options = "speed", "penalty_unvisited"
    environments = {"torchrl": "milkrun.api.torchrl.darp:DARPEnv"}
    figure = "milkrun.replay.darp:figure_of_rows"
    policy_starts = False  # the first actions of one vehicle say little about a plan of all

    speed = constant(float64)
    penalty_unvisited = constant(float64)
    seats = constant(int64)

    locs = instance(float32, "N", 2, doc="coordinates; node 0 is the depot")
    demand = instance(int64, "N", doc="riders: at least 1 at a pickup, the negative at its dropoff, 0 at the depot")
    capacity = instance(int64, "V", low=0, doc="seats of each vehicle; 0 = padding")

    current_node = state(int64, index="N", column=True, doc="node of the active vehicle")
    current_agent = state(int64, index="V", column=True, doc="the active vehicle")
    current_load = state(int64, low=0, column=True, doc="riders aboard")
    visited = state(bool_, "N", doc="nodes done, by any vehicle; never the depot")
    picked_up_by_current = state(bool_, "N", doc="pickups made by the active vehicle")
    vehicle_finished = state(bool_, "V", doc="vehicles whose tour is over")
    vehicles_used = state(int32, low=0, tally=True, doc="vehicles that have served a request and returned")

    illegal_reason = view(int64, in_info=True, doc="reason of an illegal last action, by number; 0 = legal")
    distance = view(float64, doc="driven by all vehicles, set when the day ends by its rules")
    unserved = view(int32, doc="requests not served, set when the day ends by its rules")
    reward_exact = view(float64, doc="the reward of the last step before it is rounded to float32")
    nodes = view(
        float32,
        "N",
        14,
        low=-10,
        high=10,
        feature=True,
        doc="place, riders, service, window, kind, state and reach of each node",
    )
    vehicle = view(
        float32,
        7,
        low=-10,
        high=10,
        feature=True,
        doc="clock, load, aboard, route, and shares of vehicles, requests and steps done",
    )
    action_mask = mask("N")

    faults: ClassVar[Mapping[int, tuple[str, str]]] = {
        OVERLOADED: ("current_load", "is over the capacity of the vehicle, current_agent"),
    }

    def __init__(self, num_envs: int = 1, config: DARPConfig | None = None, **options: Any) -> None:
        if isinstance(config, DARPConfig) and self.variant(config) is not type(self):
            raise ConfigError(
                f"{type(self).__name__} does not play the rule {config.rule!r}: "
                f"milkrun.make('{self.id}', config=...) finds the right class"
            )
        super().__init__(num_envs, config, **options)

    @classmethod
    def variant(cls, config: DARPConfig) -> type[DARPBase]:
        module, name = VARIANTS[config.rule].split(":")
        played: type[DARPBase] = getattr(importlib.import_module(module), name)
        return played

    @classmethod
    def fleet(cls, config: DARPConfig) -> dict[str, int]:
        """The sizes of both rules: N nodes, V vehicles, A recorded actions."""
        assert config.num_agents is not None
        # Each node once, and one return for each vehicle.
        longest = config.num_loc + config.num_agents if config.record else 0
        return {"N": config.num_loc + 1, "V": config.num_agents, "A": longest}

    @classmethod
    def auto_max_steps(cls, config: DARPConfig) -> int:
        assert config.num_agents is not None
        return 4 * (config.num_loc + config.num_agents)

    @property
    def info_fields(self) -> list[Field]:
        return [*super().info_fields, self.fields["vehicles_used"]]

    @classmethod
    def task_options(cls, config: DARPConfig) -> dict[str, Any]:
        keys = ("rule", "penalty_unvisited", "speed", "metric", "max_onboard")
        return {key: getattr(config, key) for key in keys}

    # -- instances --------------------------------------------------------------------------------------------

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        """Accepts a separate `depot` with places, deadlines and riders of the other nodes."""
        if "depot" not in values:
            return values
        depot, locs = values.pop("depot"), values.get("locs")
        if locs is None or depot.ndim != 2 or locs.ndim != 3 or len(depot) != len(locs):
            raise ShapeError("a `depot` (B, 2) comes with `locs` (B, 2 requests, 2)")
        joined = {**values, "locs": np.concatenate([depot[:, None, :], locs], axis=1)}
        rows = len(locs)
        for name, at_depot in self.at_depot().items():
            if name in joined and joined[name].ndim == 2 and joined[name].shape[1] == locs.shape[1]:
                first = np.full((rows, 1), at_depot, joined[name].dtype)
                joined[name] = np.concatenate([first, joined[name]], axis=1)
        return joined

    def at_depot(self) -> dict[str, float]:
        """The values at the depot of per-node fields that are given without it."""
        return {"demand": 0}

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        demand, capacity = arrays["demand"], arrays["capacity"]
        node = np.arange(self.sizes["N"])
        true = self.true_nodes(arrays)
        if (demand[:, 0] != 0).any():
            refuse("demand", demand, (node == 0) & (demand != 0), "the depot has no riders")
        if (wrong := (node % 2 == 1) & true & (demand < 1)).any():
            refuse("demand", demand, wrong, "a pickup takes at least one rider")
        before = np.concatenate([np.zeros((len(demand), 1), demand.dtype), demand[:, :-1]], axis=1)
        if (wrong := (node % 2 == 0) & (node > 0) & true & (demand != -before)).any():
            refuse("demand", demand, wrong, "a dropoff is the negative of its pickup")
        if (wrong := (demand != 0) & ~true).any():
            refuse("demand", demand, wrong, "padding has no riders")
        if (wrong := demand > MOST_RIDERS).any():
            refuse("demand", demand, wrong, f"must be <= {MOST_RIDERS}")
        if (wrong := capacity.max(axis=1) < 1).any():
            refuse("capacity", capacity.max(axis=1), wrong, "must be at least 1")
        if (wrong := capacity > MOST_RIDERS).any():
            refuse("capacity", capacity, wrong, f"must be <= {MOST_RIDERS}")
        if (wrong := np.abs(arrays["locs"]) > MOST).any():
            refuse("locs", arrays["locs"], wrong, f"must be within -{MOST:g}..{MOST:g}")

    def true_nodes(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """(Q, N) True at nodes that are no padding."""
        return np.ones(arrays["demand"].shape, bool)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """Checks rules between fields that hold in all play; raises BadInstance.

        Arrays have the rows B first, also those of instances. Shapes, dtypes and bounds are already checked.
        """
        check_fleet(arrays)
        check_record(arrays)

    # -- reasons of masked actions ------------------------------------------------------------------------------

    def explain(self, row: int, action: int) -> str:
        """The sentence of `illegal_reason`, or that the action is allowed."""
        chosen = self._rows([row])
        self.refuse_unready(chosen)
        row = int(chosen[0])
        reason = int(self.map_rows(self.reason_kernel, np.int64, int(action), row)[row])
        if reason == OUT_OF_RANGE:
            return f"out of range 0..{self.sizes['N'] - 1}"
        if reason == OVER_CAPACITY:
            seats = int(self.capacity[self.instance_row[row], self.current_agent[row]])
            riders = int(self.demand[self.instance_row[row], action])
            return f"over the capacity: {int(self.current_load[row])} + {riders} riders in {seats} seats"
        return REASONS[reason]

    reason_kernel: ClassVar[Any]  # (w, b, action, row): the reason in row b if b == row
    total_distance: Any  # each rule has its own dtype

    def why_illegal(self, row: int, action: int) -> str:
        return self.explain(row, action)

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return scene(self, row)

    chart_fields = ("vehicle_finished",)

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
        return chart(self, row, frames)


# -- common rules --------------------------------------------------------------------------------------------


@kernel
def start_over(w, b):
    """Resets all but the clock, the fleet and the mask."""
    for j in range(w.N):
        w.visited[b, j] = False
        w.picked_up_by_current[b, j] = False
    w.current_node[b] = 0
    w.current_agent[b] = 0
    w.current_load[b] = 0
    w.total_distance[b] = 0
    w.vehicles_used[b] = 0
    w.illegal_reason[b] = ALLOWED
    w.distance[b] = 0
    w.unserved[b] = 0
    clear_record(w, b)


@kernel(inline=True)
def serve(w, b, q, node):
    """A stop: riders board or leave."""
    w.visited[b, node] = True
    w.current_load[b] += w.demand[q, node]
    if node & 1:
        w.picked_up_by_current[b, node] = True


@kernel
def take_over(w, b, k):
    """Vehicle k becomes the active one, at the depot and empty."""
    w.current_agent[b] = k
    w.current_load[b] = 0
    for j in range(w.N):
        w.picked_up_by_current[b, j] = False


@kernel
def close_day(w, b, n):
    """Ends the day: counts and prices what was not done."""
    unvisited = 0
    unserved = 0
    for j in range(1, n):
        unvisited += not w.visited[b, j]
    for j in range(2, n, 2):
        unserved += not w.visited[b, j]
    w.distance[b] = w.total_distance[b]
    w.unserved[b] = unserved
    w.reward_exact[b] -= w.penalty_unvisited * unvisited
    w.terminated[b] = True


@kernel
def common_reason(w, b, action):
    """Why a live row may not take an action: the first reason that both rules share, else UNKNOWN."""
    if action < 0 or action >= w.N:
        return OUT_OF_RANGE
    if w.action_mask[b, action]:
        return ALLOWED
    if w.visited[b, action]:
        return VISITED
    if action == 0:
        return RIDERS_ABOARD if w.current_load[b] > 0 else AT_DEPOT
    if action & 1 == 0 and not w.picked_up_by_current[b, action - 1]:
        return NOT_ABOARD
    q = w.instance_row[b]
    too_full = w.current_load[b] + w.demand[q, action] > w.capacity[q, w.current_agent[b]]
    return OVER_CAPACITY if too_full else UNKNOWN


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    return OVERLOADED if w.current_load[b] > w.capacity[w.instance_row[b], w.current_agent[b]] else 0


DARPBase.bind(fault=fault)
