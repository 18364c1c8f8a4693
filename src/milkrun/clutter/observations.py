"""Observations of a pile: features of each object, cover between objects, the state of the cup, and maps."""

from __future__ import annotations

import math

from milkrun.clutter.options import BASE
from milkrun.clutter.rays import (
    first_under,
    in_play,
    is_better_grip,
    last_resort,
    may_be_gripped,
    read_frames,
    sample,
    top_of,
    top_sample,
    weight_of,
)
from milkrun.clutter.stages import DROPPED, IDLE, SUCCESS
from milkrun.core.kernels import kernel

FEATURES, GLOBALS = 26, 12
SIZE, TALL, AREA, ARM, SPEED, SPIN, FAILS, PULL, CUP = 0.2, 0.3, 0.02, 0.1, 1.0, 10.0, 5.0, 40.0, 0.5
"""Scales of lengths, heights, areas, ..., so that features are about 1."""
FAR = 2.0  # limit of clipped places


@kernel(inline=True)
def clip(x, low, high):
    return min(max(x, low), high)


@kernel
def update_views(w, b):
    """All views except the maps."""
    read_frames(w, b)
    out, lost, highest = 0, 0, last_resort(w, b)
    for i in range(w.N):
        view_object(w, b, i, highest)
        out += w.grasped[b, i]
        lost += w.lost[b, i]
    w.env_busy[b] = w.env_stage[b] != IDLE
    for k in range(3):
        w.stage_positions[b, k] = w.cup_goal[b, k]
    view_globals(w, b, out, lost)
    view_figures(w, b, out, lost)


@kernel
def view_object(w, b, i, highest):
    """Views of one object; zeros for one out of play, except its type and state."""
    if not in_play(w, b, i):
        for j in range(w.N):
            w.cover[b, i, j] = 0.0
        w.exposed[b, i] = w.exposed_area[b, i] = w.covered[b, i] = w.top[b, i] = 0.0
        w.blocked[b, i] = w.reachable[b, i] = False
        view_grip(w, b, i, -1)
        view_features(w, b, i, False)
        return
    s = view_cover(w, b, i)
    w.top[b, i] = top_of(w, b, i)
    w.reachable[b, i] = s >= 0
    if i == highest:
        s = top_sample(w, i)
    view_grip(w, b, i, s)
    view_features(w, b, i, s >= 0)


@kernel
def view_grip(w, b, i, s):
    """The grip: sample s, -1 for none."""
    if s >= 0:
        x, y, z, nz = sample(w, i, s)
        p = w.at_qpos + 7 * i
        w.grip_point[b, i, 0] = w.physics[b, p] + x
        w.grip_point[b, i, 1] = w.physics[b, p + 1] + y
        w.grip_point[b, i, 2] = w.physics[b, p + 2] + z
        w.grip_offset[b, i] = math.sqrt(x * x + y * y)
        w.grip_nz[b, i] = nz
    else:
        for k in range(3):
            w.grip_point[b, i, k] = 0.0
        w.grip_offset[b, i] = w.grip_nz[b, i] = 0.0


@kernel
def view_cover(w, b, i):
    """Cover of an object and its grip in one loop over its samples; returns the sample of the grip, -1 for none."""
    seen, others, whole, grip, nearest, square = 0.0, 0.0, 0.0, -1, 1e30, w.G * w.G
    for j in range(w.N):
        w.share[j] = 0.0
    for face in range(3):
        weight, level = weight_of(w, i, face), may_be_gripped(w, i, face)
        for s in range(face * square, (face + 1) * square):
            met = w.hit[b, i, s]
            whole += weight
            if met == i:
                seen += weight
                if level:
                    x, y, _z, nz = sample(w, i, s)
                    if is_better_grip(w, x, y, nz, nearest):
                        grip, nearest = s, x * x + y * y
            elif met >= 0:
                w.share[met] += weight
                others += weight
    w.share[i] = seen
    share = others / whole
    for j in range(w.N):
        w.cover[b, i, j] = w.share[j] / whole
    w.exposed[b, i] = seen / whole
    w.exposed_area[b, i] = seen
    w.covered[b, i] = share
    w.blocked[b, i] = share >= w.blocked_cover
    return grip


