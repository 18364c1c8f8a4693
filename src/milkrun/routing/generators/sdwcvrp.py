"""Instances of SDWCVRP: the bins on the first morning, and what every day of the horizon will add to them.

All days are drawn at the reset, so they never depend on the actions: policies are compared on the same weeks.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import normal, row_stream
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.fills import DIST, daily_moments, day_of_waste, draw_levels, draws_levels, level_drawn
from milkrun.routing.generators.laws import DAYS, SENSOR, farthest
from milkrun.routing.generators.wcvrp import draw_bins


@kernel
def generate(w, b):
    q = w.instance_row[b]
    draw_bins(w, b, q)
    draw_levels(w, b, w.initial_waste, q)
    direct = draws_levels(w)
    far = farthest(w, q) if direct and w.fill_law == DIST else 0.0
    w.fill_mean[q, 0] = 0
    w.fill_std[q, 0] = 0
    for j in range(1, w.N):
        mean, deviation = daily_moments(w, q, j, far)
        w.fill_mean[q, j] = w.bin_size * mean
        w.fill_std[q, j] = w.bin_size * deviation
    for t in range(w.T):
        w.daily_fill[q, t, 0] = 0
        for j in range(1, w.N):
            index = t * w.N + j
            if direct:
                share = w.daily_scale * level_drawn(w, b, q, DAYS, j, index, far)
            else:
                share = day_of_waste(w, b, DAYS, j, index)
            w.daily_fill[q, t, j] = w.bin_size * share
    draw_sensor(w, b, q)


@kernel
def draw_sensor(w, b, q):
    """What a sensor multiplies a level by; mean one."""
    s = row_stream(w, b, SENSOR)
    for t in range(w.Z):
        for j in range(w.N):
            w.sensor_noise[q, t, j] = math.exp(
                w.sensor_sigma * normal(s, t * w.N + j) - 0.5 * w.sensor_sigma * w.sensor_sigma
            )


class SDWCVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `initial_waste` = `demand` (B, n), `daily_fill` (B, T, n), `fill_mean`,
    `fill_std` (B, n), `max_waste`, `capacity`; with a noisy sensor also `sensor_noise` (B, T, n)."""

    world = "milkrun.routing.sdwcvrp:SDWCVRP"
    keys = (
        "locs",
        "initial_waste",
        "daily_fill",
        "sensor_noise",
        "fill_mean",
        "fill_std",
        "max_waste",
        "capacity",
        "max_length",
    )
    aliases = {"demand": "initial_waste"}
