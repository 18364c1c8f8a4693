"""Observations on demand: the camera's picture or the last few of them, the drone's own motion, the lidar.

All are pure functions of a row's town and state, so observing has no effect on play.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.tracking.camera import camera
from milkrun.tracking.config import SIM_HZ
from milkrun.tracking.faces import aim
from milkrun.tracking.tables import BODY, CABIN, CABIN_SHARE, FLOOR, LENGTH, WIDTH

POSE = 5
"""Entries of `past` before the vehicles: place, yaw, agent step."""
POINT = 5
"""Entries of a lidar point."""


@kernel
def render_now(w, b):
    """The current picture."""
    for v in range(w.n_veh[b]):
        for a in range(3):
            w.cars[v, a] = w.veh_pose[b, v, a]
        w.cars[v, 3] = 1.0 if w.veh_on[b, v] else 0.0
    aim(w, w.pos[b, 0], w.pos[b, 1], w.pos[b, 2], w.yaw[b], w.pitch[b], w.roll[b])
    camera(w, b, w.agent_step[b], w.image[b])


@kernel
def render_past(w, b, h):
    """Picture h of the last ones, from the stored poses."""
    for v in range(w.n_veh[b]):
        for a in range(4):
            w.cars[v, a] = w.past[b, h, POSE + 4 * v + a]
    aim(w, w.past[b, h, 0], w.past[b, h, 1], w.past[b, h, 2], w.past[b, h, 3], w.pitch[b], w.roll[b])
    camera(w, b, np.int64(w.past[b, h, 4]), w.frames[b, h])


@kernel
def write_motion(w, b):
    """The drone's own motion: place, velocity, acceleration, turn, attitude as a quaternion and as angles."""
    for a in range(3):
        w.other_state[b, a] = w.pos[b, a]
        w.other_state[b, 3 + a] = w.vel[b, a]
        w.other_state[b, 6 + a] = w.acc[b, a]
    for k in range(9, 18):
        w.other_state[b, k] = 0.0
    w.other_state[b, 11] = w.yaw_rate[b]
    w.other_state[b, 12] = math.cos(0.5 * w.yaw[b])
    w.other_state[b, 15] = math.sin(0.5 * w.yaw[b])
    w.other_state[b, 18] = w.yaw[b]


# -- lidar --------------------------------------------------------------------------------------------------------


@kernel
def add_target(w, n, x, y, hx, hy, c, s):
    """Writes entry n of `targets`, a box that lidar rays may hit, with its offset from the drone in the box's axes."""
    w.targets[n, 0] = c * x + s * y
    w.targets[n, 1] = c * y - s * x
    w.targets[n, 2] = hx
    w.targets[n, 3] = hy
    w.targets[n, 4] = c
    w.targets[n, 5] = s
    return n + 1


@kernel
def find_targets(w, b):
    """The boxes, static and of vehicles, that are cut by the plane of the lidar within its range; their number."""
    q = w.instance_row[b]
    x, y, z, n = w.pos[b, 0], w.pos[b, 1], w.pos[b, 2], 0
    for k in range(w.n_box[q]):
        dx, dy = w.box_pos[q, k, 0] - x, w.box_pos[q, k, 1] - y
        hx, hy = w.box_half[q, k, 0], w.box_half[q, k, 1]
        # hx + hy exceeds half the diagonal, so no corner within range is missed.
        reach = hx + hy + w.lidar_range[1]
        if abs(z - w.box_pos[q, k, 2]) <= w.box_half[q, k, 2] and dx * dx + dy * dy < reach * reach:
            n = add_target(w, n, dx, dy, hx, hy, w.box_cs[q, k, 0], w.box_cs[q, k, 1])
    for v in range(w.n_veh[b]):
        kind = w.veh_kind[b, v]
        body = FLOOR + w.kinds[kind, BODY]
        if w.veh_on[b, v] and z >= FLOOR and z <= body + w.kinds[kind, CABIN]:
            c, s = math.cos(w.veh_pose[b, v, 2]), math.sin(w.veh_pose[b, v, 2])
            hx, hy = 0.5 * w.kinds[kind, LENGTH], 0.5 * w.kinds[kind, WIDTH]
            if z > body:
                hx, hy = hx * w.kinds[kind, CABIN_SHARE], 0.9 * hy
            n = add_target(w, n, w.veh_pose[b, v, 0] - x, w.veh_pose[b, v, 1] - y, hx, hy, c, s)
    return n


@kernel
def meet(w, n, dx, dy, most):
    """Distance at which a horizontal ray enters target n, if within range and below `most`; else `most`."""
    c, s = w.targets[n, 4], w.targets[n, 5]
    enters, leaves = -most, most
    for axis in range(2):
        way = c * dx + s * dy if axis == 0 else c * dy - s * dx
        at, half = w.targets[n, axis], w.targets[n, 2 + axis]
        if abs(way) > 1e-12:
            first, last = (at - half) / way, (at + half) / way
            enters, leaves = max(enters, min(first, last)), min(leaves, max(first, last))
        elif abs(at) > half:
            return most
    # From inside a box `enters` is negative, so there is no hit.
    return enters if enters <= leaves and enters >= w.lidar_range[0] else most


@kernel
def sweep_lidar(w, b):
    """Points round the drone at its height, the first straight ahead, counter-clockwise; zeros without a hit."""
    found, points = find_targets(w, b), w.L5 // POINT
    for p in range(points):
        turn = 2.0 * math.pi * p / points
        dx, dy = math.cos(w.yaw[b] + turn), math.sin(w.yaw[b] + turn)
        # The next float above the range, so that a hit at exactly the range counts.
        beyond = np.nextafter(w.lidar_range[1], np.inf)
        most = beyond
        for n in range(found):
            most = meet(w, n, dx, dy, most)
        hit = most < beyond
        w.cloud[b, POINT * p] = most * math.cos(turn) if hit else 0.0
        w.cloud[b, POINT * p + 1] = most * math.sin(turn) if hit else 0.0
        w.cloud[b, POINT * p + 2] = 0.0
        w.cloud[b, POINT * p + 3] = 0.0
        w.cloud[b, POINT * p + 4] = w.sim_step[b] / SIM_HZ if hit else 0.0


@kernel
def observe(w, b):
    """All observations that the options enable."""
    if w.side > 0:
        render_now(w, b)
    for h in range(w.H):
        render_past(w, b, h)
    if w.other > 0:
        write_motion(w, b)
    if w.L5 > 0:
        sweep_lidar(w, b)
