"""Flight, energy and boarding of drones: stage 4 of a step under both rule sets.

Distances are sqrt(dx*dx + dy*dy), not hypot, and every sum has a fixed order. So an independent model with the same
formulas agrees bit by bit, and no wrong rule hides in a tolerance.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel

ONBOARD, FLYING, RETURNING, CRASHED = range(4)
HOVER, RETURN, DELIVER = range(3)
STAY, MOVE = range(2)

ALL_SERVED, RETURNED, AT_DEPOT = range(3)
"""The conditions of completion, in the order of `config.ENDS`."""

EPS = 1e-9
"""The tolerance; the published rules use none."""
NEAR = 1e-6
"""A distance below this counts as 0."""

PUBLISHED_HOVER, PUBLISHED_CHARGE, PUBLISHED_MARGIN = 0.001, 0.2, 1.2
"""Constants of the published rules: battery for a step of hovering, gained at a recovery, factor of the reserve."""

SERVED, ON_TIME, LATENESS, LATENESS_MAX, SORTIES, ABORTED, FORCED_ONSETS = range(7)
CRASHES, TRUCK_WAIT, DRONE_WAIT, ONBOARD_STEPS, ILLEGAL, CONFLICTS = range(7, 13)
COUNTS = (
    "served",
    "on_time",
    "lateness",
    "lateness_max",
    "sorties",
    "aborted",
    "forced_onsets",
    "crashes",
    "truck_wait",
    "drone_wait",
    "onboard_steps",
    "illegal",
    "conflicts",
)
"""The columns of `sum_counts`."""
ENERGY, TRUCK_DISTANCE, DRONE_DISTANCE = range(3)
AMOUNTS = ("energy", "truck_distance", "drone_distance")
"""The columns of `sum_amounts`."""


@kernel(inline=True)
def distance(ax, ay, bx, by):
    dx, dy = bx - ax, by - ay
    return math.sqrt(dx * dx + dy * dy)


@kernel(inline=True)
def to_truck(w, b, d):
    return distance(w.drone_pos[b, d, 0], w.drone_pos[b, d, 1], w.truck_pos[b, 0], w.truck_pos[b, 1])


@kernel(inline=True)
def load(w, b, q, d):
    """The parcel of a drone, as a share of its payload."""
    c = w.carrying[b, d]
    return w.demand[q, c] if c >= 0 else 0.0


@kernel(inline=True)
def stand_on_truck(w, b, d):
    w.drone_pos[b, d, 0] = w.truck_pos[b, 0]
    w.drone_pos[b, d, 1] = w.truck_pos[b, 1]


@kernel(inline=True)
def stop(w, b, d):
    w.drone_vel[b, d, 0] = 0.0
    w.drone_vel[b, d, 1] = 0.0


@kernel(inline=True)
def carried_elsewhere(w, b, d, c):
    """True if another live drone has the parcel of c."""
    for other in range(w.D):
        if other != d and w.carrying[b, other] == c and w.status[b, other] != CRASHED:
            return True
    return False


@kernel
def release(w, b, d):
    if w.status[b, d] == ONBOARD:
        w.status[b, d] = FLYING
        stand_on_truck(w, b, d)
        w.sum_counts[b, SORTIES] += 1


@kernel
def board(w, b, d):
    """A recovery, by command or by landing. Sound: the parcel goes back to stock; published: the drone keeps it."""
    k = w.carrying[b, d]
    w.sum_counts[b, ABORTED] += k >= 0
    w.status[b, d] = ONBOARD
    stand_on_truck(w, b, d)
    stop(w, b, d)
    w.has_target[b, d] = False
    w.battery[b, d] = min(1.0, w.battery[b, d] + w.boarding_charge)
    if w.sound:
        w.carrying[b, d] = -1
        w.forced_phase[b, d] = False
        if k >= 0:
            # `travel` marks the parcel as lost if the battery ran out on the last stride. Boarding saves it, unless
            # (without `reserve`) a wreck holds the same parcel.
            w.lost[b, k] = lies_in_a_wreck(w, b, k)


@kernel
def lies_in_a_wreck(w, b, c):
    for d in range(w.D):
        if w.status[b, d] == CRASHED and w.carrying[b, d] == c:
            return True
    return False


@kernel
def recover(w, b, d):
    """The truck's RECOVER_d; the drone's own action is void."""
    within = to_truck(w, b, d) <= w.reach
    if within and w.status[b, d] != ONBOARD:
        board(w, b, d)
        w.executed[b, 1 + d] = HOVER


@kernel
def fly(w, b, q, d):
    """Stage 4 of one drone; True if it has just crashed.

    Drones fly in index order, and each sees the parcels loaded by earlier ones in this step, which decides conflicts.
    All fly towards the truck's place at the start of the step; the truck drives afterwards."""
    if w.status[b, d] == ONBOARD:
        stand_on_truck(w, b, d)
        stop(w, b, d)
        w.battery[b, d] = min(1.0, w.battery[b, d] + w.charge)
        w.sum_counts[b, ONBOARD_STEPS] += 1
        return False
    if w.status[b, d] == CRASHED:
        stop(w, b, d)
        return False
    action = w.executed[b, 1 + d]
    if w.sound:
        if action >= DELIVER and w.reserve and w.carrying[b, d] < 0 and carried_elsewhere(w, b, d, action - DELIVER):
            w.conflict[b, d] = True
            w.sum_counts[b, CONFLICTS] += 1
            # An empty drone may always RETURN, but HOVER only if the mask allows it.
            action = HOVER if w.action_mask[b, w.T + d * w.K + HOVER] else RETURN
            w.executed[b, 1 + d] = action
        w.status[b, d] = RETURNING if action == RETURN else FLYING
    # Published: a returning drone keeps that status until it boards.
    elif action == RETURN:
        w.status[b, d] = RETURNING
    gx, gy = w.truck_pos[b, 0], w.truck_pos[b, 1]
    if action >= DELIVER:
        c = action - DELIVER
        gx, gy = w.customer_pos[q, c, 0], w.customer_pos[q, c, 1]
        w.target_pos[b, d, 0] = gx
        w.target_pos[b, d, 1] = gy
        w.has_target[b, d] = True
        if w.carrying[b, d] < 0:
            w.carrying[b, d] = c
    travel(w, b, q, d, action, gx, gy)
    if action == RETURN:
        # A drone that ran out of energy on this stride is saved if it is in reach: no crash is counted. Published: a
        # landing needs less than the threshold, RECOVER at most the threshold.
        gap = to_truck(w, b, d)
        if gap <= w.reach if w.sound else gap < w.recovery_threshold:
            board(w, b, d)
    return w.status[b, d] == CRASHED


