"""What the checkers of VRP and PDP share: the fleet, the customers that it may leave, and the cost.

`pi` is the actions: a depot ends a route, whose vehicle drives home to its own depot, and is the depot of the next
route. With several depots the first entry is a depot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ConfigError
from milkrun.routing.tasks.base import BaseProblem, Faults, visits
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints, to_numpy
from milkrun.routing.tasks.depots import DEPOT_FIELDS, FleetData
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.routes import Routes, Rule, distance_rules, permission_rules, time_rules

UNSERVED_COST = 10.0  # in the unit square


class FleetProblem(BaseProblem):
    """Routes of vehicles from several depots: a problem adds what its vehicles carry in `_load_rules`.

    The cost is `fixed_cost` for each vehicle used and `distance_cost` for each unit of distance, with
    `objective="max"` the length of the longest route; then `unserved_cost` for each customer that is left. A customer
    may be left only if the fleet is at its end: no vehicle is left at a depot that can serve the customer alone.
    """

    limits: ClassVar[tuple[str, ...]] = (*DEPOT_FIELDS, "unserved_cost")
    modes: ClassVar[Mapping[str, tuple[Any, ...]]] = {"objective": ("sum", "max")}
    reader = FleetData

    @classmethod
    def validate_tours(cls, pi: Any, num_depots: int = 1) -> bool:
        """True if `pi` (..., L) holds integers >= 0 and no customer twice; the first `num_depots` nodes may recur."""
        plan = to_numpy(pi)
        return super().validate_tours(np.where(plan < num_depots, np.minimum(plan, 0), plan))

    @classmethod
    def from_routes(cls, dataset: Any, routes: Sequence[tuple[int, Sequence[int]]]) -> Ints:
        """`pi` (1, L) of routes (depot, customers), all as node numbers, for a dataset of one instance."""
        several = FleetData(dataset, 1).n_depots[0] > 1
        driven = [(int(depot), [int(j) for j in customers]) for depot, customers in routes if len(customers)]
        actions = [driven[0][0]] if several and driven else []
        for r, (_, customers) in enumerate(driven):
            following = driven[min(r + 1, len(driven) - 1)][0]
            actions += [*customers, following]
        return np.array([actions], np.int64)

    @classmethod
    def to_routes(cls, dataset: Any, pi: Any) -> list[list[tuple[int, list[int]]]]:
        """For each row of `pi` (B, L) its routes, (depot, customers) as node numbers."""
        plan = to_numpy(pi).astype(np.int64)
        routes = cls._decode(FleetData(dataset, len(plan)), plan)
        found: list[list[tuple[int, list[int]]]] = []
        for b in range(len(plan)):
            trips: dict[int, tuple[int, list[int]]] = {}
            for m in np.flatnonzero(routes.serves[b]):
                depot = int(routes.depot[b, m])
                trips.setdefault(int(routes.trip[b, m]), (depot, []))[1].append(int(routes.stop[b, m]))
            found.append(list(trips.values()))
        return found

    @classmethod
    def _decode(cls, data: FleetData, plan: Ints) -> Routes:
        # Depot 0 before the first entry is the only depot's first route, or an empty one.
        return Routes(data, np.pad(plan, ((0, 0), (1, 1))), np.arange(len(plan)))

    @classmethod
    def _length(cls, data: Dataset, plan: Ints) -> Floats:
        assert isinstance(data, FleetData)
        total: Floats = cls._decode(data, plan).length.sum(axis=1)
        return total

    # The rules.

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> Routes:
        assert isinstance(data, FleetData)
        several = data.n_depots > 1
        absent = (plan < data.num_depots) & (plan >= data.n_depots[:, None])
        faults.add(absent, lambda b, m: f"depot {plan[b, m]} does not exist, depots are 0..{data.n_depots[b] - 1}")
        if plan.shape[1]:
            early = several & (plan[:, 0] >= data.num_depots)
            faults.add_rows(early, lambda j: f"the plan begins with customer {j}, expected a depot", plan[:, 0])
        routes = cls._decode(data, plan)
        cls._check_served_once(data, plan, faults)
        for wrong, sentence in cls._route_rules(routes):
            faults.add(wrong, sentence)
        cls._check_fleet(routes, faults)
        cls._check_all_served(routes, plan, faults)
        return routes

    @classmethod
    def _check_served_once(cls, data: FleetData, plan: Ints, faults: Faults) -> None:
        seen = visits(plan, data.num_nodes) * (np.arange(data.num_nodes) >= data.num_depots)
        faults.add(seen > 1, lambda b, c: f"customer {c} is served {seen[b, c]} times")

    @classmethod
    def _route_rules(cls, routes: Routes) -> Iterator[Rule]:
        """The rules of a single route, whatever the others are."""
        yield from cls._load_rules(routes)
        yield from permission_rules(routes)
        yield from time_rules(routes)
        yield from distance_rules(routes)

    @classmethod
    def _load_rules(cls, routes: Routes) -> Iterator[Rule]:
        raise NotImplementedError

    @classmethod
    def _check_fleet(cls, routes: Routes, faults: Faults) -> None:
        data, used = routes.data, _vehicles_used(routes)
        faults.add(
            used > data.vehicles,
            lambda b, k: f"depot {k} sends {used[b, k]} vehicles, it has {data.vehicles[b, k]:.10g}",
        )

    @classmethod
    def _check_all_served(cls, routes: Routes, plan: Ints, faults: Faults) -> None:
        """An unserved customer is a fault unless all vehicles that could serve it alone are used."""
        data, missed = routes.data, cls._missed(routes, plan)
        left = missed & faults.valid[:, None]
        b, j = np.nonzero(left)
        alone = cls._serves_alone(data, b, j)
        used_up = _vehicles_used(routes)[b] >= data.vehicles[b]
        left[b, j] = (alone & ~used_up).any(axis=1) | ~alone.any(axis=1)
        left &= ~cls._may_be_left(data, missed)
        faults.add(left, lambda row, c: f"customer {c} is not served")

    @classmethod
    def _missed(cls, routes: Routes, plan: Ints) -> Bools:
        """The customers that are not served (B, N)."""
        return routes.data.customers() & (visits(plan, routes.data.num_nodes) == 0)

    @classmethod
    def _may_be_left(cls, data: FleetData, missed: Bools) -> Bools:
        """Customers that another rule than the fleet may leave, of those that are `missed` (B, N)."""
        return np.zeros_like(missed)

    @classmethod
    def _alone(cls, data: FleetData, b: Ints, j: Ints) -> Ints:
        """The stops (R, S) of routes that serve the customers `j` (R,) of rows `b` and no other that can be left."""
        return j[:, None]

    @classmethod
    def _serves_alone(cls, data: FleetData, b: Ints, j: Ints) -> Bools:
        """Whether depot k can serve customer j of row b in a route of its own, (R, K)."""
        able = np.zeros((len(b), data.num_depots), np.bool_)
        for k in range(data.num_depots if len(b) else 0):
            home = np.full((len(b), 1), k)
            routes = Routes(data, np.concatenate([home, cls._alone(data, b, j), home], axis=1), b)
            able[:, k] = k < data.n_depots[b]
            for wrong, _ in cls._route_rules(routes):
                able[:, k] &= ~wrong.any(axis=1)
        return able

    # The cost.

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: Routes) -> dict[str, NDArray[Any]]:
        fleet = replay.data
        fixed = np.where(replay.leaves, replay.of_depot(fleet.fixed_cost), 0.0)
        return {
            "length": replay.length.sum(axis=1),
            "cost": (fixed + replay.of_depot(fleet.distance_cost) * replay.length).sum(axis=1),
            "longest": replay.in_all(replay.length).max(axis=1, initial=0.0),
            "trips": replay.leaves.sum(axis=1),
            "unserved": cls._missed(replay, plan).sum(axis=1),
        }

    @classmethod
    def _price(cls, data: Dataset, parts: Mapping[str, NDArray[Any]], weights: Mapping[str, float]) -> Floats:
        driven = parts["longest" if data.modes["objective"] == "max" else "cost"]
        unserved = parts["unserved"]
        if unserved.any() and data.find("unserved_cost") is None and not data.in_unit_square():
            raise ConfigError(
                "customers are left and `unserved_cost` is not given; its default is for places in the unit square"
            )
        price: Floats = weights.get("length", 1.0) * driven
        return price + data.scalar("unserved_cost", default=UNSERVED_COST) * unserved


def _vehicles_used(routes: Routes) -> Ints:
    """How many vehicles leave each depot, (R, K)."""
    width = routes.data.num_depots
    cells = (routes.depot + width * np.arange(len(routes.at))[:, None])[routes.leaves]
    return np.bincount(cells, minlength=len(routes.at) * width).reshape(-1, width)
