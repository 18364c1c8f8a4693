"""The shortest way through every set of nodes, by dynamic programming (Held and Karp 1962): for a few nodes.

A set of customers is an integer: node j + 1 is its bit j; node 0, where ways begin, is in none. Costs stand row from,
column to, and may differ by direction. Time and memory grow as n 2^n, so whoever calls sets a limit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def shortest_paths(cost: Floats, keep: Callable[[Floats], NDArray[np.bool_]] | None = None) -> Floats:
    """[S, j]: the shortest way from node 0 through all of S that ends at node j + 1 in S, inf where that is not in S.

    A way through S comes to its last node from one of the others, and was shortest there: so sets are gone through by
    size, all of one size and one last node in a single array operation. `keep` says of ways [sets, j] which may be
    driven; longer ways are not made of the others.
    """
    customers = len(cost) - 1
    sets = np.arange(1 << customers)
    size = np.bitwise_count(sets)
    path = np.full((len(sets), customers), np.inf)
    path[1 << np.arange(customers), np.arange(customers)] = cost[0, 1:]
    for members in range(1, customers + 1):
        of_size = sets[size == members]
        for j in range(customers) if members > 1 else ():
            with_j = of_size[(of_size >> j) & 1 == 1]
            path[with_j, j] = (path[with_j ^ (1 << j)] + cost[1:, j + 1]).min(axis=1)
        if keep is not None:
            path[of_size] = np.where(keep(path[of_size]), path[of_size], np.inf)
    return path


def trip_through(path: Floats, cost: Floats, nodes: int) -> list[int]:
    """The order of the shortest trip from node 0 through a set and home, found backwards in the table of ways."""
    order: list[int] = []
    following = 0
    while nodes:
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
