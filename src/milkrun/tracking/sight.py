"""Geometry of drone, boxes and target: distances, lines of sight, the gauge of the window on the ground, RewardParams.

Every reward is computed from the 60 RewardParams.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.tracking.traffic import DT

TURNING, STANDING = 0.05, 0.5
"""Of the target: the yaw rate (rad/s) from which it turns, the speed (m/s) below which it stands."""
STANDS, STRAIGHT, TURNS_LEFT, TURNS_RIGHT = 0.0, 1.0, 2.0, 3.0
"""How the target moves, RewardParams 59."""

# -- angles -------------------------------------------------------------------------------------------------


@kernel
def wrap(angle):
    """The same angle in (-pi, pi]."""
    a = angle - 2.0 * math.pi * math.ceil((angle - math.pi) / (2.0 * math.pi))
    if a <= -math.pi:  # rounding of the line above
        a += 2.0 * math.pi
    return min(a, math.pi)


# -- static boxes -------------------------------------------------------------------------------------------


@kernel
def clearance(w, q, x, y, z):
    """Distance from a point to the nearest static box; 0 inside one, infinite where there is none."""
    nearest = math.inf
    for k in range(w.n_box[q]):
        dx, dy = x - w.box_pos[q, k, 0], y - w.box_pos[q, k, 1]
        c, s = w.box_cs[q, k, 0], w.box_cs[q, k, 1]
        ahead = max(0.0, abs(c * dx + s * dy) - w.box_half[q, k, 0])
        aside = max(0.0, abs(c * dy - s * dx) - w.box_half[q, k, 1])
        above = max(0.0, abs(z - w.box_pos[q, k, 2]) - w.box_half[q, k, 2])
        nearest = min(nearest, ahead * ahead + aside * aside + above * above)
    return math.sqrt(nearest)


@kernel
def hidden(w, q, x0, y0, z0, x1, y1, z1):
    """Whether a static box stands between two points."""
    ex, ey, ez = x1 - x0, y1 - y0, z1 - z0
    length2 = ex * ex + ey * ey
    for k in range(w.n_box[q]):
        ox, oy = x0 - w.box_pos[q, k, 0], y0 - w.box_pos[q, k, 1]
        # Most boxes are far from the line, seen from above: the sum of the half sizes exceeds half the diagonal.
        beside = ex * oy - ey * ox
        reach = w.box_half[q, k, 0] + w.box_half[q, k, 1]
        if beside * beside <= reach * reach * length2:
            c, s = w.box_cs[q, k, 0], w.box_cs[q, k, 1]
            first, last = slab(c * ox + s * oy, c * ex + s * ey, w.box_half[q, k, 0], 0.0, 1.0)
            first, last = slab(c * oy - s * ox, c * ey - s * ex, w.box_half[q, k, 1], first, last)
            first, last = slab(z0 - w.box_pos[q, k, 2], ez, w.box_half[q, k, 2], first, last)
            if first <= last:
                return True
    return False


@kernel
def slab(start, way, half, first, last):
    """The part of a line, from share `first` to share `last` of its way, that lies within +-half along one axis."""
    if abs(way) < 1e-12:
        # (1, 0) is an empty part and stays empty, since `first` only grows and `last` only falls.
        return (first, last) if abs(start) <= half else (1.0, 0.0)
    enter, leave = (-half - start) / way, (half - start) / way
    return max(first, min(enter, leave)), min(last, max(enter, leave))


# -- the picture --------------------------------------------------------------------------------------------


@kernel
def gauge(w, x, y, z, yaw, pitch, share, tx, ty):
    """The factor by which the window on the ground must grow about its middle to reach (tx, ty), and that middle.

    The window is `share` of the picture. From above it is a symmetric trapezium in the drone's axes: the factor is the
    largest of three quotients, for its far, its near and its slanted edge.
    """
    c, s, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    height = max(z, 1e-9)
    u, v = share * w.tan_h, share * w.tan_v
    # Depths at which the upper and the lower edge of the window meet the ground. Starts and loaded states never have
    # the horizon in the picture (tan(pitch) > tan_v), and share <= 1, so no division is by 0.
    far, near = height / (sp - v * cp), height / (sp + v * cp)
    middle = height * cp / sp
    x_far, x_near = far * (cp + v * sp) - middle, near * (cp - v * sp) - middle
    long, wider = x_far - x_near, u * (far - near)
    ahead = c * (tx - x) + s * (ty - y) - middle
    aside = abs(c * (ty - y) - s * (tx - x))
    # The slanted edge, grown by g, is aside = g h + (wider / long) ahead, with h its distance aside in the middle. The
    # equation is solved for g, numerator and denominator multiplied by `long`.
    slanted = (long * aside - wider * ahead) / (long * u * far - wider * x_far)
    # x_near is negative, so the quotient for the edge on the target's side is the one that is not negative.
    grow = max(max(ahead / x_far, ahead / x_near), slanted)
    return grow, x + middle * c, y + middle * s


@kernel
def in_picture(w, b):
    """Whether the target is within the whole picture; `rel` must be up to date."""
    cp, sp = math.cos(w.pitch[b]), math.sin(w.pitch[b])
    depth = cp * w.rel[b, 0] + sp * w.pos[b, 2]
    up = sp * w.rel[b, 0] - cp * w.pos[b, 2]
    return depth > 0.0 and abs(w.rel[b, 1]) <= w.tan_h * depth and abs(up) <= w.tan_v * depth


# -- the target ---------------------------------------------------------------------------------------------


@kernel
def relate(w, b, first):
    """`rel`: the target's centre in the drone's axes, and its first and second difference quotients over the last sim
    step, which are 0 if this is the `first` time."""
    c, s = math.cos(w.yaw[b]), math.sin(w.yaw[b])
    dx, dy = w.veh_pose[b, 0, 0] - w.pos[b, 0], w.veh_pose[b, 0, 1] - w.pos[b, 1]
    differ(w, b, 0, c * dx + s * dy, first)
    differ(w, b, 1, c * dy - s * dx, first)
    differ(w, b, 2, -w.pos[b, 2], first)


@kernel
def differ(w, b, axis, value, first):
    """A new value along one axis, and its difference quotients to the last."""
    speed = 0.0 if first else (value - w.rel[b, axis]) / DT
    w.rel[b, 6 + axis] = 0.0 if first else (speed - w.rel[b, 3 + axis]) / DT
    w.rel[b, 3 + axis] = speed
    w.rel[b, axis] = value


@kernel
def motion(w, b):
    """The code of the target's motion: turning, else standing or driving straight on."""
    if w.veh_rate[b] > TURNING:
        return TURNS_LEFT
    if w.veh_rate[b] < -TURNING:
        return TURNS_RIGHT
    return STANDS if w.veh_v[b, 0] < STANDING else STRAIGHT


