"""The start of an episode: weather and colours, cars, and a drone that has the target in its picture."""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform
from milkrun.tracking.cars import place_cars
from milkrun.tracking.flight import publish, store_past
from milkrun.tracking.sight import clearance, gauge, hidden, relate, report, wrap
from milkrun.tracking.streams import BIASES, PALETTE, SIGHT, START, WEATHER, between
from milkrun.tracking.tables import (
    AMBIENT,
    ASPHALT,
    BASE,
    DIRT,
    FLAKE_LAW,
    FLAKE_SHARE,
    FOG,
    GAIN,
    MARKING,
    NOISE,
    PLAZA,
    SIGHT_HIGH,
    SIGHT_LOW,
    SIGMA,
    SKY,
    SNOW_GROUND,
    SNOW_ROAD,
    SUN,
    SUN_X,
    SUN_Y,
    SUN_Z,
)

SUN_AT = tuple(float(x) for x in SUN)
CONTRAST = 3.912
"""Koschmieder: fog of this over the range of sight leaves 2 % of a contrast at that range."""
TRIES = 32
FREE, IN_VIEW = 1.5, 0.95
"""Of a start: the least distance to a box in m, and the largest gauge of the whole picture."""
SURE_PITCH, SURE_HEIGHT = 1.38, 22.0
"""The start after TRIES rejected ones: right behind the target, without biases."""


# -- weather ------------------------------------------------------------------------------------------------


@kernel
def draw_weather(w, b, q):
    """Draws the weather of an episode: light, sky, and the colours of the ground."""
    weather = w.weather_list[integers(row_stream(w, b, WEATHER), 0, 0, w.n_weathers)]
    w.weather_id[b] = weather
    w.light[b, GAIN] = w.weathers[weather, GAIN]
    w.light[b, AMBIENT] = w.weathers[weather, AMBIENT]
    w.light[b, SUN_X], w.light[b, SUN_Y], w.light[b, SUN_Z] = SUN_AT[0], SUN_AT[1], SUN_AT[2]
    sight = between(row_stream(w, b, SIGHT), 0, w.weathers[weather, SIGHT_LOW], w.weathers[weather, SIGHT_HIGH])
    w.light[b, FOG] = CONTRAST / sight if sight > 0.0 else 0.0
    w.light[b, SIGMA] = w.weathers[weather, NOISE]
    w.light[b, FLAKE_SHARE] = w.weathers[weather, FLAKE_LAW]
    for k in range(3):
        w.sky[b, k] = int(w.weathers[weather, SKY + k])
    scene = w.scene_id[q]
    s = row_stream(w, b, PALETTE)
    for m in range(16):
        bright = between(s, m, 1.0 - w.jitter, 1.0 + w.jitter)
        on_road = m in (ASPHALT, MARKING, DIRT)
        snow = w.weathers[weather, SNOW_ROAD] if on_road else w.weathers[weather, SNOW_GROUND]
        for k in range(3):
            albedo = bright * (w.bases[scene, k] if m == BASE else w.materials[m, k])
            albedo += snow * (255.0 - albedo)
            w.palette[b, m, k] = min(255, int(albedo + 0.5)) if m <= PLAZA else 0


# -- the drone ----------------------------------------------------------------------------------------------


@kernel
def bias(s, i, low, high):
    """A length in low..high with a random sign, by the draws i and i + 1."""
    size = between(s, i, low, high)
    return -size if uniform(s, i + 1) < 0.5 else size


@kernel
def draw_start(w, b, attempt):
    """Draws pitch, height, direction and biases of a start; after the last attempt takes the sure one."""
    if attempt == TRIES:
        # With a very wide view SURE_PITCH would show the horizon. The drawn pitches never do (TrackingConfig.validate),
        # so the steepest of them is used.
        w.pitch[b] = SURE_PITCH if math.tan(SURE_PITCH) > w.tan_v else w.start_pitch[1]
        w.start[b, 0] = SURE_HEIGHT
        for k in range(1, 4):
            w.start[b, k] = 0.0
        return
    s = row_stream(w, b, START)
    w.pitch[b] = between(s, 3 * attempt, w.start_pitch[0], w.start_pitch[1])
    w.start[b, 0] = between(s, 3 * attempt + 1, w.start_height[0], w.start_height[1])
    w.start[b, 1] = between(s, 3 * attempt + 2, w.start_direction[0], w.start_direction[1])
    s = row_stream(w, b, BIASES)
    w.start[b, 2] = bias(s, 4 * attempt, w.start_long[0], w.start_long[1])
    w.start[b, 3] = bias(s, 4 * attempt + 2, w.start_lat[0], w.start_lat[1])


@kernel
def put_drone(w, b):
    """Puts the drone at its drawn start, relative to the target."""
    height = w.start[b, 0]
    yaw = w.veh_pose[b, 0, 2] + w.start[b, 1]
    c, s = math.cos(yaw), math.sin(yaw)
    ahead, aside = w.start[b, 2] - height / math.tan(w.pitch[b]), w.start[b, 3]
    w.pos[b, 0] = w.veh_pose[b, 0, 0] + c * ahead - s * aside
    w.pos[b, 1] = w.veh_pose[b, 0, 1] + s * ahead + c * aside
    w.pos[b, 2] = height
    w.yaw[b] = wrap(yaw)


@kernel
def can_start(w, b, q):
    """Whether the drone is clear of boxes, and the target in its picture and not hidden."""
    x, y, z = w.pos[b, 0], w.pos[b, 1], w.pos[b, 2]
    tx, ty = w.veh_pose[b, 0, 0], w.veh_pose[b, 0, 1]
    grow, _, _ = gauge(w, x, y, z, w.yaw[b], w.pitch[b], 1.0, tx, ty)
    if grow > IN_VIEW or clearance(w, q, x, y, z) < FREE:
        return False
    return not hidden(w, q, x, y, z, tx, ty, 0.0)


@kernel
def choose_start(w, b, q):
    """Takes the first valid drawn start, else the sure one."""
    for attempt in range(TRIES + 1):
        draw_start(w, b, attempt)
        put_drone(w, b)
        if can_start(w, b, q):
            break


@kernel
def clear_motion(w, b):
    """Clears motion, command and counters."""
    for k in range(3):
        w.vel[b, k] = 0.0
        w.acc[b, k] = 0.0
        w.cmd_pos[b, k] = w.pos[b, k]
    for k in range(4):
        w.cmd[b, k] = 0.0
        for j in range(4):
            w.filt[b, k, j] = 0.0
    for k in range(2):
        w.wind[b, k] = w.wind_mean[k]
    w.yaw_rate[b] = 0.0
    w.d_ref[b] = 0.0
    w.sim_step[b] = 0
    w.agent_step[b] = 0
    w.lost_steps[b] = 0
    w.crash[b] = False
    w.cr_sum[b] = 0.0
    w.tsr_sum[b] = 0.0
    w.reason[b] = 0


@kernel
def reset(w, b):
    """Begins an episode in the current town."""
    q = w.instance_row[b]
    draw_weather(w, b, q)
    place_cars(w, b, q)
    choose_start(w, b, q)
    clear_motion(w, b)
    relate(w, b, True)
    report(w, b, q)
    publish(w, b)
    for h in range(w.H):
        store_past(w, b, h)
    for a in range(w.A):
        w.action_mask[b, a] = True
