"""Construction heuristics as kernels: nearest neighbour, insertions, savings of Clarke and Wright.

References: Rosenkrantz, Stearns, Lewis 1977 (insertions); Clarke, Wright 1964, the parallel version (savings).
"""

from __future__ import annotations

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.solvers.tours import (
    LENGTH,
    OWED,
    SYMMETRIC,
    TINY,
    best_place,
    clear,
    insert_after,
    owed,
    refresh,
    room_for,
    within,
)

RULES = ("nearest", "farthest", "random", "cheapest")
NEAREST, FARTHEST, RANDOM, CHEAPEST = range(4)
NEXT, TRIP, FIRST, LAST = range(4)  # rows of `links`


@kernel
def nearest_neighbour(w, b):
    """Drives to the nearest customer that fits; returns if none does, and with several trips leaves again."""
    clear(w, b)
    here, load, length, m = 0, 0.0, 0.0, 1
    while True:
        j = nearest_that_fits(w, b, here, load, length, False)
        if j > 0:
            length += w.d[here, j]
            load += w.weight[b, j]
            serve(w, b, j)
        elif here == 0:
            break
        else:
            j, load, length = 0, 0.0, 0.0
        w.seq[m] = j
        m += 1
        here = j
        if here == 0 and not w.multi:
            break
    w.seq[m] = 0
    w.count[LENGTH] = m + 1
    refresh(w, b)


@kernel
def serve(w, b, j):
    """Marks customer j as served and updates the reserve."""
    w.served[j] = True
    if w.required[b, j] and w.amount[OWED] > 0.0:
        w.amount[OWED] = owed(w, b)


@kernel
def nearest_that_fits(w, b, here, load, length, only_required):
    found, shortest = 0, np.inf
    for j in range(1, w.n_nodes[b]):
        if not w.served[j] and w.d[here, j] < shortest and (w.required[b, j] or not only_required):
            if is_open(w, b, here, load, length, j):
                found, shortest = j, w.d[here, j]
    return found


@kernel
def is_open(w, b, here, load, length, j):
    """True if customer j fits, and the trip via j and home is within its limit."""
    return room_for(w, b, j, load) and within(length + w.d[here, j] + w.d[j, 0], w.max_length[b])


@kernel
def insertion(w, b, rule, greedy):
    """Inserts required customers, then optional ones: all that fit, or if greedy those that pay."""
    # The kernels start at node 0, so another start is swapped with it. Only distances are swapped, since the nodes of
    # a circular tour have neither weight nor gain.
    start = remotest(w, b) if w.circular and rule == FARTHEST else 0
    swap_names(w, b, start)
    clear(w, b)
    for j in range(1, w.n_nodes[b]):
        w.near[j] = w.d[0, j]
        w.wanted[j] = w.required[b, j]
    insert_wanted(w, b, rule, False)
    again = True
    while again:
        for j in range(1, w.n_nodes[b]):
            w.wanted[j] = not w.required[b, j] and not w.served[j]
        # A customer may pay once the plan has come nearer, so the rest is retried until no insertion pays. CHEAPEST
        # tests all of them after each insertion and needs no second round.
        again = insert_wanted(w, b, rule, greedy) and greedy and rule != CHEAPEST
    if start != 0:
        swap_names(w, b, start)
        rotate_to_zero(w, b, start)


@kernel
def insert_wanted(w, b, rule, greedy):
    """Inserts wanted customers in the order of the rule at their cheapest place; True if any was inserted."""
    any_inserted = False
    while True:
        j, p, extra = 0, -1, 0.0
        if rule == CHEAPEST:
            j, p, extra = most_valuable(w, b)
        else:
            j = next_wanted(w, b, rule)
            if j > 0:
                p, extra = best_place(w, b, j)
        if j == 0:
            return any_inserted
        w.wanted[j] = False
        pays = w.gain[b, j] - w.price * extra > w.amount[TINY]
        if greedy and rule == CHEAPEST and not pays:
            return any_inserted
        if p >= 0 and (pays or not greedy):
            insert_after(w, b, p, j)
            any_inserted = True
            for k in range(1, w.n_nodes[b]):
                w.near[k] = min(w.near[k], w.d[j, k])


@kernel
def next_wanted(w, b, rule):
    """The wanted customer nearest to the plan, farthest from it, or of the lowest index; 0 if none is left."""
    found = 0
    for j in range(1, w.n_nodes[b]):
        if w.wanted[j]:
            if found == 0:
                found = j
                if rule == RANDOM:
                    break
            elif (rule == NEAREST and w.near[j] < w.near[found]) or (rule == FARTHEST and w.near[j] > w.near[found]):
                found = j
    return found


@kernel
def most_valuable(w, b):
    """The wanted customer that adds most value, its place and its extra length; 0 if none fits."""
    found, place, way, most = 0, -1, 0.0, -np.inf
    for j in range(1, w.n_nodes[b]):
        if w.wanted[j]:
            p, extra = best_place(w, b, j)
            if p >= 0 and w.gain[b, j] - w.price * extra > most:
                found, place, way, most = j, p, extra, w.gain[b, j] - w.price * extra
    return found, place, way


@kernel
def remotest(w, b):
    """The node with the largest distance to any other."""
    found, most = 0, -1.0
    for i in range(w.n_nodes[b]):
        for j in range(w.n_nodes[b]):
            if w.d[i, j] > most:
                found, most = i, w.d[i, j]
    return found


