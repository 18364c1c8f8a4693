"""Converts an instance to whole numbers for integer solvers, and completes their plans.

Lengths and loads are rounded up and limits down, after adding half of the tolerance: a plan that just fits here also
passes the checker, and whole numbers are exact. Customers stay mandatory only if one plan surely serves them all;
otherwise they get a dominating prize.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.base import TOL
from milkrun.solvers.limits import driven
from milkrun.solvers.problem import Floats, Problem

Ints = NDArray[np.int64]

FINENESS = 1e6  # about the size of the longest leg and the heaviest load
FAR = 1 << 44  # no limit; with larger prizes length would have no effect


class Whole(NamedTuple):
    """One instance, restricted to nodes that some trip can serve; arrays start with the depot."""

    nodes: list[int]  # their numbers in the instance
    dist: Ints  # (n, n)
    price: int  # of a unit of length
    prize: Ints  # lost if a customer is not served
    required: NDArray[np.bool_]
    loads: list[Ints]  # one array for each limit in `capacity`
    capacity: list[int]
    max_length: int | None
    opens: Ints | None
    closes: Ints | None
    service: Ints | None
    vehicles: int


def in_whole_numbers(problem: Problem, b: int) -> Whole:
    """Instance b, times in units of length."""
    n = int(problem.n_nodes[b])
    d = problem.ways(b)
    scale = _scale(d)
    timed = problem.windows is not None
    limited = bool(np.isfinite(problem.max_length[b]))
    # rounded up only if a limit applies; else to the nearest, which is more accurate
    dist = (np.ceil if limited or timed else np.rint)(scale * d).astype(np.int64)
    np.fill_diagonal(dist, 0)
    max_length = _floor(scale, problem.max_length[b]) if limited else None
    short = dist[0] + dist[:, 0] <= (FAR if max_length is None else max_length)

    opens = closes = service = None
    serves = short.copy()
    if problem.windows is not None:
        assert problem.service is not None and problem.speed is not None
        clock = scale * float(problem.speed[b])
        opens = np.ceil(np.minimum(clock * problem.windows[b, :n, 0], FAR)).astype(np.int64)
        closes = np.array([_floor(clock, x) for x in problem.windows[b, :n, 1]])
        service = np.ceil(clock * problem.service[b, :n]).astype(np.int64)
        home = np.maximum(dist[0], opens) + service + dist[:, 0]
        serves &= (dist[0] <= closes) & (home <= closes[0])

    load, room = _loads(problem.weight[b, :n], float(problem.capacity[b]))
    must = problem.required[b, :n].copy()
    must[0] = False
    loads, capacity = ([load], [room]) if load.sum() > room else ([], [])
    owed = int(load[must & short].sum())
    surely = problem.multi or problem.circular or (not limited and not timed and owed <= room)
    if problem.reserves and not problem.multi and loads and must.any():
        serves &= must | (owed <= room)
        if owed <= room and not surely:
            # a second limit for optional customers, which may use only the room left by mandatory ones
            loads, capacity = [load, np.where(must, 0, load)], [room, room - owed]

    serves[0] = True
    nodes = np.flatnonzero(serves)
    price, prize = _prizes(problem.gain[b, :n], problem.beta, scale)
    if not surely:
        # more than all prizes and the longest plan, of 2 n legs, together
        prize = prize + must * (int(prize.sum()) + 2 * n * int(dist.max()) + 1)
    pick = [None if x is None else x[nodes] for x in (opens, closes, service)]
    return Whole(
        nodes=nodes.tolist(),
        dist=dist[np.ix_(nodes, nodes)],
        price=price,
        prize=prize[nodes],
        required=must[nodes] & surely,
        loads=[x[nodes] for x in loads],
        capacity=capacity,
        max_length=max_length,
        opens=pick[0],
        closes=pick[1],
        service=pick[2],
        vehicles=len(nodes) - 1 if problem.multi else 1,
    )


def _scale(amounts: Floats) -> float:
    """The scale; a whole number for whole amounts, which then stay exact."""
    largest = float(amounts.max(initial=0.0))
    scale = FINENESS / largest if largest > 0 else 1.0
    return max(1.0, math.floor(scale)) if (amounts == np.floor(amounts)).all() else scale


def _floor(scale: float, limit: float) -> int:
    """A limit with half the tolerance of `fits`, rounded down."""
    return math.floor(min(scale * (limit + 0.5 * min(0.5, TOL * max(1.0, abs(limit)))), FAR))


def _loads(weight: Floats, capacity: float) -> tuple[Ints, int]:
    """The loads, and the capacity of a truck, at least the heaviest load."""
    scale = _scale(weight)
    load = np.ceil(scale * weight).astype(np.int64)
    return load, max(_floor(scale, capacity), int(load.max()))


def _prizes(gain: Floats, beta: float, scale: float) -> tuple[int, Ints]:
    """The price of a unit of length, and prizes in the same unit; a negligible price becomes 0."""
    most = float(gain.max(initial=0.0))
    if beta > 0 and most * scale < beta * FAR / 16:
        return 1, np.rint(scale / beta * gain).astype(np.int64)
    return 0, np.rint(FINENESS / max(most, 1e-300) * gain).astype(np.int64)


def without_choice(problem: Problem, b: int, whole: Whole) -> tuple[list[int], bool] | None:
    """The plan if no customer, or only one mandatory customer, can be served, and whether that serves all.

    Else None.
    """
    customers = len(whole.nodes) - 1
    if customers > 1 or (customers == 1 and not whole.required[1]):
        return None
    return complete(problem, b, [whole.nodes[1:]]), bool(customers == problem.n_nodes[b] - 1)


def complete(problem: Problem, b: int, trips: list[list[int]]) -> list[int]:
    """The trips as allowed actions, with mandatory customers added that could be served.

    A search that stops early may leave trips that cost more than they gain. Such optional trips are dropped, and the
    plan is worth at least that of the mandatory customers alone.
    """
    required = problem.required[b]
    made = driven(problem, b, [trip for trip in trips if trip])
    if not all(required[j] for trip in made for j in trip):
        dist = problem.distances(b)

        def worth(trip: list[int]) -> float:
            return float(problem.gain[b, trip].sum() - problem.beta * dist[[0, *trip], [*trip, 0]].sum())

        if problem.multi:
            made = [trip for trip in made if required[trip].any() or worth(trip) > 0]
        plans = [made, driven(problem, b, [])]
        made = max(plans, key=lambda plan: (sum(required[trip].sum() for trip in plan), sum(map(worth, plan))))
    return [node for trip in made for node in (0, *trip)][1:]
