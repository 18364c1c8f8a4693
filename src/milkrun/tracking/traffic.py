"""The traffic: one sim step of all cars along their lanes, by the intelligent driver model, over bends and junctions.

A car knows its edge and the edge after it. It follows the nearest car ahead on that path, and waits at the line of a
guarded junction until it holds the junction. Only one car at a time does, so crossing paths need no other rule.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import exponential, row_stream, uniform
from milkrun.tracking.streams import HALT_TIMES, HALTS, TURNS
from milkrun.tracking.tables import LENGTH, PEDESTRIAN

DT = 1 / 500
"""Seconds of a sim step."""
ACCELERATION, BRAKING, HEADWAY, STANDSTILL = 3.0, 4.0, 1.2, 2.0
"""The model's a and b in m/s2, T in s, s0 in m."""
STANDING = 0.1
"""m/s: a car with a lower wanted speed brakes with b."""
HARDEST = 9.0
"""Maximum deceleration, m/s2."""
SIGHT = 60.0
"""Largest gap at which a car reacts, m."""
LONGEST = 12.0
"""Length of the longest car, m: a car whose middle is farther than SIGHT plus this is ignored."""
LOOK_HOPS = 16
"""Maximum of edges in the search for a leader."""
LINE_GAP = 0.5
"""m between a waiting car's goal and the line."""
REQUEST_WITHIN = 5.0
"""A car requests a junction from this distance plus its braking distance before the line, m."""
WAIT_ROOM = LINE_GAP + STANDSTILL + 0.5
"""Distance from the line to the front of a waiting car, with a margin, m."""
SLOWEST_TURN, SIDE_PULL = 3.0, 4.0
"""Speed at which any turn may be driven, m/s; comfortable lateral acceleration, m/s2."""
COS_AHEAD, COS_MILD = math.cos(0.35), math.cos(0.2)
"""Cosines of the turns below which an edge leads straight on, and below which cars do not slow down."""
COS_BACK = -0.999999
"""Cosine of the turn from which on two lanes do not meet."""
NEVER = 1e9
"""Time of the next halt of a target that never halts."""
MOST_HALTS = 10**9
"""The count of halts of a loaded state may be this high; it stays there."""


# -- the path of a car --------------------------------------------------------------------------------------


@kernel
def straight(w, q, e):
    """Length of the part of edge e between the zones of its two nodes."""
    return w.edge_len[q, e] - w.edge_cut[q, e, 0] - w.edge_cut[q, e, 1]


@kernel
def off_centre(w, b, q, v):
    """Offset of vehicle v to the right of the centre line: the middle of a lane, or beside the road for pedestrians."""
    half = w.road_half[q]
    return half + 1.0 if w.veh_kind[b, v] == PEDESTRIAN else 0.5 * half


@kernel
def lane_point(w, q, e, m, off):
    """The point m metres along edge e, `off` right of its centre line."""
    a, c, s = w.edge[q, e, 0], w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
    return w.node_xy[q, a, 0] + m * c + off * s, w.node_xy[q, a, 1] + m * s - off * c


@kernel
def turn(w, q, e, f):
    """Sine and cosine of the turn from edge e to edge f, positive to the left."""
    c0, s0, c1, s1 = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1], w.edge_dir[q, f, 0], w.edge_dir[q, f, 1]
    return c0 * s1 - s0 * c1, c0 * c1 + s0 * s1


@kernel
def curve(w, q, e, f, off):
    """The way over a node, a quadratic Bezier curve: its first point, the leg to its middle and the leg to its last.

    The lanes have the same offset from roads that meet in the node, so they meet off * tan(turn / 2) beyond it, without
    a division that fails for parallel lanes. If they turn back so sharply that they meet behind a leg, or that the
    curve would leave the road beyond the node, the way is a straight line.
    """
    sine, cosine = turn(w, q, e, f)
    x, y = lane_point(w, q, e, w.edge_len[q, e] - w.edge_cut[q, e, 1], off)
    if cosine > COS_BACK:
        beyond = off * sine / (1.0 + cosine)
        before, after = w.edge_cut[q, e, 1] + beyond, w.edge_cut[q, f, 0] + beyond
        # The middle of the curve lies beyond the node by about half the excess of `beyond` over the zones.
        outside = 4.0 * beyond - before - after
        if before > 0.0 and after > 0.0 and outside < 4.0 * w.road_half[q]:
            c0, s0, c1, s1 = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1], w.edge_dir[q, f, 0], w.edge_dir[q, f, 1]
            return x, y, before * c0, before * s0, after * c1, after * s1
    x2, y2 = lane_point(w, q, f, w.edge_cut[q, f, 0], off)
    dx, dy = 0.5 * (x2 - x), 0.5 * (y2 - y)
    return x, y, dx, dy, dx, dy


