"""The start of an episode: a settled scene, turned by quarters, with objects exchanged and factors drawn."""

from __future__ import annotations

import math

from milkrun.clutter.rays import mark_allowed
from milkrun.clutter.stages import IDLE, NONE, clear_last
from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform

SCENE, TURN, LABELS, SUCTION, MASS, FRICTION = range(1, 7)
"""Purposes of the random streams: a new quantity shifts no other."""


@kernel
def generate(w, b):
    q = w.instance_row[b]
    scene, turn = scene_drawn(w, b, 0, 0), 0
    for i in range(w.N):
        w.scene_label[q, i] = i
    if w.augment:
        turn = integers(row_stream(w, b, TURN), 0, 0, 4)
        exchange(w, b, q)
    w.scene_id[q], w.scene_rot[q] = scene, turn
    suction = row_stream(w, b, SUCTION)
    w.suction_limit[q] = w.suction_force * between(w.suction_low, w.suction_high, uniform(suction, 0))
    w.friction_factor[q] = between(w.friction_low, w.friction_high, uniform(row_stream(w, b, FRICTION), 0))
    masses = row_stream(w, b, MASS)
    for i in range(w.N):
        w.type_id[q, i] = i // w.per_type
        w.mass[q, i] = w.mass_of[i] * between(w.mass_low, w.mass_high, uniform(masses, i))
        for k in range(3):
            w.size[q, i, k] = 2.0 * w.half[i, k]
        write_pose(w, q, i, scene, turn)


@kernel
def scene_drawn(w, b, x, y):
    """The scene of the next episode, by the row's stream alone."""
    if w.in_turn:
        # Each number is reduced first: seed and row may both be near 2**63, where their sum overflows.
        return (w.stream[b, 0] % w.Q + w.stream[b, 1] % w.Q) % w.Q
    return integers(row_stream(w, b, SCENE), 0, 0, w.Q)


@kernel(inline=True)
def between(low, high, u):
    return low + (high - low) * u


@kernel
def exchange(w, b, q):
    """Exchange the objects of each type by a random permutation."""
    labels, draw = row_stream(w, b, LABELS), 0
    for t in range(w.N // w.per_type):
        for r in range(w.per_type - 1, 0, -1):
            i, j = t * w.per_type + r, t * w.per_type + integers(labels, draw, 0, r + 1)
            draw += 1
            w.scene_label[q, i], w.scene_label[q, j] = w.scene_label[q, j], w.scene_label[q, i]


@kernel
def write_pose(w, q, i, scene, turn):
    """Writes the pose of object i: the scene's pose of its label, turned about the middle of the tray."""
    at = w.bank[scene, w.scene_label[q, i]]
    # From tables: with exact 0 and 1 for a quarter turn no coordinate is rounded.
    c, s = (1.0, 0.0, -1.0, 0.0)[turn], (0.0, 1.0, 0.0, -1.0)[turn]
    root = math.sqrt(0.5)
    hc, hs = (1.0, root, 0.0, -root)[turn], (0.0, root, 1.0, root)[turn]
    pose = w.init_pose[q, i]
    pose[0], pose[1], pose[2] = c * at[0] - s * at[1], s * at[0] + c * at[1], at[2]
    pose[3], pose[4] = hc * at[3] - hs * at[6], hc * at[4] - hs * at[5]
    pose[5], pose[6] = hc * at[5] + hs * at[4], hc * at[6] + hs * at[3]


@kernel
def reset(w, b):
    begin(w, b)
    mark_allowed(w, b)


@kernel
def begin(w, b):
    """Initialise every field of the state, including the row of the physics."""
    q = w.instance_row[b]
    for k in range(w.S):
        w.physics[b, k] = 0.0
    w.physics[b, w.at_mocap_quat] = 1.0
    for i in range(w.N):
        for k in range(7):
            w.physics[b, w.at_qpos + 7 * i + k] = w.init_pose[q, i, k]
        for k in range(w.E):
            w.weld[b, i, k] = w.weld_rest[i, k]
        for k in range(3):
            w.pos_at_choice[b, i, k] = w.init_pose[q, i, k]
        w.grasped[b, i] = w.lost[b, i] = False
        w.grasp_order[b, i] = -1
        w.fails[b, i] = 0
    for k in range(3):
        w.cup_pos[b, k] = w.cup_goal[b, k] = w.physics[b, w.at_mocap + k] = w.home_pos[k]
        w.grip_local[b, k] = 0.0
        for j in range(w.K):
            w.force[b, j, k] = w.path[b, j, k] = 0.0
    w.lift_from[b] = 0.0
    w.step_count[b] = w.tick_count[b] = w.ticks_at_choice[b] = 0
    w.env_stage[b], w.stage_tick[b], w.stage_len[b] = IDLE, 0, 0
    w.env_target[b] = w.current_suction_object[b] = -1
    w.is_suction_active[b] = w.asleep[b] = w.blocked_at_choice[b] = w.fault[b] = w.stirred[b] = False
    w.at_rest[b], w.rest_count[b], w.settle_tick[b] = True, 0, 0
    w.pick_load[b] = 0.0
    w.result[b] = w.last_result[b] = NONE
    w.lost_at_choice[b] = w.picks[b] = w.sum_blocked[b] = w.records[b] = 0
    w.sum_disturbance[b] = 0.0
    clear_last(w, b)
    copy_hits(w, b, q)


@kernel
def copy_hits(w, b, q):
    """Copy the hits of rays from the bank, with the objects' numbers of this row. Given poses have none yet."""
    known = w.scene_id[q] >= 0
    for i in range(w.N):
        # The inverse of the labels: the bank numbers objects by their labels.
        w.number[w.scene_label[q, i]] = i
    for i in range(w.N):
        for s in range(w.R):
            hit = -1
            if known:
                hit = w.bank_hit[w.scene_id[q], w.scene_label[q, i], s]
            w.hit[b, i, s] = w.number[hit] if hit >= 0 else -1
