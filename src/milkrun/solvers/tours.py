"""The plan under construction: the inputs, scratch memory and running sums of the compiled heuristics.

All routing problems have one form: nodes with a gain, a weight and a flag if required; trips that start and end at node
0; a price of length. A tour is the case with all nodes required and one trip. A plan is a row of nodes with 0 between
trips. With several trips the last one is kept empty, so that opening a trip is an ordinary insertion.
"""

from __future__ import annotations

import numpy as np

from milkrun.core.fields import bool_, constant, float32, float64, instance, int32, int64, named, scratch
from milkrun.core.kernels import kernel
from milkrun.core.record import RecordLayout
from milkrun.routing.distance import MATRIX, TOL, leg

LENGTH, TRIPS, SYMMETRIC = range(3)  # of `count`: entries of `seq`, trips, flag of symmetric distances
OWED, TINY = range(2)  # of `amount`: reserve for unserved required customers, threshold of improvement


WORK = named(
    {
        "metric": constant(int64),
        "multi": constant(int64, doc="several trips are allowed"),
        "reserves": constant(int64, doc="a single trip reserves room for required customers"),
        "circular": constant(int64, doc="node 0 is an ordinary node, and a tour may start anywhere"),
        "price": constant(float64, doc="of a unit of length, > 0"),
        "locs": instance(float32, "L", 2),
        "dist": instance(float32, "M", "M", doc="with metric MATRIX"),
        "n_nodes": instance(int32),
        "gain": instance(float64, "N"),
        "weight": instance(float64, "N"),
        "required": instance(bool_, "N"),
        "capacity": instance(float64),
        "max_length": instance(float64),
        "plan": instance(int32, "P", doc="result: trips, each closed by 0"),
        "d": scratch(float64, "N", "N"),
        "seq": scratch(int32, "P", doc="0 first and last"),
        "best": scratch(int32, "P"),
        "other": scratch(int32, "P"),
        "trip": scratch(int32, "P", doc="of the edge from a position to the next"),
        "ahead": scratch(float64, "P", doc="length from the start to a position"),
        "back": scratch(float64, "P", doc="length from a position back to the start"),
        "load": scratch(float64, "P", doc="by trip"),
        "length": scratch(float64, "P", doc="by trip"),
        "served": scratch(bool_, "N"),
        "near": scratch(float64, "N", doc="from the plan to a node"),
        "wanted": scratch(bool_, "N", doc="candidate customers"),
        "keys": scratch(float64, "S", doc="savings"),
        "pairs": scratch(int64, "S"),
        "links": scratch(int32, 4, "N", doc="trips under merger: next, trip, first, last"),
        "count": scratch(int64, 3),
        "amount": scratch(float64, 2),
    }
)
"""The record `w` of the kernels: instances (first axis: row b) and scratch of a thread. P = 2 N + 4 holds any plan."""

LAYOUT = RecordLayout(WORK, ["N", "L", "M", "P", "S"])


@kernel
def within(x, limit):
    """As `fits`, with a quarter of its tolerance; the rest allows for float32 sums elsewhere."""
    return x <= limit + 0.25 * min(0.5, TOL * max(1.0, abs(limit)))


@kernel
def set_distances(w, b):
    """Computes all distances of a row, their symmetry, and the threshold of improvement."""
    n = w.n_nodes[b]
    longest, symmetric = 0.0, True
    for i in range(n):
        for j in range(n):
            if w.metric == MATRIX:
                w.d[i, j] = w.dist[b, i, j]
            else:
                x, y = np.float64(w.locs[b, i, 0]), np.float64(w.locs[b, i, 1])
                w.d[i, j] = leg(w.metric, x, y, np.float64(w.locs[b, j, 0]), np.float64(w.locs[b, j, 1]))
            longest = max(longest, w.d[i, j])
    for i in range(n):
        for j in range(i):
            # bitwise equality: only then does a reversed trip keep its length exactly
            symmetric = symmetric and w.d[i, j] == w.d[j, i]
    w.count[SYMMETRIC] = symmetric
    # relative to the longest leg, since the rounding of sums grows with the legs
    w.amount[TINY] = 1e-9 * w.price * longest