@kernel
def stretch(px, py, qx, qy, u):
    """Derivative of the length of a curve with these legs by its parameter, at u."""
    dx, dy = (1.0 - u) * px + u * qx, (1.0 - u) * py + u * qy
    return 2.0 * math.sqrt(dx * dx + dy * dy)


@kernel
def curve_length(w, q, e, f, off):
    """Length of the way from edge e to edge f over their node, by Gauss's rule of three points (within 0.1 %)."""
    _, _, px, py, qx, qy = curve(w, q, e, f, off)
    ends = stretch(px, py, qx, qy, 0.1127016653792583) + stretch(px, py, qx, qy, 0.8872983346207417)
    return (5.0 * ends + 8.0 * stretch(px, py, qx, qy, 0.5)) / 18.0


@kernel
def pose(w, b, q, v):
    """Writes the pose of vehicle v from its place on its path."""
    e, f, s, off = w.veh_edge[b, v], w.veh_to[b, v], w.veh_s[b, v], off_centre(w, b, q, v)
    dx, dy = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1]
    if w.veh_turning[b, v]:
        x, y, px, py, qx, qy = curve(w, q, e, f, off)
        first, last = s * (2.0 - s), s * s
        x, y = x + first * px + last * qx, y + first * py + last * qy
        if stretch(px, py, qx, qy, s) > 1e-6:  # else it turns on the spot
            dx, dy = (1.0 - s) * px + s * qx, (1.0 - s) * py + s * qy
    else:
        x, y = lane_point(w, q, e, w.edge_cut[q, e, 0] + s, off)
    w.veh_pose[b, v, 0], w.veh_pose[b, v, 1] = x, y
    w.veh_pose[b, v, 2] = math.atan2(dy, dx)


@kernel
def choose_next(w, b, q, v, e):
    """Draws the edge that vehicle v takes after e: straight on with probability 0.5, the others share the rest."""
    ways = w.edge_ways[q, e]
    w.veh_to[b, v], w.veh_curve[b, v] = e, 0.0
    if ways == 0:
        return
    ahead = 0
    for k in range(ways):
        if turn(w, q, e, w.edge_next[q, e, k])[1] > COS_AHEAD:
            ahead += 1
    share = 0.5 if 0 < ahead < ways else 1.0  # of each of the two groups
    # Draw k of car v is number k V + v, so that no two cars share one.
    left = uniform(row_stream(w, b, TURNS), w.veh_draws[b, v] * w.V + v)
    w.veh_draws[b, v] += 1
    for k in range(ways):
        f = w.edge_next[q, e, k]
        left -= share / (ahead if turn(w, q, e, f)[1] > COS_AHEAD else ways - ahead)
        # Written before the test, since rounding of the shares must not leave a car without a successor.
        w.veh_to[b, v] = f
        if left < 0.0:
            break
    w.veh_curve[b, v] = curve_length(w, q, e, w.veh_to[b, v], off_centre(w, b, q, v))


# -- leaders and junctions ----------------------------------------------------------------------------------


@kernel
def travelled(w, b, q, v):
    """Metres from the start of the straight part of its edge, the curve at its end included."""
    if w.veh_turning[b, v]:
        return straight(w, q, w.veh_edge[b, v]) + w.veh_s[b, v] * w.veh_curve[b, v]
    return w.veh_s[b, v]


@kernel
def line_up(w, b, q):
    """Lists the cars of every edge, with their half lengths and positions, for `look_ahead`."""
    # One linked list for each edge: `first_on` has its first car, `next_on` the car after each, -1 ends it. Pedestrians
    # walk beside the road and are in no list.
    for e in range(w.E):
        w.first_on[e] = -1
    for v in range(w.n_veh[b]):
        kind = w.veh_kind[b, v]
        if w.veh_on[b, v]:
            w.half_len[v] = 0.5 * w.kinds[kind, LENGTH]
            w.along[v] = travelled(w, b, q, v)
            if kind != PEDESTRIAN:
                e = w.veh_edge[b, v]
                w.next_on[v] = w.first_on[e]
                w.first_on[e] = v


