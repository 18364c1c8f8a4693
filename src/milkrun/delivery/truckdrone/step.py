"""A step of the truck and its drones in seven stages, and the reset of a row.

`play` runs the stages in order. Flight and boarding (stage 4) are in `flight`, the mask in `safety`, observations in
`observations`, the fields in `world`.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.flight import (
    ALL_SERVED,
    CRASHED,
    CRASHES,
    DELIVER,
    ENERGY,
    FORCED_ONSETS,
    ILLEGAL,
    LATENESS,
    LATENESS_MAX,
    MOVE,
    NEAR,
    ON_TIME,
    ONBOARD,
    PUBLISHED_MARGIN,
    RETURN,
    RETURNED,
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
from milkrun.delivery.truckdrone.safety import hands_over, mark_allowed


@kernel
def reset(w, b):
    w.truck_pos[b] = 0.0
    w.truck_vel[b] = 0.0
    # Published: `truck_node` is 0, although the truck starts in the middle, off the ring of nodes.
    w.truck_node[b] = 0 if w.depot_node or not w.sound else -1
    w.truck_target[b] = -1
    for j in range(w.E):
        w.truck_edge[b, j] = 0
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
    """Clears the views of the last step."""
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
    """Plays the step; `take_actions` replaces masked actions."""
    play(w, b, action)


@kernel
def play(w, b, action):
    """Actions, forced returns, the truck's command, flights, the truck's drive, deliveries, reward.

    The order is a rule. Drones fly before the truck drives, so a landing refers to the truck's previous place.
    Deliveries come after both, so that a drone delivers in the step of its arrival. The mask is written last: it
    belongs to the next state."""
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
def mark(w, b):
    """The mask from the state alone."""
    mark_allowed(w, b, w.instance_row[b], w.i[b])


@kernel
def take_actions(w, b, action):
    """Stage 1: reads the actions, flags masked ones and, with `obey_mask`, replaces them by the lowest allowed one.

    Returns the number of drones whose override begins.
    """
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
                while a < n - 1 and not w.action_mask[b, first + a]:
                    a += 1
            elif not inside:
                a = 0
        w.executed[b, agent] = a
        if agent > 0:
            # Entry `first` is HOVER, closed only to a flying drone that could not return afterwards. While it is
            # closed, a masked action means an override, and the phase lasts until HOVER is open again.
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
    """Stage 2, published rules: an airborne drone short of energy is forced to return.

    It is fined even if RETURN was its own action. Returns the number of such drones in this step.
    """
    count = 0
    for d in range(w.D):
        if w.status[b, d] != ONBOARD and w.status[b, d] != CRASHED:
            if w.battery[b, d] < to_truck(w, b, d) * w.battery_rate * PUBLISHED_MARGIN:
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
    """Stage 5: the truck drives towards its target node with the drones on board; it leaves a road only at its ends."""
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
            # a last stride of exactly the remaining distance may miss the node by rounding
            arrived = distance(x, y, gx, gy) < NEAR
        if arrived:
            w.truck_node[b] = n
            w.truck_target[b] = -1
            for j in range(w.E):
                w.truck_edge[b, j] = n
        elif s > 0.0:  # a truck of speed 0 never leaves its node
            # published: keeps the last node also on the way to the next
            if w.sound:
                w.truck_node[b] = -1
            # The truck has left its node. If it turns back on its road, the ends stay.
            if w.R and w.truck_edge[b, 0] == w.truck_edge[b, 1]:
                w.truck_edge[b, 1] = n
    w.truck_vel[b, 0] = vx
    w.truck_vel[b, 1] = vy
    w.truck_step_dist[b] = s
    w.sum_amounts[b, TRUCK_DISTANCE] += s
    w.sum_counts[b, TRUCK_WAIT] += s == 0.0


@kernel
def deliver(w, b, q, t):
    """Stage 6: deliveries in index order of the drones; returns their lateness in steps."""
    late = 0
    for d in range(w.D):
        c = w.executed[b, 1 + d] - DELIVER
        if c < 0 or w.served[b, c] or w.carrying[b, d] < 0:
            continue
        way = distance(w.drone_pos[b, d, 0], w.drone_pos[b, d, 1], w.customer_pos[q, c, 0], w.customer_pos[q, c, 1])
        if w.sound:
            there = w.carrying[b, d] == c and w.status[b, d] != CRASHED and hands_over(w, q, c, way, t)
        else:
            # published: any parcel counts, and a drone on board or a wreck delivers too
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
    """Stage 7: the reward and the end.

    Float sums depend on their order: the published rules add term by term, the sound rules by kind.
    """
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
    home = w.end == ALL_SERVED or (airborne == 0 and (w.end == RETURNED or w.truck_node[b] == 0))
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
