"""The scalar reference of the traffic of the tracking world: cars on lanes, bends and reserved junctions.

One row, plain Python, float64, written from the rules alone; it shares no code with the compiled world that it checks.
`drive` plays one sim step of all vehicles in a state dict of the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

DT = 1 / 500  # seconds of a sim step
ACCELERATION, BRAKING, TIME_GAP, LEAST_GAP = 3.0, 4.0, 1.2, 2.0  # a, b, T, s0 of the intelligent driver model
HARDEST = 9.0  # m/s2, maximum braking
HORIZON = 60.0  # largest gap at which a leader is seen, metres
LINE_GAP = 0.5  # distance of the obstacle of a closed junction before its stop line
REQUEST_MARGIN = 5.0  # metres added to the braking distance when a junction is requested
WAITING = 3.0  # shortest straight before a line, with half a car, on which a car can wait; metres
STRAIGHT_ON = 0.35  # rad
SHARP = 0.2  # rad; smaller turns do not slow a car down
PARALLEL = 1e-6  # sine of the angle of two lanes below which they count as parallel
RUNS_BACK = -0.99  # cosine of a turn above which the lanes count as parallel: they intersect far away
HALT = (0.5, 2.0)  # seconds

KINDS = ("sedan", "compact", "suv", "van", "bus", "truck", "motorcycle", "pedestrian")
LENGTHS = (4.6, 3.4, 4.6, 5.9, 12.0, 8.0, 2.1, 0.5)
PEDESTRIAN = KINDS.index("pedestrian")

Row = dict[str, Any]


class Draws(Protocol):
    """The random numbers of a row, from the caller."""

    def turn(self, v: int, n: int) -> float: ...
    def halt_gap(self, k: int) -> float: ...
    def halt_length(self, k: int) -> float: ...
    def gust(self, sim_step: int, axis: int) -> float: ...


def wrap(angle: float) -> float:
    """The same angle in (-pi, pi]."""
    return math.pi - (math.pi - angle) % (2 * math.pi)


# Roads


def turn_angle(town: Row, e: int, to: int) -> float:
    """From the direction of one edge to that of another, left positive."""
    (ax, ay), (bx, by) = town["edge_dir"][e], town["edge_dir"][to]
    return math.atan2(ax * by - ay * bx, ax * bx + ay * by)


def straight_length(town: Row, e: int) -> float:
    """Metres between the zones at both ends of an edge."""
    return float(town["edge_len"][e] - town["edge_cut"][e][0] - town["edge_cut"][e][1])


def lane_offset(town: Row, kind: int) -> float:
    """Metres to the right of the road's centre line."""
    return float(town["road_half"] + 1 if kind == PEDESTRIAN else town["road_half"] / 2)


def lane_point(town: Row, e: int, s: float, offset: float) -> np.ndarray:
    """The point s metres along the straight part of an edge."""
    direction = town["edge_dir"][e]
    right = np.array([direction[1], -direction[0]])
    return town["node_xy"][town["edge"][e][0]] + (town["edge_cut"][e][0] + s) * direction + offset * right


@dataclass
class Curve:
    """A quadratic Bezier curve."""

    p0: np.ndarray
    p1: np.ndarray
    p2: np.ndarray

    def at(self, u: float) -> np.ndarray:
        return (1 - u) ** 2 * self.p0 + 2 * u * (1 - u) * self.p1 + u**2 * self.p2

    def slope(self, u: float) -> np.ndarray:
        return 2 * (1 - u) * (self.p1 - self.p0) + 2 * u * (self.p2 - self.p1)

    def pace(self, u: float) -> float:
        """Metres a unit of u."""
        return math.hypot(*self.slope(u))

    def length(self) -> float:
        """By Gaussian quadrature with three points, as used by the cars."""
        ends = self.pace((1 - math.sqrt(0.6)) / 2) + self.pace((1 + math.sqrt(0.6)) / 2)
        return (5 * ends + 8 * self.pace(0.5)) / 18


