"""Schedules of dial-a-ride routes, and the limits that forbid one.

The start times B of a route are constrained by differences only: B_next >= B + service + travel, opens <= B <= closes,
B_dropoff <= B_pickup + service + ride limit, B_end <= B_start + duration. `earliest` finds the least
solution by Bellman-Ford; `broken_limits` adds the limits one by one and returns those that do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from milkrun.routing.darp.task.cases import Case

NOISE = 1e-9  # smaller increases are rounding, far below the tolerance of the problem


class Late(NamedTuple):
    """A broken limit at a position of a walk (0: leaving the depot), and the excess."""

    step: int
    kind: str
    amount: float


class Ride(NamedTuple):
    """A request carried from step `up` to step `down` of a walk, and the largest allowed difference of their starts."""

    request: int
    up: int
    down: int
    most: float


def rides(case: Case, walk: Sequence[int]) -> list[Ride]:
    """The requests of a walk 0 -> ... -> 0 that are dropped off after their pickup, in the order of the dropoffs."""
    up: dict[int, int] = {}
    found: dict[int, Ride] = {}
    for step, node in enumerate(walk):
        r = (node - 1) // 2
        if node % 2:
            up.setdefault(r, step)
        elif node and r in up and r not in found:
            found[r] = Ride(r, up[r], step, case.service[node - 1] + case.ride[r])
    return list(found.values())


def legs(case: Case, walk: Sequence[int]) -> list[float]:
    """From the start of service at each stop to the arrival at the next."""
    nodes = np.asarray(walk, np.int64)
    travel = case.travel(case.distance(nodes[:-1], nodes[1:])).tolist()
    return [case.service[node] + t for node, t in zip(walk, travel, strict=False)]


def earliest(case: Case, walk: Sequence[int], tol: float) -> tuple[float, ...] | None:
    """The least start times of a walk 0 -> ... -> 0, departure and return included, or None.

    Limits apply exactly first; if that leaves no schedule, each may be exceeded by `tol`.
    """
    tau, carried = legs(case, walk), rides(case, walk)
    exact = _least(case, walk, tau, carried, 0.0)
    return _least(case, walk, tau, carried, tol) if exact is None else exact


def _least(
    case: Case, walk: Sequence[int], tau: list[float], carried: list[Ride], slack: float
) -> tuple[float, ...] | None:
    last = len(walk) - 1
    back = [(ride.down, ride.up, ride.most + slack) for ride in carried] + [(last, 0, case.duration + slack)]
    starts = [case.opens[node] for node in walk]
    close = [case.closes[node] + slack + NOISE for node in walk]
    for _ in range(
        len(back) + 2
    ):  # a longest path uses each backward arc once; a further increase means a positive cycle
        for step in range(last):
            starts[step + 1] = max(starts[step + 1], starts[step] + tau[step])
        if any(b > end for b, end in zip(starts, close, strict=True)):
            return None
        raised = False
        for later, sooner, most in back:
            if starts[later] - most > starts[sooner] + NOISE:
                starts[sooner] = starts[later] - most
                raised = True
        if not raised:
            return tuple(starts)
    return None


def broken_limits(case: Case, walk: Sequence[int], tol: float) -> list[Late]:
    """The limits that a walk breaks: windows first, then rides by their dropoff, then the duration.

    A limit is broken if the least difference under the limits before it exceeds it; the amount is the excess. Broken
    limits do not constrain later ones; a limit exceeded by at most `tol` does, at the value reached.
    """
    tau, carried = legs(case, walk), rides(case, walk)
    size, origin = len(walk), len(walk)  # the origin of time is an extra vertex
    sums = np.concatenate([[0.0], np.cumsum(tau)])
    least = np.full((size + 1, size + 1), -np.inf)  # [a, b]: the least difference of the start at b from that at a
    least[:size, :size] = np.where(np.tri(size, k=-1).T > 0, sums[None, :] - sums[:, None], -np.inf)
    np.fill_diagonal(least, 0.0)
    opens = np.array([case.opens[node] for node in walk])
    # The earliest start at k is the largest opens_i + sums_k - sums_i over all i <= k.
    least[origin, :size] = np.maximum.accumulate(opens - sums) + sums
    limits = [(origin, step, "window", case.closes[node]) for step, node in enumerate(walk)]
    limits += [(ride.up, ride.down, "ride", ride.most) for ride in carried]
    limits += [(0, size - 1, "duration", case.duration)]
    broken = []
    for sooner, later, kind, most in limits:
        apart = least[sooner, later]
        if apart > most + tol:
            broken.append(Late(later, kind, float(apart - most)))
        elif most < np.inf:
            # Adds one arc back, from `later` to `sooner`, and updates all longest paths. A limit below `apart` by up to
            # `tol` counts as `apart`; otherwise the arc would close a positive cycle, without longest paths.
            least = np.maximum(least, least[:, later, None] - max(most, apart) + least[None, sooner, :])
    return broken
