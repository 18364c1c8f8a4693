"""Truck and drones: a truck drives between nodes and launches drones, which carry parcels to customers and come back.

Observations: `truck_obs` (1, Ft), `drone_obs` (D, Fd) and `state` (S), what a central critic sees; all of one moment.
Actions: of the truck, Discrete(1 + N + 2D): STAY, MOVE_n, RELEASE_d, RECOVER_d; of a drone, Discrete(2 + C): HOVER,
    RETURN, DELIVER_c. STAY stops the truck; MOVE, RELEASE and RECOVER keep it rolling to the node it was bound for.
Mask: truck, drone_0, drone_1, ... one after another. Sound rules: what a drone could not come home from is closed.
Ends: terminated when complete (all served, by default with every drone on board), when every customer is served or
    lost, or all drones have crashed; truncated after `episode_length` steps.
Reward: of the team: time, deliveries, energy, overridden drones, lateness, crashes, and how the episode ended.
References: the public environment MAPPO_VRP, whose task the rules "seed" keep; see the docs for what "sound" mends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.actions import agents
from milkrun.core.canvas import Canvas
from milkrun.core.fields import bool_, constant, float32, float64, instance, int64, mask, state, view
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from milkrun.delivery.flight import (
    AMOUNTS,
    COUNTS,
    CRASHED,
    CRASHES,
    DELIVER,
    ENERGY,
    EPS,
    FORCED_ONSETS,
    ILLEGAL,
    LATENESS,
    LATENESS_MAX,
    MOVE,
    NEAR,
    ON_TIME,
    ONBOARD,
    RETURN,
    SEED_CHARGE,
    SEED_HOVER,
    SEED_MARGIN,
    SERVED,
    STAY,
    TRUCK_DISTANCE,
    TRUCK_WAIT,
    distance,
    fly,
    recover,
    release,
    stand_on_truck,
    to_truck,
)
from milkrun.delivery.generators.truckdrone import generate, route_ring
from milkrun.delivery.safety import hands_over, mark_allowed
from milkrun.delivery.sights import SIZES, look
from milkrun.delivery.truckdrone_config import ENDS, LAWS, TruckDroneConfig


class TruckDrone(World):
    """A truck and its drones deliver parcels in time windows; one team reward."""

    id = "milkrun/TruckDrone-v0"
    Config = TruckDroneConfig
    action = agents(truck=(1, "T"), drone=("D", "K"))

    route_nodes = instance(float64, "N", 2, low=-1, high=1, doc="where the truck can stop")
    customer_pos = instance(float64, "C", 2, low=-1, high=1, doc="where customers are")
    demand = instance(float64, "C", low=0, high=1, doc="parcel, as a share of a drone's payload")
    tw_start = instance(int64, "C", low=0, high="length", doc="step from which a parcel is accepted")
    tw_end = instance(int64, "C", low=0, high="length", doc="last step on time")

    truck_pos = state(float64, 2, doc="where the truck is")
    truck_vel = state(float64, 2, doc="its velocity in the last step")
    truck_node = state(int64, low=-1, high="last node", doc="node the truck stands on, -1 between nodes")
    truck_target = state(int64, low=-1, high="last node", doc="node it is bound for, -1 none")
    drone_pos = state(float64, "D", 2, doc="where each drone is")
    drone_vel = state(float64, "D", 2, doc="velocity in the last step")
    battery = state(float64, "D", doc="1 = full")
    carrying = state(int64, "D", low=-1, high="last customer", doc="customer of the parcel, -1 none")
    status = state(int64, "D", low=0, high=3, doc="0 on board, 1 flying, 2 returning, 3 crashed")
    target_pos = state(float64, "D", 2, doc="place of the last DELIVER")
    has_target = state(bool_, "D", doc="since then neither delivered nor boarded")
    forced_phase = state(bool_, "D", doc="sound rules: the drone is being overridden")
    served = state(bool_, "C", doc="has the parcel")
    lost = state(bool_, "C", doc="sound rules: the parcel lies in a wreck")
    arrival_step = state(int64, "C", low=-1, doc="step of the delivery, counted from 1; -1 before")
    sum_counts = state(int64, "counts", tally=True, doc="so far: " + ", ".join(COUNTS))
    sum_amounts = state(float64, "amounts", tally=True, doc="so far: " + ", ".join(AMOUNTS))

    executed = view(int64, "A", doc="actions really executed in the last step")
    illegal_agents = view(bool_, "A", told=True, doc="whose action was masked")
    forced = view(bool_, "D", told=True, doc="drones that were overridden")
    conflict = view(bool_, "D", told=True, doc="drones whose customer another drone took in the same step")
    just_served = view(bool_, "C", doc="served in the last step")
    battery_used = view(float64, "D", doc="in the last step")
    truck_step_dist = view(float64, doc="way of the truck in the last step")
    customers_served = view(int64, told=True, doc="so far")
    advice = view(int64, "A", on_demand=True, doc="what a compiled policy proposes")
    reward_exact = view(float64, doc="the reward before rounding")
    truck_obs = view(float32, 1, "Ft", low="-reach of view", high="reach of view", observed=True, doc="of the truck")
    drone_obs = view(float32, "D", "Fd", low="-reach of view", high="reach of view", observed=True, doc="of each drone")
    state = view(float32, "S", low="-reach of view", high="reach of view", observed=True, doc="of a central critic")
    action_mask = mask("M", doc="truck, drone_0, drone_1, ...; True = allowed")

    # What kernels read of the configuration.
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

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        d, c, n = config.num_drones, config.num_customers, config.num_route_nodes
        reach = 2 if config.obs == "v2" else max(2, math.ceil(config.drone_speed), math.ceil(config.truck_speed))
        return {
            "D": d, "C": c, "N": n, "A": 1 + d, "T": 1 + n + 2 * d, "K": 2 + c, "M": 1 + n + 2 * d + d * (2 + c),
            **SIZES[config.obs](d, c, n), "length": config.episode_length, "last node": n - 1, "last customer": c - 1,
            "reach of view": reach, "counts": len(COUNTS), "amounts": len(AMOUNTS),
        }  # fmt: skip

    def constants(self) -> dict[str, Any]:
        k = self.config
        sound, length = k.rules == "sound", k.episode_length
        windows = (length // 2 - 1, length // 3, length - 1)
        if k.tw_law == "band":
            windows = tuple(math.floor(share * length + EPS) for share in (k.tw_start_max, *k.tw_width))
        names = ("late_penalty", "crash_penalty", "payload_factor", "reserve")
        return {
            **{name: getattr(k, name) or 0 for name in names},
            "sound": sound, "second_form": k.obs == "v2", "max_steps": k.limit,
            "start_last": windows[0], "width_least": windows[1], "width_most": windows[2],
            "safe": k.battery_rule == "safe", "air": k.pickup == "air", "wait": k.early == "wait",
            "end": ENDS.index(k.end or "served"), "tw_law": LAWS.index(k.tw_law),
            "truck_stride": k.truck_speed * k.dt, "drone_stride": k.drone_speed * k.dt,
            "truck_top": k.truck_speed or 1.0,
            "reach": k.recovery_threshold + EPS if sound else k.recovery_threshold,
            "hover_energy": k.hover_rate * k.dt if sound else SEED_HOVER,
            "boarding_charge": k.recovery_charge if sound else SEED_CHARGE,
            "charge": k.charge_rate * k.dt if sound else 0.0,
            "battery_margin": k.battery_margin if sound else SEED_MARGIN,
            "ring": route_ring(k.num_route_nodes, k.route_radius, k.depot_node),
        }  # fmt: skip

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
        refuse_where("demand", arrays, arrays["demand"] <= 0, "must be above 0")
        refuse_where("tw_end", arrays, arrays["tw_end"] < arrays["tw_start"], "the window closes before it opens")

    def figures(self, told: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        from milkrun.delivery.reports import figures

        return figures(told)

    def action_name(self, agent: int, action: int) -> str:
        """STAY, MOVE_2, DELIVER_0 ...: an action of agent 0, the truck, or of drone agent - 1."""
        d, n, k = self.sizes["D"], self.sizes["N"], self.sizes["K"]
        if agent == 0 and 0 <= action < self.sizes["T"]:
            named = ["STAY", *(f"MOVE_{j}" for j in range(n))]
            return [*named, *(f"RELEASE_{j}" for j in range(d)), *(f"RECOVER_{j}" for j in range(d))][action]
        if agent > 0 and 0 <= action < k:
            return ("HOVER", "RETURN")[action] if action < DELIVER else f"DELIVER_{action - DELIVER}"
        return f"action {action}"

    def why_illegal(self, row: int, action: Any) -> str:
        from milkrun.delivery.reasons import first_reason

        return first_reason(self, row, action)

    def draw(self, row: int, canvas: Canvas) -> None:
        from milkrun.delivery.picture import draw

        draw(self, row, canvas)


def refuse_where(name: str, arrays: dict[str, np.ndarray], wrong: np.ndarray, rule: str) -> None:
    if wrong.any():
        refuse(name, arrays[name], wrong, rule)


@kernel
def reset(w, b):
    w.truck_pos[b] = 0.0
    w.truck_vel[b] = 0.0
    w.truck_node[b] = 0 if w.depot_node or not w.sound else -1
    w.truck_target[b] = -1
    for d in range(w.D):
        for j in range(2):
            w.drone_pos[b, d, j] = 0.0
            w.drone_vel[b, d, j] = 0.0
            w.target_pos[b, d, j] = 0.0
        w.battery[b, d] = 1.0
        w.carrying[b, d] = -1
        w.status[b, d] = ONBOARD
        w.has_target[b, d] = False
        w.forced_phase[b, d] = False
    for c in range(w.C):
        w.served[b, c] = False
        w.lost[b, c] = False
        w.arrival_step[b, c] = -1
    w.customers_served[b] = 0
    for j in range(w.sum_counts.shape[1]):
        w.sum_counts[b, j] = 0
    for j in range(w.sum_amounts.shape[1]):
        w.sum_amounts[b, j] = 0.0
    for agent in range(w.A):
        w.executed[b, agent] = 0
        w.illegal_agents[b, agent] = False
    clear_step(w, b)
    mark_allowed(w, b, w.instance_row[b], 0)


@kernel
def clear_step(w, b):
    """The views of the last step."""
    for d in range(w.D):
        w.forced[b, d] = False
        w.conflict[b, d] = False
        w.battery_used[b, d] = 0.0
    for c in range(w.C):
        w.just_served[b, c] = False
    w.truck_step_dist[b] = 0.0


@kernel
def step(w, b, action):
    play(w, b, action)


@kernel
def idle(w, b, action):
    """The world runs on: `take_actions` says what an agent does instead."""
    play(w, b, action)


@kernel
def play(w, b, action):
    q, t = w.instance_row[b], w.i[b] + 1
    clear_step(w, b)
    onsets = take_actions(w, b, action)
    if not w.sound:
        onsets += force_home(w, b)
    command(w, b, w.executed[b, 0])
    crashes = 0
    for d in range(w.D):
        crashes += fly(w, b, q, d)
    drive(w, b, q)
    late = deliver(w, b, q, t)
    w.sum_counts[b, FORCED_ONSETS] += onsets
    w.sum_counts[b, CRASHES] += crashes
    pay(w, b, t, onsets, crashes, late)
    mark_allowed(w, b, q, t)


@kernel
def take_actions(w, b, action):
    """Stage 1: what each agent is to do, masked actions flagged and, where the mask is obeyed, replaced by the lowest
    allowed one. Returns how many drones begin to be overridden."""
    onsets = 0
    first, n = 0, w.T
    for agent in range(w.A):
        a = action[agent]
        inside = 0 <= a < n
        fine = inside and w.action_mask[b, first + max(0, min(a, n - 1))]
        w.illegal_agents[b, agent] = not fine
        w.sum_counts[b, ILLEGAL] += not fine
        if not fine:
            if w.obey_mask:
                a = 0
                while not w.action_mask[b, first + a]:
                    a += 1
            elif not inside:
                a = 0
        w.executed[b, agent] = a
        if agent > 0:
            if w.action_mask[b, first]:
                w.forced_phase[b, agent - 1] = False
            elif not fine:
                w.forced[b, agent - 1] = True
                onsets += not w.forced_phase[b, agent - 1]
                w.forced_phase[b, agent - 1] = True
        first += n
        n = w.K
    return onsets


@kernel
def force_home(w, b):
    """Stage 2 of the seed rules: an airborne drone short of energy returns, and is fined even if it wanted to. Returns
    how many do, each step of each counted."""
    count = 0
    for d in range(w.D):
        if w.status[b, d] != ONBOARD and w.status[b, d] != CRASHED:
            if w.battery[b, d] < to_truck(w, b, d) * w.battery_rate * SEED_MARGIN:
                w.executed[b, 1 + d] = RETURN
                w.forced[b, d] = True
                count += 1
    return count


@kernel
def command(w, b, action):
    """Stage 3: the truck."""
    if action == STAY:
        w.truck_target[b] = -1
    elif action < MOVE + w.N:
        w.truck_target[b] = action - MOVE
    elif action < MOVE + w.N + w.D:
        release(w, b, action - MOVE - w.N)
    else:
        recover(w, b, action - MOVE - w.N - w.D)


@kernel
def drive(w, b, q):
    """Stage 5: the truck rolls towards its target node, drones on board with it."""
    n = w.truck_target[b]
    vx = vy = s = 0.0
    if n >= 0:
        x, y = w.truck_pos[b, 0], w.truck_pos[b, 1]
        gx, gy = w.route_nodes[q, n, 0], w.route_nodes[q, n, 1]
        dx, dy = gx - x, gy - y
        way = math.sqrt(dx * dx + dy * dy)
        arrived = way <= NEAR
        if not arrived:
            s = min(w.truck_stride, way)
            ex, ey = dx / way, dy / way
            x += ex * s
            y += ey * s
            vx, vy = ex * (s / w.dt), ey * (s / w.dt)
            w.truck_pos[b, 0] = x
            w.truck_pos[b, 1] = y
            for d in range(w.D):
                if w.status[b, d] == ONBOARD:
                    stand_on_truck(w, b, d)
            arrived = distance(x, y, gx, gy) < NEAR
        if arrived:
            w.truck_node[b] = n
            w.truck_target[b] = -1
        elif w.sound:
            w.truck_node[b] = -1
    w.truck_vel[b, 0] = vx
    w.truck_vel[b, 1] = vy
    w.truck_step_dist[b] = s
    w.sum_amounts[b, TRUCK_DISTANCE] += s
    w.sum_counts[b, TRUCK_WAIT] += s == 0.0


@kernel
def deliver(w, b, q, t):
    """Stage 6: drones in index order hand over; returns the steps by which these deliveries are late."""
    late = 0
    for d in range(w.D):
        c = w.executed[b, 1 + d] - DELIVER
        if c < 0 or w.served[b, c] or w.carrying[b, d] < 0:
            continue
        way = distance(w.drone_pos[b, d, 0], w.drone_pos[b, d, 1], w.customer_pos[q, c, 0], w.customer_pos[q, c, 1])
        if w.sound:
            there = w.carrying[b, d] == c and w.status[b, d] != CRASHED and hands_over(w, q, c, way, t)
        else:
            there = way < w.delivery_threshold
        if there:
            w.served[b, c] = True
            w.just_served[b, c] = True
            w.arrival_step[b, c] = t
            w.carrying[b, d] = -1
            w.has_target[b, d] = False
            behind = max(0, t - w.tw_end[q, c])
            late += behind
            w.sum_counts[b, SERVED] += 1
            w.sum_counts[b, ON_TIME] += behind == 0
            w.sum_counts[b, LATENESS] += behind
            w.sum_counts[b, LATENESS_MAX] = max(w.sum_counts[b, LATENESS_MAX], behind)
    return late


@kernel
def pay(w, b, t, onsets, crashes, late):
    """Stage 7: the reward and the end. The seed rules add one by one, the sound ones by kind."""
    served = 0
    just = 0
    settled = True
    for c in range(w.C):
        served += w.served[b, c]
        just += w.just_served[b, c]
        settled = settled and (w.served[b, c] or w.lost[b, c])
    w.customers_served[b] = served
    used = 0.0
    wrecks = 0
    airborne = 0
    reward = -w.time_penalty
    if w.sound:
        for d in range(w.D):
            used += w.battery_used[b, d]
        reward = reward + w.delivery_bonus * just - w.energy_cost * used - w.forced_return_penalty * onsets
        reward = reward - w.late_penalty * late - w.crash_penalty * crashes
    else:
        for _ in range(just):
            reward += w.delivery_bonus
        for d in range(w.D):
            reward -= w.energy_cost * w.battery_used[b, d]
        for d in range(w.D):
            if w.forced[b, d]:
                reward -= w.forced_return_penalty
    for d in range(w.D):
        w.sum_amounts[b, ENERGY] += w.battery_used[b, d]
        wrecks += w.status[b, d] == CRASHED
        airborne += w.status[b, d] != CRASHED and w.status[b, d] != ONBOARD
    home = w.end == 0 or (airborne == 0 and (w.end == 1 or w.truck_node[b] == 0))
    complete = served == w.C and home
    at_limit = t >= w.max_steps
    over = complete or wrecks == w.D or (w.sound and settled and home)
    w.terminated[b] = over or (at_limit and w.time_limit_terminal)
    if over or at_limit:
        if complete:
            reward += w.completion_bonus
        else:
            reward -= w.incomplete_penalty * (w.C - served)
    w.reward_exact[b] = reward


__all__ = ["TruckDrone", "generate", "idle", "look", "reset", "step"]