@kernel
def travel(w, b, q, d, action, gx, gy):
    """Moves a drone towards its goal or lets it hover, and takes the energy from its battery."""
    x, y = w.drone_pos[b, d, 0], w.drone_pos[b, d, 1]
    dx, dy = gx - x, gy - y
    way = math.sqrt(dx * dx + dy * dy)
    energy = 0.0
    if action != HOVER and way > NEAR:
        s = min(w.drone_stride, way)
        ex, ey = dx / way, dy / way
        w.drone_pos[b, d, 0] = x + ex * s
        w.drone_pos[b, d, 1] = y + ey * s
        w.drone_vel[b, d, 0] = ex * (s / w.dt)
        w.drone_vel[b, d, 1] = ey * (s / w.dt)
        w.sum_amounts[b, DRONE_DISTANCE] += s
        energy = s * w.battery_rate
        if w.sound:
            energy *= 1 + w.payload_factor * load(w, b, q, d)
    else:
        stop(w, b, d)
        w.sum_counts[b, DRONE_WAIT] += 1
        # A DELIVER without motion waits for its window and costs a hover. A RETURN without motion is at the truck and
        # free.
        if action == HOVER or (w.sound and action >= DELIVER):
            energy = w.hover_energy * (1 + w.payload_factor * load(w, b, q, d))
    w.battery_used[b, d] = energy
    left = w.battery[b, d] - energy
    w.battery[b, d] = left
    # Published: only a move can crash a drone, so hovering may drain a battery below 0.
    if left <= 0.0 and (energy > 0.0 if w.sound else action != HOVER and way > NEAR):
        w.battery[b, d] = 0.0
        w.status[b, d] = CRASHED
        stop(w, b, d)
        if w.sound and w.carrying[b, d] >= 0:
            w.lost[b, w.carrying[b, d]] = True
