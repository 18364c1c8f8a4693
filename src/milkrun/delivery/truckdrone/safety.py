"""The masks of truck and drones.

Under the sound rules every allowed move leaves enough battery to catch a truck that flees in a straight line, so no
drone ever crashes. A truck on roads moves no farther in a step, so the same reserve is enough.

Proof: a move is allowed only if the remaining battery pays for the chase from its end, with the truck fleeing in the
same step. A step of RETURN costs at most one stride and shortens the chase by at least one step. So the need falls by
at least the energy spent, and RETURN stays affordable until the drone boards."""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.flight import (
    CRASHED,
    DELIVER,
    EPS,
    HOVER,
    MOVE,
    NEAR,
    ONBOARD,
    PUBLISHED_MARGIN,
    RETURN,
    carried_elsewhere,
    distance,
    load,
    to_truck,
)


@kernel
def chase(w, gap):
    """The steps of RETURN until a drone catches a fleeing truck."""
    # After k steps the gap has shrunk by k gains. The drone boards when it is in reach before the truck moves, so the
    # truck's last stride does not count. EPS keeps exact multiples from rounding up.
    ahead = gap - w.truck_stride - w.recovery_threshold
    gain = w.drone_stride - w.truck_stride
    if gain <= 0.0:
        return 1.0 if ahead <= 0.0 else math.inf
    return max(1.0, math.ceil(ahead / gain - EPS))


@kernel(inline=True)
def rate_under(w, parcel):
    """Battery for a unit of distance under this load."""
    return w.battery_rate * (1 + w.payload_factor * parcel)


@kernel(inline=True)
def need(w, gap, rate):
    """Battery for the worst return from this gap."""
    return w.battery_margin * rate * w.drone_stride * chase(w, gap)


@kernel
def safe_hover(w, b, q, d, gap):
    if not w.safe:
        return True
    parcel = load(w, b, q, d)
    left = w.battery[b, d] - w.hover_energy * (1 + w.payload_factor * parcel)
    return left >= need(w, gap + w.truck_stride, rate_under(w, parcel)) + EPS


@kernel
def safe_deliver(w, b, q, d, c, t):
    """True if a drone that flies towards c now with its parcel could still return afterwards."""
    if not w.safe:
        return True
    x, y = w.drone_pos[b, d, 0], w.drone_pos[b, d, 1]
    cx, cy = w.customer_pos[q, c, 0], w.customer_pos[q, c, 1]
    parcel = w.demand[q, c]
    dx, dy = cx - x, cy - y
    way = math.sqrt(dx * dx + dy * dy)
    # The operations of `travel` in the same order, so that the check equals the step bit by bit.
    energy = w.hover_energy * (1 + w.payload_factor * parcel)
    if way > NEAR:
        s = min(w.drone_stride, way)
        x += dx / way * s
        y += dy / way * s
        energy = s * w.battery_rate * (1 + w.payload_factor * parcel)
    # After a delivery the drone returns empty. Without reservations another drone may deliver first.
    rate = rate_under(w, parcel)
    if w.reserve and hands_over(w, q, c, distance(x, y, cx, cy), t + 1):
        rate = w.battery_rate
    gap = distance(x, y, w.truck_pos[b, 0], w.truck_pos[b, 1]) + w.truck_stride
    return w.battery[b, d] - energy >= need(w, gap, rate) + EPS


@kernel(inline=True)
def hands_over(w, q, c, way, t):
    """Sound rules: a carrier this far from its customer delivers in step t."""
    return way <= w.delivery_threshold + EPS and not (w.wait and t < w.tw_start[q, c])


@kernel
def mark_allowed(w, b, q, t):
    """The joint mask after t steps: truck, then each drone."""
    for j in range(1 + w.N):
        w.action_mask[b, j] = True
    if w.R:
        mark_roads(w, b, q)
    # For a release: a drone on board has HOVER only, so it hovers in that step while the truck may drive a stride.
    enough = need(w, w.truck_stride, w.battery_rate) + EPS if w.safe else -math.inf
    for d in range(w.D):
        first = w.T + d * w.K
        for j in range(w.K):
            w.action_mask[b, first + j] = False
        status = w.status[b, d]
        onboard = status == ONBOARD
        in_reach = False
        if onboard or status == CRASHED:
            w.action_mask[b, first + HOVER] = True
        if not onboard:
            gap = to_truck(w, b, d)
            in_reach = gap <= w.reach
            if status != CRASHED:
                if w.sound:
                    mark_drone(w, b, q, d, first, t, gap, in_reach)
                else:
                    mark_drone_as_published(w, b, d, first)
            # only the published rules let the truck recover a wreck
            elif w.sound:
                in_reach = False
        w.action_mask[b, 1 + w.N + d] = onboard and w.battery[b, d] - w.hover_energy >= enough
        w.action_mask[b, 1 + w.N + w.D + d] = in_reach


@kernel
def mark_roads(w, b, q):
    """With road_graph: from a node to its neighbours, on a road to its ends."""
    u, v = w.truck_edge[b, 0], w.truck_edge[b, 1]
    for n in range(w.N):
        w.action_mask[b, MOVE + n] = w.road[q, u, n] if u == v else n in (u, v)


@kernel
def mark_drone(w, b, q, d, first, t, gap, in_reach):
    """An airborne drone under the sound rules."""
    w.action_mask[b, first + HOVER] = safe_hover(w, b, q, d, gap)
    k = w.carrying[b, d]
    if k >= 0:
        on = not w.served[b, k] and safe_deliver(w, b, q, d, k, t)
        w.action_mask[b, first + DELIVER + k] = on
        w.action_mask[b, first + RETURN] = not on
        return
    w.action_mask[b, first + RETURN] = True
    if w.air or in_reach:
        for c in range(w.C):
            if not (w.served[b, c] or w.lost[b, c] or (w.reserve and carried_elsewhere(w, b, d, c))):
                w.action_mask[b, first + DELIVER + c] = safe_deliver(w, b, q, d, c, t)


@kernel
def mark_drone_as_published(w, b, d, first):
    """An airborne drone under the published rules; a carrier whose customer was served by another has HOVER only."""
    k = w.carrying[b, d]
    w.action_mask[b, first + HOVER] = True
    w.action_mask[b, first + RETURN] = k < 0
    for c in range(w.C):
        w.action_mask[b, first + DELIVER + c] = not w.served[b, c] and (k < 0 or k == c)


@kernel
def slack(w, b, q, d):
    """The battery of a drone beyond the worst return, as observed by agents."""
    if w.status[b, d] == CRASHED:
        return 0.0
    if w.status[b, d] == ONBOARD:
        return w.battery[b, d]
    gap = to_truck(w, b, d)
    if w.sound:
        spare = w.battery[b, d] - need(w, gap, rate_under(w, load(w, b, q, d)))
    else:
        spare = w.battery[b, d] - gap * w.battery_rate * PUBLISHED_MARGIN
    return min(1.0, max(-1.0, spare))
