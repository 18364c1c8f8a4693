"""Local search as kernels: 2-opt, or-opt, moves between trips, and the choice of customers.

A neighbourhood is a function of a position (or customer) i that applies the best improving change there, if any.
`descend` repeats the chosen neighbourhoods until none improves the plan.
References: Croes 1958 (2-opt); Or 1976 (segments of up to three); Savelsbergh 1992 (relocate, exchange).
"""

from __future__ import annotations

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.solvers.tours import (
    LENGTH,
    OWED,
    TINY,
    best_place,
    insert_after,
    refresh,
    remove_between,
    within,
)

MOVES = 6
TWO_OPT, OR_OPT, RELOCATE, SWAP, JOIN, LEAVE = range(MOVES)
LONGEST_SEGMENT = 3


@kernel
def descend(w, b, moves):
    """Improves the plan until none of the moves (bit set) helps and no required customer fits."""
    changed = True
    while changed:
        changed = False
        for move in range(MOVES):
            if moves >> move & 1:
                changed |= sweep(w, b, move)
    admit_required(w, b)


@kernel
def sweep(w, b, move):
    """Applies one neighbourhood at every position until a full round changes nothing."""
    changed = False
    quiet, i = 0, 0
    while quiet < (w.n_nodes[b] if move == JOIN else w.count[LENGTH]):
        if i >= (w.n_nodes[b] if move == JOIN else w.count[LENGTH]):
            i = 0
        if improve_at(w, b, move, i):
            changed = True
            quiet = 0
        else:
            quiet += 1
            i += 1
    return changed


@kernel
def improve_at(w, b, move, i):
    if move == TWO_OPT:
        return two_opt(w, b, i)
    if move == OR_OPT:
        return move_segment(w, b, i, False)
    if move == RELOCATE:
        return move_segment(w, b, i, True)
    if move == SWAP:
        return swap(w, b, i)
    if move == JOIN:
        return join(w, b, i)
    return leave(w, b, i)


@kernel
def two_opt(w, b, i):
    """Reverses the positions after i, up to the position of its trip that shortens it most."""
    m = w.count[LENGTH]
    # TINY is in units of value, changes here are in units of length. A trip that gets shorter keeps its limits, which
    # need no test.
    chosen, least = -1, -w.amount[TINY] / w.price
    if i + 1 < m and w.seq[i + 1] != 0:
        j = i + 2
        # `seq` ends with 0, which stops the scan
        while w.seq[j] != 0:
            change = w.d[w.seq[i], w.seq[j]] + w.d[w.seq[i + 1], w.seq[j + 1]]
            change -= w.d[w.seq[i], w.seq[i + 1]] + w.d[w.seq[j], w.seq[j + 1]]
            # the reversed segment: prefix sums in both directions give its change in one difference
            change += (w.back[j] - w.back[i + 1]) - (w.ahead[j] - w.ahead[i + 1])
            if change < least:
                chosen, least = j, change
            j += 1
    if chosen < 0:
        return False
    first, last = i + 1, chosen
    while first < last:
        w.seq[first], w.seq[last] = w.seq[last], w.seq[first]
        first += 1
        last -= 1
    refresh(w, b)
    return True


@kernel
def move_segment(w, b, i, between_trips):
    """Moves up to three customers from position i on to a better place, reversed if that helps.

    The place is in their own trip, or with `between_trips` in another one.
    """
    m = w.count[LENGTH]
    if i < 1 or i >= m or w.seq[i] == 0:
        return False
    t = w.trip[i]
    last, place, turned, least = -1, -1, False, -w.amount[TINY] / w.price
    weight = 0.0
    for size in range(1, LONGEST_SEGMENT + 1):
        j = i + size - 1
        if w.seq[j] == 0:
            break
        weight += w.weight[b, w.seq[j]]
        head, tail = w.seq[i], w.seq[j]
        a, c = w.seq[i - 1], w.seq[j + 1]
        forth, back = w.ahead[j] - w.ahead[i], w.back[j] - w.back[i]
        taken = w.d[a, c] - w.d[a, head] - forth - w.d[tail, c]
        # without the triangle inequality a trip may get longer by losing customers
        if between_trips and not within(w.length[t] + taken, w.max_length[b]):
            continue
        for p in range(m - 1):
            s = w.trip[p]
            # legs i-1..j belong to the segment
            if (s != t) != between_trips or (i - 1 <= p <= j):
                continue
            e, f = w.seq[p], w.seq[p + 1]
            straight = w.d[e, head] + forth + w.d[tail, f] - w.d[e, f]
            round_about = w.d[e, tail] + back + w.d[head, f] - w.d[e, f]
            given = min(straight, round_about)
            if taken + given < least:
                if between_trips and not within(w.load[s] + weight, w.capacity[b]):
                    continue
                if between_trips and not within(w.length[s] + given, w.max_length[b]):
                    continue
                last, place, turned, least = j, p, round_about < straight, taken + given
    if last < 0:
        return False
    shift_segment(w, i, last, place, turned)
    refresh(w, b)
    return True


