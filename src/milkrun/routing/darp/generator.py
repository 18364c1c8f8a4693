"""Instances of the dial-a-ride problem: the law of Cordeau's files, and that of the rule `deadlines`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, row_stream, uniform_pair
from milkrun.routing.darp import windows
from milkrun.routing.darp.travel import distance32, straight
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.laws import DEMAND, LOCS, TW

DROPOFF_TW = 40  # purpose of the stream of dropoff deadlines
ATTEMPTS = 1000
GAVE_UP = 0.0
"""Marks, as route duration, an instance for which the law found no servable request."""

tightened, faults_alone = kernel(windows.tightened), kernel(windows.faults_alone)


@kernel
def generate_classic(w, b):
    q = w.instance_row[b]
    w.n_nodes[q] = w.N
    w.max_route_duration[q] = w.duration
    for k in range(w.V):
        w.capacity[q, k] = w.seats
    set_node(w, q, 0, 0.0, 0.0, 0, 0.0, w.duration)
    w.tight_open[q, 0] = w.window_open[q, 0]
    w.tight_close[q, 0] = w.time_windows[q, 0]
    for r in range(w.R):
        w.max_ride_time[q, r] = w.ride_limit
        attempt = 0
        while attempt < ATTEMPTS and not draw_request(w, b, q, r, attempt):
            attempt += 1
        if attempt == ATTEMPTS:
            w.max_route_duration[q] = GAVE_UP
    if w.M > 0:
        fill_matrix(w, q)


@kernel
def draw_request(w, b, q, r, attempt):
    """Draws a request; False if no vehicle could serve it alone.

    Outbound requests, the first half, have their window at the dropoff, inbound ones at the pickup.
    """
    # Each attempt reads its own numbers, so a redraw of one request does not shift others.
    index = attempt * w.R + r
    places, p = row_stream(w, b, LOCS), 2 * r + 1
    load = integers(row_stream(w, b, DEMAND), index, 1, w.largest_group + 1)
    last = np.int64(math.floor(w.duration))
    window = row_stream(w, b, TW)
    for part in range(2):
        x, y = uniform_pair(places, 2 * index + part)
        opens, closes = 0.0, w.open_end
        if part == 1 and r < w.R // 2:
            closes = np.float64(integers(window, index, 60, last + 1))
            opens = closes - w.window_width
        elif part == 0 and r >= w.R // 2:
            opens = np.float64(integers(window, index, 0, last - 59))
            closes = opens + w.window_width
        set_node(
            w,
            q,
            p + part,
            thousandths(w.side * (2.0 * x - 1.0)),
            thousandths(w.side * (2.0 * y - 1.0)),
            -load if part else load,
            opens,
            closes,
        )
    return tighten(w, q, r)


@kernel
def thousandths(x):
    # Cordeau's files have three decimals (`instances.cordeau`).
    return np.rint(1000.0 * x) / 1000.0


@kernel
def set_node(w, q, j, x, y, load, opens, closes):
    w.locs[q, j, 0] = x
    w.locs[q, j, 1] = y
    w.demand[q, j] = load
    w.service_time[q, j] = 0.0 if j == 0 else w.service_law if w.service_law >= 0 else np.float64(abs(load))
    w.window_open[q, j] = opens
    w.time_windows[q, j] = closes


@kernel
def between(w, q, i, j):
    """The travel time by coordinates, from which a drawn matrix is filled."""
    return straight(w, q, i, j) / w.speed


@kernel
def tighten(w, q, r):
    """Tightens the windows of a request; True if a vehicle could serve it alone."""
    p, d = 2 * r + 1, 2 * r + 2
    out, direct, home = between(w, q, 0, p), between(w, q, p, d), between(w, q, d, 0)
    stop_p, stop_d, ride = w.service_time[q, p], w.service_time[q, d], w.max_ride_time[q, r]
    tight = tightened(
        w.window_open[q, p],
        w.time_windows[q, p],
        w.window_open[q, d],
        w.time_windows[q, d],
        w.window_open[q, 0],
        w.time_windows[q, 0],
        stop_p,
        stop_d,
        ride,
        out,
        direct,
        home,
    )
    w.tight_open[q, p], w.tight_close[q, p], w.tight_open[q, d], w.tight_close[q, d] = tight
    capacity, too_long, duration, window = faults_alone(
        tight, w.demand[q, p], w.seats, stop_p, stop_d, ride, out, direct, home, w.duration
    )
    return not (capacity or too_long or duration or window)


@kernel
def fill_matrix(w, q):
    for i in range(w.N):
        for j in range(w.N):
            w.dist[q, i, j] = between(w, q, i, j) * w.speed


@kernel
def generate_deadlines(w, b):
    q = w.instance_row[b]
    places, groups = row_stream(w, b, LOCS), row_stream(w, b, DEMAND)
    pickups, dropoffs = row_stream(w, b, TW), row_stream(w, b, DROPOFF_TW)
    for j in range(w.N):
        x, y = uniform_pair(places, j)
        w.locs[q, j, 0] = w.min_loc + (w.max_loc - w.min_loc) * x
        w.locs[q, j, 1] = w.min_loc + (w.max_loc - w.min_loc) * y
    w.demand[q, 0] = 0
    w.time_windows[q, 0] = w.depot_deadline
    for k in range(w.V):
        w.capacity[q, k] = w.seats
    for r in range(w.N // 2):
        p, d = 2 * r + 1, 2 * r + 2
        load = integers(groups, r, w.min_demand, w.max_demand + 1)
        w.demand[q, p] = load
        w.demand[q, d] = -load
        deadline = integers(pickups, r, w.min_pickup_tw, w.max_pickup_tw + 1)
        t = max(distance32(w, q, p, d) / w.speed, 1.0)
        least = np.int64(math.ceil(t))
        most = max(np.int64(math.ceil(2.0 * t)), least + 1)
        w.time_windows[q, p] = deadline
        w.time_windows[q, d] = deadline + integers(dropoffs, r, least, most + 1)


class DARPGenerator(Generator):
    """`locs` (B, N, 2), `demand` (B, N), `capacity` (B, V), `time_windows` (B, N), the depot at index 0; under the law
    `classic` also `window_open`, `service_time`, `max_ride_time` (B, R), `max_route_duration` (B,)."""

    world = "milkrun.routing.darp.world:DARP"
    keys = (
        "locs",
        "demand",
        "capacity",
        "time_windows",
        "window_open",
        "service_time",
        "max_ride_time",
        "max_route_duration",
    )

    def __init__(self, **options: Any) -> None:
        for hook in ("_generate_locations", "_generate_depot"):
            if getattr(type(self), hook) is not getattr(Generator, hook):
                raise ConfigError(
                    f"{type(self).__name__} has a {hook}: the laws of DARP draw places and times "
                    "together, so none can be given; reset(instance=...) plays given requests"
                )
        if "law" in options and "preset" not in options:
            options.setdefault("rule", options["law"])
        super().__init__(**options)

    @property
    def vehicle_speed(self) -> float:
        return float(self.config.speed)

    def _draw(self, count: int, seed: int, first: int, episode: int) -> dict[str, np.ndarray]:
        world = self._world.variant(self.config)(max(count, 1), self.config, seed=seed, first_row=first)
        world.draw_instances(episode)
        keys = [*self.keys, "dist"] if world.sizes.get("M") else self.keys
        return {name: getattr(world, name)[:count].copy() for name in keys if name in world.fields}
