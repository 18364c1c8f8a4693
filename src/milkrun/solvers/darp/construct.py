"""Insertion for the dial-a-ride problem, compiled over rows: each request goes to its cheapest place.

The order `cheapest` inserts the cheapest open request first, `deadline` the one with the earliest deadline. A place
stays valid until its route changes, so only one route is searched again after each insertion."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import kernel
from milkrun.core.launcher import build_loop
from milkrun.core.record import RecordLayout
from milkrun.core.threads import Entry, chunks_for
from milkrun.solvers.darp.places import SIZES, TIE, WORK, find_place, place, prepare

ORDERS = ("cheapest", "deadline")
CHEAPEST, DEADLINE = range(2)
LAYOUT = RecordLayout(WORK, SIZES)
PARALLEL_FROM = 16  # rows: an insertion takes a tenth of a millisecond or more

Routes = list[list[int]]


def insert_rows(
    fields: Mapping[str, Any], order: str, speed: float, max_onboard: int | None = None, threads: int | None = None
) -> list[Routes]:
    """The routes of each row of instance fields, as DARPInstance names them, with a first axis for rows."""
    if order not in ORDERS:
        raise ConfigError(f"order={order!r}: allowed are {' and '.join(map(repr, ORDERS))}")
    batch = len(fields["demand"])
    chunks = chunks_for(batch, PARALLEL_FROM, threads)
    table, kept = allocate(LAYOUT, fields, speed, max_onboard, chunks)
    _entry().run((table.ctypes.data, ORDERS.index(order)), batch, chunks)
    return [routes_of(kept, b) for b in range(batch)]


def allocate(
    layout: RecordLayout, fields: Mapping[str, Any], speed: float, max_onboard: int | None, chunks: int
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """The table of a batch and its arrays, which must outlive the table."""
    if not 0 < speed < np.inf:
        raise ConfigError(f"speed is {speed}, must be finite and > 0")
    batch, nodes = np.shape(fields["demand"])
    requests, vehicles = nodes // 2, np.shape(fields["capacity"])[1]
    matrix = np.size(fields["dist"]) > 0 if fields.get("dist") is not None else False
    aboard = min(requests, int(np.max(fields["capacity"])), requests if max_onboard is None else max_onboard)
    # P: one more than the limit aboard, since `extend` adds a request before `trace` checks the limit. Each request has
    # at least one rider, so seats bound the requests aboard.
    sizes = {
        "N": nodes,
        "R": requests,
        "V": vehicles,
        "L": 0 if matrix else nodes,
        "M": nodes if matrix else 0,
        "K": 2 * requests + 2,
        "P": aboard + 1,
    }
    given: dict[str, Any] = {"n_nodes": np.full(batch, nodes), **fields, "speed": speed, "max_onboard": aboard}
    given["max_route_duration"] = np.reshape(fields["max_route_duration"], batch)
    given.pop("locs" if matrix else "dist", None)
    return layout.fill(batch, sizes, given, chunks)


def routes_of(kept: Mapping[str, NDArray[Any]], b: int) -> Routes:
    """The routes written by a kernel for row b."""
    return [plan[:n].tolist() for plan, n in zip(kept["plan"][b], kept["visits"][b], strict=True)]


@kernel
def insert_row(w, b, order):
    """Solves one row from the empty plan."""
    prepare(w, b)
    if order == CHEAPEST:
        insert_by_cost(w, b)
    else:
        insert_by_deadline(w, b)
    write(w, b)


@kernel
def insert_by_cost(w, b):
    """Inserts the cheapest open request until none fits; ties go to the lower request, then vehicle."""
    requests = w.n_nodes[b] // 2
    for r in range(requests):
        for v in range(w.V):
            find_place(w, b, r, v)
    while True:
        best, chosen, vehicle = np.inf, -1, -1
        for r in range(requests):
            if w.home[r] < 0:
                for v in range(w.V):
                    if w.cost[r, v] < best - TIE:
                        best, chosen, vehicle = w.cost[r, v], r, v
        if chosen < 0:
            return
        place(w, b, chosen, vehicle)
        for r in range(requests):
            if w.home[r] < 0:
                find_place(w, b, r, vehicle)


@kernel
def insert_by_deadline(w, b):
    """Inserts requests by the deadline of their pickup at the cheapest place, or skips them."""
    requests = w.n_nodes[b] // 2
    for r in range(requests):
        p, d = 2 * r + 1, 2 * r + 2
        w.key[r] = min(w.time_windows[b, p], w.time_windows[b, d] - w.tau[p, d])
        k = r
        # stable insertion sort: ties keep the lower request first
        while k > 0 and w.key[w.order[k - 1]] > w.key[r]:
            w.order[k] = w.order[k - 1]
            k -= 1
        w.order[k] = r
    for k in range(requests):
        r = w.order[k]
        best, vehicle = np.inf, -1
        for v in range(w.V):
            find_place(w, b, r, v)
            if w.cost[r, v] < best - TIE:
                best, vehicle = w.cost[r, v], v
        if vehicle >= 0:
            place(w, b, r, vehicle)


@kernel
def write(w, b):
    """Writes the routes as the result of row b."""
    for v in range(w.V):
        w.visits[b, v] = w.stops[v]
        for k in range(w.stops[v]):
            w.plan[b, v, k] = w.route[v, k]


@lru_cache(maxsize=1)
def _entry() -> Entry:
    return build_loop(LAYOUT, insert_row)
