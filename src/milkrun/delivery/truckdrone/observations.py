"""Observations `truck_obs`, `drone_obs` and `state`, in the published form (v1) or as a Markov state (v2).

Vectors are written in order: each `put_...` takes its offset and returns the next one, so the order of the calls is the
layout in the docs. Customer features shared by all agents are computed once, for the truck (v2) or the state (v1), and
copied from there.
"""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.flight import CRASHED, ONBOARD, load
from milkrun.delivery.truckdrone.safety import slack

SIZES = {
    "v1": lambda d, c, n: {"Ft": 5 + 9 * d + 5 * c, "Fd": 8 + 5 * c + 5 * d, "S": 5 + 7 * d + 5 * c},
    "v2": lambda d, c, n: {
        "Ft": 8 + 3 * n + 11 * d + 7 * c,
        "Fd": 14 + 8 * c + 9 * d,
        "S": 7 + 2 * n + d * (10 + c) + 6 * c,
    },
}
"""Lengths of the three vectors by the numbers of drones, customers and nodes."""


@kernel
def update_views(w, b):
    q = w.instance_row[b]
    if w.second_form:
        truck_by_v2(w, b, q)
        for d in range(w.D):
            drone_by_v2(w, b, q, d)
        state_by_v2(w, b, q)
    else:
        state_by_v1(w, b, q)
        truck_by_v1(w, b, q)
        for d in range(w.D):
            drone_by_v1(w, b, q, d)


@kernel(inline=True)
def put_pair(out, k, x, y):
    out[k] = x
    out[k + 1] = y
    return k + 2


@kernel(inline=True)
def put_place(out, k, place):
    out[k] = place[0]
    out[k + 1] = place[1]
    return k + 2


@kernel(inline=True)
def put_from(out, k, place, x, y):
    """A place relative to (x, y)."""
    out[k] = place[0] - x
    out[k + 1] = place[1] - y
    return k + 2


@kernel(inline=True)
def put_over(out, k, velocity, top):
    """A velocity as a share of the top speed."""
    out[k] = velocity[0] / top
    out[k + 1] = velocity[1] / top
    return k + 2


@kernel(inline=True)
def put_one_hot(out, k, size, hot):
    for j in range(size):
        out[k + j] = j == hot
    return k + size


@kernel(inline=True)
def code(status):
    """The number of a status in v1: 0, 0.25, 0.5, and 1 for a wreck."""
    return 1.0 if status == CRASHED else 0.25 * status


@kernel(inline=True)
def share_of(steps, length, low):
    """Steps as a share of the episode, clipped to [low, 1]."""
    return min(1.0, max(low, steps / length))


# -- v1 --------------------------------------------------------------------------------------------------------


@kernel
def state_by_v1(w, b, q):
    out, t = w.state[b], w.i[b]
    k = put_place(out, 0, w.truck_pos[b])
    k = put_place(out, k, w.truck_vel[b])
    for d in range(w.D):
        k = put_place(out, k, w.drone_pos[b, d])
        k = put_place(out, k, w.drone_vel[b, d])
        k = put_pair(out, k, w.battery[b, d], w.carrying[b, d] >= 0)
        out[k] = code(w.status[b, d])
        k += 1
    for c in range(w.C):
        k = put_place(out, k, w.customer_pos[q, c])
        out[k] = w.served[b, c]
        out[k + 1] = 0.0 if w.served[b, c] else share_of(w.tw_end[q, c] - t, w.length, 0.0)
        out[k + 2] = w.demand[q, c]
        k += 3
    out[k] = t / w.length


@kernel(inline=True)
def put_customers_v1(w, b, q, out, k, x, y):
    # offset of the customers in `state`, which is written first
    shared = 4 + 7 * w.D
    for c in range(w.C):
        k = put_from(out, k, w.customer_pos[q, c], x, y)
        for j in range(2, 5):
            out[k + j - 2] = w.state[b, shared + 5 * c + j]
        k += 3
    return k


@kernel
def truck_by_v1(w, b, q):
    out = w.truck_obs[b, 0]
    x, y = w.truck_pos[b, 0], w.truck_pos[b, 1]
    k = put_pair(out, 0, x, y)
    k = put_place(out, k, w.truck_vel[b])
    for d in range(w.D):
        out[k + d] = w.status[b, d] == ONBOARD
    k += w.D
    for d in range(w.D):
        k = put_from(out, k, w.drone_pos[b, d], x, y)
        k = put_place(out, k, w.drone_vel[b, d])
        k = put_pair(out, k, w.battery[b, d], w.carrying[b, d] >= 0)
        out[k] = code(w.status[b, d])
        k += 1
    k = put_customers_v1(w, b, q, out, k, x, y)
    put_one_hot(out, k, w.A, 0)


@kernel
def drone_by_v1(w, b, q, d):
    out = w.drone_obs[b, d]
    x, y = w.drone_pos[b, d, 0], w.drone_pos[b, d, 1]
    k = put_pair(out, 0, x, y)
    k = put_place(out, k, w.drone_vel[b, d])
    k = put_pair(out, k, w.battery[b, d], w.carrying[b, d] >= 0)
    aimed = w.has_target[b, d]
    k = put_pair(out, k, w.target_pos[b, d, 0] if aimed else 0.0, w.target_pos[b, d, 1] if aimed else 0.0)
    out[k] = w.status[b, d] == ONBOARD
    k = put_from(out, k + 1, w.truck_pos[b], x, y)
    k = put_customers_v1(w, b, q, out, k, x, y)
    for other in range(w.D):
        if other != d:
            k = put_from(out, k, w.drone_pos[b, other], x, y)
            k = put_pair(out, k, w.battery[b, other], code(w.status[b, other]))
    put_one_hot(out, k, w.A, 1 + d)


