"""Makes plans of the compiled heuristics playable, as kernels; `limits` explains why some are not.

The heuristics check trips by their total length, which is enough with the triangle inequality. Other plans are replayed
here by the rules of the world, and closed customers are postponed.
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.solvers.construct import is_open, nearest_that_fits, serve
from milkrun.solvers.improve import leave_trip
from milkrun.solvers.tours import LENGTH, clear, owed, refresh, within


@kernel
def can_be_driven(w, b):
    """True if the trip could return from every customer within its limit, and optional ones leave the reserve."""
    if w.max_length[b] == math.inf:
        return True
    for j in range(1, w.n_nodes[b]):
        w.served[j] = False
    length, load, left = 0.0, 0.0, owed(w, b)
    driven = True
    for p in range(1, w.count[LENGTH]):
        j = w.seq[p]
        length += w.d[w.seq[p - 1], j]
        load += w.weight[b, j]
        w.served[j] = j != 0
        if left > 0.0 and w.required[b, j]:
            left = owed(w, b)
        driven &= within(length + w.d[j, 0], w.max_length[b])
        driven &= j == 0 or w.required[b, j] or within(load + left, w.capacity[b])
        if j == 0:
            length, load = 0.0, 0.0
    return driven


@kernel
def drive(w, b):
    """Replays the plan with the mask of the world, keeping the order of customers where possible.

    A closed customer begins the next trip, or is skipped on a single trip. Required customers left come last, the
    nearest first. Trips that no longer pay are dropped, unless that would open a required customer.
    """
    planned = w.count[LENGTH]
    # the old plan is read while the new one is written to `seq`
    for p in range(planned):
        w.other[p] = w.seq[p]
    clear(w, b)
    here, load, length, m = 0, 0.0, 0.0, 1
    for p in range(1, planned):
        j = w.other[p]
        closed = j != 0 and not is_open(w, b, here, load, length, j)
        if closed and not (w.multi and is_open(w, b, 0, 0.0, 0.0, j)):
            continue
        if w.multi and here != 0 and (closed or j == 0):
            here, load, length, m = go_home(w, m)
        if j != 0:
            here, load, length, m = go_to(w, b, here, load, length, m, j)
    if w.multi:
        here, load, length, m = go_home(w, m)
    j = nearest_that_fits(w, b, here, load, length, True)
    while j != 0:
        here, load, length, m = go_to(w, b, here, load, length, m, j)
        if w.multi:
            here, load, length, m = go_home(w, m)
        j = nearest_that_fits(w, b, here, load, length, True)
    w.seq[m] = 0
    w.count[LENGTH] = m + 1
    refresh(w, b)
    if nearest_that_fits(w, b, 0, 0.0, 0.0, True) == 0:
        drop_trips(w, b)


@kernel
def drop_trips(w, b):
    """Drops trips that cost more than they gain."""
    p = 0
    while p + 1 < w.count[LENGTH]:
        if w.seq[p] != 0 or not leave_trip(w, b, p):
            p += 1


@kernel
def go_to(w, b, here, load, length, m, j):
    """Customer j served at position m."""
    serve(w, b, j)
    w.seq[m] = j
    return np.int64(j), load + w.weight[b, j], length + w.d[here, j], m + 1


@kernel
def go_home(w, m):
    """The trip closed at position m."""
    w.seq[m] = 0
    return np.int64(0), 0.0, 0.0, m + 1