@kernel
def has_room(w, q, v, f):
    """Whether car v would fit on edge f and its unguarded continuation, with s0 to the car there."""
    need = 2.0 * w.half_len[v] + STANDSTILL
    for _ in range(LOOK_HOPS):
        o = w.first_on[f]
        while o >= 0:
            if w.along[o] - w.half_len[o] < need:
                return False
            o = w.next_on[o]
        need -= w.edge_len[q, f] - w.edge_cut[q, f, 0]
        # The rear of a car is at most half the longest length before the start of its edge. With `need` below that, no
        # car farther on is in the way.
        if need < -0.5 * LONGEST or w.guarded[q, w.edge[q, f, 1]] or w.edge_ways[q, f] != 1:
            break
        f = w.edge_next[q, f, 0]
        need -= w.edge_cut[q, f, 0]
    return True


@kernel
def has_room_after(w, q, v, e):
    """`has_room` for every edge that may follow e, since the choice of car v is not drawn yet."""
    for k in range(w.edge_ways[q, e]):
        if not has_room(w, q, v, w.edge_next[q, e, k]):
            return False
    return True


@kernel
def gets_out(w, b, q, v, f):
    """Whether car v can leave a junction by edge f.

    If its rear would stay inside while it waits at the end of f, it takes the junction there too. Otherwise two cars
    could each hold the junction that the other waits for (deadlock).
    """
    if not has_room(w, q, v, f):
        return False
    node = w.edge[q, f, 1]
    if w.guarded[q, node] and straight(w, q, f) < 2.0 * w.half_len[v] + WAIT_ROOM:
        if w.node_owner[b, node] >= 0 or not has_room_after(w, q, v, f):
            return False
        w.node_owner[b, node] = v
    return True


@kernel
def may_take(w, b, q, v, hop, e, line):
    """Whether car v, its front `line` metres before the line of edge e, gets the free junction behind it.

    It requests the junction on that edge. If the edge is too short to wait on, a car at the line has not reached it yet
    and requests from the edge before.
    """
    speed = w.veh_v[b, v]
    if hop == 0:
        return line <= speed * speed / (2.0 * BRAKING) + REQUEST_WITHIN and gets_out(w, b, q, v, w.veh_to[b, v])
    short = straight(w, q, e) < w.half_len[v] + WAIT_ROOM
    return hop == 1 and short and line <= REQUEST_WITHIN and has_room_after(w, q, v, e)


@kernel
def look_ahead(w, b, q, v, requests):
    """Gap to the nearest car or closed line on the known path of car v, and its speed; infinite without any.

    With `requests` the car takes a free junction on the way. Only the first car before a line can, and the result for
    no other car depends on it, so cars are processed one after another, the lowest number first.
    """
    half, e = w.half_len[v], w.veh_edge[b, v]
    start = -w.along[v]  # where the straight part of edge e begins, seen from the car's middle
    for hop in range(LOOK_HOPS):
        gap, speed = np.inf, 0.0
        o = w.first_on[e]
        while o >= 0:
            d = start + w.along[o]
            if d > 0.0 and o != v and d - half - w.half_len[o] < gap:
                gap, speed = d - half - w.half_len[o], w.veh_v[b, o]
            o = w.next_on[o]
        node = w.edge[q, e, 1]
        over = hop == 0 and w.veh_turning[b, v]  # it has crossed this line
        if w.guarded[q, node] and not over and w.node_owner[b, node] != v:
            line = start + straight(w, q, e) - half
            if requests and gap == np.inf and w.node_owner[b, node] < 0 and may_take(w, b, q, v, hop, e, line):
                w.node_owner[b, node] = v
            elif line - LINE_GAP < gap:
                gap, speed = max(line - LINE_GAP, 0.0), 0.0
        if gap < np.inf:
            return (gap, speed) if gap < SIGHT else (np.inf, 0.0)
        if hop == 0:
            f = w.veh_to[b, v]
            start += straight(w, q, e) + w.veh_curve[b, v]
        else:
            # The turn after the next edge is not drawn yet, so the search goes on only where there is one way. The
            # offset is that of a lane, since pedestrians have no leaders.
            f = w.edge_next[q, e, 0]
            if w.guarded[q, node] or w.edge_ways[q, e] != 1 or start > SIGHT + LONGEST:
                break
            start += straight(w, q, e) + curve_length(w, q, e, f, 0.5 * w.road_half[q])
        if w.edge_ways[q, e] == 0 or start > SIGHT + LONGEST:
            break
        e = f
    return np.inf, 0.0


