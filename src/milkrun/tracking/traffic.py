"""The traffic: one sim step of all cars along their lanes, by the intelligent driver model, over bends and junctions.

A car knows its edge and the edge after it. It follows whoever is ahead on that path, and waits at the line of a guarded
junction until it holds it: one car at a time does, so paths that cross need no look at each other.
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
"""m/s: who wants to drive slower than this brakes with b."""
HARDEST = 9.0
"""m/s2 with which a car brakes at most."""
SIGHT = 60.0
"""m of gap within which a car minds what is ahead."""
LONGEST = 12.0
"""m of the longest car: one whose middle is farther than SIGHT and this is not minded."""
LOOK_HOPS = 16
"""Edges that a car looks along at most."""
LINE_GAP = 0.5
"""m between a waiting car's goal and the line."""
ASK_WITHIN = 5.0
"""m before the line, and the way to brake, from which on a car asks for a junction."""
WAIT_ROOM = LINE_GAP + STANDSTILL + 0.5
"""m from the line to the front of a car that waits at it, and a little more."""
SLOWEST_TURN, SIDE_PULL = 3.0, 4.0
"""m/s at which any turn may be driven; m/s2 of side pull that drivers like."""
COS_AHEAD, COS_MILD = math.cos(0.35), math.cos(0.2)
"""Of the turns below which an edge leads straight on, and below which nobody slows down."""
COS_BACK = -0.999999
"""Of the turn from which on two lanes do not meet."""
NEVER = 1e9
"""Time of the next halt of a target that makes none."""


# -- the path of a car --------------------------------------------------------------------------------------


@kernel
def straight(w, q, e):
    """Length of the part of edge e between the zones of its two nodes."""
    return w.edge_len[q, e] - w.edge_cut[q, e, 0] - w.edge_cut[q, e, 1]


@kernel
def off_centre(w, b, q, v):
    """How far right of the road's centre line vehicle v moves: in the middle of a lane, or beside the road on foot."""
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

    The lanes lie equally far right of roads that meet in the node, so they meet off * tan(turn / 2) beyond it, and no
    division fails where they are parallel. Where they turn back so sharply that they meet behind a leg, or that the
    curve would leave the road beyond the node, the way is a straight line.
    """
    sine, cosine = turn(w, q, e, f)
    x, y = lane_point(w, q, e, w.edge_len[q, e] - w.edge_cut[q, e, 1], off)
    if cosine > COS_BACK:
        beyond = off * sine / (1.0 + cosine)
        before, after = w.edge_cut[q, e, 1] + beyond, w.edge_cut[q, f, 0] + beyond
        # The middle of the curve lies about half of what `beyond` has more than the zones behind the node.
        outside = 4.0 * beyond - before - after
        if before > 0.0 and after > 0.0 and outside < 4.0 * w.road_half[q]:
            c0, s0, c1, s1 = w.edge_dir[q, e, 0], w.edge_dir[q, e, 1], w.edge_dir[q, f, 0], w.edge_dir[q, f, 1]
            return x, y, before * c0, before * s0, after * c1, after * s1
    x2, y2 = lane_point(w, q, f, w.edge_cut[q, f, 0], off)
    dx, dy = 0.5 * (x2 - x), 0.5 * (y2 - y)
    return x, y, dx, dy, dx, dy


@kernel
def stretch(px, py, qx, qy, u):
    """Metres of a curve with these legs a unit of its parameter, at u."""
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
    """Draws the edge that vehicle v takes after e: straight on half of the time; the others share the rest."""
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
        # Written before the test: the shares sum to 1 but for rounding, which must not leave a car without a way.
        w.veh_to[b, v] = f
        if left < 0.0:
            break
    w.veh_curve[b, v] = curve_length(w, q, e, w.veh_to[b, v], off_centre(w, b, q, v))


# -- what is ahead ------------------------------------------------------------------------------------------


@kernel
def travelled(w, b, q, v):
    """Metres from the start of the straight part of its edge, the curve at its end included."""
    if w.veh_turning[b, v]:
        return straight(w, q, w.veh_edge[b, v]) + w.veh_s[b, v] * w.veh_curve[b, v]
    return w.veh_s[b, v]


@kernel
def line_up(w, b, q):
    """Lists the cars of every edge, with their half lengths and how far they are: `look_ahead` reads it many times."""
    # A list an edge: `first_on` has its first car, `next_on` the car after each, -1 ends it. Pedestrians, who walk
    # beside the road, are in none.
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
    """Whether car v would fit on edge f, and where the road bends after it, with s0 to whoever is there."""
    need = 2.0 * w.half_len[v] + STANDSTILL
    for _ in range(LOOK_HOPS):
        o = w.first_on[f]
        while o >= 0:
            if w.along[o] - w.half_len[o] < need:
                return False
            o = w.next_on[o]
        need -= w.edge_len[q, f] - w.edge_cut[q, f, 0]
        # The rear of a car is at most half the longest length before the start of its edge: with `need` below that
        # nobody farther on is in the way.
        if need < -0.5 * LONGEST or w.guarded[q, w.edge[q, f, 1]] or w.edge_ways[q, f] != 1:
            break
        f = w.edge_next[q, f, 0]
        need -= w.edge_cut[q, f, 0]
    return True


@kernel
def has_room_after(w, q, v, e):
    """The same of every edge that may follow e: car v does not know yet which it takes."""
    for k in range(w.edge_ways[q, e]):
        if not has_room(w, q, v, w.edge_next[q, e, k]):
            return False
    return True


@kernel
def gets_out(w, b, q, v, f):
    """Whether car v can leave a junction by edge f. Where its rear would stay inside while it waits at the end of f, it
    takes the junction there as well: two cars that each hold what the other waits for would stand for ever."""
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

    It asks on that edge. Where the edge is too short to wait on, it has not reached it when it stands at the line: then
    it asks from the edge before.
    """
    speed = w.veh_v[b, v]
    if hop == 0:
        return line <= speed * speed / (2.0 * BRAKING) + ASK_WITHIN and gets_out(w, b, q, v, w.veh_to[b, v])
    short = straight(w, q, e) < w.half_len[v] + WAIT_ROOM
    return hop == 1 and short and line <= ASK_WITHIN and has_room_after(w, q, v, e)