def curve_over(town: Row, e: int, to: int, offset: float) -> Curve:
    """From the end of e's straight part to the start of its successor's. A straight line if the lanes reverse, or
    intersect before the start or after the end of the curve."""
    p0, p2 = lane_point(town, e, straight_length(town, e), offset), lane_point(town, to, 0.0, offset)
    d, f = town["edge_dir"][e], town["edge_dir"][to]
    sine = d[0] * f[1] - d[1] * f[0]
    if abs(sine) < PARALLEL or d @ f <= RUNS_BACK:
        return Curve(p0, (p0 + p2) / 2, p2)
    way = p2 - p0
    middle = p0 + (way[0] * f[1] - way[1] * f[0]) / sine * d
    if (middle - p0) @ d <= 0 or (p2 - middle) @ f <= 0:
        middle = (p0 + p2) / 2
    return Curve(p0, middle, p2)


def turning_speed(town: Row, e: int, to: int) -> float:
    """The speed in the curve from e to its successor."""
    turn = abs(turn_angle(town, e, to))
    if turn <= SHARP:
        return math.inf
    if town["guarded"][town["edge"][e][1]]:
        radius = town["edge_cut"][e][1] / math.tan(turn / 2)
    else:
        radius = town["edge_len"][e] / turn
    return max(3.0, math.sqrt(4 * radius))


def successors(town: Row, e: int) -> list[int]:
    return [int(to) for to in town["edge_next"][e][: town["edge_ways"][e]]]


def way_weights(town: Row, e: int) -> list[float]:
    """The probability of each successor of an edge, in the order of `edge_next`."""
    ways = successors(town, e)
    open_ways = [to for to in ways if to != e ^ 1] or ways
    ahead = [to for to in open_ways if abs(turn_angle(town, e, to)) < STRAIGHT_ON]
    others = [to for to in open_ways if to not in ahead]
    weight = dict.fromkeys(ways, 0.0)
    for group in (ahead, others):
        for to in group:
            weight[to] = (0.5 if ahead and others else 1.0) / len(group)
    return [weight[to] for to in ways]


def choose_way(town: Row, e: int, u: float) -> int:
    """The successor selected by a uniform number; -1 where the road ends."""
    ways, total = successors(town, e), 0.0
    for to, weight in zip(ways, way_weights(town, e)):
        total += weight
        if u < total:
            return to
    return ways[-1] if ways else -1


# Drivers


def idm(v: float, v0: float, gap: float, dv: float) -> float:
    """Acceleration of the intelligent driver model; dv > 0 when the gap closes."""
    if v0 < 0.1:
        return -BRAKING
    if gap <= 0:
        return -HARDEST
    wanted = LEAST_GAP + max(0.0, v * TIME_GAP + v * dv / (2 * math.sqrt(ACCELERATION * BRAKING)))
    return max(-HARDEST, ACCELERATION * (1 - (v / v0) ** 4 - (wanted / gap) ** 2))


def half_length(state: Row, k: int) -> float:
    return LENGTHS[state["veh_kind"][k]] / 2


def is_pedestrian(state: Row, k: int) -> bool:
    return int(state["veh_kind"][k]) == PEDESTRIAN


def cars(state: Row) -> list[int]:
    """The vehicles that see each other."""
    return [k for k in range(state["n_veh"]) if state["veh_on"][k] and not is_pedestrian(state, k)]


@dataclass
class Piece:
    """A straight part or a curve of the path ahead; `start` is metres from the car's centre to its start."""

    start: float
    edge: int
    is_curve: bool
    length: float
    to: int = -1  # of a curve; -1: not drawn yet


