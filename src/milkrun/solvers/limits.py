"""The next actions that a world allows a truck, for solvers that check a trip only as a whole.

A world opens a customer only if the truck could also return from there within the limits. With the triangle inequality
every valid trip fulfils this at each customer. On other matrices, or with rounded distances, a trip may be short as a
whole but too long if it returned from one of its customers. Such a trip cannot be played.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.base import fits
from milkrun.solvers.problem import Floats, Problem


@dataclass(frozen=True, eq=False)
class Limits:
    """The limits of one instance; arrays are over its nodes."""

    dist: Floats
    weight: Floats
    capacity: float = np.inf
    max_length: float = np.inf
    stops: Floats | None = None
    windows: Floats | None = None
    service: Floats | None = None
    speed: float = 1.0

    @property
    def bind_on_the_way(self) -> bool:
        """True if a limit depends on the return at every stop."""
        return self.windows is not None or bool(np.isfinite(self.max_length))


class Stop(NamedTuple):
    """Node, load, length and clock of a truck; numbers, or arrays over many trucks."""

    node: Any = 0
    load: Any = 0.0
    length: Any = 0.0
    clock: Any = 0.0


def limits_of(problem: Problem, b: int) -> Limits:
    """The limits of instance b."""
    n = int(problem.n_nodes[b])
    plain = (
        problem.distances(b),
        problem.weight[b, :n],
        float(problem.capacity[b]),
        float(problem.max_length[b]),
        None if problem.stops is None else problem.stops[b, :n],
    )
    if problem.windows is None or problem.service is None or problem.speed is None:
        return Limits(*plain)
    return Limits(*plain, problem.windows[b, :n], problem.service[b, :n], float(problem.speed[b]))


def drive_on(limits: Limits, at: Stop, j: Any) -> tuple[Stop, Any]:
    """The truck after customer j, and whether that is allowed by load, length and time, including the return."""
    leg, home = limits.dist[at.node, j], limits.dist[j, 0]
    way = leg if limits.stops is None else leg + limits.stops[j]
    there = Stop(j, at.load + limits.weight[j], at.length + way, at.clock)
    allowed = fits(there.load, limits.capacity) & fits(there.length + home, limits.max_length)
    if limits.windows is not None and limits.service is not None:
        arrival = at.clock + leg / limits.speed
        leaves = np.maximum(arrival, limits.windows[j, 0]) + limits.service[j]
        back = leaves + home / limits.speed
        allowed = allowed & fits(arrival, limits.windows[j, 1]) & fits(back, limits.windows[0, 1])
        there = there._replace(clock=leaves)
    return there, allowed


def can_be_driven(limits: Limits, plans: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True for plans (K, L), trips between zeros, that a world allows from first to last action."""
    nothing = np.zeros(len(plans))
    at, allowed = Stop(np.zeros(len(plans), np.int64), nothing, nothing, nothing), np.ones(len(plans), np.bool_)
    for j in plans.T:
        there, may = drive_on(limits, at, j)
        # A return needs no test: each customer is tested with the return from it.
        allowed &= may | (j == 0)
        at = Stop(j, *(np.where(j == 0, 0.0, value) for value in there[1:]))
    return allowed


def driven(problem: Problem, b: int, trips: list[list[int]]) -> list[list[int]]:
    """The trips as a world allows them, keeping the order of customers where possible.

    A closed customer begins the next trip, or is skipped on a single trip. Mandatory customers left that can still be
    served come last: on separate trips, or the nearest first.
    """
    limits = limits_of(problem, b)
    required = problem.required[b, : len(limits.dist)].copy()
    required[0] = False
    owed = _owed(problem, limits, required)
    made: list[list[int]] = []
    for trip in trips if problem.multi else trips[:1]:
        at = Stop()
        for j in trip:
            there, may = drive_on(limits, at, j)
            if not may and problem.multi:
                at = Stop()
                there, may = drive_on(limits, at, j)
            if not may or not (required[j] or fits(there.load + owed.sum(), limits.capacity)):
                continue
            if at.node == 0:
                made.append([])
            made[-1].append(j)
            at, owed[j] = there, 0.0
    left = set(np.flatnonzero(required).tolist()) - {j for trip in made for j in trip}
    if problem.multi:
        return made + [[j] for j in sorted(left) if drive_on(limits, Stop(), j)[1]]
    trip, at = made[0] if made else [], Stop()
    for j in trip:
        at, _ = drive_on(limits, at, j)
    while more := [j for j in sorted(left) if drive_on(limits, at, j)[1]]:
        j = min(more, key=lambda j: limits.dist[at.node, j])
        trip, left, at = [*trip, j], left - {j}, drive_on(limits, at, j)[0]
    return [trip] if trip else []


def _owed(problem: Problem, limits: Limits, required: NDArray[np.bool_]) -> Floats:
    """The room that optional customers of a single trip reserve for each unserved mandatory one."""
    if problem.multi or not problem.reserves:
        return np.zeros(len(required))
    alone = limits.dist[0] + limits.dist[:, 0]  # single trips have no service time in their length
    return np.where(required & fits(alone, limits.max_length), limits.weight, 0.0)
