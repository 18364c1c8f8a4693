"""The shortest way through every set of nodes, by dynamic programming (Held and Karp 1962): for a few nodes.

A set of customers is an integer: node j + 1 is its bit j; node 0, where ways begin, is in none. Costs stand row from,
column to, and may differ by direction. Time and memory grow as n 2^n, so whoever calls sets a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shortest_paths(cost: Floats, keep: Callable[[Floats], NDArray[np.bool_]] | None = None) -> Floats:
    """[S, j]: the shortest way from node 0 through all of S that ends at node j + 1 in S, inf where that is not in S.

    A way through S comes to its last node from one of the others, and was shortest there: so sets are gone through by
    size, all of one size in a single array operation. `keep` says of ways [sets, j] which may be driven; longer ways
    are not made of the others.
    """
    customers = len(cost) - 1
    path = np.full((customers, 1 << customers), np.inf).T  # the sets side by side in memory: long loops
    path[1 << np.arange(customers), np.arange(customers)] = cost[0, 1:]
    for members, (of_size, sets, last) in enumerate(_by_size(customers), 1):
        # [i, pair]: the way through S without `last` that ends at i, and on to `last`. An i that is not in that set
        # has inf in the table, so it is never the least.
        if members > 1:
            path[sets, last] = (path.T.take(sets ^ (1 << last), axis=1) + cost[1:].take(last + 1, axis=1)).min(axis=0)
        if keep is not None:
            path[of_size] = np.where(keep(path[of_size]), path[of_size], np.inf)
    return path


@lru_cache(maxsize=2)  # a batch of instances asks for the same ones thousands of times
def _by_size(customers: int) -> list[tuple[Ints, Ints, Ints]]:
    """For 1, 2, ... members: the sets of that size, and each of them with each j in it."""
    found, everyone = [], np.arange(1 << customers)
    size = np.bitwise_count(everyone)
    for members in range(1, customers + 1):
        of_size = everyone[size == members]
        place, last = np.nonzero((of_size[:, None] >> np.arange(customers)) & 1)
        found.append((of_size, of_size[place], last))
    return found


def trip_through(path: Floats, cost: Floats, nodes: int) -> list[int]:
    """The order of the shortest trip from node 0 through a set and home, found backwards in the table of ways."""
    order: list[int] = []
    following = 0
    while nodes:
        # The sums that the table was made of, bit for bit: the least of them is the one that it holds.
        j = int((path[nodes] + cost[1:, following]).argmin())
        order.append(j + 1)
        following = j + 1
        nodes ^= 1 << j
    return order[::-1]


def shortest_tour(cost: Floats) -> tuple[float, list[int]]:
    """The shortest closed tour through all nodes, from node 0 and without the way home, and what it costs."""
    if len(cost) == 1:
        return 0.0, [0]
    path = shortest_paths(cost)
    everyone = len(path) - 1
    return float((path[everyone] + cost[1:, 0]).min()), [0, *trip_through(path, cost, everyone)]
