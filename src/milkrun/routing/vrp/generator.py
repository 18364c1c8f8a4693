"""Instances of vehicle routing: the customers of the CVRP, and attributes that a variant switches on.

All variants of a row have the same places, amounts, windows and limits; a variant only switches attributes off. The
laws are those of RouteFinder (Berto et al. 2024), RL4CO, MVMoE (Li et al. 2021, Zhou et al. 2024) and RL4CO's SVRP.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import fill_integers, integers, row_stream, uniform, uniform_pair
from milkrun.routing.distance import travel
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import (
    BACKHAUL,
    DEMAND,
    DEPOT,
    LIMIT,
    SKILL,
    TW,
    VARIANT,
    draw_customers,
    draw_depot,
    fill_matrix,
)
from milkrun.routing.generators.profits import HORIZON, ON_THE_WAY, SERVICE, WINDOW
from milkrun.routing.vrp.rules import mark_alone

ROUTEFINDER, RL4CO, MVMOE, SKILLS = range(4)
DEPOTS, OPEN, BACK, MIXED, LIMITED, WINDOWS = range(6)  # entries of `odds`, and numbers of the draws of VARIANT

SHORTEST_LIMIT = 2.8  # the upper end of RouteFinder's limits, at least
FIXED_LIMIT = 3.0  # RL4CO's
MVMOE_DAY, MVMOE_SERVICE = 3.0, 0.2
TECHNICIANS = 3


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_customers(w, b, w.depots)
    draw_depots(w, b, q)
    fill_matrix(w, b, w.depots)
    draw_amounts(w, b, q)
    for k in range(w.depots):
        w.capacity[q, k] = w.truck
        w.vehicles[q, k] = w.fleet
    for k in range(w.priced):
        w.fixed_cost[q, k] = 0.0
        w.distance_cost[q, k] = 1.0
    for j in range(w.restrictions):
        w.serves[q, j] = 0 if j < w.depots else (np.int64(1) << w.depots) - 1
    if w.law == SKILLS:
        draw_skills(w, b, q)
    switch(w, b, q)
    mark_alone(w, q)


@kernel
def draw_depots(w, b, q):
    """Depot 0 as in the CVRP; the others uniform in the box, or all at one place for kinds of technicians."""
    draw_depot(w, b)
    side = w.max_loc - w.min_loc
    for k in range(1, w.depots):
        if w.law == SKILLS or w.K > 0:
            w.locs[q, k, 0] = w.locs[q, 0, 0]
            w.locs[q, k, 1] = w.locs[q, 0, 1]
        else:
            u, v = uniform_pair(row_stream(w, b, DEPOT), k)
            w.locs[q, k, 0] = w.min_loc + side * u
            w.locs[q, k, 1] = w.min_loc + side * v


@kernel
def draw_amounts(w, b, q):
    for k in range(w.depots):
        w.linehaul[q, k] = 0
    if w.max_demand > 0:
        fill_integers(row_stream(w, b, DEMAND), w.linehaul[q, w.depots :], 1, w.max_demand + 1)
    else:
        for j in range(w.depots, w.N):
            w.linehaul[q, j] = 0


@kernel
def draw_skills(w, b, q):
    """Technicians with skills U(1, 10), the more skilled the dearer; a customer needs a share of the highest skill."""
    s = row_stream(w, b, SKILL)
    count = min(w.depots, TECHNICIANS)
    highest = 0.0
    for k in range(count):
        highest = max(highest, 1.0 + 9.0 * uniform(s, k))
    for k in range(w.priced):
        w.distance_cost[q, k] = k + 1.0
    for j in range(w.restrictions):
        bits = np.int64(0)
        if j >= w.depots:
            need = highest * uniform(s, TECHNICIANS + j - w.depots)
            for k in range(w.depots):
                bits |= np.int64(skill_of_rank(s, k, count) >= need) << k
        w.serves[q, j] = bits


@kernel
def skill_of_rank(s, rank, count):
    """The skill that `rank` others are below."""
    for k in range(count):
        skill = 1.0 + 9.0 * uniform(s, k)
        below = 0
        for other in range(count):
            below += 1.0 + 9.0 * uniform(s, other) < skill
        if below == rank:
            return skill
    return 10.0


@kernel
def switch(w, b, q):
    """Draws the variant of the row, then the attributes that it has."""
    s = row_stream(w, b, VARIANT)
    if w.single > 0:
        only = integers(s, 6, 0, w.single)
        is_open = only == 1 or only == 5
        has_backhauls, is_limited = only == 2, only == 3
        is_timed = only == 4 or only == 5
    else:
        is_open = uniform(s, OPEN) < w.odds[OPEN]
        has_backhauls = uniform(s, BACK) < w.odds[BACK]
        is_limited = uniform(s, LIMITED) < w.odds[LIMITED]
        is_timed = uniform(s, WINDOWS) < w.odds[WINDOWS]
    # Technicians of all skills are needed: `serves` names them.
    has_all = w.odds[DEPOTS] == 0.0 or w.law == SKILLS or uniform(s, DEPOTS) < w.odds[DEPOTS]
    w.n_depots[q] = w.depots if has_all else 1
    w.open_route[q] = is_open
    w.has_clock[q] = is_timed
    for j in range(w.pickups):
        w.backhaul[q, j] = 0
    for k in range(w.either):
        w.backhaul_class[q, k] = 2 if uniform(s, MIXED) < w.odds[MIXED] else 1
    if has_backhauls and w.pickups > 0:
        draw_backhauls(w, b, q)
    if w.clock > 0:
        w.speed[q, 0] = 1.0
    for j in range(w.stops):
        w.service_time[q, j] = 0.0
    for j in range(w.timed):
        w.time_windows[q, j, 0] = 0.0
        w.time_windows[q, j, 1] = math.inf
    if is_timed and w.timed > 0:
        if w.law == MVMOE:
            draw_wide_windows(w, b, q)
        else:
            draw_windows(w, b, q)
    for k in range(w.limited):
        w.distance_limit[q, k] = math.inf
        w.duration_limit[q, k] = math.inf
    if is_limited and w.limited > 0:
        draw_limit(w, b, q)


@kernel
def draw_backhauls(w, b, q):
    """Turns linehauls into backhauls: each with a probability, or an exact share of them (MVMoE)."""
    s = row_stream(w, b, BACKHAUL)
    n = w.N - w.depots
    if w.law != MVMOE:
        for j in range(w.depots, w.N):
            if uniform(s, j - w.depots) < w.backhaul_ratio:
                turn_round(w, q, j)
        return
    left = int(w.backhaul_ratio * n)
    # Selection sampling: the next customer is chosen with the share that is still needed.
    for c in range(n):
        if uniform(s, c) * (n - c) < left:
            turn_round(w, q, w.depots + c)
            left -= 1


@kernel
def turn_round(w, q, j):
    w.backhaul[q, j] = w.linehaul[q, j]
    w.linehaul[q, j] = 0


@kernel
def longest_way(w, q, j):
    """The longest ways from a depot of the row to a customer, and back."""
    there, back = 0.0, 0.0
    for k in range(w.n_depots[q]):
        there = max(there, travel(w, q, k, j))
        back = max(back, travel(w, q, j, k))
    return there, back


@kernel
def draw_windows(w, b, q):
    """Narrow windows in which each customer can be served alone from every depot."""
    s = row_stream(w, b, TW)
    unit = w.side  # of time; more if the day were too short for the longest round trip
    for j in range(w.depots, w.N):
        there, back = longest_way(w, q, j)
        unit = max(unit, (there + back) / ON_THE_WAY)
    horizon = HORIZON * unit
    for k in range(w.depots):
        w.time_windows[q, k, 1] = horizon
    for j in range(w.depots, w.N):
        c = j - w.depots + 1  # the CVRPP's customers begin at node 1
        service = unit * (SERVICE[0] + (SERVICE[1] - SERVICE[0]) * uniform(s, 3 * c))
        width = unit * (WINDOW[0] + (WINDOW[1] - WINDOW[0]) * uniform(s, 3 * c + 1))
        there, back = longest_way(w, q, j)
        # From the first arrival (u = 0) to the window whose end just leaves time for service and the return (u = 1).
        opens = there + max(0.0, horizon - service - width - back - there) * uniform(s, 3 * c + 2)
        w.service_time[q, j] = service
        w.time_windows[q, j, 0] = opens
        w.time_windows[q, j, 1] = opens + width


@kernel
def draw_wide_windows(w, b, q):
    """MVMoE's windows. The day is as long as the longest round trip needs."""
    s = row_stream(w, b, TW)
    unit = w.side
    for j in range(w.depots, w.N):
        there, back = longest_way(w, q, j)
        unit = max(unit, (there + back) / (MVMOE_DAY - MVMOE_SERVICE))
    day, service = MVMOE_DAY * unit, MVMOE_SERVICE * unit
    for k in range(w.depots):
        w.time_windows[q, k, 1] = day
    for j in range(w.depots, w.N):
        there, back = longest_way(w, q, j)
        latest = day - back - service
        # The centre is between the first arrival and the latest start, so each customer can be served alone.
        centre = there + (latest - there) * uniform(s, 2 * (j - w.depots))
        half = day / 3.0 + (0.1 * unit - day / 3.0) * uniform(s, 2 * (j - w.depots) + 1)
        w.service_time[q, j] = service
        w.time_windows[q, j, 0] = min(max(centre - half, 0.0), day)
        w.time_windows[q, j, 1] = min(max(centre + half, 0.0), day)


@kernel
def draw_limit(w, b, q):
    """A limit of the distance that lets some depot serve all customers."""
    low = math.inf
    for k in range(w.n_depots[q]):
        far = 0.0
        for j in range(w.depots, w.N):
            far = max(far, travel(w, q, k, j) + travel(w, q, j, k))
        low = min(low, far)
    limit = max(FIXED_LIMIT * w.side, low)
    if w.law == ROUTEFINDER:
        limit = low + (max(SHORTEST_LIMIT * w.side, low) - low) * uniform(row_stream(w, b, LIMIT), 0)
    for k in range(w.limited):
        w.distance_limit[q, k] = limit


class VRPGenerator(Generator):
    """The instance fields of `VRP-v0`; with one depot `depot` (B, 2) and `locs` (B, n, 2) of the customers."""

    world = "milkrun.routing.vrp.world:VRP"
    keys = (
        "locs",
        "n_depots",
        "linehaul",
        "backhaul",
        "backhaul_class",
        "capacity",
        "vehicles",
        "distance_limit",
        "duration_limit",
        "fixed_cost",
        "distance_cost",
        "time_windows",
        "service_time",
        "speed",
        "open_route",
        "serves",
    )
