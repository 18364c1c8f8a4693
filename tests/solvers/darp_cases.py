"""Dial-a-ride problems for the tests of their solvers: the benchmark files, one by hand, and random ones."""

from __future__ import annotations

import csv

import numpy as np

from milkrun.routing.instances import DARPInstance, cordeau
from tests.published import published_file


def file(name: str) -> DARPInstance:
    return cordeau.load(published_file(f"darp/{name}.txt"))


def table(name: str) -> list[dict[str, str]]:
    """A table next to the files."""
    with published_file(f"darp/{name}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


BEST = {line["name"]: float(line["value"]) for line in table("best_known")}


def three_requests(vehicles: int) -> DARPInstance:
    """Depot [0, 120], two seats, ride 25, service 1; best cost 41.032918 with one vehicle as with two."""
    return DARPInstance(
        name="three",
        locs=[[0, 0], [2, 3], [8, -1], [-4, 1], [5, 5], [6, -6], [-3, -5]],
        demand=[0, 1, -1, 1, -1, 1, -1],
        capacity=[2] * vehicles,
        window_open=[0.0, 0, 20, 10, 0, 30, 0],
        time_windows=[120.0, 1440, 35, 25, 1440, 45, 1440],
        service_time=[0.0, 1, 1, 1, 1, 1, 1],
        max_ride_time=[25.0] * 3,
        max_route_duration=100.0,
    )


def drawn(seed: int, requests: int, vehicles: int, *, crooked: bool = False) -> DARPInstance:
    """Places on a square of side 20, windows on one end of each request, vehicles of one to four seats.

    `crooked`: distances are random and asymmetric, so that detours may be shortcuts.
    """
    rng = np.random.default_rng([seed, requests, vehicles])
    n = 2 * requests + 1
    locs = np.vstack([[[0, 0]], rng.uniform(-10, 10, (n - 1, 2)).round(3)])
    opens, closes = np.zeros(n), np.full(n, 1440.0)
    closes[0] = horizon = 90.0 + 30 * requests / vehicles
    for r in range(requests):
        tied = 2 * r + 1 + rng.integers(2)
        closes[tied] = rng.integers(45, int(horizon) - 30)
        opens[tied] = closes[tied] - rng.choice([5, 15])
    load = rng.integers(1, 4, requests)
    return DARPInstance(
        name=f"drawn {seed}",
        locs=locs,
        demand=np.append(0, np.stack([load, -load], axis=1).ravel()),
        capacity=rng.integers(1, 5, vehicles),
        window_open=opens,
        time_windows=closes,
        service_time=np.append(0.0, rng.integers(0, 4, n - 1)),
        max_ride_time=rng.choice([20.0, 35.0, np.inf], requests),
        max_route_duration=float(rng.choice([60.0, horizon])),
        dist=rng.uniform(1, 25, (n, n)) * (1 - np.eye(n)) if crooked else None,
    )
