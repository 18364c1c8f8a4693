"""The state machine of a pick: the cup's stages, its ticks, and the result.

`step` chooses the object. In each tick `plan` moves the cup and returns whether the physics must run, and `after_tick`
evaluates the physics. A pick is over when its row is IDLE again; `settle` computes its reward.
"""

from __future__ import annotations

import math

from milkrun.clutter.rays import (
    cast,
    covered_share,
    grip_in_object,
    grip_sample,
    height,
    in_play,
    mark_allowed,
    reach_up,
    read_frames,
    top_sample,
)
from milkrun.core.kernels import kernel

IDLE, ABOVE, DESCEND, GRIP, LIFT, CARRY, RELEASE, SETTLE = range(8)
STAGES = ("idle", "above", "descend", "grip", "lift", "carry", "release", "settle")
NONE, SUCCESS, DROPPED, ILLEGAL, PHYSICS_ERROR = range(5)
RESULTS = ("none", "success", "dropped", "illegal", "physics_error")

STILL = 0.002  # m: an object that moved less has not been disturbed
MOST_DISTURBED = 0.5  # m, upper limit of the paid disturbance of a pick
LEAST_TOP = 0.03  # m, an object is out only above this height
OUTSIDE, ABOVE_WALL = 0.02, 0.25  # m beyond the inner side, and above the walls, where an object is lost


# -- the choice -------------------------------------------------------------------------------------------------------


@kernel
def legal(w, b, action):
    """Allowed by the mask; during a pick every action is legal and ignored."""
    return w.env_stage[b] != IDLE or (action >= 0 and action < w.N and w.action_mask[b, action])


@kernel
def step(w, b, action):
    """Starts the pick of an object; `plan` and the physics continue it."""
    w.stirred[b] = False
    if w.env_stage[b] == IDLE:
        read_frames(w, b)
        s = grip_sample(w, b, action)
        if s < 0:
            s = top_sample(w, action)
        x, y, z = grip_in_object(w, action, s)
        remember_choice(w, b, action, x, y, z)
        go_to_grip(w, b, ABOVE)


@kernel
def idle(w, b, action):
    """An illegal action uses up an attempt and moves nothing."""
    w.stirred[b] = False
    w.env_target[b] = action if 0 <= action < w.N else -1


@kernel
def remember_choice(w, b, i, x, y, z):
    """Begins a pick of object i at the grip (x, y, z) in its frame; stores the state for its result. Needs
    `read_frames`."""
    lost = 0
    for j in range(w.N):
        lost += w.lost[b, j]
        for k in range(3):
            w.pos_at_choice[b, j, k] = w.physics[b, w.at_qpos + 7 * j + k]
    share, _whole = covered_share(w, b, i)
    w.grip_local[b, 0], w.grip_local[b, 1], w.grip_local[b, 2] = x, y, z
    w.blocked_at_choice[b] = share >= w.blocked_cover
    w.lost_at_choice[b] = lost
    w.ticks_at_choice[b] = w.tick_count[b]
    w.env_target[b] = i
    w.result[b] = NONE
    w.pick_load[b] = 0.0
    w.settle_tick[b] = 0


@kernel
def grip_now(w, b, k):
    """Coordinate k of the grip at the target's present pose. Needs `read_frames`."""
    i, g = w.env_target[b], w.grip_local[b]
    f = w.frame[i]
    return w.physics[b, w.at_qpos + 7 * i + k] + (f[3 * k] * g[0] + f[3 * k + 1] * g[1] + f[3 * k + 2] * g[2])


@kernel
def go_to_grip(w, b, stage):
    """Moves the cup above the grip, or down to it. Needs `read_frames`."""
    x, y, z = grip_now(w, b, 0), grip_now(w, b, 1), grip_now(w, b, 2)
    if stage == ABOVE:
        go(w, b, ABOVE, x, y, z + w.approach)
    else:
        w.cup_goal[b, 0], w.cup_goal[b, 1], w.cup_goal[b, 2] = x, y, z
        stay(w, b, DESCEND, w.descend_ticks)


@kernel
def go(w, b, stage, x, y, z):
    """Enters a stage in which the cup moves to a goal."""
    w.cup_goal[b, 0], w.cup_goal[b, 1], w.cup_goal[b, 2] = x, y, z
    dx, dy, dz = x - w.cup_pos[b, 0], y - w.cup_pos[b, 1], z - w.cup_pos[b, 2]
    # minus a tolerance, so that rounding adds no tick
    stay(w, b, stage, max(1, math.ceil(math.sqrt(dx * dx + dy * dy + dz * dz) / (w.cup_speed * w.tick) - 1e-9)))