@kernel
def look_ahead(w, b, q, v, asks):
    """Gap to the nearest car or closed line on the path that car v knows, and its speed; infinite if there is none.

    A junction that is free is taken on the way if the car `asks`. That is for the first car before the line only, and
    nobody else's look depends on it: the cars may look one after another, the lowest number first.
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
            if asks and gap == np.inf and w.node_owner[b, node] < 0 and may_take(w, b, q, v, hop, e, line):
                w.node_owner[b, node] = v
            elif line - LINE_GAP < gap:
                gap, speed = max(line - LINE_GAP, 0.0), 0.0
        if gap < np.inf:
            return (gap, speed) if gap < SIGHT else (np.inf, 0.0)
        if hop == 0:
            f = w.veh_to[b, v]
            start += straight(w, q, e) + w.veh_curve[b, v]
        else:
            # Which turn a car takes after its next edge is not drawn yet: it looks on only where there is one way. It
            # drives in a lane, since pedestrians do not look.
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
    # A gap of 1 cm asks for far more than HARDEST already, so what overlaps needs no rule of its own.
    x, y = v / v0, wish / max(gap, 0.01)
    return ACCELERATION * (1.0 - x * x * x * x - y * y)


@kernel
def turn_speed(w, q, e, f):
    """Speed at which cars drive the turn from edge e to edge f; infinite where they need not slow down."""
    sine, cosine = turn(w, q, e, f)
    if cosine > COS_MILD:
        return np.inf
    # Radius of the circle that touches both edges where the zone begins, cut / tan(turn / 2). The edges of a bend are
    # taken for chords of a circle: length / turn.
    if w.guarded[q, w.edge[q, e, 1]]:
        radius = w.edge_cut[q, e, 1] * (1.0 + cosine) / max(abs(sine), 1e-9)
    else:
        radius = w.edge_len[q, e] / math.atan2(abs(sine), cosine)
    return max(SLOWEST_TURN, math.sqrt(SIDE_PULL * radius))


@kernel
def speed_limit(w, b, q, v):
    """The speed that vehicle v wants: its own, or what lets it slow down for the turn before it."""
    e, v0 = w.veh_edge[b, v], w.veh_v0[b, v]
    way = 0.0
    if not w.veh_turning[b, v]:
        way = max(0.0, straight(w, q, e) - w.veh_s[b, v] - w.half_len[v])
    more = 2.0 * BRAKING * way
    # No turn asks for less than SLOWEST_TURN: who can brake to that in time need not know which turn it is.
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
    # A wanted speed without end takes the model's free-road term away (and 0 / 0 with it): only what is ahead is left.
    a = idm(speed, np.inf if stops else wanted, gap, speed - ahead)
    if stops:
        a = min(a, -BRAKING)
    return max(a, -HARDEST)


@kernel
def stops_at_line(w, b, q, v, e, s):
    """Whether vehicle v, s metres along edge e, would have its front over a line that it may not cross."""
    node = w.edge[q, e, 1]
    over = s + w.half_len[v] > straight(w, q, e)
    return over and w.guarded[q, node] and w.node_owner[b, node] != v and w.veh_kind[b, v] != PEDESTRIAN


@kernel
def move(w, b, q, v, a):
    """Vehicle v drives on for a sim step. Metres beyond the end of a part count on the next one."""
    speed = max(0.0, w.veh_v[b, v] + a * DT)
    w.veh_v[b, v] = speed
    e, off = w.veh_edge[b, v], off_centre(w, b, q, v)
    if w.veh_turning[b, v]:
        _, _, px, py, qx, qy = curve(w, q, e, w.veh_to[b, v], off)
        u = w.veh_s[b, v]
        # A way over a node may have no length, and a car turns on the spot then: 0.1 keeps the step of u finite.
        u += speed * DT / max(0.1, stretch(px, py, qx, qy, u))
        w.veh_s[b, v] = u
        if u >= 1.0:
            e = w.veh_to[b, v]
            w.veh_edge[b, v], w.veh_turning[b, v] = e, False
            # An edge may be shorter than a sim step: who has come that far is at its end, and turns in the next one.
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
    """Whether the rear of car v, which holds node n, is out of its zone: on an edge from there, or beyond it."""
    e = w.veh_edge[b, v]
    if w.edge[q, e, 0] == n:
        return travelled(w, b, q, v) > 0.5 * w.kinds[w.veh_kind[b, v], LENGTH]
    return w.edge[q, e, 1] != n and w.edge[q, w.veh_to[b, v], 1] != n


@kernel
def free_junctions(w, b, q):
    """Junctions whose holders have left them, or the map, are free again."""
    for n in range(w.n_node[q]):
        v = w.node_owner[b, n]
        if v >= 0 and (not w.veh_on[b, v] or has_left(w, b, q, v, n)):
            w.node_owner[b, n] = -1


@kernel
def plan_halt(w, b, now):
    """Draws when the target halts next: it has halted `halts` times, until `now`."""
    w.next_halt[b] = NEVER
    if w.halt_rate > 0.0:
        wait = exponential(row_stream(w, b, HALTS), w.halts[b], 1.0 / w.halt_rate)
        w.next_halt[b] = min(NEVER, now + wait)


@kernel
def begin_halt(w, b):
    """The target brakes and stands for a while when its time has come."""
    now = w.sim_step[b] * DT
    if w.halt_left[b] <= 0.0 and now >= w.next_halt[b]:
        w.halt_left[b] = 0.5 + 1.5 * uniform(row_stream(w, b, HALT_TIMES), w.halts[b])
        w.halts[b] += 1
        plan_halt(w, b, now + w.halt_left[b])


@kernel
def drive(w, b, q):
    """One sim step of all vehicles of row b in town q."""
    begin_halt(w, b)
    line_up(w, b, q)
    heading = w.veh_pose[b, 0, 2]
    # All look before anyone moves: each acceleration is of the same moment, whatever the order of the cars.
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
