"""Plans for the TSP with drone: optimal for few nodes, without the drone, or along a given tour.

tour = [op.start for op in truck_only(instance).operations]
operations, cost = partition(instance, tour)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from milkrun.core.errors import BadSolution, ConfigError, ShapeError
from milkrun.core.fields import float64, int32, named, scratch
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import RecordLayout
from milkrun.core.threads import Entry
from milkrun.delivery.instances.tspd import NO_FLY, Operation, TSPDInstance
from milkrun.delivery.tspd.truck_tour import tour_cost, truck_tour
from milkrun.solvers.tspd.dynamic import GIVEN, allocate, best_chain

TABLES = {
    "tour": scratch(int32, "P", doc="0 first and last"),
    "best": scratch(float64, "P", doc="cheapest chain to a position"),
    "came": scratch(int32, "P", doc="position where its last operation starts"),
    "flown": scratch(int32, "P", doc="position that the drone covers in it, or -1"),
}
LAYOUT = RecordLayout({**GIVEN, **named(TABLES)}, ["N", "P"])


CEILING = 16
"""The most nodes of `exact`, whose tables would take gigabytes beyond."""


class TSPDPlan(NamedTuple):
    """Operations and their makespan."""

    operations: tuple[Operation, ...]
    cost: float


def exact(instance: TSPDInstance, max_nodes: int = 12) -> TSPDPlan:
    """The best of all plans that the world allows.

    Time and memory grow exponentially; an instance with more than `max_nodes` nodes, depot included, is a ConfigError.
    """
    _check(instance)
    if instance.num_nodes > min(max_nodes, CEILING):
        raise ConfigError(
            f"{instance.name}: {instance.num_nodes} nodes are too many to solve exactly: "
            f"max_nodes={max_nodes}, at most {CEILING}; partition and truck_only accept more"
        )
    operations, cost = best_chain(instance)
    return TSPDPlan(tuple(operations), cost)


def truck_only(instance: TSPDInstance) -> TSPDPlan:
    """The truck's tour with the drone aboard: optimal up to 13 nodes, beyond nearest neighbour and 2-opt."""
    _check(instance)
    tour = truck_tour(instance.c_truck)
    return TSPDPlan(tuple(Operation(i, j) for i, j in pairwise([*tour, 0])), tour_cost(instance.c_truck, tour))


def partition(instance: TSPDInstance, tour: Sequence[int]) -> TSPDPlan:
    """The best plan that covers the nodes in the order of a tour (each node once, the depot first).

    The tour is split into operations; in each, the drone may serve one node strictly between the ends (the exact
    partitioning of Agatz, Bouman and Schmidt 2018). Time grows with the cube of the nodes.
    """
    _check(instance)
    nodes = [int(i) for i in tour]
    if nodes[:1] != [0] or sorted(nodes) != list(range(instance.num_nodes)):
        raise BadSolution(
            f"{instance.name}: a tour has each of 0..{instance.num_nodes - 1} once and 0 first, not {nodes}"
        )
    table, kept = _allocate(instance)
    kept["tour"][:-1] = nodes
    _entry().run((table.ctypes.data,), 1, 1)
    ends = [*nodes, 0]
    operations: list[Operation] = []
    j = len(nodes)
    while j:
        i, k = int(kept["came"][j]), int(kept["flown"][j])
        between = tuple(ends[p] for p in range(i + 1, j) if p != k)
        operations.append(Operation(ends[i], ends[j], NO_FLY if k < 0 else ends[k], between))
        j = i
    return TSPDPlan(tuple(operations[::-1]), float(kept["best"][-1]))


def _check(instance: Any) -> None:
    if not isinstance(instance, TSPDInstance):
        raise ShapeError(
            f"an instance is a TSPDInstance, not a {type(instance).__name__}; TSPDInstance.of_places and "
            "load_tspd return one"
        )


def _allocate(instance: TSPDInstance) -> tuple[Any, dict[str, Any]]:
    n = instance.num_nodes
    return allocate(LAYOUT, instance, {"N": n, "P": n + 1})


@kernel
def split_tour(w, b):
    """The cheapest chain to every position: from the one before by a leg, or from an earlier one by an operation."""
    for j in range(1, w.P):
        w.best[j] = w.best[j - 1] + w.truck[w.tour[j - 1], w.tour[j]]
        w.came[j] = j - 1
        w.flown[j] = -1
        if not w.meets[w.tour[j]]:
            continue
        # operations that end at j are tried from the shortest to the longest, so that the truck's path grows by one leg
        # at a time
        way = w.truck[w.tour[j - 1], w.tour[j]]
        for i in range(j - 2, -1, -1):
            way += w.truck[w.tour[i], w.tour[i + 1]]
            if w.meets[w.tour[i]]:
                choose_drone_position(w, i, j, way)


@kernel
def choose_drone_position(w, i, j, way):
    """The best node between positions i and j for the drone; `way` is the length of the path with that node."""
    start, end = w.tour[i], w.tour[j]
    for p in range(i + 1, j):
        k, before, after = w.tour[p], w.tour[p - 1], w.tour[p + 1]
        flight = w.drone[start, k] + w.drone[k, end]
        # skipping k changes three legs, whatever the length of the path
        drive = way - w.truck[before, k] - w.truck[k, after] + w.truck[before, after]
        total = w.best[i] + max(flight, drive)
        if w.lands[k] and flight <= w.limit and total < w.best[j]:
            w.best[j] = total
            w.came[j] = i
            w.flown[j] = p


@lru_cache(maxsize=1)
def _entry() -> Entry:
    return build_loop(LAYOUT, split_tour)
