"""The built-in policy of the improvement world: of all 2-opt moves the one that makes the tour shortest.

At a local optimum, where no move helps, it takes the one that hurts least, and so leaves it again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import kernel
from milkrun.routing.distance import MATRIX, travel
from milkrun.routing.tsp_kopt import NODE, THREE


def steepest(world: Any) -> np.ndarray:
    """The best 2-opt move of each row, under any naming of the moves."""
    if not hasattr(world, "action_mode"):
        raise ConfigError(f"'steepest' is a policy of the world that improves a tour, not of {type(world).__name__}")
    return world.map_rows(best_move, np.int64)


@kernel
def best_move(w, b, x, y):
    q = w.instance_row[b]
    n = np.int64(w.n_nodes[q])
    last = n - 2 if w.moves == THREE else n - 1
    best, least = 0, math.inf
    for i in range(n - 2):
        along = back = 0.0  # the stretch i+1..j, driven as it is and the other way round
        for j in range(i + 2, last + 1):
            p, a, z, s = w.tour[b, i], w.tour[b, i + 1], w.tour[b, j], w.tour[b, (j + 1) % n]
            # only a matrix may differ by direction: under every other metric the two sums are equal and cancel out
            if w.metric == MATRIX:
                along += travel(w, q, w.tour[b, j - 1], z)
                back += travel(w, q, z, w.tour[b, j - 1])
            # All nodes but the first reversed is the same ring driven the other way: no move of the world.
            if i == 0 and j == n - 1:
                continue
            change = travel(w, q, p, z) + travel(w, q, a, s) - travel(w, q, p, a) - travel(w, q, z, s) + back - along
            if change < least:
                least = change
                best = (np.int64(a) * w.N + z) if w.action_mode == NODE else (i * w.N + j)
    return best * w.N if w.moves == THREE else best
