"""Distances and travel times between nodes under both rules of the dial-a-ride problem."""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel


@kernel(inline=True)
def straight(w, q, i, j):
    """The Euclidean distance of the coordinates."""
    dx = np.float64(w.locs[q, i, 0]) - w.locs[q, j, 0]
    dy = np.float64(w.locs[q, i, 1]) - w.locs[q, j, 1]
    return math.sqrt(dx * dx + dy * dy)


@kernel(inline=True)
def distance(w, q, i, j):
    """Under the rule `classic`: from the matrix, if there is one."""
    return w.dist[q, i, j] if w.M > 0 else straight(w, q, i, j)


@kernel(inline=True)
def travel_time(w, q, i, j):
    """Under the rule `classic`. Masks call it often, and a division costs as much as the rest, so speed 1 skips it."""
    way = distance(w, q, i, j)
    return way if w.speed == 1.0 else way / w.speed


@kernel(inline=True)
def distance32(w, q, i, j):
    """Under the rule `deadlines`: float32 throughout."""
    dx = w.locs[q, i, 0] - w.locs[q, j, 0]
    dy = w.locs[q, i, 1] - w.locs[q, j, 1]
    return np.sqrt(dx * dx + dy * dy)


@kernel(inline=True)
def whole_travel_time(w, q, i, j):
    """Under the rule `deadlines`: the quotient of distance and speed, rounded half to even.

    The limits of instances (`FARTHEST`) keep it within 32 bits. Conversion of float32 to int32 vectorises, to int64 it
    does not, and a mask converts every node.
    """
    return np.int64(np.int32(np.rint(distance32(w, q, i, j) / np.float32(w.speed))))
