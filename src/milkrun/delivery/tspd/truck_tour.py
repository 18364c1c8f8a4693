"""The tour of the truck without a drone, against which the saving of a plan is measured.

Up to `EXACT` nodes the shortest tour (Held and Karp 1962); beyond, nearest neighbour improved by reversing segments
(2-opt) until no reversal helps. Costs may differ by direction.
"""

from __future__ import annotations

import numpy as np

from milkrun.core.held_karp import shortest_tour

EXACT = 13


def truck_tour(cost: np.ndarray) -> list[int]:
    """The nodes in order, from the depot 0 and without the return."""
    return shortest_tour(cost)[1] if len(cost) <= EXACT else _two_opt(_nearest(cost), cost)


def tour_cost(cost: np.ndarray, tour: list[int]) -> float:
    """The cost of a closed tour."""
    return sum(float(cost[i, j]) for i, j in zip(tour, [*tour[1:], tour[0]], strict=True))


def _nearest(cost: np.ndarray) -> list[int]:
    tour, left = [0], np.ones(len(cost), bool)
    left[0] = False
    while left.any():
        tour.append(int(np.where(left, cost[tour[-1]], np.inf).argmin()))
        left[tour[-1]] = False
    return tour


def _two_opt(tour: list[int], cost: np.ndarray) -> list[int]:
    """Applies the best reversal of a segment i..j until none helps; the depot stays first."""
    order = np.array(tour)
    n = len(order)
    least = 1e-9 * max(1.0, float(np.abs(cost[:n, :n]).max(initial=0.0)))
    i, j = np.triu_indices(n, 1)
    i, j = i[i > 0], j[i > 0]
    while True:
        # Prefix sums of the legs in both directions give the gain of every reversal at once, also if costs differ by
        # direction.
        after = np.roll(order, -1)
        there = np.concatenate([[0.0], np.cumsum(cost[order, after])])
        back = np.concatenate([[0.0], np.cumsum(cost[after, order])])
        gain = (
            cost[order[i - 1], order[i]]
            + cost[order[j], after[j]]
            - cost[order[i - 1], order[j]]
            - cost[order[i], after[j]]
            + (there[j] - there[i])
            - (back[j] - back[i])
        )
        # Gains are differences of sums, so a gain of 0 may come out positive, the more so for longer legs. Without this
        # bound ties would loop forever.
        if not len(gain) or gain.max() <= least:
            return [int(node) for node in order]
        most = int(gain.argmax())
        order[i[most] : j[most] + 1] = order[i[most] : j[most] + 1][::-1].copy()
