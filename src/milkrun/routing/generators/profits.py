"""Instances of VRPP and CVRPP: places, a depot, prizes, and optionally weights, a capacity and windows."""

from __future__ import annotations

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import fill_integers, row_stream, uniform
from milkrun.routing.distance import MATRIX, travel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import PRIZE, TW, WEIGHT, draw_places, farthest, share_of

PRIZE_LAWS = ("uniform", "const", "dist", "continuous")
WHOLE, CONST, DIST, CONTINUOUS = range(4)
WEIGHT_LAWS = ("prize", "units", "one")
AS_PRIZE, UNITS, ONE = range(3)
MAX_UNITS = 9

HORIZON = 4.6  # closing time of the depot; laws of service and window as RL4CO draws them (Li et al. 2021)
SERVICE = (0.15, 0.18)
WINDOW = (0.18, 0.20)
ON_THE_WAY = HORIZON - SERVICE[1] - WINDOW[1]  # time left for driving under every draw


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_places(w, b)
    draw_prizes(w, b, q)
    for j in range(w.N):
        w.must_go[q, j] = False
    w.max_length[q] = w.trip_limit
    if w.U > 0:
        draw_windows(w, b, q)


@kernel
def draw_prizes(w, b, q):
    s = row_stream(w, b, PRIZE)
    w.prize[q, 0] = 0
    if w.prize_law == WHOLE:
        fill_integers(s, w.prize[q, 1:], np.int64(w.min_prize), np.int64(w.max_prize) + 1)
    far = farthest(w, q) if w.prize_law == DIST else 0.0
    for j in range(1, w.N):
        if w.prize_law == CONST:
            w.prize[q, j] = w.max_prize
        elif w.prize_law == DIST:
            w.prize[q, j] = share_of(travel(w, q, 0, j), far)
        elif w.prize_law == CONTINUOUS:
            w.prize[q, j] = w.min_prize + (w.max_prize - w.min_prize) * uniform(s, j - 1)


@kernel
def generate_capacitated(w, b):
    q = w.instance_row[b]
    generate(w, b)
    w.capacity[q] = w.truck
    w.weight[q, 0] = 0
    if w.weight_law == UNITS:
        fill_integers(row_stream(w, b, WEIGHT), w.weight[q, 1:], 1, MAX_UNITS + 1)
    for j in range(1, w.N):
        if w.weight_law == AS_PRIZE:
            w.weight[q, j] = w.prize[q, j]
        elif w.weight_law == ONE:
            w.weight[q, j] = 1


@kernel
def draw_windows(w, b, q):
    """Windows in which a truck can serve each customer alone, in units of the day's length."""
    s = row_stream(w, b, TW)
    side = unit_of_time(w, q)
    horizon = HORIZON * side
    w.speed[q, 0] = 1
    w.service_time[q, 0] = 0
    w.time_windows[q, 0, 0] = 0
    w.time_windows[q, 0, 1] = horizon
    for j in range(1, w.N):
        service = side * (SERVICE[0] + (SERVICE[1] - SERVICE[0]) * uniform(s, 3 * j))
        width = side * (WINDOW[0] + (WINDOW[1] - WINDOW[0]) * uniform(s, 3 * j + 1))
        way = travel(w, q, 0, j)
        # From the first arrival (u = 0) to the window whose end just leaves time for service and the return (u = 1).
        # `unit_of_time` makes the day so long that reach >= 1.
        reach = (horizon - service - width) / way - way_home(w, q, j, way) / way if way > 0.0 else 0.0
        opens = (1.0 + (reach - 1.0) * uniform(s, 3 * j + 2)) * way
        w.service_time[q, j] = service
        w.time_windows[q, j, 0] = opens
        w.time_windows[q, j, 1] = opens + width


@kernel
def unit_of_time(w, q):
    """The side of the box, or more if the day were too short for the longest round trip."""
    unit = w.side
    for j in range(1, w.N):
        way = travel(w, q, 0, j)
        unit = max(unit, (way + way_home(w, q, j, way)) / ON_THE_WAY)
    return unit


@kernel(inline=True)
def way_home(w, q, j, way):
    """The length of the return: that of the way there, except with a matrix, where roads may be one-way."""
    return np.float64(w.dist[q, j, 0]) if w.metric == MATRIX else way


class VRPPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `prize` = `demand` (B, n), `capacity` (B,), infinite in the VRPP, `must_go`;
    in the CVRPP also `weight`; with time_windows also `time_windows` (B, n + 1, 2), `service_time`, `speed`."""

    world = "milkrun.routing.vrpp:VRPP"
    keys = ("locs", "prize", "weight", "capacity", "must_go", "max_length", "time_windows", "service_time", "speed")
    aliases = {"demand": "prize"}

    def _draw(self, count: int, seed: int, first: int, episode: int) -> dict[str, np.ndarray]:
        made = super()._draw(count, seed, first, episode)
        made.setdefault("capacity", np.full(count, np.inf, np.float32))
        return made
