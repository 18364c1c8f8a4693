"""How far it is from node to node, and how long it takes, under either rule of the dial-a-ride problem."""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel


@kernel(inline=True)
def straight(w, q, i, j):
    """Between the coordinates."""
    dx = np.float64(w.locs[q, i, 0]) - w.locs[q, j, 0]
    dy = np.float64(w.locs[q, i, 1]) - w.locs[q, j, 1]
    return math.sqrt(dx * dx + dy * dy)


@kernel(inline=True)
def distance(w, q, i, j):
    """Under the rule `classic`: by the matrix where there is one."""
    return w.dist[q, i, j] if w.M > 0 else straight(w, q, i, j)


@kernel(inline=True)
def travel_time(w, q, i, j):
    """Under the rule `classic`. Every mask asks for it many times, and a division costs as much as all the rest."""
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

    The limits of instances (`FARTHEST`) keep it within 32 bits: processors turn eight float32 at once into int32, but
    one at a time into int64, and a mask does it for every node.
    """
    return np.int64(np.int32(np.rint(distance32(w, q, i, j) / np.float32(w.speed))))
