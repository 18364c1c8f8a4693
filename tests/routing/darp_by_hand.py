"""Dial-a-ride problems on a line, where distances are differences, for the tests of their checker."""

from __future__ import annotations

import numpy as np

from milkrun.routing.instances import DARPInstance
from milkrun.routing.tasks import DARPProblem

ONE = {"places": [3, 10], "opens": [0, 50], "closes": [100, 60], "ride": 20}
TWO = {"places": [1, 10, -5, 2]}


def darp(
    places, *, opens=0.0, closes=100.0, service=0.0, ride=1000.0, duration=1000.0, capacity=(2, 2), load=1, dist=None
):
    """A depot at 0 within [0, 1000] and requests as pairs of `places`; windows and service belong to the customers."""
    n = len(places) + 1

    def per_node(value, depot):
        return [depot, *np.broadcast_to(value, n - 1).tolist()]

    loads = np.broadcast_to(load, n // 2)
    demand = [0, *np.stack([loads, -loads], axis=1).ravel().tolist()]
    return DARPInstance(
        name="hand",
        locs=[[0, 0], *([x, 0] for x in places)],
        demand=demand,
        capacity=capacity,
        time_windows=per_node(closes, 1000.0),
        window_open=per_node(opens, 0.0),
        service_time=per_node(service, 0.0),
        max_ride_time=np.broadcast_to(ride, n // 2).tolist(),
        max_route_duration=duration,
        dist=dist,
    )


def broken(instance, routes, **options):
    """The violations, with amounts rounded to a millionth."""
    report = DARPProblem.check(instance, routes, **options)
    assert report.feasible == (not report.violations)
    return [(*v[:4], round(v.amount, 6)) for v in report.violations]