def path_ahead(town: Row, state: Row, k: int) -> list[Piece]:
    """Own edge, its curve, the chosen edge, and further edges through bends; last the unknown next curve, of length
    0."""
    e, to, s = int(state["veh_edge"][k]), int(state["veh_to"][k]), float(state["veh_s"][k])
    offset, curve = lane_offset(town, state["veh_kind"][k]), float(state["veh_curve"][k])
    pieces = []
    if state["veh_turning"][k]:
        start = -s * curve
    else:
        pieces.append(Piece(-s, e, False, straight_length(town, e)))
        start = straight_length(town, e) - s
    while True:
        if to < 0:
            return [*pieces, Piece(start, e, True, 0.0)]
        pieces.append(Piece(start, e, True, curve, to))
        start += curve
        e = to
        pieces.append(Piece(start, e, False, straight_length(town, e)))
        start += straight_length(town, e)
        ways = [way for way in successors(town, e) if way != e ^ 1]
        if town["guarded"][town["edge"][e][1]] or len(ways) != 1 or start > 2 * HORIZON:
            return [*pieces, Piece(start, e, True, 0.0)]
        to = ways[0]
        curve = curve_over(town, e, to, offset).length()


def leaders(state: Row, path: list[Piece], k: int) -> Iterator[tuple[float, int]]:
    """Distance between centres along the path, and the car; cars that turn off from an edge of the path are
    included."""
    for piece in path:
        for j in cars(state):
            if j == k or state["veh_edge"][j] != piece.edge or bool(state["veh_turning"][j]) != piece.is_curve:
                continue
            along = state["veh_s"][j] * (state["veh_curve"][j] if piece.is_curve else 1.0)
            if piece.start + along > 0:
                yield float(piece.start + along), j


def room_to_line(town: Row, state: Row, path: list[Piece], k: int) -> float:
    """Metres from the front to the first stop line on the path whose junction the car has not reserved."""
    if is_pedestrian(state, k):
        return math.inf
    for piece in path:
        node = town["edge"][piece.edge][1]
        if not piece.is_curve and town["guarded"][node] and state["node_owner"][node] != k:
            return piece.start + piece.length - half_length(state, k)
    return math.inf


def wanted_speed(town: Row, state: Row, path: list[Piece], k: int) -> float:
    """The own speed, reduced before (measured from the front) and in the next curve."""
    speed = float(state["veh_v0"][k])
    for piece in path:
        if piece.is_curve:
            if piece.to >= 0:
                before = max(0.0, piece.start - half_length(state, k))
                speed = min(speed, math.sqrt(turning_speed(town, piece.edge, piece.to) ** 2 + 2 * BRAKING * before))
            break
    return speed


def obstacle(town: Row, state: Row, path: list[Piece], k: int) -> tuple[float, float]:
    """Gap to the nearest leader or closed stop line, whichever is nearer, and the speed at which it closes."""
    v, half = float(state["veh_v"][k]), half_length(state, k)
    found = [(max(0.0, room_to_line(town, state, path, k) - LINE_GAP), v)]
    found += [(d - half - half_length(state, j), v - float(state["veh_v"][j])) for d, j in leaders(state, path, k)]
    gap, dv = min(found)
    return (gap, dv) if gap < HORIZON else (math.inf, v)


def acceleration(town: Row, state: Row, path: list[Piece], k: int) -> float:
    """By the wanted speed and the obstacle ahead; a car with wanted speed 0 brakes, harder if the obstacle requires
    it."""
    v, v0 = float(state["veh_v"][k]), wanted_speed(town, state, path, k)
    gap, dv = (math.inf, v) if is_pedestrian(state, k) else obstacle(town, state, path, k)
    if v0 < 0.1 or (k == 0 and state["halt_left"] > 0):
        return min(-BRAKING, idm(v, math.inf, gap, dv))
    return idm(v, v0, gap, dv)


# Junctions


def ahead_on(town: Row, state: Row, e: int, k: int) -> list[int]:
    """The other cars on an edge or the curve at its end; on the own edge those in front."""
    found = [j for j in cars(state) if j != k and state["veh_edge"][j] == e]
    if state["veh_edge"][k] == e:
        found = [j for j in found if travelled(town, state, j) > travelled(town, state, k)]
    return found


