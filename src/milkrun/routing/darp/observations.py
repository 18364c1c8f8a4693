"""Observations of a dial-a-ride row: features of each node, of the active vehicle and of its day.

Features are scaled to about 1: places by the farthest coordinate, times by the length of the day, riders by the largest
vehicle. Both rules fill the same columns.
"""

from __future__ import annotations

import numpy as np

from milkrun.core.kernels import kernel


@kernel
def clip(x):
    return min(10.0, max(-10.0, x))


@kernel
def farthest(w, q):
    """The largest coordinate relative to the depot."""
    far = 1e-9
    for j in range(w.N):
        for axis in range(2):
            far = max(far, abs(np.float64(w.locs[q, j, axis]) - w.locs[q, 0, axis]))
    return far


@kernel
def describe_node(w, b, q, j, far, day, service, opens, closes, way, start, began):
    """The features of a node; `way` is the time to get there, `start` when service could begin."""
    seats = 1
    for k in range(w.V):
        seats = max(seats, w.capacity[q, k])
    # At the depot p is -1, which is no index: `j > 0` comes first.
    p = j - 1 if j & 1 == 0 else j
    aboard = j > 0 and w.picked_up_by_current[b, p] and not w.visited[b, p + 1]
    out = w.nodes
    out[b, j, 0] = clip((np.float64(w.locs[q, j, 0]) - w.locs[q, 0, 0]) / far)
    out[b, j, 1] = clip((np.float64(w.locs[q, j, 1]) - w.locs[q, 0, 1]) / far)
    out[b, j, 2] = clip(w.demand[q, j] / seats)
    out[b, j, 3] = clip(service / day)
    out[b, j, 4] = clip((opens - began) / day)
    out[b, j, 5] = clip((closes - began) / day)
    out[b, j, 6] = j & 1
    out[b, j, 7] = j > 0 and j & 1 == 0
    out[b, j, 8] = w.visited[b, j]
    out[b, j, 9] = aboard
    out[b, j, 10] = clip(way / day)
    out[b, j, 11] = clip((start - began) / day)
    out[b, j, 12] = clip((closes - start) / day)
    out[b, j, 13] = w.action_mask[b, j]


@kernel
def describe_vehicle(w, b, q, n, clock, aboard, route):
    """The features of the active vehicle and of the day; padding counts neither as vehicle nor as request."""
    fleet = over = done = 0
    for k in range(w.V):
        if w.capacity[q, k] > 0:
            fleet += 1
            over += w.vehicle_finished[b, k]
    for j in range(2, n, 2):
        done += w.visited[b, j]
    out = w.vehicle
    out[b, 0] = clip(clock)
    out[b, 1] = clip(w.current_load[b] / w.capacity[q, w.current_agent[b]])
    out[b, 2] = clip(aboard)
    out[b, 3] = clip(route)
    out[b, 4] = clip(over / fleet)
    out[b, 5] = clip(done / (n // 2))
    out[b, 6] = clip(w.i[b] / w.max_steps)
