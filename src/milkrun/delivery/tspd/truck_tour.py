"""What the truck would need without a drone: the yardstick of the saving a plan makes.

Up to `EXACT` nodes the shortest tour (Held and Karp 1962); beyond, nearest neighbour improved by reversing stretches
(2-opt) until no reversal helps. Costs may differ by direction.
"""

from __future__ import annotations

import numpy as np

EXACT = 13


def truck_tour(cost: np.ndarray) -> list[int]:
    """The nodes in order, from the depot 0 and without the way home."""
    return _shortest(cost) if len(cost) <= EXACT else _two_opt(_nearest(cost), cost)


def tour_cost(cost: np.ndarray, tour: list[int]) -> float:
    """Of a closed tour."""
    return sum(float(cost[i, j]) for i, j in zip(tour, [*tour[1:], tour[0]], strict=True))


def _shortest(cost: np.ndarray) -> list[int]:
    """By sets of customers: customer c is bit c - 1."""
    customers = len(cost) - 1
    best = np.full((1 << customers, customers), np.inf)
    before = np.zeros(best.shape, np.int64)
    best[1 << np.arange(customers), np.arange(customers)] = cost[0, 1:]
    between = cost[1:, 1:]
    sets = np.arange(1 << customers)
    size = sum((sets >> j) & 1 for j in range(customers))
    for k in range(2, customers + 1):
        of_size = sets[size == k]
        for j in range(customers):
            chosen = of_size[(of_size >> j) & 1 == 1]
            ways = best[chosen & ~(1 << j)] + between[:, j]
            before[chosen, j] = ways.argmin(axis=1)
            best[chosen, j] = ways.min(axis=1)
    left = (1 << customers) - 1
    last = int((best[left] + cost[1:, 0]).argmin())
    tour = []
    while left:
        tour.append(last + 1)
        left, last = left & ~(1 << last), int(before[left, last])
    return [0, *tour[::-1]]


def _nearest(cost: np.ndarray) -> list[int]:
    tour, left = [0], np.ones(len(cost), bool)
    left[0] = False
    while left.any():
        tour.append(int(np.where(left, cost[tour[-1]], np.inf).argmin()))
        left[tour[-1]] = False
    return tour


def _two_opt(tour: list[int], cost: np.ndarray) -> list[int]:
    """The reversal of the stretch i..j that saves most, again and again; the depot stays first."""
    order = np.array(tour)
    n = len(order)
    i, j = np.triu_indices(n, 1)
    i, j = i[i > 0], j[i > 0]
    while True:
        after = np.roll(order, -1)
        there = np.concatenate([[0.0], np.cumsum(cost[order, after])])
        back = np.concatenate([[0.0], np.cumsum(cost[after, order])])
        gain = (cost[order[i - 1], order[i]] + cost[order[j], after[j]] - cost[order[i - 1], order[j]]
                - cost[order[i], after[j]] + (there[j] - there[i]) - (back[j] - back[i]))  # fmt: skip
        if not len(gain) or gain.max() <= 1e-9:
            return [int(node) for node in order]
        most = int(gain.argmax())
        order[i[most] : j[most] + 1] = order[i[most] : j[most] + 1][::-1].copy()