@kernel
def view_features(w, b, i, has_grip):
    q, o = w.instance_row[b], w.objects[b, i]
    for k in range(FEATURES):
        o[k] = 0.0
    for k in range(3):
        o[k] = w.size[q, i, k] / SIZE
    o[15], o[16], o[25] = w.grasped[b, i], w.lost[b, i], w.mass[q, i]
    if in_play(w, b, i):
        at, p, v, f = w.physics[b], w.at_qpos + 7 * i, w.at_qvel + 6 * i, w.frame[i]
        o[3] = clip(at[p] / w.half_side, -FAR, FAR)
        o[4] = clip(at[p + 1] / w.half_side, -FAR, FAR)
        o[5] = clip(at[p + 2] / TALL, -FAR, FAR)
        for k in range(3):
            o[6 + k], o[9 + k] = f[3 * k], f[3 * k + 1]
        o[12] = min(math.sqrt(at[v] ** 2 + at[v + 1] ** 2 + at[v + 2] ** 2) / SPEED, 1.0)
        o[13] = min(math.sqrt(at[v + 3] ** 2 + at[v + 4] ** 2 + at[v + 5] ** 2) / SPIN, 1.0)
        o[14] = 1.0
        o[17], o[18] = w.exposed[b, i], min(w.exposed_area[b, i] / AREA, 1.0)
        o[19], o[20] = w.covered[b, i], w.blocked[b, i]
        o[21] = clip(w.top[b, i] / TALL, -FAR, FAR)
        o[22] = min(w.grip_offset[b, i] / ARM, 1.0) if has_grip else 1.0
        o[23] = w.grip_nz[b, i]
        o[24] = min(w.fails[b, i] / FAILS, 1.0)


@kernel
def view_globals(w, b, out, lost):
    g = w.globals[b]
    g[0], g[1], g[2] = out / w.N, lost / w.N, (w.N - out - lost) / w.N
    g[3] = min(w.step_count[b] / w.T, 1.0)
    g[4], g[5] = w.last_result[b] == SUCCESS, w.last_result[b] == DROPPED
    g[6] = min(w.suction_limit[w.instance_row[b]] / PULL, w.span)
    g[7], g[8] = w.env_stage[b] != IDLE, w.env_stage[b] / 7.0
    for k in range(3):
        g[9 + k] = clip(w.cup_pos[b, k] / CUP, -w.span, w.span)


@kernel
def view_figures(w, b, out, lost):
    """Figures of merit of the episode so far."""
    picks, seconds = max(w.picks[b], 1), w.tick_count[b] * w.tick
    over = out - (w.env_stage[b] != IDLE and w.result[b] == SUCCESS)  # what is still carried is no attempt yet
    w.success[b] = out == w.N
    w.percent_cleared[b] = out / w.N
    w.grasp_success[b] = over / picks
    w.action_efficiency[b] = over / max(w.step_count[b], 1)
    w.disturbance[b] = w.sum_disturbance[b] / picks
    w.blocked_share[b] = w.sum_blocked[b] / picks
    w.lost_share[b] = lost / w.N
    w.picks_per_hour[b] = 3600.0 * out / seconds if seconds > 0.0 else 0.0


@kernel
def observe(w, b):
    """The maps: the object below the middle of each pixel, and its height. Row 0 lies at +y, column 0 at -x."""
    read_frames(w, b)
    pixel = 2.0 * w.half_side / max(w.M, 1)
    for r in range(w.M):
        y = w.half_side - (r + 0.5) * pixel
        for c in range(w.M):
            met, z = first_under(w, b, (c + 0.5) * pixel - w.half_side, y, -1)
            w.segmentation[b, r, c] = met
            w.height[b, r, c] = min((z if met >= 0 else BASE) / TALL, w.ceiling)