@kernel
def swap_names(w, b, start):
    """Swaps node 0 and another in the distances; self-inverse."""
    if start != 0:
        for j in range(w.n_nodes[b]):
            w.d[0, j], w.d[start, j] = w.d[start, j], w.d[0, j]
        for j in range(w.n_nodes[b]):
            w.d[j, 0], w.d[j, start] = w.d[j, start], w.d[j, 0]


@kernel
def rotate_to_zero(w, b, start):
    """Undoes the swap with node `start` in a circular tour and rotates it so that node 0 is first."""
    m = w.count[LENGTH] - 1
    zero = 0
    for p in range(m):
        w.other[p] = start if w.seq[p] == 0 else 0 if w.seq[p] == start else w.seq[p]
        if w.other[p] == 0:
            zero = p
    for p in range(m):
        w.seq[p] = w.other[(zero + p) % m]
    w.seq[m] = 0
    refresh(w, b)


# -- savings ----------------------------------------------------------------------------------------------------------


@kernel
def savings(w, b):
    """One trip for each customer, then merges of trips by the largest saving while the union fits."""
    clear(w, b)
    n = w.n_nodes[b]
    for j in range(1, n):
        w.links[NEXT, j] = 0
        w.links[TRIP, j] = j
        w.links[FIRST, j] = j
        w.links[LAST, j] = j
        # by trip; trip j is that of customer j until it is merged. `refresh` recomputes both at the end
        w.load[j] = w.weight[b, j]
        w.length[j] = w.d[0, j] + w.d[j, 0]
        w.wanted[j] = within(w.load[j], w.capacity[b]) and within(w.length[j], w.max_length[b])
    size = list_savings(w, n)
    # An in-place heap: a sort would allocate, which kernels must not.
    for k in range(size // 2 - 1, -1, -1):
        sift(w, k, size)
    while size > 0:
        merge(w, b, w.pairs[0] // w.N, w.pairs[0] % w.N, w.keys[0])
        size -= 1
        w.keys[0] = w.keys[size]
        w.pairs[0] = w.pairs[size]
        sift(w, 0, size)
    write_trips(w, b, n)


@kernel
def list_savings(w, n):
    size = 0
    for i in range(1, n):
        for j in range(1, n):
            # With symmetric distances a pair saves the same in either order, and `merge` reverses trips as needed.
            if i != j and w.wanted[i] and w.wanted[j] and (i < j or not w.count[SYMMETRIC]):
                saved = w.d[i, 0] + w.d[0, j] - w.d[i, j]
                if saved > 0.0:
                    w.keys[size] = saved
                    w.pairs[size] = i * w.N + j
                    size += 1
    return size


@kernel
def before(w, i, j):
    """True if entry i of the heap precedes entry j: the larger saving, then the lower pair."""
    return w.keys[i] > w.keys[j] or (w.keys[i] == w.keys[j] and w.pairs[i] < w.pairs[j])


@kernel
def sift(w, k, size):
    while True:
        top = k
        for child in range(2 * k + 1, min(2 * k + 3, size)):
            if before(w, child, top):
                top = child
        if top == k:
            return
        w.keys[k], w.keys[top] = w.keys[top], w.keys[k]
        w.pairs[k], w.pairs[top] = w.pairs[top], w.pairs[k]
        k = top


@kernel
def merge(w, b, i, j, saved):
    """Merges the trip that ends with i and the one that begins with j, if they exist and their union fits."""
    s, t = w.links[TRIP, i], w.links[TRIP, j]
    if s == t or not within(w.load[s] + w.load[t], w.capacity[b]):
        return
    # The length of the union, provided that i ends one trip and j begins the other, which is ensured below. Reversal
    # keeps lengths, since it is used with symmetric distances only.
    if not within(w.length[s] + w.length[t] - saved, w.max_length[b]):
        return
    if w.count[SYMMETRIC]:
        if w.links[LAST, s] != i and w.links[FIRST, s] == i:
            reverse_trip(w, s)
        if w.links[FIRST, t] != j and w.links[LAST, t] == j:
            reverse_trip(w, t)
    if w.links[LAST, s] != i or w.links[FIRST, t] != j:
        return
    w.links[NEXT, i] = j
    w.links[LAST, s] = w.links[LAST, t]
    w.load[s] += w.load[t]
    w.length[s] += w.length[t] - saved
    while j != 0:
        w.links[TRIP, j] = s
        j = w.links[NEXT, j]


@kernel
def reverse_trip(w, t):
    previous, j = 0, w.links[FIRST, t]
    w.links[FIRST, t], w.links[LAST, t] = w.links[LAST, t], j
    while j != 0:
        following = w.links[NEXT, j]
        w.links[NEXT, j] = previous
        previous, j = j, following


@kernel
def write_trips(w, b, n):
    m = 1
    for j in range(1, n):
        t = w.links[TRIP, j]
        if w.wanted[j] and w.links[FIRST, t] == j:
            while j != 0:
                w.seq[m] = j
                m += 1
                j = w.links[NEXT, j]
            w.seq[m] = 0
            m += 1
    w.seq[m] = 0
    w.count[LENGTH] = m + 1
    refresh(w, b)
