"""The reward of an agent step: default, E2E and D-VAT, from the RewardParams, the reference distance and the command.

`rewards.py` has the same formulas as plain functions.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel

DEFAULT, E2E, DVAT = 0, 1, 2
"""Values of `reward_type`."""
E2E_REACH = 9.0
"""E2E: deviation from the reference place, in m, that costs 1."""
DVAT_COST = 0.4
"""D-VAT as published: the largest cost of speed, and of the command."""
DVAT_CRASH = -10.0
DVAT_NEAR, DVAT_FAR = 0.6, 6.0
"""D-VAT as published: the distances that end an episode, in reference distances."""
FULL_SPEED, FULL_TURN = 40.0, 2.0
"""D-VAT as published: the command that counts as 1, m/s and rad/s."""


@kernel
def pay(w, b):
    """The reward of this step; requires `report`."""
    if w.reward_type == E2E:
        reward = e2e(w, b)
    elif w.reward_type == DVAT:
        reward = dvat(w, b)
    else:
        reward = by_default(w, b)
    return reward * w.reward_scale


@kernel
def reference(w):
    """The distance that E2E and D-VAT hold, from the RewardParams of the first step."""
    p = w.params
    if w.as_published and w.reward_type == E2E:
        return p[5] / math.tan(p[4])
    if w.as_published and w.reward_type == DVAT:
        return depth(p)
    return p[49]


@kernel
def depth(p):
    """How far the target is along the optical axis."""
    return math.cos(p[4]) * p[49] - math.sin(p[4]) * p[51]


@kernel
def by_default(w, b):
    """The target in the middle of the window; or the metres between it and the point in the middle."""
    p = w.params
    if w.crash[b]:
        return 0.0
    if not w.pays_distance:
        return w.r_d[b] if w.pays_discrete else w.r_c[b]
    off = math.sqrt((p[42] - p[39]) ** 2 + (p[43] - p[40]) ** 2)
    if off >= w.distance_range:
        return 0.0
    return 1.0 if w.pays_discrete else max(0.0, 1.0 - math.tanh(w.distance_scale * off * off * off))


@kernel
def e2e(w, b):
    """Luo et al.: the target ahead at the reference distance, and headed as the drone."""
    p = w.params
    if w.crash[b]:
        return -1.0
    off = math.sqrt((p[49] - w.d_ref[b]) ** 2 + p[50] * p[50])
    reward = 1.0 - (off / E2E_REACH + 2.0 / w.hfov * abs(p[48]))
    return reward if w.as_published else min(1.0, max(-1.0, reward))


@kernel
def dvat(w, b):
    """Dionigi et al.: the target at the reference distance in the middle of the picture."""
    p = w.params
    if w.crash[b] or (w.as_published and out_of_range(w, b)):
        return DVAT_CRASH
    x = depth(p) if w.as_published else p[49]
    product = max(0.0, 1.0 - abs(x - w.d_ref[b])) * centred(w, p[50], x)
    if not w.as_published:
        return product ** (1.0 / 3.0)
    product *= centred(w, math.sin(p[4]) * p[49] + math.cos(p[4]) * p[51], x)
    speed = math.sqrt(p[52] * p[52] + p[53] * p[53] + p[54] * p[54])
    ahead, aside, turn = w.cmd[b, 0] / FULL_SPEED, w.cmd[b, 1] / FULL_SPEED, w.cmd[b, 3] / FULL_TURN
    effort = math.sqrt(ahead * ahead + aside * aside + turn * turn)
    return product ** (1.0 / 3.0) - DVAT_COST * speed / (1.0 + speed) - DVAT_COST * effort / (1.0 + effort)


@kernel
def centred(w, across, along):
    """1 on the axis, 0 from the edge of the horizontal field of view on."""
    if along == 0.0:
        angle = 0.0 if across == 0.0 else 0.5 * math.pi
    else:
        angle = abs(math.atan(across / along))
    return max(0.0, 1.0 - 2.0 / w.hfov * angle)


@kernel
def out_of_range(w, b):
    """D-VAT as published: the target is nearer or farther than the episode allows."""
    distance = math.sqrt(w.rel[b, 0] ** 2 + w.rel[b, 1] ** 2 + w.rel[b, 2] ** 2)
    return distance < DVAT_NEAR * w.d_ref[b] or distance > DVAT_FAR * w.d_ref[b]