@kernel
def halt(w, b, stage, ticks):
    """Enters a stage in which the cup stands still."""
    for k in range(3):
        w.cup_goal[b, k] = w.cup_pos[b, k]
    stay(w, b, stage, ticks)


@kernel
def stay(w, b, stage, ticks):
    """Enters a stage of this many ticks, 0 for one that ends by an event."""
    w.env_stage[b] = stage
    w.stage_tick[b] = 0
    w.stage_len[b] = ticks


# -- a tick -----------------------------------------------------------------------------------------------------------


@kernel
def plan(w, b, x, y):
    """A tick of the cup; returns whether the physics must run. Pick mode skips stages in which nothing can move."""
    while True:
        stage = w.env_stage[b]
        if stage == LIFT or (stage != IDLE and not w.at_rest[b]):
            write_path(w, b)
            w.tick_count[b] += 1
            w.settle_tick[b] += stage >= CARRY
            return True
        if stage == IDLE:
            return False
        left = w.stage_len[b] - w.stage_tick[b]
        if not w.pick_mode:
            left = min(left, 1)
        w.tick_count[b] += left
        # The pile comes to rest while the cup carries: that time counts as settling.
        if stage >= CARRY:
            w.settle_tick[b] += left
        move_cup(w, b, left)
        if stage_over(w, b) or not w.pick_mode:
            return False


@kernel
def write_path(w, b):
    """Writes the cup's place before each substep: rising in a lift, otherwise unchanged."""
    for k in range(w.K):
        for c in range(3):
            w.path[b, k, c] = w.physics[b, w.at_mocap + c]
        if w.env_stage[b] == LIFT:
            t = (w.stage_tick[b] * w.K + k + 1) * w.timestep
            w.path[b, k, 2] = w.lift_from[b] + 0.5 * w.lift_acc * t * t


@kernel
def move_cup(w, b, ticks):
    """Moves the cup for this many ticks at constant speed towards its goal."""
    left = w.stage_len[b] - w.stage_tick[b]
    w.stage_tick[b] += ticks
    for k in range(3):
        if ticks >= left:
            w.cup_pos[b, k] = w.cup_goal[b, k]
        else:
            w.cup_pos[b, k] += (w.cup_goal[b, k] - w.cup_pos[b, k]) * (ticks / left)


@kernel
def stage_over(w, b):
    """Enters the next stage if this one is done; returns whether the pick is over."""
    if w.stage_tick[b] >= w.stage_len[b]:
        stage = w.env_stage[b]
        if stage == ABOVE:
            read_frames(w, b)
            go_to_grip(w, b, DESCEND)
        elif stage == DESCEND:
            halt(w, b, GRIP, w.grip_ticks)
        elif stage == GRIP:
            hold(w, b)
            w.cup_goal[b, 2] += w.lift_height
        elif stage == CARRY:
            w.is_suction_active[b] = False
            w.current_suction_object[b] = -1
            halt(w, b, RELEASE, w.release_ticks)
        elif stage == RELEASE:
            halt(w, b, SETTLE, 0)
    if w.env_stage[b] == SETTLE and (w.at_rest[b] or w.settle_tick[b] >= w.settle_max):
        finish(w, b)
        return True
    return False


@kernel
def hold(w, b):
    """Welds the cup to the target at the grip, with the object's rotation, so that the weld starts without a jump."""
    i = w.env_target[b]
    read_frames(w, b)
    for k in range(3):
        at = grip_now(w, b, k)
        w.physics[b, w.at_mocap + k] = w.cup_pos[b, k] = w.cup_goal[b, k] = at
        w.weld[b, i, k] = w.grip_local[b, k]
        w.weld[b, i, 3 + k] = 0.0
    # The cup has the object's rotation and the weld none, so that the weld starts without a torque.
    for k in range(4):
        w.physics[b, w.at_mocap_quat + k] = w.physics[b, w.at_qpos + 7 * i + 3 + k]
    w.physics[b, w.at_active + i] = 1.0
    w.lift_from[b] = w.cup_pos[b, 2]
    w.is_suction_active[b] = True
    w.current_suction_object[b] = i
    w.at_rest[b] = False
    w.rest_count[b] = 0
    stay(w, b, LIFT, 0)


