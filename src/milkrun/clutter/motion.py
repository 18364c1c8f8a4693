"""ClutterMotion: the policy moves the cup by four numbers per tick: its motion / 0.02 m and its suction (on above 0).

A pick begins when the cup grips an object and ends when the pile is at rest after the release. Otherwise it equals
`Clutter`.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.clutter.generator import begin, generate
from milkrun.clutter.observations import observe, update_views
from milkrun.clutter.options import LONGEST
from milkrun.clutter.physics import MuJoCoPile
from milkrun.clutter.rays import cast, first_under, read_frames
from milkrun.clutter.stages import (
    DROPPED,
    IDLE,
    SETTLE,
    SUCCESS,
    clear_last,
    close_attempt,
    count_rest,
    finish,
    halt,
    hold,
    is_finite,
    let_go,
    load_of_tick,
    recast_rays,
    remember_choice,
    reward_of_pick,
)
from milkrun.core.actions import box
from milkrun.core.kernels import kernel

STRIDE = 0.02  # m, most motion of the cup in a tick along each axis
LOW = 0.02  # m, lowest height of the cup
GAP = 0.002  # m between the cup and the surface below it
GRASP = 0.01  # m, largest distance of a grip


@kernel
def step(w, b, action):
    """Moves the cup, stopping above any surface, and switches its suction."""
    read_frames(w, b)
    start = w.cup_pos[b, 0], w.cup_pos[b, 1], w.cup_pos[b, 2]
    x = min(w.cup_far, max(-w.cup_far, start[0] + STRIDE * np.float64(action[0])))
    y = min(w.cup_far, max(-w.cup_far, start[1] + STRIDE * np.float64(action[1])))
    z = min(w.cup_high, max(LOW, start[2] + STRIDE * np.float64(action[2])))
    _under, surface = first_under(w, b, x, y, w.current_suction_object[b])
    put_cup(w, b, x, y, max(z, surface + GAP))
    act(w, b, start, action[3] > 0.0)


@kernel
def idle(w, b, action):
    """An illegal action: the cup and its object stay, and a tick passes."""
    act(w, b, (w.cup_pos[b, 0], w.cup_pos[b, 1], w.cup_pos[b, 2]), w.is_suction_active[b])


@kernel
def put_cup(w, b, x, y, z):
    w.cup_pos[b, 0], w.cup_pos[b, 1], w.cup_pos[b, 2] = x, y, z
    for k in range(3):
        w.cup_goal[b, k] = w.cup_pos[b, k]


@kernel
def act(w, b, start, on):
    """Releases or grips an object by the suction, and plans the cup's path of this tick."""
    w.stirred[b] = False
    if w.current_suction_object[b] >= 0 and not on:
        let_go(w, b, SUCCESS if over_drop(w, b) else DROPPED)
        w.is_suction_active[b] = False
        halt(w, b, SETTLE, 0)
        w.stirred[b] = True
    elif w.env_stage[b] == IDLE and on and take_hold(w, b):
        start = w.cup_pos[b, 0], w.cup_pos[b, 1], w.cup_pos[b, 2]
    w.tick_count[b] += 1
    if w.env_stage[b] != IDLE:
        w.stage_tick[b] = min(w.stage_tick[b] + 1, LONGEST)
    w.settle_tick[b] += w.env_stage[b] == SETTLE
    for k in range(w.K):
        for c in range(3):
            w.path[b, k, c] = w.physics[b, w.at_mocap + c]
            if w.current_suction_object[b] >= 0:
                w.path[b, k, c] = start[c] + (w.cup_pos[b, c] - start[c]) * ((k + 1) / w.K)


@kernel
def over_drop(w, b):
    dx, dy, dz = w.cup_pos[b, 0] - w.drop[0], w.cup_pos[b, 1] - w.drop[1], w.cup_pos[b, 2] - w.drop[2]
    return math.sqrt(dx * dx + dy * dy + dz * dz) <= w.goal_thresh


@kernel
def take_hold(w, b):
    """Begins a pick if a sufficiently level surface is close below the tip."""
    read_frames(w, b)
    x, y, z = w.cup_pos[b, 0], w.cup_pos[b, 1], w.cup_pos[b, 2]
    i, surface = first_under(w, b, x, y, -1)
    if i < 0 or z - surface > GRASP:
        return False
    p, f = w.at_qpos + 7 * i, w.frame[i]
    dx, dy, dz = x - w.physics[b, p], y - w.physics[b, p + 1], surface - w.physics[b, p + 2]
    lx = f[0] * dx + f[3] * dy + f[6] * dz
    ly = f[1] * dx + f[4] * dy + f[7] * dz
    lz = f[2] * dx + f[5] * dy + f[8] * dz
    if normal_z(w, i, lx, ly, lz) < w.max_tilt_cos:
        return False
    remember_choice(w, b, i, lx, ly, lz)
    hold(w, b)
    return True


@kernel
def normal_z(w, i, x, y, z):
    """z of the normal at a surface point in the object's frame."""
    f, h = w.frame[i], w.half[i]
    if w.is_can[i]:
        radius = math.sqrt(x * x + y * y)
        if abs(h[2] - abs(z)) <= abs(h[0] - radius):
            return f[8] if z >= 0.0 else -f[8]
        return (f[6] * x + f[7] * y) / radius
    best, up = 1e30, 0.0
    for k in range(3):
        at = (x, y, z)[k]
        if abs(h[k] - abs(at)) < best:
            best, up = abs(h[k] - abs(at)), (f[6 + k] if at >= 0.0 else -f[6 + k])
    return up


@kernel
def after_motion_tick(w, b, x, y):
    """Updates a row after a tick of the physics; returns False, without changes, if the physics failed."""
    if not is_finite(w, b):
        return False
    w.stirred[b] = True
    if w.current_suction_object[b] >= 0:
        if load_of_tick(w, b) > 1.0:
            let_go(w, b, DROPPED)
            w.is_suction_active[b] = False
            halt(w, b, SETTLE, 0)
        return True
    count_rest(w, b)
    if w.env_stage[b] == SETTLE and (w.at_rest[b] or w.settle_tick[b] >= w.settle_max):
        finish(w, b)
    return True


@kernel
def settle(w, b):
    """Result of a tick: the reward of a finished pick, the end of the episode, and new hits of rays."""
    clear_last(w, b)
    if w.env_stage[b] == IDLE and w.env_target[b] >= 0:
        w.reward[b] = reward_of_pick(w, b)
        close_attempt(w, b)
    elif w.fault[b]:
        w.truncated[b] = True
    recast_rays(w, b)


@kernel
def see_pile(w, b, x, y):
    """Casts the rays of a given pose."""
    cast(w, b)
    return True


class ClutterMotion(MuJoCoPile):
    """The same tray with a cup moved by the policy: a step is a tick."""

    id = "milkrun/Clutter-v0"
    action = box(4)
    policies = {}
    seen = {"kernel": see_pile}

    def advance(self, rows: np.ndarray) -> None:
        rows = np.sort(rows)
        busy = rows[self.env_stage[rows] != IDLE]
        self._run_engine(rows[~self.at_rest[rows]], after_motion_tick)
        self._put_to_sleep(busy)


ClutterMotion.bind(
    generate=generate, reset=begin, step=step, settle=settle, idle=idle, update_views=update_views, observe=observe
)
