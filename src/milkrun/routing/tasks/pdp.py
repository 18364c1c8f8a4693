"""The checker of the pickup and delivery problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.routing.tasks.base import Faults, fits
from milkrun.routing.tasks.dataset import Bools, Ints
from milkrun.routing.tasks.depots import FleetData
from milkrun.routing.tasks.fleet import FleetProblem
from milkrun.routing.tasks.routes import Routes, Rule


class PDP(FleetProblem):
    """R pairs: pickup K + r and its delivery K + R + r, later in the same route.

    `demand` is what a pickup loads, and its negative at the delivery. A row's `n_nodes` counts its depots and nodes:
    the deliveries follow the pickups that it has.
    """

    @classmethod
    def _find_faults(cls, data: Any, plan: Ints, faults: Faults) -> Routes:
        pairs = _pairs(data)
        demand = data.signed("demand", default=0.0)
        rest = demand + np.take_along_axis(demand, _partner(data), axis=1)
        if (wrong := _is_pickup(data) & ((rest != 0) | (demand < 0))).any():
            b, j = (int(k) for k in np.argwhere(wrong)[0])
            amounts = f"{demand[b, j]:.10g} and {demand[b, j + pairs[b]]:.10g}"
            raise BadInstance(f"row {b}: demand of pickup {j} and of its delivery is {amounts}, expected q and -q")
        return super()._find_faults(data, plan, faults)

    @classmethod
    def _load_rules(cls, routes: Routes) -> Iterator[Rule]:
        yield from _pair_rules(routes)
        capacity = routes.of_depot(routes.data.capacity)
        load = routes.so_far(routes.of_stop(routes.data.signed("demand", default=0.0)))
        yield (
            routes.serves & ~fits(load, capacity),
            lambda b, m: (
                f"route {routes.trip[b, m]} carries load {load[b, m]:.10g} after customer {routes.stop[b, m]}, "
                f"capacity {capacity[b, m]:.10g}"
            ),
        )

    @classmethod
    def _alone(cls, data: FleetData, b: Ints, j: Ints) -> Ints:
        pickup = np.where(_is_pickup(data)[b, j], j, _partner(data)[b, j])
        return np.stack([pickup, _partner(data)[b, pickup]], axis=1)


def _pairs(data: FleetData) -> Ints:
    """The number R of pairs of each row (B,)."""
    customers = data.n_nodes - data.num_depots
    if (odd := customers % 2 != 0).any():
        b = int(odd.argmax())
        raise BadInstance(f"row {b}: {customers[b]} customers are no pairs of pickup and delivery")
    return customers // 2


def _is_pickup(data: FleetData) -> Bools:
    """True at pickups (B, N)."""
    pickups: Bools = data.customers() & (np.arange(data.num_nodes) < (data.num_depots + _pairs(data))[:, None])
    return pickups


def _partner(data: FleetData) -> Ints:
    """The other node of each pair (B, N); depots and padding are their own."""
    node = np.arange(data.num_nodes)
    step = np.where(_is_pickup(data), 1, -1) * _pairs(data)[:, None]
    return np.where(data.customers(), node + step, node)


def _pair_rules(routes: Routes) -> Iterator[Rule]:
    """A delivery follows its pickup, and the goods are delivered before the vehicle goes home."""
    data = routes.data
    shape = (len(routes.at), data.num_nodes)
    place, trip = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    r, m = np.nonzero(routes.serves)
    place[r, routes.stop[r, m]] = m + 1
    trip[r, routes.stop[r, m]] = routes.trip[r, m]
    pickup, other = _is_pickup(data)[routes.at], _partner(data)[routes.at]
    place_there, trip_there = (np.take_along_axis(x, other, axis=1) for x in (place, trip))
    delivery = data.customers()[routes.at] & ~pickup
    yield (
        delivery & (trip > 0) & (trip_there == trip) & (place < place_there),
        lambda b, j: f"delivery {j} comes before its pickup {other[b, j]} on route {trip[b, j]}",
    )
    yield (
        delivery & (trip > 0) & (trip_there != trip),
        lambda b, j: f"route {trip[b, j]} brings delivery {j}, whose pickup {other[b, j]} it does not serve",
    )
    yield (
        pickup & (trip > 0) & (trip_there != trip),
        lambda b, j: f"route {trip[b, j]} goes home with the goods of pickup {j}, whose delivery is {other[b, j]}",
    )