@kernel
def after_tick(w, b, x, y):
    """Updates a row after a tick of the physics; returns False, without changes, if the physics failed."""
    if not is_finite(w, b):
        return False
    w.stirred[b] = True
    if w.env_stage[b] == LIFT:
        w.stage_tick[b] += 1
        for k in range(3):
            w.cup_pos[b, k] = w.path[b, w.K - 1, k]
        if load_of_tick(w, b) > 1.0:
            w.is_suction_active[b] = False
            let_go(w, b, DROPPED)
            halt(w, b, SETTLE, 0)
        elif is_clear(w, b) or w.stage_tick[b] >= w.lift_ticks:
            let_go(w, b, SUCCESS)
            w.current_suction_object[b] = w.env_target[b]  # carried, and out of play
            go(w, b, CARRY, w.drop[0], w.drop[1], w.drop[2])
        return True
    count_rest(w, b)
    move_cup(w, b, 1)
    stage_over(w, b)
    return True


@kernel
def is_finite(w, b):
    """Whether all poses and speeds of a row are finite. Counts without an early exit, to avoid branches."""
    wrong = 0
    for k in range(w.at_qpos, w.at_warmstart):
        wrong += not abs(w.physics[b, k]) < math.inf
    return wrong == 0


@kernel
def load_of_tick(w, b):
    """The mean force on the cup over a tick as a share of its limit; stores the largest of the pick."""
    load = 0.0
    for k in range(w.K):
        fx, fy, fz = w.force[b, k, 0], w.force[b, k, 1], w.force[b, k, 2]
        load += math.sqrt(fx * fx + fy * fy + fz * fz)
    load /= w.K * w.suction_limit[w.instance_row[b]]
    w.pick_load[b] = max(w.pick_load[b], load)
    return load


@kernel
def is_clear(w, b):
    """Whether the target hangs above all other objects in play."""
    i = w.env_target[b]
    bottom = height(w, b, i) - reach_up(w, b, i)
    if not bottom > LEAST_TOP + w.clearance:
        return False
    for j in range(w.N):
        if j != i and in_play(w, b, j) and not bottom > height(w, b, j) + reach_up(w, b, j) + w.clearance:
            return False
    return True


@kernel
def count_rest(w, b):
    """Counts quiet ticks in a row; one is not enough, since a thrown object stops at its highest point."""
    quiet = True
    for i in range(w.N):
        if in_play(w, b, i):
            v = w.at_qvel + 6 * i
            for k in range(3):
                slow = abs(w.physics[b, v + k]) < w.rest_speed and abs(w.physics[b, v + 3 + k]) < w.rest_spin
                quiet = quiet and slow
    w.rest_count[b] = min(w.rest_count[b] + 1, w.rest_ticks) if quiet else 0
    w.at_rest[b] = w.rest_count[b] >= w.rest_ticks


@kernel
def let_go(w, b, result):
    """Releases the target, which is out, or falls back."""
    i = w.env_target[b]
    w.physics[b, w.at_active + i] = 0.0
    w.current_suction_object[b] = -1
    w.result[b] = result
    if result == SUCCESS:
        w.rest_count[b] = 1  # a pick that moved nothing else then waits for one tick
        order = 0
        for j in range(w.N):
            order += w.grasped[b, j]
        w.grasp_order[b, i] = order
        w.grasped[b, i] = True
        park(w, b, i)
    else:
        # `fails` has 8 bits.
        w.fails[b, i] = min(w.fails[b, i] + 1, 255)


@kernel
def park(w, b, i):
    """Moves an object to its place beside the tray, at rest."""
    for k in range(7):
        w.physics[b, w.at_qpos + 7 * i + k] = w.parking[i, k]
    for k in range(6):
        w.physics[b, w.at_qvel + 6 * i + k] = 0.0


@kernel
def finish(w, b):
    """Ends a pick: objects outside of the tray are lost, and a pile at rest falls asleep."""
    stay(w, b, IDLE, 0)
    outside, high = w.half_side + OUTSIDE, w.wall_top + ABOVE_WALL
    for j in range(w.N):
        if in_play(w, b, j):
            p = w.at_qpos + 7 * j
            if abs(w.physics[b, p]) > outside or abs(w.physics[b, p + 1]) > outside or height(w, b, j) > high:
                w.lost[b, j] = True
                w.stirred[b] = True
                park(w, b, j)
    w.asleep[b] = w.at_rest[b] and w.canonical
    if w.asleep[b]:
        for k in range(6 * w.N):
            w.physics[b, w.at_qvel + k] = 0.0
            w.physics[b, w.at_warmstart + k] = 0.0


