"""The shortest path through every set of nodes, by dynamic programming (Held and Karp 1962), for few nodes.

A set of customers is an integer: node j + 1 is its bit j; node 0, where paths begin, is in none. `cost[i, j]` is that
of i to j and may be asymmetric. Time and memory grow as n 2^n, so callers set a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shortest_paths(cost: Floats, keep: Callable[[Floats], NDArray[np.bool_]] | None = None) -> Floats:
    """[S, j]: the shortest path from node 0 through all of S that ends at node j + 1, inf where S does not contain it.

    A shortest path through S extends a shortest path through S without its last node, so sets are processed by size,
    all of one size in a single array operation. `keep` takes paths [sets, j] and returns which are feasible; only these
    are extended.
    """
    customers = len(cost) - 1
    path = np.full((customers, 1 << customers), np.inf).T  # sets contiguous in memory, for long loops
    path[1 << np.arange(customers), np.arange(customers)] = cost[0, 1:]
    for members, (of_size, sets, last) in enumerate(_by_size(customers), 1):
        # [i, pair]: the path through S without `last` that ends at i, extended to `last`. An i outside that set has inf
        # in the table, so it is never the minimum.
        if members > 1:
            path[sets, last] = (path.T.take(sets ^ (1 << last), axis=1) + cost[1:].take(last + 1, axis=1)).min(axis=0)
        if keep is not None:
            path[of_size] = np.where(keep(path[of_size]), path[of_size], np.inf)
    return path


@lru_cache(maxsize=2)  # a batch of instances needs the same ones thousands of times
def _by_size(customers: int) -> list[tuple[Ints, Ints, Ints]]:
    """For each size from 1: the sets of that size, and all pairs of such a set and a member j."""
    found, every_set = [], np.arange(1 << customers)
    size = np.bitwise_count(every_set)
    for members in range(1, customers + 1):
        of_size = every_set[size == members]
        place, last = np.nonzero((of_size[:, None] >> np.arange(customers)) & 1)
        found.append((of_size, of_size[place], last))
    return found


def trip_through(path: Floats, cost: Floats, nodes: int) -> list[int]:
    """The order of the shortest trip from node 0 through a set and back, traced backwards in the table of paths."""
    order: list[int] = []
    following = 0
    while nodes:
        # The same sums, bit for bit, as in `shortest_paths`, so their minimum is the value in the table.
        j = int((path[nodes] + cost[1:, following]).argmin())
        order.append(j + 1)
        following = j + 1
        nodes ^= 1 << j
    return order[::-1]


def shortest_tour(cost: Floats) -> tuple[float, list[int]]:
    """The cost and order of the shortest closed tour through all nodes, from node 0, without the return."""
    if len(cost) == 1:
        return 0.0, [0]
    path = shortest_paths(cost)
    full = len(path) - 1
    return float((path[full] + cost[1:, 0]).min()), [0, *trip_through(path, cost, full)]
