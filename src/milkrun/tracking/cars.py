"""The cars of an episode: how many, of which kinds and colours, where they start and how fast.

Vehicle 0 is the target. All draws are keyed by the row, so rows that share a town have different cars.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import choice, integers, row_stream, uniform
from milkrun.tracking.streams import COLOURS, KINDS, LANES, SAME, SPEEDS
from milkrun.tracking.tables import CARS, LENGTH, PEDESTRIAN, V_HIGH, V_LOW
from milkrun.tracking.traffic import BRAKING, choose_next, line_up, look_ahead, plan_halt, pose, speed_limit, straight

TRIES = 60
"""Maximum of places drawn for a vehicle."""
APART = 8.0
"""m between the ends of two cars at the start."""
MIDDLE = 55.0
"""The target starts where neither |x| nor |y| is above this."""
BEFORE_CENTRE = 60.0
"""On the curriculum's straight road the target starts at most this far before the centre, m."""
ON_STRAIGHT = 7
"""Cars on that road, the target among them."""


@kernel
def clear_roads(w, b):
    """Removes all vehicles and frees all junctions."""
    for v in range(w.V):
        w.veh_on[b, v], w.veh_turning[b, v] = False, False
        w.veh_kind[b, v], w.veh_edge[b, v], w.veh_to[b, v], w.veh_draws[b, v] = 0, 0, 0, 0
        w.veh_v0[b, v], w.veh_v[b, v], w.veh_s[b, v], w.veh_curve[b, v] = 0.0, 0.0, 0.0, 0.0
        for k in range(3):
            w.veh_rgb[b, v, k] = 0
            w.veh_pose[b, v, k] = 0.0
    for n in range(w.N):
        w.node_owner[b, n] = -1
    w.veh_rate[b], w.halts[b], w.halt_left[b] = 0.0, 0, 0.0


@kernel
def how_many(w, q):
    """Vehicles of an episode: the scene's, or those of the curriculum's stage."""
    cars = int(w.scenes[w.scene_id[q], CARS])
    if w.stage == 0:
        cars = 1
    elif w.stage == 1:
        cars = ON_STRAIGHT
    return min(w.V, cars)


@kernel
def draw_vehicle(w, b, q, v):
    """Draws kind, colour and desired speed of vehicle v."""
    scene, kinds, speeds = w.scene_id[q], row_stream(w, b, KINDS), row_stream(w, b, SPEEDS)
    if v == 0 and w.n_kinds > 0:
        kind = w.kind_list[int(uniform(kinds, 0) * w.n_kinds)]
    else:
        kind = choice(kinds, v, w.kind_weights[scene])
    w.veh_kind[b, v] = kind
    low, high = w.scenes[scene, V_LOW], w.scenes[scene, V_HIGH]
    if kind == PEDESTRIAN:
        low, high = 1.0, 2.0
    w.veh_v0[b, v] = low + (high - low) * uniform(speeds, 2 * v)
    tone = integers(row_stream(w, b, COLOURS), v, 0, w.car_colours.shape[0])
    like_target = v > 0 and uniform(row_stream(w, b, SAME), v) < w.same_colour
    for k in range(3):
        if v == 0 and w.fixed_rgb:
            w.veh_rgb[b, v, k] = int(w.target_rgb[k])
        elif like_target:
            w.veh_rgb[b, v, k] = w.veh_rgb[b, 0, k]
        else:
            w.veh_rgb[b, v, k] = int(w.car_colours[tone, k])


@kernel
def put(w, b, q, v, m):
    """Puts vehicle v at m metres along the concatenated straight parts of all edges."""
    e = 0
    while e < w.n_edge[q] - 1 and m >= straight(w, q, e):
        m -= straight(w, q, e)
        e += 1
    # Rounding may put m beyond the last edge.
    w.veh_edge[b, v], w.veh_s[b, v] = e, min(m, straight(w, q, e))
    pose(w, b, q, v)


@kernel
def fits(w, b, q, v):
    """Whether vehicle v may start at its place: outside guarded zones, and far enough from earlier vehicles."""
    e, half = w.veh_edge[b, v], 0.5 * w.kinds[w.veh_kind[b, v], LENGTH]
    if w.guarded[q, w.edge[q, e, 0]] and w.veh_s[b, v] < half:
        return False
    if w.guarded[q, w.edge[q, e, 1]] and w.veh_s[b, v] > straight(w, q, e) - half:
        return False
    for o in range(v):
        apart = APART + half + 0.5 * w.kinds[w.veh_kind[b, o], LENGTH]
        dx, dy = w.veh_pose[b, o, 0] - w.veh_pose[b, v, 0], w.veh_pose[b, o, 1] - w.veh_pose[b, v, 1]
        f = w.veh_edge[b, o]  # edges 2k and 2k + 1 are the opposite lanes of a road
        opposite = f != e and f // 2 == e // 2
        if w.veh_on[b, o] and not opposite and dx * dx + dy * dy < apart * apart:
            return False
    return True