def travelled(town: Row, state: Row, k: int) -> float:
    """Metres from the start of the straight part of the own edge, its curve included."""
    if state["veh_turning"][k]:
        return straight_length(town, int(state["veh_edge"][k])) + float(state["veh_s"][k] * state["veh_curve"][k])
    return float(state["veh_s"][k])


def has_room(town: Row, state: Row, k: int, e: int) -> bool:
    """No car stands within the car's length + s0 of the start of an edge's straight part, following bends included."""
    start, needed = 0.0, 2 * half_length(state, k) + LEAST_GAP
    while True:
        rears = [
            start + travelled(town, state, j) - half_length(state, j) for j in cars(state) if state["veh_edge"][j] == e
        ]
        if any(rear < needed for rear in rears):
            return False
        ways = successors(town, e)
        if town["guarded"][town["edge"][e][1]] or len(ways) != 1 or start > HORIZON:
            return True
        start += straight_length(town, e) + curve_over(town, e, ways[0], lane_offset(town, 0)).length()
        e = ways[0]


def has_room_behind(town: Row, state: Row, k: int, e: int) -> bool:
    """The same for every successor, as the car's next edge is not drawn yet."""
    return all(has_room(town, state, k, way) for way in successors(town, e))


def gets_out(town: Row, state: Row, k: int, e: int) -> bool:
    """Whether the car can leave a junction by edge e. If its rear would stay inside while it waits at the other end of
    e, it also reserves the junction there. (The rules alone would allow a deadlock of two cars.)"""
    if not has_room(town, state, k, e):
        return False
    node = town["edge"][e][1]
    if town["guarded"][node] and straight_length(town, e) < 2 * half_length(state, k) + WAITING:
        if state["node_owner"][node] != -1 or not has_room_behind(town, state, k, e):
            return False
        state["node_owner"][node] = k
    return True


def request_junction(town: Row, state: Row, k: int) -> None:
    """The first car before a line requests its junction: on the edge that leads to it, or on the previous edge if the
    last one is too short to wait on (its middle never gets there while its front may not cross the line)."""
    e, half = int(state["veh_edge"][k]), half_length(state, k)
    node, line = town["edge"][e][1], straight_length(town, e) - travelled(town, state, k) - half
    if ahead_on(town, state, e, k):
        return
    if town["guarded"][node] and not state["veh_turning"][k] and state["node_owner"][node] != k:
        near = line <= state["veh_v"][k] ** 2 / (2 * BRAKING) + REQUEST_MARGIN
        if state["node_owner"][node] != -1 or not near or not gets_out(town, state, k, int(state["veh_to"][k])):
            return
        state["node_owner"][node] = k
    if state["veh_to"][k] < 0:
        return
    line += state["veh_curve"][k]
    e = int(state["veh_to"][k])
    node, line = town["edge"][e][1], line + straight_length(town, e)
    short = straight_length(town, e) < half + WAITING
    if town["guarded"][node] and state["node_owner"][node] == -1 and not ahead_on(town, state, e, k):
        if short and line <= REQUEST_MARGIN and has_room_behind(town, state, k, e):
            state["node_owner"][node] = k


def free_nodes(town: Row, state: Row) -> None:
    """A junction is released when the rear of its holder has left the zone, or the holder has left the map."""
    for node in range(town["n_node"]):
        k = int(state["node_owner"][node])
        if k < 0:
            continue
        e, to = int(state["veh_edge"][k]), int(state["veh_to"][k])
        if town["edge"][e][0] == node:
            left = travelled(town, state, k) > half_length(state, k)
        else:
            left = town["edge"][e][1] != node and (to < 0 or town["edge"][to][1] != node)
        if left or not state["veh_on"][k]:
            state["node_owner"][node] = -1


# One sim step


