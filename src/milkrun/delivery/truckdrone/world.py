"""Truck and drones: a truck drives between nodes and launches drones, which deliver parcels and return.

Observations: `truck_obs` (1, Ft), `drone_obs` (D, Fd) and `state` (S) for a central critic; all of the same time.
Actions: of the truck, Discrete(1 + N + 2D): STAY, MOVE_n, RELEASE_d, RECOVER_d; of a drone, Discrete(2 + C): HOVER,
RETURN, DELIVER_c. STAY stops the truck; MOVE, RELEASE and RECOVER keep it driving to its target node. Mask: truck,
drone_0, drone_1, ... concatenated. Sound rules: actions after which a drone could not return are closed. With
`road_graph` the truck drives to adjacent nodes, and between nodes to the ends of its road. Ends: terminated when
complete (all served, by default with every drone on board), when every customer is served or lost, or when all drones
have crashed; truncated after `episode_length` steps. Reward: of the team: time, deliveries, energy, overridden drones,
lateness, crashes, and the end of the episode. References: the public environment MAPPO_VRP, whose task the rules
"published" keep; the docs list what "sound" corrects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.actions import agents
from milkrun.core.fields import bool_, constant, float32, float64, instance, int64, mask, scratch, state, view
from milkrun.core.world import World
from milkrun.delivery.truckdrone import log, picture, reasons, reports
from milkrun.delivery.truckdrone.config import ENDS, LAWS, TruckDroneConfig
from milkrun.delivery.truckdrone.faults import FAULTS, fault
from milkrun.delivery.truckdrone.flight import (
    AMOUNTS,
    COUNTS,
    EPS,
    PUBLISHED_CHARGE,
    PUBLISHED_HOVER,
    PUBLISHED_MARGIN,
)
from milkrun.delivery.truckdrone.generator import generate, roads_between, route_ring
from milkrun.delivery.truckdrone.instances import check_instance, check_state
from milkrun.delivery.truckdrone.observations import SIZES, update_views
from milkrun.delivery.truckdrone.step import idle, mark, reset, step
from milkrun.render.scene import Chart, Scene


class TruckDrone(World):
    """A truck and its drones deliver parcels in time windows; one team reward."""

    id = "milkrun/TruckDrone-v0"
    Config = TruckDroneConfig
    policies = {name: f"milkrun.solvers.delivery:{name}" for name in ("greedy", "lookahead", "parked")}
    figure = "milkrun.replay.flights:figure_of_flights"
    run_details = "milkrun.cli.details:DELIVERY_STEPS"
    action = agents(truck=(1, "T"), drone=("D", "K"))

    route_nodes = instance(float64, "N", 2, low=-1, high=1, doc="nodes of the truck")
    customer_pos = instance(float64, "C", 2, low=-1, high=1, doc="places of the customers")
    demand = instance(float64, "C", low=0, high=1, doc="parcel, as a share of a drone's payload")
    tw_start = instance(int64, "C", low=0, high="length", doc="step from which a parcel is accepted")
    tw_end = instance(int64, "C", low=0, high="length", doc="last step on time")
    road = instance(bool_, "R", "R", doc="with road_graph: True if a road joins the nodes; diagonal True")

    truck_pos = state(float64, 2, doc="place of the truck")
    truck_vel = state(float64, 2, doc="its velocity in the last step")
    truck_node = state(int64, low=-1, high="last node", doc="node of the truck, -1 between nodes")
    truck_target = state(int64, low=-1, high="last node", doc="target node, -1 none")
    truck_edge = state(int64, "E", low=0, high="last node", doc="with road_graph: ends of its road; its node twice")
    drone_pos = state(float64, "D", 2, doc="place of each drone")
    drone_vel = state(float64, "D", 2, doc="velocity in the last step")
    battery = state(float64, "D", doc="1 = full")
    carrying = state(int64, "D", low=-1, high="last customer", doc="customer of the parcel, -1 none")
    status = state(int64, "D", low=0, high=3, doc="0 on board, 1 flying, 2 returning, 3 crashed")
    target_pos = state(float64, "D", 2, doc="place of the last DELIVER")
    has_target = state(bool_, "D", doc="not delivered or boarded since then")
    forced_phase = state(bool_, "D", doc="sound rules: the drone is being overridden")
    served = state(bool_, "C", doc="delivered")
    lost = state(bool_, "C", doc="sound rules: the parcel is in a wreck")
    arrival_step = state(int64, "C", low=-1, doc="step of the delivery, counted from 1; -1 before")
    sum_counts = state(int64, "counts", tally=True, doc="so far: " + ", ".join(COUNTS))
    sum_amounts = state(float64, "amounts", tally=True, doc="so far: " + ", ".join(AMOUNTS))

    executed = view(int64, "A", doc="actions executed in the last step")
    illegal_agents = view(bool_, "A", in_info=True, doc="agents whose action was masked")
    forced = view(bool_, "D", in_info=True, doc="drones that were overridden")
    conflict = view(bool_, "D", in_info=True, doc="drones whose customer another drone took in the same step")
    just_served = view(bool_, "C", doc="served in the last step")
    battery_used = view(float64, "D", doc="in the last step")
    truck_step_dist = view(float64, doc="distance of the truck in the last step")
    customers_served = view(int64, in_info=True, doc="so far")
    advice = view(int64, "A", on_demand=True, doc="actions of a compiled policy")
    reward_exact = view(float64, doc="the reward before rounding")
    truck_obs = view(float32, 1, "Ft", low="-reach of view", high="reach of view", observed=True, doc="of the truck")
    drone_obs = view(float32, "D", "Fd", low="-reach of view", high="reach of view", observed=True, doc="of each drone")
    state = view(float32, "S", low="-reach of view", high="reach of view", observed=True, doc="of a central critic")
    action_mask = mask("M", doc="truck, drone_0, drone_1, ...; True = allowed")

    # Options that kernels read.
    sound = constant(int64)
    second_form = constant(int64)
    obey_mask = constant(int64)
    safe = constant(int64)
    air = constant(int64)
    reserve = constant(int64)
    wait = constant(int64)
    end = constant(int64)
    tw_law = constant(int64)
    depot_node = constant(int64)
    start_last = constant(int64)
    width_least = constant(int64)
    width_most = constant(int64)
    time_limit_terminal = constant(int64)
    dt = constant(float64)
    truck_stride = constant(float64)
    drone_stride = constant(float64)
    truck_top = constant(float64)
    drone_speed = constant(float64)
    delivery_threshold = constant(float64)
    recovery_threshold = constant(float64)
    reach = constant(float64)
    battery_rate = constant(float64)
    battery_margin = constant(float64)
    payload_factor = constant(float64)
    hover_energy = constant(float64)
    boarding_charge = constant(float64)
    charge = constant(float64)
    customer_extent = constant(float64)
    demand_low = constant(float64)
    demand_high = constant(float64)
    time_penalty = constant(float64)
    delivery_bonus = constant(float64)
    completion_bonus = constant(float64)
    incomplete_penalty = constant(float64)
    energy_cost = constant(float64)
    forced_return_penalty = constant(float64)
    late_penalty = constant(float64)
    crash_penalty = constant(float64)
    ring = constant(float64, "N", 2)
    ring_road = constant(bool_, "R", "R")

    way_left = scratch(float64, "R", doc="road distance of each node")
    settled = scratch(bool_, "R")

    faults = FAULTS

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        d, c, n = config.num_drones, config.num_customers, config.num_route_nodes
        # Places of [-1, 1]^2 are at most 2 apart. v1 has velocities, v2 shares of the top speed.
        reach = 2 if config.obs == "v2" else max(2, math.ceil(config.drone_speed), math.ceil(config.truck_speed))
        roads = {"R": n, "E": 2} if config.road_graph else {"R": 0, "E": 0}
        return {
            "D": d,
            "C": c,
            "N": n,
            "A": 1 + d,
            "T": 1 + n + 2 * d,
            "K": 2 + c,
            "M": 1 + n + 2 * d + d * (2 + c),
            **SIZES[config.obs](d, c, n),
            "length": config.episode_length,
            "last node": n - 1,
            "last customer": c - 1,
            "reach of view": reach,
            "counts": len(COUNTS),
            "amounts": len(AMOUNTS),
            **roads,
        }

    def constants(self) -> dict[str, Any]:
        k = self.config
        sound, length = k.rules == "sound", k.episode_length
        windows = (length // 2 - 1, length // 3, length - 1)
        if k.tw_law == "band":
            # EPS: 0.29 * 100 is 28.999999999999996 and must give 29 steps.
            windows = tuple(math.floor(share * length + EPS) for share in (k.tw_start_max, *k.tw_width))
        ring = route_ring(k.num_route_nodes, k.route_radius, k.depot_node)
        names = ("late_penalty", "crash_penalty", "payload_factor", "reserve")
        return {
            **{name: getattr(k, name) or 0 for name in names},
            "sound": sound,
            "second_form": k.obs == "v2",
            "max_steps": k.limit,
            "start_last": windows[0],
            "width_least": windows[1],
            "width_most": windows[2],
            "safe": k.battery_rule == "safe",
            "air": k.pickup == "air",
            "wait": k.early == "wait",
            "end": ENDS.index(k.end or "served"),
            "tw_law": LAWS.index(k.tw_law),
            "truck_stride": k.truck_speed * k.dt,
            "drone_stride": k.drone_speed * k.dt,
            # velocities are divided by it, and a truck of speed 0 is allowed
            "truck_top": k.truck_speed or 1.0,
            "reach": k.recovery_threshold + EPS if sound else k.recovery_threshold,
            "hover_energy": k.hover_rate * k.dt if sound else PUBLISHED_HOVER,
            "boarding_charge": k.recovery_charge if sound else PUBLISHED_CHARGE,
            "charge": k.charge_rate * k.dt if sound else 0.0,
            "battery_margin": k.battery_margin if sound else PUBLISHED_MARGIN,
            "ring": ring,
            "ring_road": roads_between(ring) if k.road_graph else np.zeros((0, 0)),
        }

    @property
    def truck_mask(self) -> np.ndarray:
        """(B, 1, T), a view of the mask."""
        return self.action_mask[:, None, : self.sizes["T"]]

    @property
    def drone_mask(self) -> np.ndarray:
        """(B, D, K), a view of the mask."""
        return self.action_mask[:, self.sizes["T"] :].reshape(self.num_envs, self.sizes["D"], self.sizes["K"])

    @property
    def world_step(self) -> np.ndarray:
        """(B,): steps done."""
        return self.i

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "route_nodes" not in values and "customer_pos" in values:
            rows = len(values["customer_pos"])
            values = {"route_nodes": np.broadcast_to(self.ring, (rows, *self.ring.shape)), **values}
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        check_instance(self, arrays)

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """Checks the numbers of loaded states; raises BadInstance."""
        check_state(self, arrays)

    figure_fields = ("sum_counts", "sum_amounts")

    def figures(self, last: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return reports.figures(last)

    def action_name(self, agent: int, action: int) -> str:
        """The name of an action of agent 0, the truck, or of drone agent - 1."""
        return reasons.in_words(reasons.code(self, agent, action))

    def why_illegal(self, row: int, action: Any) -> str:
        return reasons.why_illegal(self, row, action)

    def why_masked(self, row: int, index: int) -> str:
        return reasons.why_masked(self, row, index)

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        return picture.scene(self, row)

    chart_fields = log.FIELDS

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart:
        return log.chart(self, row, frames)


TruckDrone.bind(
    generate=generate, reset=reset, step=step, idle=idle, update_views=update_views, derive_mask=mark, fault=fault
)

__all__ = ["TruckDrone", "generate", "idle", "reset", "step"]