@kernel
def remove(w, b, v):
    """Removes a vehicle that found no place."""
    w.veh_edge[b, v], w.veh_s[b, v] = 0, 0.0
    for k in range(3):
        w.veh_pose[b, v, k] = 0.0


@kernel
def find_place(w, b, q, v):
    """Draws where vehicle v starts; False: no place was found.

    The target takes a place in the middle of the map, else the valid one nearest to it, else the middle of the longest
    edge.
    """
    lanes = row_stream(w, b, LANES)
    total, longest = 0.0, 0
    for e in range(w.n_edge[q]):
        total += straight(w, q, e)
        if straight(w, q, e) > straight(w, q, longest):
            longest = e
    nearest, edge, at = np.inf, longest, 0.5 * straight(w, q, longest)
    for t in range(TRIES):
        put(w, b, q, v, uniform(lanes, TRIES * v + t) * total)
        x, y = abs(w.veh_pose[b, v, 0]), abs(w.veh_pose[b, v, 1])
        if fits(w, b, q, v):
            if v > 0 or max(x, y) <= MIDDLE:
                return True
            if x * x + y * y < nearest:
                nearest, edge, at = x * x + y * y, w.veh_edge[b, v], w.veh_s[b, v]
    if v > 0:
        remove(w, b, v)
        return False
    w.veh_edge[b, v], w.veh_s[b, v] = edge, at
    pose(w, b, q, v)
    return True


@kernel
def place_before_centre(w, b, q):
    """Puts the target on the curriculum's road, before the middle of its first edge."""
    m = 0.5 * w.edge_len[q, 0] - w.edge_cut[q, 0, 0] - BEFORE_CENTRE * uniform(row_stream(w, b, LANES), 0)
    w.veh_edge[b, 0], w.veh_s[b, 0] = 0, min(max(0.0, m), straight(w, q, 0))
    pose(w, b, q, 0)


@kernel
def can_brake(w, b, q, v):
    """The speed from which vehicle v can still brake for a turn, a line or a slower car ahead."""
    gap, speed = np.inf, 0.0
    if w.veh_kind[b, v] != PEDESTRIAN:
        gap, speed = look_ahead(w, b, q, v, False)
    return min(speed_limit(w, b, q, v), math.sqrt(speed * speed + 2.0 * BRAKING * max(gap, 0.0)))


@kernel
def set_speeds(w, b, q):
    """Sets the speeds at the start, reduced until every car can brake for the one ahead of it."""
    speeds = row_stream(w, b, SPEEDS)
    for v in range(w.n_veh[b]):
        if w.veh_on[b, v]:
            w.veh_v[b, v] = (0.5 + 0.5 * uniform(speeds, 2 * v + 1)) * w.veh_v0[b, v]
    line_up(w, b, q)
    # The square of a speed is at most that of the car ahead plus 2 b gap, which is not negative. So this is a shortest
    # path problem (Bellman-Ford), solved after as many passes as there are cars, also on a ring.
    for _ in range(w.n_veh[b]):
        settled = True
        for v in range(w.n_veh[b]):
            if w.veh_on[b, v]:
                speed = can_brake(w, b, q, v)
                if speed < w.veh_v[b, v]:
                    w.veh_v[b, v] = speed
                    settled = False
        if settled:
            break


@kernel
def place_cars(w, b, q):
    """Draws the vehicles of an episode of row b in town q."""
    clear_roads(w, b)
    w.n_veh[b] = how_many(w, q)
    for v in range(w.n_veh[b]):
        draw_vehicle(w, b, q, v)
        w.veh_on[b, v] = True
        if v == 0 and w.stage < 2:
            place_before_centre(w, b, q)
        elif not find_place(w, b, q, v):
            w.veh_on[b, v] = False
        if w.veh_on[b, v]:
            choose_next(w, b, q, v, w.veh_edge[b, v])
    set_speeds(w, b, q)
    plan_halt(w, b, 0.0)