@kernel
def put_camera_pose(w, b):
    """RewardParams 7..22: the camera in the world, 4 x 4 by rows; its axes point forward, left and up."""
    c, s, cp, sp = math.cos(w.yaw[b]), math.sin(w.yaw[b]), math.cos(w.pitch[b]), math.sin(w.pitch[b])
    p = w.params
    p[7], p[8], p[9] = cp * c, -s, sp * c
    p[11], p[12], p[13] = cp * s, c, sp * s
    p[15], p[16], p[17] = -sp, 0.0, cp
    for k in range(3):
        p[10 + 4 * k] = w.pos[b, k]
        p[19 + k] = 0.0
        p[45 + k] = w.pos[b, k]
    p[22] = 1.0


@kernel
def put_target_pose(w, b):
    """RewardParams 23..38: the target in the world, at its centre on the plane z = 0, in the same form."""
    heading = w.veh_pose[b, 0, 2]
    c, s = math.cos(heading), math.sin(heading)
    p = w.params
    for k in range(16):
        p[23 + k] = 0.0
    p[23], p[24], p[27], p[28] = c, -s, s, c
    p[33], p[38] = 1.0, 1.0
    p[42], p[43], p[44] = w.veh_pose[b, 0, 0], w.veh_pose[b, 0, 1], 0.0
    for k in range(3):
        p[26 + 4 * k] = p[42 + k]


@kernel
def report(w, b, q):
    """Writes the RewardParams of a row and what they determine: gauge, visible, r_c, r_d."""
    p = w.params
    x, y, z = w.pos[b, 0], w.pos[b, 1], w.pos[b, 2]
    p[0], p[1], p[2], p[3] = w.cam_width, w.cam_height, w.hfov, 0.5 * w.cam_width / w.tan_h
    p[4], p[5], p[6] = w.pitch[b], z, w.start[b, 1]
    put_camera_pose(w, b)
    put_target_pose(w, b)
    grow, p[39], p[40] = gauge(w, x, y, z, w.yaw[b], w.pitch[b], w.view_range, p[42], p[43])
    p[41] = 0.0
    p[48] = wrap(w.veh_pose[b, 0, 2] - w.yaw[b])
    for k in range(9):
        p[49 + k] = w.rel[b, k]
    p[58] = 1.0 if w.crash[b] else 0.0
    p[59] = motion(w, b)
    w.gauge[b] = grow
    w.visible[b] = in_picture(w, b) and not hidden(w, q, x, y, z, p[42], p[43], p[44])
    score(w, b)
    for k in range(w.params60):
        w.reward_params[b, k] = p[k]
    for k in range(w.critic9):
        w.critic[b, k] = w.rel[b, k]


@kernel
def score(w, b):
    """r_c and r_d from the gauge; both are 0 for a hidden target with `occlusion="zero"`."""
    inside = w.gauge[b] < 1.0 and (w.visible[b] or not w.hides)
    r = 1.0 - w.gauge[b] if inside else 0.0
    w.r_c[b] = math.tanh(w.view_scale * r * r * r)
    w.r_d[b] = 1.0 if inside else 0.0
