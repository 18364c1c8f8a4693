"""Faults of loaded states and TensorDicts: the rules between state fields.

Bounds are already checked, so no index leaves its row. These rules keep counts right: a parcel is in one place, a truck
between nodes is on a road. `instances` has the rules on places, speeds and amounts.
"""

from __future__ import annotations

from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.flight import CRASHED, ONBOARD, carried_elsewhere, lies_in_a_wreck

AIMS_ABOARD, CARRIES_ABOARD, CARRIED_TWICE, ARRIVED_NEVER, SERVED_NEVER, LOST = range(1, 7)
BOUND_THERE, OFF_THE_GRAPH, BOUND_ELSEWHERE = range(7, 10)
FAULTS = {
    AIMS_ABOARD: ("has_target", "must be False on board, but is {has_target} with status = {status}"),
    CARRIES_ABOARD: ("carrying", "must be -1 on board, but is {carrying} with status = {status}"),
    CARRIED_TWICE: ("carrying", "is {carrying}: another drone has this parcel, or the customer"),
    ARRIVED_NEVER: ("arrival_step", "must be -1, or a step done, counted from 1 to i = {i}, but is {arrival_step}"),
    SERVED_NEVER: ("served", "is {served}, but arrival_step = {arrival_step} says otherwise"),
    LOST: ("lost", "is {lost}; under the sound rules a parcel is lost while a wreck holds it, but status = {status}"),
    BOUND_THERE: ("truck_target", "must be -1 on a node, but truck_node = {truck_node}"),
    OFF_THE_GRAPH: ("truck_edge", "must be the truck's node twice, between nodes ends of a road, but is {truck_edge}"),
    BOUND_ELSEWHERE: ("truck_target", "is no end of the truck's road"),
}
"""Number returned by `fault` -> the field, and the broken rule."""


@kernel
def fault(w, b):
    """The rule that a loaded state breaks, 0 if none."""
    found = fault_of_parcels(w, b)
    for d in range(w.D):
        if found == 0:
            found = fault_of_drone(w, b, d)
    if found == 0 and w.sound:
        found = fault_of_truck(w, b, w.instance_row[b])
    return found


@kernel
def fault_of_parcels(w, b):
    for c in range(w.C):
        came = w.arrival_step[b, c]
        if came == 0 or came > w.i[b]:
            return ARRIVED_NEVER
        if w.served[b, c] != (came > 0):
            return SERVED_NEVER
        if w.lost[b, c] != (w.sound and lies_in_a_wreck(w, b, c)):
            return LOST
    return 0


@kernel
def fault_of_drone(w, b, d):
    c, aboard = w.carrying[b, d], w.status[b, d] == ONBOARD
    if aboard and w.has_target[b, d]:
        return AIMS_ABOARD
    if w.sound and aboard and c >= 0:
        return CARRIES_ABOARD
    taken = c >= 0 and w.status[b, d] != CRASHED and (w.served[b, c] or carried_elsewhere(w, b, d, c))
    return CARRIED_TWICE if w.reserve and taken else 0


@kernel
def fault_of_truck(w, b, q):
    """Sound rules. A truck of speed 0 may have a target and stay on its node."""
    node, target = w.truck_node[b], w.truck_target[b]
    if node >= 0 and target >= 0 and w.truck_stride > 0.0:
        return BOUND_THERE
    if not w.R:
        return 0
    u, v = w.truck_edge[b, 0], w.truck_edge[b, 1]
    if node >= 0:
        return OFF_THE_GRAPH if u != node or v != node else 0
    if u == v or not w.road[q, u, v]:
        return OFF_THE_GRAPH
    return BOUND_ELSEWHERE if target >= 0 and target != u and target != v else 0
