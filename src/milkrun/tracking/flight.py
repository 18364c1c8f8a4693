"""An agent step: the command through its filter, wind, motion, traffic, contact, then reward and ends."""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import normal, row_stream
from milkrun.tracking.config import FULL_SPEED
from milkrun.tracking.reward_kernels import DEFAULT, DVAT, out_of_range, pay, reference
from milkrun.tracking.sight import clearance, relate, report, wrap
from milkrun.tracking.streams import WIND
from milkrun.tracking.traffic import DT, drive

CONTACT = 0.4
"""Distance in m from the drone's centre to a box or the ground below which it crashes."""
CRASH, HEIGHT, DRIFT, SPEED, YAW_RATE, ATTITUDE, LOST, NAN, RANGE, TIME, TARGET_GONE, LINK_LOST = range(1, 13)
"""Reasons of an end; those from TIME on truncate. The lowest that applies counts."""

# -- one sim step -------------------------------------------------------------------------------------------


@kernel
def filtered(w, b, k):
    """Command k through the second-order Butterworth filter; its memory is x1, x2, y1, y2."""
    u = w.cmd[b, k]
    y = u
    if w.b0 > 0.0:
        # A Butterworth low-pass has b1 = 2 b0 and b2 = b0, so b0 stands for all three.
        y = w.b0 * (u + 2.0 * w.filt[b, k, 0] + w.filt[b, k, 1]) - w.a1 * w.filt[b, k, 2] - w.a2 * w.filt[b, k, 3]
    w.filt[b, k, 1] = w.filt[b, k, 0]
    w.filt[b, k, 0] = u
    w.filt[b, k, 3] = w.filt[b, k, 2]
    w.filt[b, k, 2] = y
    return y


@kernel
def update_wind(w, b):
    """The wind, an Ornstein-Uhlenbeck process: it reverts to its mean and is pushed by gusts."""
    for k in range(2):
        w.wind[b, k] += (w.wind_mean[k] - w.wind[b, k]) * DT / w.wind_tau
    if w.wind_sigma > 0.0:
        s = row_stream(w, b, WIND)
        # With this factor wind_sigma is the stationary standard deviation; the discrete steps add a share of DT / 4
        # tau.
        gust = w.wind_sigma * math.sqrt(2.0 * DT / w.wind_tau)
        for k in range(2):
            w.wind[b, k] += gust * normal(s, 2 * w.sim_step[b] + k)


@kernel
def move(w, b, k, commanded, carried):
    """Moves the drone along axis k: by its command, and by the wind."""
    velocity = commanded + carried
    w.cmd_pos[b, k] += commanded * DT
    w.pos[b, k] += velocity * DT
    w.acc[b, k] = (velocity - w.vel[b, k]) / DT
    w.vel[b, k] = velocity


@kernel
def fly(w, b):
    """One sim step of the drone."""
    c, s = math.cos(w.yaw[b]), math.sin(w.yaw[b])
    ahead, aside, up, turn = filtered(w, b, 0), filtered(w, b, 1), filtered(w, b, 2), filtered(w, b, 3)
    update_wind(w, b)
    move(w, b, 0, c * ahead - s * aside, w.wind[b, 0])
    move(w, b, 1, s * ahead + c * aside, w.wind[b, 1])
    move(w, b, 2, up, 0.0)
    w.yaw[b] = wrap(w.yaw[b] + turn * DT)
    w.yaw_rate[b] = turn


@kernel
def free_distance(w, b, q, known):
    """Distance to the nearest static box in m, or a lower bound that rules out contact.

    `known` is the result of the previous sim step. The drone came nearer by no more than its path, so most sim steps
    need no loop over the boxes.
    """
    # The sum over the axes is no less than the path itself. 1e-6 exceeds rounding and the tolerance of a given town's
    # `tallest` (NEAR in instances.py).
    left = known - (abs(w.vel[b, 0]) + abs(w.vel[b, 1]) + abs(w.vel[b, 2])) * DT
    z = w.pos[b, 2]
    if left > CONTACT + 1e-6:
        return left
    if z > w.tallest[q] + CONTACT + 1e-6:
        return z - w.tallest[q]
    return clearance(w, q, w.pos[b, 0], w.pos[b, 1], z)


