"""The rules of a truck in the profit and waste worlds, as kernels shared by their masks and steps.

Each world defines the gain and the weight of a customer; the CVRP uses the kernels of the trip limit only. Weights and
mandatory customers are passed with their row, since some worlds keep them in the instance (row q), others in the state
(row b).
"""

from __future__ import annotations

import math

import numpy as np

from milkrun.core.kernels import eight_flags, kernel, lowest_bit
from milkrun.routing.distance import TOL, fits, travel
from milkrun.routing.vehicle import ON_PADDING, OVERLOADED, clear_record, is_on_padding

NO_FLAG, ONE_FLAG = np.uint64(0), np.uint64(1)
GATHER, TOP_BYTE = np.uint64(0x0102040810204080), np.uint64(56)
"""Packs a word of eight byte flags into its top byte by multiplication, the first flag lowest. Flag k, at bit 8 k,
meets the one bit of GATHER that moves it to bit 56 + k; no two products overlap, so nothing carries."""


@kernel
def set_out(w, b):
    """Resets all but the mask: an empty truck at the depot, no customer served."""
    q = w.instance_row[b]
    for j in range(w.N):
        w.visited[b, j] = False
    w.current_node[b] = 0
    w.tour_length[b] = 0
    w.length[b] = 0
    w.collected[b] = 0
    w.trips[b] = 0
    w.skipped[b] = w.n_nodes[q] - 1
    unload(w, b)


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none.

    A load may exceed the capacity by the tolerance of each addition.
    """
    if is_on_padding(w, b):
        return ON_PADDING
    capacity = np.float64(w.capacity[w.instance_row[b]])
    return OVERLOADED if w.load[b] > capacity + 2.0 * TOL * max(1.0, capacity) else 0


@kernel
def begin_tour(w, b):
    """Starts a tour of one day: an empty record, and the mandatory customers counted."""
    set_out(w, b)
    clear_record(w, b)
    w.missed_must_go[b] = count_must_go(w, b, w.must_go, w.instance_row[b])


@kernel
def count_must_go(w, b, must, s):
    n = w.n_nodes[w.instance_row[b]]
    total = 0
    for j in range(1, n):
        total += must[s, j]
    return total


@kernel(inline=True)
def unload(w, b):
    """Empties the truck at the depot: a new trip, and with windows a new clock."""
    w.load[b] = 0
    w.trip_length[b] = 0
    if w.U > 0:
        w.current_time[b, 0] = 0


@kernel(inline=True)
def drive(w, b, q, node):
    """Drives to a node and returns the length of the leg."""
    here = w.current_node[b]
    leg = travel(w, q, here, node)
    w.tour_length[b] = w.tour_length[b] + leg
    w.trip_length[b] = w.trip_length[b] + leg
    w.length[b] = w.tour_length[b]
    w.current_node[b] = node
    if w.U > 0:
        w.current_time[b, 0] = 0.0 if node == 0 else ready(w, b, q, here, node)
    return leg


@kernel(inline=True)
def ends_tour(w, b, was_out):
    """At the depot: True if the tour is over; with several trips a truck that was out is emptied instead."""
    w.trips[b] += was_out
    if w.multi and was_out:
        unload(w, b)
        return False
    return True


@kernel(inline=True)
def take(w, b, node, gain, weight, must):
    """Serves a customer."""
    w.collected[b] = np.float64(w.collected[b]) + gain
    w.load[b] = np.float64(w.load[b]) + weight
    w.visited[b, node] = True
    w.skipped[b] -= 1
    w.missed_must_go[b] -= must


@kernel(inline=True)
def room_left(capacity, load):
    """The free capacity: weight <= room_left is fits(load + weight, capacity)."""
    return capacity + min(0.5, TOL * max(1.0, abs(capacity))) - load


@kernel(inline=True)
def free_room(w, b, q):
    """The free capacity of the truck."""
    return room_left(np.float64(w.capacity[q]), np.float64(w.load[b]))


@kernel(inline=True)
def below32(x):
    """The largest float32 that is not above x.

    Comparing float32 numbers with it is comparing them with x. The loop over nodes then need not widen every weight
    to 64 bits, which would halve the width of its vector instructions.
    """
    y = np.float32(x)
    return y if np.float64(y) <= x else np.nextafter(y, np.float32(-np.inf))


@kernel(inline=True)
def mark_allowed(w, b, weight, r, must, s, room):
    """Opens the unvisited customers that fit truck, trip, windows and reserve, then the depot.

    The first loop has no branch and so vectorises. Rules that need a distance for each node follow in separate loops,
    which run only if the instance has such a limit.
    """
    q = w.instance_row[b]
    n = w.n_nodes[q]
    # An optional customer must leave the reserve free, a mandatory one may use it.
    most = below32(room)
    kept = reserve(w, b, q, weight, r, must, s) if w.reserves and not w.multi and room < math.inf else 0.0
    spare = below32(room - kept)
    for j in range(n):
        fits_in = (weight[r, j] <= spare) | (must[s, j] & (weight[r, j] <= most))
        w.action_mask[b, j] = (not w.visited[b, j]) & fits_in
    for j in range(n, w.N):
        w.action_mask[b, j] = False
    if w.max_length[q] < math.inf:
        for j in range(1, n):
            w.action_mask[b, j] &= short_enough(w, b, q, j)
    if w.U > 0:
        for j in range(1, n):
            w.action_mask[b, j] &= on_time(w, b, q, j)
    # Last, as it reads the flags of the customers.
    w.action_mask[b, 0] = may_go_home(w, b, n, must, s)


@kernel
def short_enough(w, b, q, j):
    """The trip via customer j and home stays within its limit."""
    return fits(w.trip_length[b] + travel(w, q, w.current_node[b], j) + travel(w, q, j, 0), w.max_length[q])


@kernel
def on_time(w, b, q, j):
    """The truck reaches customer j before its window closes, and from there the depot before the depot closes."""
    here = w.current_node[b]
    arrival = w.current_time[b, 0] + travel(w, q, here, j) / w.speed[q, 0]
    home = ready(w, b, q, here, j) + travel(w, q, j, 0) / w.speed[q, 0]
    return fits(arrival, w.time_windows[q, j, 1]) and fits(home, w.time_windows[q, 0, 1])


@kernel
def ready(w, b, q, here, j):
    """The end of service at customer j: arrival, waiting for the window, service."""
    arrival = w.current_time[b, 0] + travel(w, q, here, j) / w.speed[q, 0]
    return max(arrival, np.float64(w.time_windows[q, j, 0])) + w.service_time[q, j]


@kernel(inline=True)
def reserve(w, b, q, weight, r, must, s):
    """The reserve: the weight of the unserved mandatory customers that a trip can reach."""
    n = np.int64(w.n_nodes[q])
    limited = w.max_length[q] < math.inf
    kept = 0.0
    # Words of 64 flags. Bit 0 is the depot, which is never mandatory.
    for first in range(0, n, 64):
        waiting = still_to_come(w, b, must, s, first, min(n, first + 64))
        while waiting != NO_FLAG:
            j = first + lowest_bit(waiting)
            if not limited or reachable(w, q, j):
                kept += weight[r, j]
            # Clears the lowest bit that is set.
            waiting &= waiting - ONE_FLAG
    return kept


@kernel(inline=True)
def still_to_come(w, b, must, s, first, last):
    """The unserved mandatory customers among up to 64 nodes, a bit each.

    Flags are bytes, so eight are read as one word (see GATHER). Usually few are set, and the caller visits the set bits
    instead of every node.
    """
    waiting = NO_FLAG
    j = first
    while j + 8 <= last:
        flags = eight_flags(must, s, j) & ~eight_flags(w.visited, b, j)
        waiting |= ((flags * GATHER) >> TOP_BYTE) << np.uint64(j - first)
        j += 8
    while j < last:
        waiting |= np.uint64(must[s, j] & (not w.visited[b, j])) << np.uint64(j - first)
        j += 1
    return waiting


@kernel
def reachable(w, q, j):
    """A trip to customer j alone is within the limit."""
    limit = w.max_length[q]
    return not limit < math.inf or fits(travel(w, q, 0, j) + travel(w, q, j, 0), limit)


@kernel(inline=True)
def may_go_home(w, b, n, must, s):
    """A return to empty the truck is always allowed; ending the tour needs that no mandatory customer is open."""
    if w.multi and w.current_node[b] != 0:
        return True
    open_ones = NO_FLAG  # no early exit: its branch would be mispredicted half of the time
    j = 1
    while j + 8 <= n:
        open_ones |= eight_flags(must, s, j) & eight_flags(w.action_mask, b, j)
        j += 8
    while j < n:
        open_ones |= np.uint64(must[s, j] & w.action_mask[b, j])
        j += 1
    return open_ones == NO_FLAG


@kernel(inline=True)
def any_customer(w, b):
    j = 1
    while j + 8 <= w.N:
        if eight_flags(w.action_mask, b, j) != NO_FLAG:
            return True
        j += 8
    while j < w.N:
        if w.action_mask[b, j]:
            return True
        j += 1
    return False


@kernel
def detour_fits(w, b, j, row):
    return b != row or short_enough(w, b, w.instance_row[b], j)


@kernel
def in_time(w, b, j, row):
    return b != row or on_time(w, b, w.instance_row[b], j)