def begin_halt(state: Row, config: Any, draws: Draws) -> None:
    """The target's halts are a Poisson process in driving time: the next one is drawn at the end of a halt."""
    now = state["sim_step"] * DT
    if config.halt_rate > 0 and state["halt_left"] <= 0 and now >= state["next_halt"]:
        state["halt_left"] = HALT[0] + (HALT[1] - HALT[0]) * draws.halt_length(state["halts"])
        state["halts"] += 1
        state["next_halt"] = now + state["halt_left"] + draws.halt_gap(state["halts"])


def enter(town: Row, state: Row, draws: Draws, k: int, e: int) -> None:
    """The vehicle enters this edge and draws its successor."""
    state["veh_edge"][k], state["veh_turning"][k] = e, False
    if town["edge_ways"][e] == 0:
        state["veh_to"][k], state["veh_curve"][k] = -1, 0.0
        return
    to = choose_way(town, e, draws.turn(k, int(state["veh_draws"][k])))
    state["veh_draws"][k] += 1
    state["veh_to"][k] = to
    state["veh_curve"][k] = curve_over(town, e, to, lane_offset(town, state["veh_kind"][k])).length()


def move(town: Row, state: Row, draws: Draws, k: int, distance: float) -> None:
    """Along the straight part or the curve; the rest of the distance continues in the next part."""
    e, to = int(state["veh_edge"][k]), int(state["veh_to"][k])
    offset = lane_offset(town, state["veh_kind"][k])
    if not state["veh_turning"][k]:
        s, end = state["veh_s"][k] + distance, straight_length(town, e)
        if s >= end and to < 0:
            state["veh_on"][k], state["veh_v"][k], s = False, 0.0, end
        elif s >= end:
            state["veh_turning"][k] = True
            s = (s - end) / curve_over(town, e, to, offset).pace(0.0)
        state["veh_s"][k] = s
        return
    curve = curve_over(town, e, to, offset)
    u = state["veh_s"][k] + distance / curve.pace(float(state["veh_s"][k]))
    state["veh_s"][k] = u
    if u >= 1:
        state["veh_s"][k] = (u - 1) * curve.pace(1.0)
        enter(town, state, draws, k, to)


def pose(town: Row, state: Row, k: int) -> tuple[float, float, float]:
    """Centre and heading of a vehicle."""
    e, s, offset = int(state["veh_edge"][k]), float(state["veh_s"][k]), lane_offset(town, state["veh_kind"][k])
    if state["veh_turning"][k]:
        curve = curve_over(town, e, int(state["veh_to"][k]), offset)
        (x, y), (dx, dy) = curve.at(s), curve.slope(s)
    else:
        (x, y), (dx, dy) = lane_point(town, e, s, offset), town["edge_dir"][e]
    return float(x), float(y), math.atan2(dy, dx)


def drive(town: Row, state: Row, config: Any, draws: Draws) -> None:
    """One sim step of all vehicles, written into `state`."""
    begin_halt(state, config, draws)
    for k in cars(state):
        request_junction(town, state, k)
    driving = [k for k in range(state["n_veh"]) if state["veh_on"][k]]
    paths = {k: path_ahead(town, state, k) for k in driving}
    accelerations = {k: acceleration(town, state, paths[k], k) for k in driving}
    rooms = {k: max(0.0, room_to_line(town, state, paths[k], k)) for k in driving}
    for k in driving:
        v = max(0.0, float(state["veh_v"][k]) + accelerations[k] * DT)
        distance = v * DT
        if distance > rooms[k]:
            v, distance = 0.0, rooms[k]
        state["veh_v"][k] = v
        heading = float(state["veh_pose"][k][2])
        move(town, state, draws, k, distance)
        state["veh_pose"][k] = pose(town, state, k)
        if k == 0:
            state["veh_rate"] = wrap(float(state["veh_pose"][0][2]) - heading) / DT
    if not state["veh_on"][0]:
        state["veh_rate"] = 0.0
    free_nodes(town, state)
    state["halt_left"] = max(0.0, state["halt_left"] - DT)
