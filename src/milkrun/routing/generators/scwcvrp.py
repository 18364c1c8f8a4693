"""Instances of SCWCVRP: what the bins are thought to hold, and what they really hold."""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import normal, row_stream, truncated_normal
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.fills import draw_levels, draw_must_go
from milkrun.routing.generators.laws import NOISE
from milkrun.routing.generators.wcvrp import draw_bins

NOISE_LAWS = ("lognormal", "truncnorm")
LOGNORMAL, TRUNCNORM = range(2)


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_bins(w, b, q)
    draw_levels(w, b, w.expected0, q)
    draw_must_go(w, b, q, w.expected0)
    s = row_stream(w, b, NOISE)
    w.real_waste[q, 0] = 0
    for j in range(1, w.N):
        w.real_waste[q, j] = really(w, s, j, w.mu * w.expected0[q, j])


@kernel
def really(w, s, j, mean):
    """Real waste where `mean` is expected, never more than a bin holds."""
    if w.sigma == 0.0:
        return min(w.bin_size, mean)
    if w.noise_law == LOGNORMAL:
        # exp(sigma z) has the mean exp(sigma^2 / 2): divided by that, the mean stays.
        return min(w.bin_size, mean * math.exp(w.sigma * normal(s, j) - 0.5 * w.sigma * w.sigma))
    return truncated_normal(s, j, mean, w.sigma * w.bin_size, 0.0, w.bin_size)


class SCWCVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `expected_waste`, `real_waste` (B, n), `max_waste`, `capacity`, `must_go`."""

    world = "milkrun.routing.scwcvrp:SCWCVRP"
    keys = ("locs", "expected0", "real_waste", "max_waste", "capacity", "must_go", "max_length")
    renamed = {"expected0": "expected_waste"}
    aliases = {"demand": "expected_waste"}