# -- the outcome ------------------------------------------------------------------------------------------------------


@kernel
def settle(w, b):
    """Result of a step: the reward of a finished pick, the end of the episode, and new hits of rays."""
    clear_last(w, b)
    if w.env_stage[b] == IDLE:
        if w.illegal[b]:
            w.result[b] = ILLEGAL
            w.reward[b] = -w.reward_illegal
            write_log(w, b, 0, 0, False, 0.0)
        else:
            w.reward[b] = reward_of_pick(w, b)
        close_attempt(w, b)
    recast_rays(w, b)
    if not w.illegal[b]:
        mark_allowed(w, b)


@kernel
def close_attempt(w, b):
    w.step_count[b] = min(w.step_count[b] + 1, w.T)
    w.last_result[b] = w.result[b]
    w.result[b] = NONE
    w.env_target[b] = -1
    end_episode(w, b)


@kernel
def recast_rays(w, b):
    """Truncates at the limit of ticks, if steps are ticks, and casts rays if objects have moved."""
    if w.tick_count[b] >= w.tick_limit and not w.pick_mode and not w.terminated[b]:
        w.truncated[b] = True
    if w.stirred[b]:
        cast(w, b)


@kernel
def clear_last(w, b):
    """Clears the results of the last pick, which only the call that ended it reports."""
    w.last_disturbance[b] = 0.0
    w.last_ticks[b] = 0
    w.last_lost[b] = 0
    for j in range(w.N):
        w.last_displacement[b, j] = 0.0


@kernel
def reward_of_pick(w, b):
    """The reward of the pick that has just ended; updates the log and the figures of the episode."""
    disturbed, lost, out = 0.0, -w.lost_at_choice[b], 0
    for j in range(w.N):
        lost += w.lost[b, j]
        out += w.grasped[b, j]
        if in_play(w, b, j) and not w.fault[b]:
            moved = 0.0
            for k in range(3):
                moved += (w.physics[b, w.at_qpos + 7 * j + k] - w.pos_at_choice[b, j, k]) ** 2
            moved = math.sqrt(moved)
            w.last_displacement[b, j] = moved
            if moved >= STILL and j != w.env_target[b]:
                disturbed += moved
    ticks = w.tick_count[b] - w.ticks_at_choice[b]
    w.last_disturbance[b] = disturbed
    w.last_ticks[b] = ticks
    w.last_lost[b] = lost
    w.picks[b] += 1
    w.sum_disturbance[b] += disturbed
    w.sum_blocked[b] += w.blocked_at_choice[b]
    write_log(w, b, lost, ticks, w.blocked_at_choice[b], w.pick_load[b])
    reward = w.reward_success * (w.result[b] == SUCCESS) - w.reward_disturb * min(disturbed, MOST_DISTURBED)
    reward -= w.reward_blocked * w.blocked_at_choice[b]
    reward -= w.reward_drop * (w.result[b] == DROPPED)
    reward -= w.reward_lost * lost
    reward -= w.reward_time * ticks * w.tick
    return reward + w.reward_clear * (out == w.N)


@kernel
def write_log(w, b, lost, ticks, blocked, load):
    """Appends an attempt to the log. Needs `last_displacement`."""
    n = w.records[b]
    if n >= w.T:  # only in a given state
        return
    w.log_target[b, n] = w.env_target[b]
    w.log_result[b, n] = w.result[b]
    w.log_blocked[b, n] = blocked
    w.log_lost[b, n] = lost
    w.log_ticks[b, n] = ticks
    w.log_load[b, n] = load
    for j in range(w.N):
        w.log_shift[b, n, j] = w.last_displacement[b, j]
    w.records[b] = n + 1


@kernel
def end_episode(w, b):
    """Ends the episode if all objects are out, none is left, or no attempt is left."""
    left = 0
    for j in range(w.N):
        left += in_play(w, b, j)
    w.truncated[b] = w.fault[b]
    w.terminated[b] = not w.fault[b] and (left == 0 or w.step_count[b] >= w.T)
