"""Validates loaded states: the invariants that kernels rely on beyond the declared bounds of fields.

It applies to saved states and TensorDicts, after the checks for finite numbers and declared bounds.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.tracking.tables import AMBIENT, FLAKE_SHARE, FOG, GAIN, SIGMA, SUN_X, SUN_Y, SUN_Z
from milkrun.tracking.traffic import straight

(NO_EDGE, NO_WAY, BEYOND, NO_OWNER, HORIZON, SUNK, WRONG_LIGHT, MISCOUNTED, OVERDUE, WRONG_SUMS, AWAY, WRONG_PAST) = (
    range(1, 13)
)
FAULTS = {
    NO_EDGE: ("veh_edge", "names an edge that this town does not have: edges are 0..n_edge-1"),
    NO_WAY: (
        "veh_to",
        "must be an edge that follows veh_edge, one of the edge_ways in edge_next, or veh_edge itself where none does",
    ),
    BEYOND: (
        "veh_s",
        "lies beyond the straight part of its edge, edge_len less edge_cut, or while veh_turning beyond "
        "1, the end of a curve",
    ),
    NO_OWNER: (
        "node_owner",
        "names a vehicle that is not there (n_veh, veh_on), or holds a node that this town does not have (n_node)",
    ),
    HORIZON: ("pitch", "the picture would reach the horizon: it must look down more steeply than half its height"),
    SUNK: ("pos", "the drone of a row that has not ended (terminated, truncated) must be above the ground"),
    WRONG_LIGHT: (
        "light",
        "must be a gain of 0 or more, an ambient share and a share of flakes in 0..1, a sun of "
        "length 1 and at least 0.05 high, fog and noise of 0 or more",
    ),
    MISCOUNTED: (
        "sim_step",
        "must be agent_step times the sim steps of an agent step in a row that has not ended "
        "(terminated, truncated), agent_step the same as i, and lost_steps no more than sim_step",
    ),
    OVERDUE: ("sim_step", "has reached max_sim_steps in a row that has not ended (terminated, truncated)"),
    WRONG_SUMS: ("tsr_sum", "and cr_sum cannot be more than the agent steps played, agent_step"),
    AWAY: ("veh_on", "a vehicle behind n_veh cannot be on the road"),
    WRONG_PAST: ("past", "must have whole agent steps, none after agent_step"),
}
"""By the code that `fault` returns: the field at fault and the rule."""

SLACK = 1e-5
"""Tolerance of rounding, in m and in shares."""
LOW_SUN = 0.05
"""The least z of the sun; a lower sun would cast endless shadows."""


@kernel
def follows(w, q, e, f):
    """Whether edge f may follow edge e; the last edge of a road is followed by itself."""
    for k in range(w.edge_ways[q, e]):
        if w.edge_next[q, e, k] == f:
            return True
    return w.edge_ways[q, e] == 0 and f == e


@kernel
def traffic_fault(w, b, q):
    """The code of a fault in the vehicles and the junctions that they hold; 0: none."""
    for v in range(w.V):
        if w.veh_on[b, v]:
            e = w.veh_edge[b, v]
            if v >= w.n_veh[b]:
                return AWAY
            if e >= w.n_edge[q]:
                return NO_EDGE
            if not follows(w, q, e, w.veh_to[b, v]):
                return NO_WAY
            if w.veh_s[b, v] > (1.0 if w.veh_turning[b, v] else straight(w, q, e)) + SLACK:
                return BEYOND
    for n in range(w.N):
        v = w.node_owner[b, n]
        if v >= w.n_veh[b] or (v >= 0 and n >= w.n_node[q]):
            return NO_OWNER
        if v >= 0 and not w.veh_on[b, v]:
            return NO_OWNER
    return 0


@kernel
def light_fault(w, b):
    """The code of a fault in the light; 0: none."""
    sun = w.light[b, SUN_X] ** 2 + w.light[b, SUN_Y] ** 2 + w.light[b, SUN_Z] ** 2
    fine = w.light[b, GAIN] >= 0.0 and w.light[b, FOG] >= 0.0 and w.light[b, SIGMA] >= 0.0
    fine = fine and 0.0 <= w.light[b, AMBIENT] <= 1.0 and 0.0 <= w.light[b, FLAKE_SHARE] <= 1.0
    return 0 if fine and abs(sun - 1.0) < SLACK and w.light[b, SUN_Z] >= LOW_SUN else WRONG_LIGHT


@kernel
def count_fault(w, b):
    """The code of a fault in the clocks and sums of a row that has not ended; 0: none."""
    steps = w.agent_step[b]
    if w.sim_step[b] >= w.max_sim_steps:
        return OVERDUE
    if w.i[b] != steps or w.sim_step[b] != steps * w.n_sub or w.lost_steps[b] > w.sim_step[b]:
        return MISCOUNTED
    most = steps + SLACK
    return WRONG_SUMS if w.cr_sum[b] > most or w.tsr_sum[b] > most else 0


@kernel
def past_fault(w, b):
    """The code of a fault in the steps of past pictures, which index the draws of camera noise; 0: none."""
    for h in range(w.H):
        step = w.past[b, h, 4]
        if step < 0.0 or step > w.agent_step[b] or step != math.floor(step):
            return WRONG_PAST
    return 0


@kernel
def fault(w, b):
    """The code of the rule that a loaded state breaks; 0: none."""
    code = traffic_fault(w, b, w.instance_row[b])
    if code == 0:
        code = light_fault(w, b)
    if code == 0:
        code = past_fault(w, b)
    # tan(pitch) > tan_v without a division: the field allows pitches up to 1.6, beyond the right angle, where the lower
    # edge of the picture approaches the horizon.
    if code == 0 and math.sin(w.pitch[b]) <= w.tan_v * abs(math.cos(w.pitch[b])):
        code = HORIZON
    if code == 0 and not (w.terminated[b] or w.truncated[b]):
        code = SUNK if w.pos[b, 2] <= 0.0 else count_fault(w, b)
    return code