# -- how a car drives ---------------------------------------------------------------------------------------


@kernel
def idm(v, v0, gap, dv):
    """The intelligent driver model: acceleration by speed, wanted speed, gap to the leader, speed more than its."""
    wish = STANDSTILL + max(0.0, v * HEADWAY + v * dv / (2.0 * math.sqrt(ACCELERATION * BRAKING)))
    # A gap of 1 cm exceeds HARDEST by far already, so overlaps need no special case.
    x, y = v / v0, wish / max(gap, 0.01)
    return ACCELERATION * (1.0 - x * x * x * x - y * y)


@kernel
def turn_speed(w, q, e, f):
    """Speed at which cars drive the turn from edge e to edge f; infinite if they need not slow down."""
    sine, cosine = turn(w, q, e, f)
    if cosine > COS_MILD:
        return np.inf
    # Radius of the circle that touches both edges at the start of the zone, cut / tan(turn / 2). The edges of a bend
    # count as chords of a circle: length / turn.
    if w.guarded[q, w.edge[q, e, 1]]:
        radius = w.edge_cut[q, e, 1] * (1.0 + cosine) / max(abs(sine), 1e-9)
    else:
        radius = w.edge_len[q, e] / math.atan2(abs(sine), cosine)
    return max(SLOWEST_TURN, math.sqrt(SIDE_PULL * radius))


@kernel
def speed_limit(w, b, q, v):
    """The wanted speed of vehicle v: its desired speed, or less to slow down for the next turn."""
    e, v0 = w.veh_edge[b, v], w.veh_v0[b, v]
    way = 0.0
    if not w.veh_turning[b, v]:
        way = max(0.0, straight(w, q, e) - w.veh_s[b, v] - w.half_len[v])
    more = 2.0 * BRAKING * way
    # No turn requires less than SLOWEST_TURN, so a car that can brake to that in time may skip the computation.
    if v0 * v0 <= SLOWEST_TURN * SLOWEST_TURN + more:
        return v0
    slow = turn_speed(w, q, e, w.veh_to[b, v])
    return min(v0, math.sqrt(slow * slow + more))


@kernel
def accelerate(w, b, q, v):
    """The acceleration of vehicle v, from the state at the start of the sim step."""
    speed = w.veh_v[b, v]
    gap, ahead = np.inf, 0.0
    if w.veh_kind[b, v] != PEDESTRIAN:
        gap, ahead = look_ahead(w, b, q, v, True)
    wanted = speed_limit(w, b, q, v)
    stops = wanted < STANDING or (v == 0 and w.halt_left[b] > 0.0)
    # An infinite wanted speed removes the model's free-road term (and its 0 / 0); only the term for the leader is left.
    a = idm(speed, np.inf if stops else wanted, gap, speed - ahead)
    if stops:
        a = min(a, -BRAKING)
    return max(a, -HARDEST)


@kernel
def stops_at_line(w, b, q, v, e, s):
    """Whether the front of vehicle v, s metres along edge e, would be over a line that it may not cross."""
    node = w.edge[q, e, 1]
    over = s + w.half_len[v] > straight(w, q, e)
    return over and w.guarded[q, node] and w.node_owner[b, node] != v and w.veh_kind[b, v] != PEDESTRIAN


