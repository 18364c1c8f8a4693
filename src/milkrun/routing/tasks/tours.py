"""The checkers of the worlds that visit every node: the TSP and the CVRP."""

from __future__ import annotations

import numpy as np

from milkrun.core.errors import BadInstance
from milkrun.routing.tasks.base import BaseProblem, Faults, fits, trip_of_leg, trip_totals, visits, walk
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints
from milkrun.routing.tasks.distances import Floats


class TSP(BaseProblem):
    """The first `n_nodes` entries of a row are its tour, closed from the last to the first; zeros follow.

    So both start modes share a format: `free` (any order) and `depot` (customers, then node 0).
    """

    @classmethod
    def _length(cls, data: Dataset, plan: Ints) -> Floats:
        if plan.shape[1] == 0:
            return np.zeros(len(plan))
        # after its tour a row repeats its first node, which closes the tour and adds legs of length 0
        closed = np.where(_in_tour(data, plan), plan, plan[:, :1])
        return data.length(np.concatenate([closed, plan[:, :1]], axis=1))

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> None:
        in_tour = _in_tour(data, plan)
        late = (plan != 0) & ~in_tour
        faults.add(late, lambda b, k: f"node {plan[b, k]} follows the tour, which has {data.n_nodes[b]} nodes")
        # Zeros after the tour are no visits of node 0; they count for an extra node, which is dropped.
        seen = visits(np.where(in_tour, plan, data.num_nodes), data.num_nodes + 1)[:, :-1]
        faults.add(seen > 1, lambda b, i: f"node {i} is visited {seen[b, i]} times")
        missed = (seen == 0) & (np.arange(data.num_nodes) < data.n_nodes[:, None])
        faults.add(missed, lambda b, i: f"node {i} is never visited")


def _in_tour(data: Dataset, plan: Ints) -> Bools:
    return np.arange(plan.shape[1]) < data.n_nodes[:, None]


class CVRP(BaseProblem):
    """Trips are separated by zeros; the last need not be closed, and empty trips are allowed.

    Demand is `demand_units`, or an integer `demand`, against `capacity`; a float `demand` is RL4CO's share of a
    vehicle, against `vehicle_capacity` (default 1), since its `capacity` counts units. A `capacity` given to the call
    is in the unit of the demand. `max_length` bounds the length of a trip with its return, plus its `service_time` if
    the dataset has that (CVRPLIB's CMT files).
    """

    limits = ("capacity", "max_length")

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> None:
        super()._find_faults(data, plan, faults)
        missed = (visits(plan, data.num_nodes) == 0) & (np.arange(data.num_nodes) < data.n_nodes[:, None])
        missed[:, 0] = False
        faults.add(missed, lambda b, c: f"customer {c} is never visited")

        nodes = walk(plan)
        trip = trip_of_leg(nodes)
        demand, capacity = _demand_and_capacity(data)
        load = trip_totals(trip, np.take_along_axis(demand, nodes[:, 1:], axis=1))
        faults.add(
            ~fits(load, capacity[:, None]),
            lambda b, t: f"trip {t} carries {load[b, t]:.10g}, capacity {capacity[b]:.10g}",
        )

        max_length = data.scalar("max_length", default=np.inf)
        if np.isposinf(max_length).all():
            return
        service = data.per_node("service_time", default=0.0)
        spent = trip_totals(trip, data.legs(nodes) + np.take_along_axis(service, nodes[:, 1:], axis=1))
        faults.add(
            ~fits(spent, max_length[:, None]),
            lambda b, t: f"trip {t} takes {spent[b, t]:.10g}, max_length {max_length[b]:.10g}",
        )


def _demand_and_capacity(data: Dataset) -> tuple[Floats, Floats]:
    """Demand (B, N) and the limit (B,) in the same unit: counts, or shares of a vehicle."""
    demand = data.per_node("demand_units", "demand")
    given = data.find("demand_units", "demand")
    assert given is not None
    is_share = data.find("demand_units") is None and given.dtype.kind == "f" and "capacity" not in data.overrides
    if not is_share:
        capacity = data.scalar("capacity", default=np.nan)
        if np.isnan(capacity).any():
            raise BadInstance("capacity is missing or NaN: give one number for each instance")
        return demand, capacity
    share = data.scalar("vehicle_capacity", default=1.0)
    if (heavy := ~fits(demand, share[:, None])).any():
        b, i = (int(k) for k in np.argwhere(heavy)[0])
        raise BadInstance(
            f"row {b}: demand[{i}] is {demand[b, i]:.10g}, but a float demand is a share of the vehicle, at most "
            f"{share[b]:.10g}: give counts as integers, or as `demand_units`"
        )
    return demand, share