@kernel
def shift_segment(w, i, j, place, turned):
    """Moves the positions i..j after position `place`."""
    m = w.count[LENGTH]
    k = 0
    for p in range(m):
        if p < i or p > j:
            w.other[k] = w.seq[p]
            k += 1
        if p == place:
            for s in range(j - i + 1):
                w.other[k] = w.seq[j - s] if turned else w.seq[i + s]
                k += 1
    for p in range(m):
        w.seq[p] = w.other[p]


@kernel
def swap(w, b, i):
    """Exchanges the customer at position i with the one of another trip that shortens the plan most."""
    m = w.count[LENGTH]
    if i < 1 or i >= m or w.seq[i] == 0:
        return False
    chosen, least = -1, -w.amount[TINY] / w.price
    x, t = w.seq[i], w.trip[i]
    a, c = w.seq[i - 1], w.seq[i + 1]
    # Starts after i, since earlier pairs were tried from the other side. Trips are separated by 0, so the customers are
    # never adjacent and no leg changes twice.
    for k in range(i + 1, m):
        y, s = w.seq[k], w.trip[k]
        if y == 0 or s == t:
            continue
        e, f = w.seq[k - 1], w.seq[k + 1]
        here = w.d[a, y] + w.d[y, c] - w.d[a, x] - w.d[x, c]
        there = w.d[e, x] + w.d[x, f] - w.d[e, y] - w.d[y, f]
        if here + there < least:
            more = w.weight[b, y] - w.weight[b, x]
            if within(w.load[t] + more, w.capacity[b]) and within(w.load[s] - more, w.capacity[b]):
                if within(w.length[t] + here, w.max_length[b]) and within(w.length[s] + there, w.max_length[b]):
                    chosen, least = k, here + there
    if chosen < 0:
        return False
    w.seq[i], w.seq[chosen] = w.seq[chosen], w.seq[i]
    refresh(w, b)
    return True


@kernel
def join(w, b, j):
    """Inserts customer j where it fits and pays, or in place of a less valuable customer."""
    if j < 1 or w.served[j]:
        return False
    must = w.required[b, j]
    place, extra = best_place(w, b, j)
    gained = w.gain[b, j] - w.price * extra if place >= 0 else -np.inf
    best, instead = w.amount[TINY], -1
    for p in range(1, w.count[LENGTH] - 1):
        x, t = w.seq[p], w.trip[p]
        if x == 0 or w.required[b, x]:
            continue
        a, c = w.seq[p - 1], w.seq[p + 1]
        change = w.d[a, j] + w.d[j, c] - w.d[a, x] - w.d[x, c]
        better = w.gain[b, j] - w.gain[b, x] - w.price * change
        # A required customer that fits nowhere first replaces any optional one at any price; later candidates must be
        # better.
        if (better > best and better > gained) or (must and place < 0 and instead < 0):
            kept = 0.0 if must else w.amount[OWED]
            if within(w.load[t] - w.weight[b, x] + w.weight[b, j] + kept, w.capacity[b]):
                if within(w.length[t] + change, w.max_length[b]):
                    best, instead = better, p
    if instead >= 0:
        w.seq[instead] = j
        refresh(w, b)
        return True
    if place >= 0 and (must or gained > w.amount[TINY]):
        insert_after(w, b, place, j)
        return True
    return False


@kernel
def leave(w, b, i):
    """Drops the customer at position i if its detour costs more than its gain; at a depot, the whole next trip."""
    if i + 1 >= w.count[LENGTH]:
        return False
    if w.seq[i] == 0:
        return leave_trip(w, b, i)
    a, x, c = w.seq[i - 1], w.seq[i], w.seq[i + 1]
    saved = w.d[a, x] + w.d[x, c] - w.d[a, c]
    if w.required[b, x] or w.price * saved - w.gain[b, x] <= w.amount[TINY]:
        return False
    if not within(w.length[w.trip[i]] - saved, w.max_length[b]):
        return False
    remove_between(w, b, i, i)
    return True


@kernel
def leave_trip(w, b, i):
    worth = -w.price * w.length[w.trip[i]]
    j = i + 1
    while w.seq[j] != 0:
        if w.required[b, w.seq[j]]:
            return False
        worth += w.gain[b, w.seq[j]]
        j += 1
    if j == i + 1 or worth >= -w.amount[TINY]:
        return False
    remove_between(w, b, i + 1, j - 1)
    return True


@kernel
def admit_required(w, b):
    """Inserts required customers that fit now, since a tour may not end while one could be served."""
    changed = True
    while changed:
        changed = False
        for j in range(1, w.n_nodes[b]):
            if w.required[b, j] and not w.served[j]:
                place, _ = best_place(w, b, j)
                if place >= 0:
                    insert_after(w, b, place, j)
                    changed = True