@kernel
def physical_end(w, b, free):
    """The reason by which the drone's motion ends the episode; 0: none. `free` is the distance to the nearest box."""
    z = w.pos[b, 2]
    w.crash[b] = z < CONTACT or free < CONTACT
    if w.crash[b]:
        return CRASH
    if w.sim_step[b] < w.init_no_done:
        return 0
    if z < w.done_height[0] or z > w.done_height[1]:
        return HEIGHT
    if (w.cmd_pos[b, 0] - w.pos[b, 0]) ** 2 + (w.cmd_pos[b, 1] - w.pos[b, 1]) ** 2 > w.done_drift * w.done_drift:
        return DRIFT
    if w.vel[b, 0] ** 2 + w.vel[b, 1] ** 2 + w.vel[b, 2] ** 2 > w.done_speed * w.done_speed:
        return SPEED
    return YAW_RATE if abs(w.yaw_rate[b]) > w.done_yaw_rate else 0


# -- an agent step ------------------------------------------------------------------------------------------


@kernel
def other_end(w, b):
    """The reason by which a completed agent step ends the episode; 0: none."""
    settled = w.sim_step[b] >= w.init_no_done
    if settled and w.lost_steps[b] > w.no_reward_done:
        return LOST
    if settled and w.reward_type == DVAT and w.as_published and out_of_range(w, b):
        return RANGE
    # The launcher increments `i` after the step and truncates by max_steps; the reason is set here.
    if w.sim_step[b] >= w.max_sim_steps or w.i[b] + 1 >= w.max_steps:
        return TIME
    return TARGET_GONE if settled and not w.veh_on[b, 0] else 0


@kernel
def end(w, b, reason):
    """Sets the flags of an end and adds its reward."""
    w.reason[b] = reason
    w.terminated[b] = 0 < reason < TIME
    w.truncated[b] = reason >= TIME
    if reason > 0 and w.pays_end and w.reward_type == DEFAULT:
        w.reward_exact[b] += w.end_reward_list[0] if w.reward_exact[b] <= 0.0 else w.end_reward_list[1]


@kernel
def store_past(w, b, h):
    """Stores the poses that a picture of this moment needs at index h of `past`."""
    for k in range(3):
        w.past[b, h, k] = w.pos[b, k]
    w.past[b, h, 3] = w.yaw[b]
    w.past[b, h, 4] = w.agent_step[b]
    for v in range(w.V):
        for k in range(3):
            w.past[b, h, 5 + 4 * v + k] = w.veh_pose[b, v, k]
        w.past[b, h, 5 + 4 * v + 3] = 1.0 if w.veh_on[b, v] else 0.0


@kernel
def push_past(w, b):
    """Drops the oldest moment of `past` and appends this one."""
    for h in range(1, w.H):
        for k in range(w.P):
            w.past[b, h - 1, k] = w.past[b, h, k]
    if w.H > 0:
        store_past(w, b, w.H - 1)


@kernel
def publish(w, b):
    """Updates the views CR, TSR and target_kind."""
    w.CR[b] = w.cr_sum[b]
    w.TSR[b] = w.tsr_sum[b] / w.most_steps
    w.target_kind[b] = w.veh_kind[b, 0]


@kernel
def play(w, b):
    """An agent step with the command in `cmd`. A physical end cuts it short."""
    q = w.instance_row[b]
    # The free distance is not part of the state: it begins as 0, unknown, so a loaded row plays on identically.
    reason, flown, free = 0, 0, 0.0
    while reason == 0 and flown < w.n_sub:
        fly(w, b)
        drive(w, b, q)
        w.sim_step[b] += 1
        flown += 1
        relate(w, b, False)
        free = free_distance(w, b, q, free)
        reason = physical_end(w, b, free)
    w.agent_step[b] += 1
    report(w, b, q)
    if w.agent_step[b] == 1:
        w.d_ref[b] = reference(w)
    w.reward_exact[b] = pay(w, b)
    w.cr_sum[b] += w.r_c[b]
    w.tsr_sum[b] += w.r_d[b]
    w.lost_steps[b] = w.lost_steps[b] + flown if w.r_c[b] <= w.cut_off else 0
    publish(w, b)
    end(w, b, reason if reason > 0 else other_end(w, b))
    push_past(w, b)


@kernel
def step(w, b, action):
    """One of the moves: forward, backward, left, right, turn left, turn right, stop."""
    for k in range(4):
        w.cmd[b, k] = w.moves[action, k]
    play(w, b)


@kernel
def step_velocity(w, b, action):
    """An agent step with these velocities, as shares of full speed."""
    for k in range(4):
        w.cmd[b, k] = FULL_SPEED[k] * np.float64(action[k])
    play(w, b)


@kernel
def idle(w, b, action):
    """An illegal action flies as stop. Time runs on, so that traffic cannot be frozen."""
    for k in range(4):
        w.cmd[b, k] = 0.0
    play(w, b)
