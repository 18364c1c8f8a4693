"""What the checkers of VRP and PDP share: several depots, routes, and the rules of a single vehicle.

Nodes 0..K-1 are depots, a depot is a place with one kind of vehicle. The number K is the length of the second axis of
`capacity` (B, K), or of another field of the depots. `pi` is the actions: a depot ends a route, whose vehicle drives
home to its own depot, and is the depot of the next route. With several depots the first entry is a depot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ConfigError, ShapeError, did_you_mean
from milkrun.routing.tasks.base import BaseProblem, Faults, fits, trip_of_leg, trip_totals, visits
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints, refuse, to_numpy
from milkrun.routing.tasks.distances import Floats

DEPOT_FIELDS = ("capacity", "vehicles", "distance_limit", "duration_limit", "fixed_cost", "distance_cost")
UNSERVED_COST = 10.0  # in the unit square

# The worlds add lengths and times in float32, the checkers in float64. This share of the limit covers the difference.
ROUNDING = 2e-6
MOST_ROUNDING = 0.1  # whole numbers stay exact

Rule = tuple[Bools, Callable[[int, int], str]]
"""Where a rule is broken, and the sentence of an entry: the arguments of `Faults.add`."""


def within(x: Floats, limit: Floats) -> Bools:
    """x <= limit for lengths and times, with the tolerance of the family and that of float32 sums."""
    return fits(x - np.minimum(MOST_ROUNDING, ROUNDING * np.maximum(1.0, np.abs(limit))), limit)


class FleetData(Dataset):
    """The instances of B solutions with their depots, vehicles and times."""

    def __init__(self, dataset: Any, batch: int, **options: Any) -> None:
        fields = dict(dataset.items()) if hasattr(dataset, "items") else {}
        self.num_depots = _count_depots(fields)
        super().__init__(dataset, batch, **options)
        if self.num_nodes <= self.num_depots:
            raise ShapeError(f"the dataset has {self.num_nodes} nodes, {self.num_depots} of them depots: no customer")
        count = self.scalar("n_depots", default=self.num_depots)
        if (wrong := ~((count >= 1) & (count <= self.num_depots)) | (count != np.floor(count))).any():
            b = int(wrong.argmax())
            raise BadInstance(f"row {b}: n_depots is {count[b]:.10g}, allowed are 1..{self.num_depots}")
        self.n_depots = count.astype(np.int64)
        self.capacity = self.per_depot("capacity", np.inf)
        self.vehicles = self.per_depot("vehicles", np.inf)
        self.distance_limit = self.per_depot("distance_limit", np.inf)
        self.duration_limit = self.per_depot("duration_limit", np.inf)
        self.fixed_cost = self.per_depot("fixed_cost", 0.0)
        self.distance_cost = self.per_depot("distance_cost", 1.0)
        self.service = self.per_node("service_time", default=0.0)
        self.speed = self.scalar("speed", default=1.0)
        if (wrong := ~(self.speed > 0)).any():
            raise BadInstance(f"row {int(wrong.argmax())}: speed is {self.speed[wrong][0]:.10g}, must be > 0")
        self.is_open = self.scalar("open_route", default=0.0) != 0
        self.has_windows = self.find("time_windows") is not None
        self.opens, self.closes = self._read_windows()
        self.serves = self._read_serves()

    def customers(self) -> Bools:
        """True at nodes that are neither depots nor padding (B, N)."""
        return self.exists() & (np.arange(self.num_nodes) >= self.num_depots)

    def per_depot(self, name: str, default: float) -> Floats:
        """A value >= 0 for each depot of each solution row (B, K), from (Q, K), or one number for all depots."""
        value = self.find(name)
        if value is None:
            return np.full((self._batch, self.num_depots), default)
        full = (self.num_instances, self.num_depots)
        if value.shape == (full[0],):
            value = value[:, None]
        if value.shape not in ((), (1,), (1, 1), (full[0], 1), full):
            raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or one number for all depots")
        value = np.broadcast_to(value.astype(np.float64), full)
        refuse(~(value >= 0), name, value, "must be >= 0")
        return value[self.rows]

    def per_node(self, *names: str, default: float | None = None) -> Floats:
        """A value >= 0 for each node of each solution row (B, N), 0 at depots; the dataset may omit the depots."""
        value = self.signed(*names, default=default)
        if (wrong := value < 0).any():
            b, i = (int(k) for k in np.argwhere(wrong)[0])
            raise BadInstance(f"row {b}: {names[0]}[{i}] is {value[b, i]:.10g}, must be >= 0")
        return value

    def signed(self, *names: str, default: float | None = None) -> Floats:
        """A finite value for each node of each solution row (B, N), 0 at depots."""
        value = self.find(*names)
        if value is None and default is None:
            raise ShapeError(f"the dataset lacks `{names[0]}`{did_you_mean(names[0], self._data)}")
        if value is None:
            return np.full((self._batch, self.num_nodes), default, np.float64)
        value = self._with_depots(names[0], value.astype(np.float64), 0.0)
        refuse(~np.isfinite(value), names[0], value, "must be finite")
        refuse(value[:, : self.num_depots] != 0, names[0], value, "must be 0 at a depot")
        return value[self.rows]

    def _with_depots(self, name: str, value: NDArray[Any], at_depots: Any) -> NDArray[Any]:
        full = (self.num_instances, self.num_nodes)
        given = value.shape[:2]
        if given not in (full, (full[0], full[1] - self.num_depots)):
            raise ShapeError(f"{name} has shape {value.shape}, expected {full}, or without depots")
        if given == full:
            return value
        depots = np.broadcast_to(np.asarray(at_depots, value.dtype), (full[0], self.num_depots, *value.shape[2:]))
        return np.concatenate([depots, value], axis=1)

    def _read_locs(self) -> Floats | None:
        depots = self.find("depot")
        if depots is not None and depots.ndim == 3:
            locs = self._data.pop("locs")
            del self._data["depot"]
            self._data["locs"] = np.concatenate([depots, to_numpy(locs, "locs")], axis=1)
        return super()._read_locs()

    def _read_windows(self) -> tuple[Floats, Floats]:
        value = self.find("time_windows")
        if value is None:
            return np.zeros((self._batch, self.num_nodes)), np.full((self._batch, self.num_nodes), np.inf)
        if value.ndim != 3 or value.shape[2] != 2:
            raise ShapeError(f"time_windows has shape {value.shape}, expected (instances, nodes, 2)")
        value = self._with_depots("time_windows", value.astype(np.float64), (0.0, np.inf))
        refuse(~(value[..., 0] <= value[..., 1]), "time_windows", value, "must not close before it opens")
        return value[self.rows, :, 0], value[self.rows, :, 1]

    def _read_serves(self) -> Bools | None:
        """Whether a depot may serve a node (B, N, K), from the bits of `serves`; None if all may."""
        bits = self.find("serves")
        if bits is None:
            return None
        if bits.dtype.kind not in "iu":
            raise ShapeError(f"serves is of dtype {bits.dtype}, expected integers: bit k for depot k")
        bits = self._with_depots("serves", bits.astype(np.int64), 0)[self.rows]
        allowed: Bools = bits[:, :, None] >> np.arange(self.num_depots) & 1 == 1
        return allowed


def _count_depots(fields: Mapping[str, Any]) -> int:
    """The number K of depots, from the width of their fields."""
    given = {name: to_numpy(fields[name], name) for name in (*DEPOT_FIELDS, "depot") if fields.get(name) is not None}
    axes = {name: 3 if name == "depot" else 2 for name in given}
    widths = {name: value.shape[1] for name, value in given.items() if value.ndim == axes[name] and value.size}
    most = max(widths.values(), default=1)
    for name, width in widths.items():
        if width not in (1, most):
            raise ShapeError(f"{name} is for {width} depots, another field for {most}")
    return most


class Routes:
    """Plans as legs: arrays (R, M) over the legs in the order driven, of the solution rows `at` (R,).

    A leg goes from `start` to `stop`, a customer or the vehicle's own depot. A pair of depots in a plan is an empty
    route, a leg of length 0.
    """

    def __init__(self, data: FleetData, nodes: Ints, at: Ints) -> None:
        self.data, self.at = data, at
        depot_at = nodes < data.num_depots
        last = np.maximum.accumulate(np.where(depot_at, np.arange(nodes.shape[1]), 0), axis=1)
        self.depot = np.take_along_axis(nodes, last, axis=1)[:, :-1]
        self.start = nodes[:, :-1]
        self.leaves = depot_at[:, :-1] & ~depot_at[:, 1:]
        self.serves = ~depot_at[:, 1:]
        self.returns = ~depot_at[:, :-1] & depot_at[:, 1:]
        self.stop = np.where(self.serves, nodes[:, 1:], self.depot)
        self.trip = trip_of_leg(np.where(depot_at, 0, nodes))
        legs = data.between(self.start, self.stop, at=at)
        self.length = np.where(self.returns & data.is_open[at, None], 0.0, legs)

    def of_stop(self, values: NDArray[Any]) -> NDArray[Any]:
        """From a value for each node (B, N), that of each stop (R, M)."""
        return values[self.at[:, None], self.stop]

    def of_depot(self, values: Floats) -> Floats:
        """From a value for each depot (B, K), that of the depot of each leg (R, M)."""
        return values[self.at[:, None], self.depot]

    def so_far(self, values: Floats) -> Floats:
        """Sums of `values` (R, M) over the legs of a route up to each leg, that leg included."""
        totals = trip_totals(self.trip, values)
        before = np.cumsum(totals, axis=1) - totals
        sums: Floats = np.cumsum(values, axis=1) - np.take_along_axis(before, self.trip, axis=1)
        return sums

    def in_all(self, values: Floats) -> Floats:
        """Sums of `values` (R, M) over the route of each leg."""
        return np.take_along_axis(trip_totals(self.trip, values), self.trip, axis=1)


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
        yield from _permission_rules(routes)
        yield from _time_rules(routes)
        yield from _distance_rules(routes)

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


def _permission_rules(routes: Routes) -> Iterator[Rule]:
    if routes.data.serves is None:
        return
    refused = routes.serves & ~routes.data.serves[routes.at[:, None], routes.stop, routes.depot]
    yield refused, lambda b, m: f"depot {routes.depot[b, m]} may not serve customer {routes.stop[b, m]}"


def _distance_rules(routes: Routes) -> Iterator[Rule]:
    limit = routes.of_depot(routes.data.distance_limit)
    if np.isposinf(limit).all():
        return
    driven = routes.in_all(routes.length)
    yield (
        routes.returns & ~within(driven, limit),
        lambda b, m: (
            f"route {routes.trip[b, m]}, whose last customer is {routes.start[b, m]}, is {driven[b, m]:.10g} long, "
            f"distance_limit {limit[b, m]:.10g}"
        ),
    )


def _time_rules(routes: Routes) -> Iterator[Rule]:
    """Windows of the customers, return to the depot, and the duration of the route."""
    data = routes.data
    limit = routes.of_depot(data.duration_limit)
    if not data.has_windows and np.isposinf(limit).all():
        return
    arrive, leave = _earliest_times(routes)
    closes = routes.of_stop(data.closes)
    late = ~within(arrive, closes)
    yield (
        routes.serves & late,
        lambda b, m: (
            f"late at customer {routes.stop[b, m]} on route {routes.trip[b, m]}: "
            f"arrives {arrive[b, m]:.10g}, closes {closes[b, m]:.10g}"
        ),
    )
    yield (
        routes.returns & late & ~data.is_open[routes.at, None],
        lambda b, m: (
            f"late home on route {routes.trip[b, m]} after customer {routes.start[b, m]}: "
            f"arrives {arrive[b, m]:.10g}, depot {routes.depot[b, m]} closes {closes[b, m]:.10g}"
        ),
    )
    if np.isposinf(limit).all():
        return
    lasts = arrive - _latest_start(routes, leave)
    yield (
        routes.returns & ~within(lasts, limit),
        lambda b, m: (
            f"route {routes.trip[b, m]}, whose last customer is {routes.start[b, m]}, takes {lasts[b, m]:.10g}, "
            f"duration_limit {limit[b, m]:.10g}"
        ),
    )


def _earliest_times(routes: Routes) -> tuple[Floats, Floats]:
    """For each leg, the earliest arrival at its stop and the earliest departure from its start, (R, M)."""
    data = routes.data
    drive = routes.length / data.speed[routes.at, None]
    opens, service = routes.of_stop(data.opens), routes.of_stop(data.service)
    depot_opens = routes.of_depot(data.opens)
    arrive, leave = np.zeros_like(drive), np.zeros_like(drive)
    clock = np.zeros(len(drive))
    for m in range(drive.shape[1]):
        leave[:, m] = np.where(routes.leaves[:, m], depot_opens[:, m], clock)
        arrive[:, m] = leave[:, m] + drive[:, m]
        clock = np.maximum(arrive[:, m], opens[:, m]) + service[:, m]
    return arrive, leave


def _latest_start(routes: Routes, leave: Floats) -> Floats:
    """For each leg home, the latest start of its route that ends no later than the earliest end, (R, M).

    Backwards from the earliest departure from the last customer. The least duration of a route is its earliest end
    minus this start: an earlier start adds waiting, a later one, if there is one, ends as much later.
    """
    data = routes.data
    drive = routes.length / data.speed[routes.at, None]
    closes, service = routes.of_stop(data.closes), routes.of_stop(data.service)
    depot_closes = routes.of_depot(data.closes)
    starts = np.zeros((len(drive), int(routes.trip.max(initial=0)) + 1))
    row = np.arange(len(drive))
    latest = np.zeros(len(drive))
    for m in reversed(range(drive.shape[1])):
        begins = np.minimum(closes[:, m], latest - service[:, m])
        latest = np.where(routes.serves[:, m], begins - drive[:, m], leave[:, m])
        out = routes.leaves[:, m]
        starts[row[out], routes.trip[out, m]] = np.minimum(depot_closes[:, m], latest)[out]
    return np.take_along_axis(starts, routes.trip, axis=1)