@kernel
def move(w, b, q, v, a):
    """Moves vehicle v by a sim step. The distance beyond the end of a part is carried over to the next one."""
    speed = max(0.0, w.veh_v[b, v] + a * DT)
    w.veh_v[b, v] = speed
    e, off = w.veh_edge[b, v], off_centre(w, b, q, v)
    if w.veh_turning[b, v]:
        _, _, px, py, qx, qy = curve(w, q, e, w.veh_to[b, v], off)
        u = w.veh_s[b, v]
        # A way over a node may have length 0, where a car turns on the spot: 0.1 keeps the step of u finite.
        u += speed * DT / max(0.1, stretch(px, py, qx, qy, u))
        w.veh_s[b, v] = u
        if u >= 1.0:
            e = w.veh_to[b, v]
            w.veh_edge[b, v], w.veh_turning[b, v] = e, False
            # An edge may be shorter than a sim step: then the car is at its end, and turns in the next step.
            w.veh_s[b, v] = min((u - 1.0) * stretch(px, py, qx, qy, 1.0), straight(w, q, e))
            choose_next(w, b, q, v, e)
        pose(w, b, q, v)
        return
    s, end = w.veh_s[b, v] + speed * DT, straight(w, q, e)
    if s > end - w.half_len[v] and stops_at_line(w, b, q, v, e, s):
        s, w.veh_v[b, v] = max(w.veh_s[b, v], end - w.half_len[v]), 0.0
    w.veh_s[b, v] = s
    if s < end:  # its heading stays
        w.veh_pose[b, v, 0], w.veh_pose[b, v, 1] = lane_point(w, q, e, w.edge_cut[q, e, 0] + s, off)
    elif w.edge_ways[q, e] == 0:
        w.veh_on[b, v], w.veh_s[b, v], w.veh_v[b, v] = False, end, 0.0
        pose(w, b, q, v)
    else:
        _, _, px, py, qx, qy = curve(w, q, e, w.veh_to[b, v], off)
        w.veh_turning[b, v] = True
        w.veh_s[b, v] = min(1.0, (s - end) / max(0.1, stretch(px, py, qx, qy, 0.0)))
        pose(w, b, q, v)


# -- junctions, halts, and the step -------------------------------------------------------------------------


@kernel
def has_left(w, b, q, v, n):
    """Whether the rear of car v, which holds node n, has left its zone: on an edge from there, or beyond it."""
    e = w.veh_edge[b, v]
    if w.edge[q, e, 0] == n:
        return travelled(w, b, q, v) > 0.5 * w.kinds[w.veh_kind[b, v], LENGTH]
    return w.edge[q, e, 1] != n and w.edge[q, w.veh_to[b, v], 1] != n


@kernel
def free_junctions(w, b, q):
    """Frees junctions whose holders have left them, or the map."""
    for n in range(w.n_node[q]):
        v = w.node_owner[b, n]
        if v >= 0 and (not w.veh_on[b, v] or has_left(w, b, q, v, n)):
            w.node_owner[b, n] = -1


@kernel
def plan_halt(w, b, now):
    """Draws the time of the target's next halt, after `now`."""
    w.next_halt[b] = NEVER
    if w.halt_rate > 0.0:
        wait = exponential(row_stream(w, b, HALTS), w.halts[b], 1.0 / w.halt_rate)
        w.next_halt[b] = min(NEVER, now + wait)


@kernel
def begin_halt(w, b):
    """Begins a halt of the target when its time has come."""
    now = w.sim_step[b] * DT
    if w.halt_left[b] <= 0.0 and now >= w.next_halt[b]:
        w.halt_left[b] = 0.5 + 1.5 * uniform(row_stream(w, b, HALT_TIMES), w.halts[b])
        w.halts[b] = min(w.halts[b] + 1, MOST_HALTS)
        plan_halt(w, b, now + w.halt_left[b])


@kernel
def drive(w, b, q):
    """One sim step of all vehicles of row b in town q."""
    begin_halt(w, b)
    line_up(w, b, q)
    heading = w.veh_pose[b, 0, 2]
    # All accelerations are computed before any car moves, so they do not depend on the order of the cars.
    for v in range(w.n_veh[b]):
        if w.veh_on[b, v]:
            w.push[v] = accelerate(w, b, q, v)
    for v in range(w.n_veh[b]):
        if w.veh_on[b, v]:
            move(w, b, q, v, w.push[v])
    free_junctions(w, b, q)
    w.halt_left[b] = max(0.0, w.halt_left[b] - DT)
    turned = w.veh_pose[b, 0, 2] - heading
    w.veh_rate[b] = (turned - 2.0 * math.pi * math.floor((turned + math.pi) / (2.0 * math.pi))) / DT
