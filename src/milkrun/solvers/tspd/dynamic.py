"""The optimum of a small TSP with drone, by dynamic programming over sets of customers.

Three passes, after Bouman, Agatz and Schmidt, "Dynamic programming approaches for the traveling salesman problem
with drone" (2018): the shortest truck path through every set, the cheapest operation that covers a set, the
cheapest chain of operations. Customer j is bit j - 1 of a set; costs may differ by direction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.fields import bool_, constant, float64, int32, named, scratch
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import RecordLayout
from milkrun.core.threads import Entry
from milkrun.delivery.instances.tspd import EPS, NO_FLY, Operation, TSPDInstance

GIVEN = named(
    {
        "limit": constant(float64, doc="of both legs of a flight"),
        "truck": scratch(float64, "N", "N"),
        "drone": scratch(float64, "N", "N"),
        "lands": scratch(bool_, "N", doc="the drone may cover the node"),
        "meets": scratch(bool_, "N", doc="it may leave the truck and rejoin there"),
    }
)
"""The instance fields of the compiled solvers."""

TABLES = {
    "path": scratch(float64, "S", "N", "N", doc="[S, i, j]: the truck's shortest way from i through S to j"),
    "cost": scratch(float64, "S", "N", "N", doc="[S, i, j]: the cheapest operation from i to j that covers S"),
    "flown": scratch(int32, "S", "N", "N", doc="the drone's node in it, or -1"),
    "best": scratch(float64, "S", "N", doc="[S, i]: the cheapest chain from the depot that covers S and ends at i"),
    "came_set": scratch(int32, "S", "N", doc="what the last operation of the chain covers"),
    "came_node": scratch(int32, "S", "N", doc="where it starts"),
}
LAYOUT = RecordLayout({**GIVEN, **named(TABLES)}, ["N", "S"])


def allocate(
    layout: RecordLayout, instance: TSPDInstance, sizes: dict[str, int]
) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A table with the instance, and its arrays by name; scratch arrays are zero. The arrays own the memory."""
    given = {
        "truck": instance.c_truck,
        "drone": instance.c_drone,
        "meets": ~instance.forbid,
        "lands": ~(instance.no_visit | instance.forbid),
    }
    rows = {name: array[None] for name, array in given.items()}
    table, kept = layout.fill(1, sizes, {**rows, "limit": instance.max_fly + EPS})
    return table, {name: array[0] for name, array in kept.items()}


def best_chain(instance: TSPDInstance) -> tuple[list[Operation], float]:
    """The cheapest plan and its makespan. Each further node doubles the memory and more than triples the time."""
    n = instance.num_nodes
    table, kept = allocate(LAYOUT, instance, {"N": n, "S": 1 << (n - 1)})
    _entry().run((table.ctypes.data,), 1, 1)
    best, everyone = kept["best"], (1 << (n - 1)) - 1
    # The last return covers nothing, so no operation of the tables has it. From the depot it costs 0.
    ends = best[everyone] + instance.c_truck[:, 0]
    node = int(ends.argmin())
    plan = [Operation(node, 0)] if node else []
    covered = everyone
    while covered:
        newly, start = int(kept["came_set"][covered, node]), int(kept["came_node"][covered, node])
        fly = int(kept["flown"][newly, start, node])
        plan.append(Operation(start, node, fly, _through(instance, kept["path"], newly, start, node, fly)))
        covered, node = covered ^ newly, start
    return plan[::-1], float(ends.min())


def _through(
    instance: TSPDInstance, path: NDArray[np.float64], newly: int, start: int, end: int, fly: int
) -> tuple[int, ...]:
    """The truck's stops between start and end of an operation that covers the set `newly`, in order."""
    one = [(1 << j) >> 1 for j in range(instance.num_nodes)]
    left = newly if fly == NO_FLY else newly ^ one[fly]
    order = [end]
    while left:
        last = [j for j in range(1, instance.num_nodes) if left & one[j]]
        ways = [path[left ^ one[j], start, j] + instance.c_truck[j, order[-1]] for j in last]
        order.append(last[int(np.argmin(ways))])
        left ^= one[order[-1]]
    # an end that is itself the last stop, by a leg of 0 (see `find_paths`), is not between the ends
    stops = order[2:] if order[1:2] == [end] else order[1:]
    return tuple(stops[::-1])


@kernel(inline=True)
def bit(i):
    """The set with customer i only; for the depot the empty set."""
    return (1 << i) >> 1


@kernel
def solve_subsets(w, b):
    find_paths(w)
    find_operations(w)
    find_chains(w)


@kernel
def find_paths(w):
    """A path through a set arrives from one of its nodes, after a path through the others.

    The set may contain the end, as the last stop or as an earlier one if a detour is shorter. Operations start at any
    node, so there is a table for every start; `core.held_karp` has only that of the depot.
    """
    # A set without one of its nodes is a smaller number, so in ascending order all subsets are done.
    for s in range(w.S):
        for i in range(w.N):
            for j in range(w.N):
                way = np.inf
                if s == 0:
                    way = w.truck[i, j]
                elif not s & bit(i):
                    for k in range(1, w.N):
                        if s & bit(k):
                            # k may be j itself: truck[j, j] is 0, and j the last stop
                            way = min(way, w.path[s ^ bit(k), i, k] + w.truck[k, j])
                w.path[s, i, j] = way


@kernel
def find_operations(w):
    """The drone serves one of the newly covered nodes, or the truck drives a single leg with the drone aboard."""
    for s in range(1, w.S):
        for i in range(w.N):
            for j in range(w.N):
                w.cost[s, i, j] = np.inf
                w.flown[s, i, j] = NO_FLY
                if s & bit(i):
                    continue
                if s == bit(j):
                    w.cost[s, i, j] = w.truck[i, j]
                if w.meets[i] and w.meets[j]:
                    choose_drone_node(w, s, i, j)


@kernel
def choose_drone_node(w, s, i, j):
    for k in range(1, w.N):
        # not the end, which the truck drives to itself
        if not s & bit(k) or k == j or not w.lands[k]:
            continue
        flight = w.drone[i, k] + w.drone[k, j]
        both = max(flight, w.path[s ^ bit(k), i, j])
        if flight <= w.limit and both < w.cost[s, i, j]:
            w.cost[s, i, j] = both
            w.flown[s, i, j] = k


@kernel
def find_chains(w):
    """Appends operations in every way: each covers a new set and ends at a covered node."""
    for s in range(w.S):
        for j in range(w.N):
            w.best[s, j] = np.inf
    w.best[0, 0] = 0.0
    for s in range(w.S - 1):
        # An operation increases the number of the set, so best[s] is final when s is reached.
        rest = w.S - 1 - s
        newly = rest
        # `(newly - 1) & rest` is the next smaller subset of the uncovered nodes: 3^n pairs of sets in all, instead of
        # 4^n for a loop over all sets
        while newly:
            append_operation(w, s, newly)
            newly = (newly - 1) & rest


@kernel
def append_operation(w, s, newly):
    after = s | newly
    for i in range(w.N):
        if w.best[s, i] == np.inf:
            continue
        for j in range(w.N):
            total = w.best[s, i] + w.cost[newly, i, j]
            if total < w.best[after, j] and (j == 0 or after & bit(j)):
                w.best[after, j] = total
                w.came_set[after, j] = newly
                w.came_node[after, j] = i


@lru_cache(maxsize=1)
def _entry() -> Entry:
    return build_loop(LAYOUT, solve_subsets)
