"""Instances of the waste worlds: places, the truck, the levels of the bins, and how they fill.

The SDWCVRP draws all days at the reset. They do not depend on actions, so policies are compared on the same weeks.
"""

from __future__ import annotations

import math

from milkrun.core.kernels import kernel
from milkrun.core.rng import normal, row_stream, truncated_normal
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.fills import (
    DIST,
    daily_moments,
    day_of_waste,
    draw_levels,
    draw_must_go,
    draws_levels,
    level_drawn,
)
from milkrun.routing.generators.laws import DAYS, NOISE, SENSOR, draw_places, farthest

NOISE_LAWS = ("lognormal", "truncnorm")
LOGNORMAL, TRUNCNORM = range(2)


@kernel
def generate_known(w, b):
    q = w.instance_row[b]
    draw_bins(w, b, q)
    draw_levels(w, b, w.waste, q)
    draw_must_go(w, b, q, w.waste)


@kernel
def draw_bins(w, b, q):
    """Fields of every waste world: places, the truck, the size of a bin."""
    draw_places(w, b)
    w.max_waste[q] = w.bin_size
    w.capacity[q] = w.truck
    w.max_length[q] = w.trip_limit


class WCVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `waste` = `demand` (B, n), `max_waste` (B,), `capacity` (B,), `must_go`."""

    world = "milkrun.routing.wcvrp:WCVRP"
    keys = ("locs", "waste", "max_waste", "capacity", "must_go", "max_length")
    aliases = {"demand": "waste"}


@kernel
def generate_uncertain(w, b):
    q = w.instance_row[b]
    draw_bins(w, b, q)
    draw_levels(w, b, w.expected0, q)
    draw_must_go(w, b, q, w.expected0)
    s = row_stream(w, b, NOISE)
    w.real_waste[q, 0] = 0
    for j in range(1, w.N):
        w.real_waste[q, j] = draw_real(w, s, j, w.mu * w.expected0[q, j])


@kernel
def draw_real(w, s, j, mean):
    """Real waste around its mean, at most what a bin holds."""
    if w.sigma == 0.0:
        return min(w.bin_size, mean)
    if w.noise_law == LOGNORMAL:
        # exp(sigma z) has the mean exp(sigma^2 / 2); dividing by it keeps the mean.
        return min(w.bin_size, mean * math.exp(w.sigma * normal(s, j) - 0.5 * w.sigma * w.sigma))
    return truncated_normal(s, j, mean, w.sigma * w.bin_size, 0.0, w.bin_size)


class SCWCVRPGenerator(Generator):
    """`locs` (B, n, 2), `depot` (B, 2), `expected_waste`, `real_waste` (B, n), `max_waste`, `capacity`, `must_go`."""

    world = "milkrun.routing.scwcvrp:SCWCVRP"
    keys = ("locs", "expected0", "real_waste", "max_waste", "capacity", "must_go", "max_length")
    renamed = {"expected0": "expected_waste"}
    aliases = {"demand": "expected_waste"}


@kernel
def generate_days(w, b):
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
    """Factors of the measured levels, lognormal with mean one."""
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