@kernel
def clear(w, b):
    """The empty plan."""
    w.seq[0] = 0
    w.seq[1] = 0
    w.count[LENGTH] = 2
    refresh(w, b)


@kernel
def refresh(w, b):
    """After a change of `seq`: removes empty trips and recomputes all sums."""
    tidy(w)
    m = w.count[LENGTH]
    for j in range(w.N):
        w.served[j] = False
    w.ahead[0] = 0.0
    w.back[0] = 0.0
    w.trip[0] = 0
    w.load[0] = 0.0
    w.length[0] = 0.0
    t = 0
    for p in range(1, m):
        i, j = w.seq[p - 1], w.seq[p]
        w.ahead[p] = w.ahead[p - 1] + w.d[i, j]
        w.back[p] = w.back[p - 1] + w.d[j, i]
        w.length[t] += w.d[i, j]
        if j == 0:
            t += 1
            w.load[t] = 0.0
            w.length[t] = 0.0
        else:
            w.load[t] += w.weight[b, j]
            w.served[j] = True
        # at a 0 the trip that begins there: `trip` belongs to the leg after a position
        w.trip[p] = t
    w.count[TRIPS] = t
    w.amount[OWED] = owed(w, b)


@kernel
def tidy(w):
    m = w.count[LENGTH]
    kept = 1
    for p in range(1, m):
        # A 0 after a 0 is an empty trip. `kept` never passes p, so the row is compacted in place.
        if w.seq[p] != 0 or w.seq[kept - 1] != 0:
            w.seq[kept] = w.seq[p]
            kept += 1
    if kept == 1 or w.multi:
        w.seq[kept] = 0
        kept += 1
    w.count[LENGTH] = kept


@kernel
def owed(w, b):
    """The reserve of a single trip for required customers not yet in the plan."""
    total = 0.0
    if w.reserves and not w.multi:
        for j in range(1, w.n_nodes[b]):
            if w.required[b, j] and not w.served[j] and within(w.d[0, j] + w.d[j, 0], w.max_length[b]):
                total += w.weight[b, j]
    return total


@kernel
def room_for(w, b, j, load):
    """True if customer j fits with this load."""
    kept = 0.0 if w.required[b, j] else w.amount[OWED]
    return within(load + w.weight[b, j] + kept, w.capacity[b])


@kernel
def best_place(w, b, j):
    """The position after which customer j lengthens the plan least, and the extra length; -1 if it fits nowhere."""
    place, least = -1, np.inf
    for p in range(w.count[LENGTH] - 1):
        extra = w.d[w.seq[p], j] + w.d[j, w.seq[p + 1]] - w.d[w.seq[p], w.seq[p + 1]]
        if extra < least:
            t = w.trip[p]
            if room_for(w, b, j, w.load[t]) and within(w.length[t] + extra, w.max_length[b]):
                place, least = p, extra
    return place, least


@kernel
def insert_after(w, b, p, j):
    for k in range(w.count[LENGTH], p + 1, -1):
        w.seq[k] = w.seq[k - 1]
    w.seq[p + 1] = j
    w.count[LENGTH] += 1
    refresh(w, b)


@kernel
def remove_between(w, b, first, last):
    """Removes the positions first..last from the plan."""
    gap = last - first + 1
    for p in range(last + 1, w.count[LENGTH]):
        w.seq[p - gap] = w.seq[p]
    w.count[LENGTH] -= gap
    refresh(w, b)


@kernel
def value(w, b):
    """The value of the plan: gains less the price of its length."""
    total = 0.0
    for p in range(1, w.count[LENGTH]):
        total += w.gain[b, w.seq[p]] - w.price * w.d[w.seq[p - 1], w.seq[p]]
    return total


@kernel
def required_served(w, b):
    total = 0
    for j in range(1, w.n_nodes[b]):
        total += w.required[b, j] and w.served[j]
    return total


@kernel
def write_plan(w, b):
    """Writes the result: the plan without its first 0, padded with 0."""
    m = w.count[LENGTH]
    for p in range(w.plan.shape[1]):
        w.plan[b, p] = w.seq[p + 1] if p + 1 < m else 0
