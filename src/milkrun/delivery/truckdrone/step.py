"""A step of the truck and its drones in seven stages, and the reset of a row.

`play` has the order of the stages. How drones fly and board (stage 4) is in `flight`, what the agents may do next in
`safety`, what they see in `observations`; the fields are those of `world`.
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
    # Published: the truck is said to stand on node 0, though it starts in the middle, off the ring of nodes.
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
    """Actions, forced returns, the truck's command, flights, the truck's drive, deliveries, reward.

    The order is a rule. Drones fly before the truck drives, so a landing is judged against where the truck stood, and
    deliveries come after both, so that a drone hands over in the step in which it arrives. The mask is written last: it
    belongs to the state that the agents see next.
    """
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
                while a < n - 1 and not w.action_mask[b, first + a]:
                    a += 1
            elif not inside:
                a = 0
        w.executed[b, agent] = a
        if agent > 0:
            # Entry `first` is HOVER. It is closed only to a drone in the air that could not come home afterwards: while
            # it is, a masked action means that the drone is overridden, and the phase lasts until HOVER is open again.
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
    """Stage 2, published rules: an airborne drone short of energy returns, and is fined even if it wanted to. Returns
    how many do, each step of each counted."""
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
    """Stage 5: the truck rolls towards its target node, drones on board with it. A road is left at its ends alone."""
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
            # a last stride of just the way that was left may end beside the node by rounding
            arrived = distance(x, y, gx, gy) < NEAR
        if arrived:
            w.truck_node[b] = n
            w.truck_target[b] = -1
            for j in range(w.E):
                w.truck_edge[b, j] = n
        elif s > 0.0:  # a truck of speed 0 never leaves its node
            # published: the last node reached stays, also on the way to the next
            if w.sound:
                w.truck_node[b] = -1
            # It has left its node. A truck that turns back on its road keeps both ends.
            if w.R and w.truck_edge[b, 0] == w.truck_edge[b, 1]:
                w.truck_edge[b, 1] = n
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
            # published: any parcel will do, and a drone on board or a wreck delivers too
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
    """Stage 7: the reward and the end. The published rules add one by one, the sound ones by kind: sums of floats
    depend on their order, and each rule set has its own."""
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
