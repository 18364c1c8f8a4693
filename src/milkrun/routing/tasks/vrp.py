"""The checker of the vehicle routing problem with all its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.routing.tasks.base import Faults, fits
from milkrun.routing.tasks.dataset import Bools, Ints
from milkrun.routing.tasks.depots import FleetData
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.fleet import FleetProblem
from milkrun.routing.tasks.routes import Routes, Rule


class VRP(FleetProblem):
    """Every customer served: `linehaul` is on board from the depot on, `backhaul` from the customer on.

    `backhaul_class` 1: in a route no linehaul after a backhaul; 2: any order, and both at one stop. With
    `backhaul_only=False` a route picks up before it delivers only if all linehauls are served; routes count in the
    order of the plan. With `split` a visit delivers as much as there is room for, and customers may recur.
    """

    modes: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **FleetProblem.modes,
        "backhaul_only": (True, False),
        "split": (False, True),
    }

    @classmethod
    def validate_tours(cls, pi: Any, num_depots: int = 1, split: bool = False) -> bool:
        """True if `pi` (..., L) holds integers >= 0 and, unless `split`, no customer twice."""
        if split:
            return super().validate_tours(pi, num_depots=np.iinfo(np.int64).max)
        return super().validate_tours(pi, num_depots=num_depots)

    @classmethod
    def _find_faults(cls, data: Any, plan: Ints, faults: Faults) -> Routes:
        linehaul, backhaul = _amounts(data)
        both = (linehaul > 0) & (backhaul > 0) & (_backhaul_class(data)[:, None] == 1)
        if both.any():
            b, j = (int(k) for k in np.argwhere(both)[0])
            raise BadInstance(f"row {b}: customer {j} has linehaul and backhaul, which needs backhaul_class 2")
        if data.modes["split"] and backhaul.any():
            raise BadInstance("split deliveries and backhaul exclude each other")
        routes = super()._find_faults(data, plan, faults)
        if not data.modes["backhaul_only"]:
            _check_begins(routes, faults)
        return routes

    @classmethod
    def _check_served_once(cls, data: FleetData, plan: Ints, faults: Faults) -> None:
        if not data.modes["split"]:
            super()._check_served_once(data, plan, faults)

    @classmethod
    def _load_rules(cls, routes: Routes) -> Iterator[Rule]:
        if routes.data.modes["split"]:
            yield from _split_rules(routes)
            return
        linehaul, backhaul = (routes.of_stop(units) for units in _amounts(routes.data))
        capacity = routes.of_depot(routes.data.capacity)
        delivered, picked = routes.so_far(linehaul), routes.so_far(backhaul)
        leaving = routes.in_all(linehaul)
        yield (
            routes.leaves & ~fits(leaving, capacity),
            lambda b, m: (
                f"route {routes.trip[b, m]} to customer {routes.stop[b, m]} leaves depot {routes.depot[b, m]} with "
                f"load {leaving[b, m]:.10g}, capacity {capacity[b, m]:.10g}"
            ),
        )
        load = leaving - delivered + picked
        yield (
            routes.serves & ~fits(load, capacity),
            lambda b, m: (
                f"route {routes.trip[b, m]} carries load {load[b, m]:.10g} after customer {routes.stop[b, m]}, "
                f"capacity {capacity[b, m]:.10g}"
            ),
        )
        classical = _backhaul_class(routes.data)[routes.at, None] == 1
        yield (
            routes.serves & classical & (linehaul > 0) & (picked > 0),
            lambda b, m: f"linehaul at customer {routes.stop[b, m]} after a backhaul on route {routes.trip[b, m]}",
        )

    @classmethod
    def _missed(cls, routes: Routes, plan: Ints) -> Bools:
        missed = super()._missed(routes, plan)
        if not routes.data.modes["split"]:
            return missed
        return missed | (_deliver(routes)[1] > 0)

    @classmethod
    def _may_be_left(cls, data: FleetData, missed: Bools) -> Bools:
        """With `backhaul_only=False` backhauls are left where a linehaul is: no route may begin with them."""
        if data.modes["backhaul_only"]:
            return super()._may_be_left(data, missed)
        linehaul, backhaul = _amounts(data)
        waits = np.any(missed & (linehaul > 0), axis=1)[:, None]
        return waits & (backhaul > 0) & (linehaul == 0)


def _amounts(data: FleetData) -> tuple[Floats, Floats]:
    """Linehaul and backhaul of each node (B, N), 0 at padding."""
    linehaul, backhaul = data.per_node("linehaul", default=0.0), data.per_node("backhaul", default=0.0)
    real = data.customers()
    return linehaul * real, backhaul * real


def _backhaul_class(data: FleetData) -> Floats:
    found = data.scalar("backhaul_class", default=1)
    if (wrong := ~np.isin(found, (1, 2))).any():
        raise BadInstance(f"row {int(wrong.argmax())}: backhaul_class is {found[wrong][0]:.10g}, must be 1 or 2")
    return found


def _check_begins(routes: Routes, faults: Faults) -> None:
    linehaul, backhaul = _amounts(routes.data)
    wanted = linehaul > 0
    served = np.cumsum(routes.serves & routes.of_stop(wanted), axis=1)
    unserved = served < wanted.sum(axis=1)[:, None]
    delivered = routes.so_far(routes.of_stop(linehaul))
    first = routes.serves & (routes.of_stop(backhaul) > 0) & (delivered == 0) & unserved
    faults.add(
        first,
        lambda b, m: (
            f"route {routes.trip[b, m]} picks up at customer {routes.stop[b, m]} before it delivers, "
            "while a linehaul is unserved"
        ),
    )


def _split_rules(routes: Routes) -> Iterator[Rule]:
    """A visit delivers something, or is the only one of a customer without demand."""
    brought, _ = _deliver(routes)
    demand = routes.of_stop(_amounts(routes.data)[0])
    capacity = routes.of_depot(routes.data.capacity)
    full = fits(capacity, routes.so_far(brought))
    useless = routes.serves & (brought == 0) & (demand > 0)
    yield (
        useless & full,
        lambda b, m: (
            f"route {routes.trip[b, m]} has delivered its load of {capacity[b, m]:.10g} before customer "
            f"{routes.stop[b, m]}"
        ),
    )
    again = np.zeros_like(useless)
    for m in range(1, again.shape[1]):
        again[:, m] = (routes.stop[:, m, None] == routes.stop[:, :m]).any(axis=1) & (demand[:, m] == 0)
    yield (
        useless | (again & routes.serves),
        lambda b, m: f"customer {routes.stop[b, m]} is visited again after it was served",
    )


def _deliver(routes: Routes) -> tuple[Floats, Floats]:
    """Units delivered at each leg's stop (R, M), and what remains of the demand of each node (R, N)."""
    remaining = _amounts(routes.data)[0][routes.at]
    capacity = routes.of_depot(routes.data.capacity)
    brought = np.zeros(routes.stop.shape)
    row, delivered = np.arange(len(routes.at)), np.zeros(len(routes.at))
    for m in range(routes.stop.shape[1]):
        stop = routes.stop[:, m]
        delivered = np.where(routes.leaves[:, m], 0.0, delivered)
        brought[:, m] = np.where(routes.serves[:, m], np.minimum(remaining[row, stop], capacity[:, m] - delivered), 0)
        delivered = delivered + brought[:, m]
        remaining[row, stop] -= brought[:, m]
    return brought, remaining