# -- v2 --------------------------------------------------------------------------------------------------------


@kernel(inline=True)
def put_target_node(w, b, q, out, k, x, y):
    """The relative place of the target node, and a flag for having one."""
    n = w.truck_target[b]
    if n < 0:
        k = put_pair(out, k, 0.0, 0.0)
    else:
        k = put_from(out, k, w.route_nodes[q, n], x, y)
    out[k] = n >= 0
    return k + 1


@kernel
def truck_by_v2(w, b, q):
    out, t = w.truck_obs[b, 0], w.i[b]
    x, y = w.truck_pos[b, 0], w.truck_pos[b, 1]
    k = put_pair(out, 0, x, y)
    k = put_over(out, k, w.truck_vel[b], w.truck_top)
    k = put_target_node(w, b, q, out, k, x, y)
    k = put_one_hot(out, k, w.N, w.truck_node[b])
    out[k] = t / w.length
    k += 1
    for n in range(w.N):
        k = put_from(out, k, w.route_nodes[q, n], x, y)
    for d in range(w.D):
        k = put_from(out, k, w.drone_pos[b, d], x, y)
        k = put_over(out, k, w.drone_vel[b, d], w.drone_speed)
        out[k] = w.battery[b, d]
        k = put_one_hot(out, k + 1, 4, w.status[b, d])
        k = put_pair(out, k, load(w, b, q, d), slack(w, b, q, d))
    first = k  # offset of the customers; flags of carried parcels are written afterwards, drone by drone
    for c in range(w.C):
        served = w.served[b, c]
        k = put_from(out, k, w.customer_pos[q, c], x, y)
        out[k] = served
        out[k + 1] = 0.0 if served else share_of(w.tw_start[q, c] - t, w.length, 0.0)
        out[k + 2] = 0.0 if served else share_of(w.tw_end[q, c] - t, w.length, -1.0)
        out[k + 3] = w.demand[q, c]
        out[k + 4] = False
        k += 5
    for d in range(w.D):
        c = w.carrying[b, d]
        if c >= 0 and w.status[b, d] != CRASHED:
            out[first + 7 * c + 6] = True


@kernel
def drone_by_v2(w, b, q, d):
    out, t = w.drone_obs[b, d], w.i[b]
    x, y = w.drone_pos[b, d, 0], w.drone_pos[b, d, 1]
    own = w.carrying[b, d]
    k = put_pair(out, 0, x, y)
    k = put_over(out, k, w.drone_vel[b, d], w.drone_speed)
    k = put_pair(out, k, w.battery[b, d], load(w, b, q, d))
    k = put_one_hot(out, k, 4, w.status[b, d])
    if own < 0:
        k = put_pair(out, k, 0.0, 0.0)
    else:
        k = put_from(out, k, w.customer_pos[q, own], x, y)
    out[k] = own >= 0
    k = put_from(out, k + 1, w.truck_pos[b], x, y)
    k = put_over(out, k, w.truck_vel[b], w.truck_top)
    k = put_target_node(w, b, q, out, k, x, y)
    k = put_pair(out, k, slack(w, b, q, d), t / w.length)
    # customers are the last part of the truck's vector, which is written first
    first, shared = k, w.Ft - 7 * w.C
    for c in range(w.C):
        k = put_from(out, k, w.customer_pos[q, c], x, y)
        for j in range(2, 6):
            out[k + j - 2] = w.truck_obs[b, 0, shared + 7 * c + j]
        out[k + 4] = c == own
        out[k + 5] = False
        k += 6
    for other in range(w.D):
        c = w.carrying[b, other]
        if other != d and c >= 0 and w.status[b, other] != CRASHED:
            out[first + 8 * c + 7] = True
    for other in range(w.D):
        if other != d:
            k = put_from(out, k, w.drone_pos[b, other], x, y)
            out[k] = w.battery[b, other]
            k = put_one_hot(out, k + 1, 4, w.status[b, other])
            out[k] = load(w, b, q, other)
            k += 1
    put_one_hot(out, k, w.D, d)


@kernel
def state_by_v2(w, b, q):
    out = w.state[b]
    k = put_place(out, 0, w.truck_pos[b])
    k = put_over(out, k, w.truck_vel[b], w.truck_top)
    target, node = w.truck_target[b], w.truck_node[b]
    k = put_one_hot(out, k, w.N + 1, target if target >= 0 else w.N)
    k = put_one_hot(out, k, w.N + 1, node if node >= 0 else w.N)
    for d in range(w.D):
        k = put_place(out, k, w.drone_pos[b, d])
        k = put_over(out, k, w.drone_vel[b, d], w.drone_speed)
        out[k] = w.battery[b, d]
        k = put_one_hot(out, k + 1, 4, w.status[b, d])
        k = put_one_hot(out, k, w.C, w.carrying[b, d])
        out[k] = w.forced_phase[b, d]
        k += 1
    for c in range(w.C):
        k = put_place(out, k, w.customer_pos[q, c])
        out[k] = w.served[b, c]
        k = put_pair(out, k + 1, w.tw_start[q, c] / w.length, w.tw_end[q, c] / w.length)
        out[k] = w.demand[q, c]
        k += 1
    out[k] = w.i[b] / w.length
