"""The base of the profit and waste worlds, whose truck chooses its customers: options, fields, checks of instances.

The rules of a trip are kernels in `trips`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from milkrun.core.actions import discrete
from milkrun.core.config import option
from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.fields import (
    Field,
    Role,
    bool_,
    constant,
    float32,
    float64,
    instance,
    int32,
    int64,
    mask,
    state,
    view,
)
from milkrun.core.instances import refuse, refuse_where
from milkrun.render.scene import Bar, Chart, Scene, Style, Window
from milkrun.routing.base import HEURISTICS, LARGEST, SOLVER, refuse_beyond
from milkrun.routing.distance import EARTH_RADIUS_KM, TOL
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.trips import detour_fits, in_time
from milkrun.routing.vehicle import OVER_CAPACITY, Routing, RoutingConfig

TRIPS = ("single", "multi")


STOPS = {
    "drive": Style("drives (\u2192 customer)", "ink"),
    "wait": Style("waits", "muted", hatched=True),
    "serve": Style("serves", 0),
}
"""The styles of a truck's activities in a chart."""


@dataclass(frozen=True, kw_only=True)
class CollectConfig(RoutingConfig):
    """Options of every world in which customers are chosen."""

    synonyms: ClassVar[Mapping[str, str]] = {"vehicle_cap": "capacity"}

    depot_type: str = option("random", "place of the depot", choices=DEPOT_TYPES)
    trips: str = option("single", "single: the first return ends the tour; multi: it empties the truck", choices=TRIPS)
    max_length: float | None = option(None, "limit of one trip's length, the leg home included; None = none", low=0)
    length_weight: float | str = option(
        "auto",
        "price of a unit of length; auto makes skipping worthwhile at any size",
        low=0,
        high=1e30,
        words=("auto",),
    )
    must_go_reserve: bool = option(True, "single trips reserve room for the unserved mandatory customers")

    def validate(self) -> None:
        super().validate()
        for what, most in self.largest_rewards().items():
            if not most <= LARGEST:
                raise ConfigError(f"{what} is {most:g}: rewards would not be finite; at most {LARGEST:g} is allowed")

    def largest_rewards(self) -> dict[str, float]:
        """The largest rewards of a leg and of a customer, by what they come from."""
        # On a globe, given places may lie anywhere.
        longest = math.pi * EARTH_RADIUS_KM if self.metric == "haversine" else self.side
        return {f"length_weight = {self.beta:g} times a leg of {longest:g}": self.beta * longest}

    @property
    def beta(self) -> float:
        """The length weight in force."""
        return self.auto_length_weight() if isinstance(self.length_weight, str) else self.length_weight

    def auto_length_weight(self) -> float:
        raise NotImplementedError("each world has its own")


class Collect(Routing):
    """A truck leaves the depot, serves customers of its choice, and returns."""

    Config = CollectConfig
    config: CollectConfig
    policies = {"greedy": "milkrun.solvers.policies:greedy", **Routing.policies}
    solvers: ClassVar[Any] = dict.fromkeys((*HEURISTICS, "exact", "pyvrp"), SOLVER)
    action = discrete("N")

    depot_law = constant(int64)
    multi = constant(int64)
    reserves = constant(int64)
    trip_limit = constant(float64)
    beta = constant(float64)
    gain_weight = constant(float64)

    must_go = instance(bool_, "N", doc="mandatory customers")
    max_length = instance(float32, low=0, limit=True, doc="limit of one trip's length, the leg home included")
    time_windows = instance(float32, "V", 2, low=0, doc="earliest and latest arrival; only with time_windows")
    service_time = instance(float32, "V", low=0, doc="time a stop takes; only with time_windows")
    speed = instance(float32, "U", low=0, doc="length driven in a unit of time; only with time_windows")
    collected = state(float32, low=0, doc="collected so far")
    load = state(float32, low=0, column=True, doc="on the truck")
    trip_length = state(float32, low=0, doc="distance driven since the depot")
    current_time = state(float32, "U", low=0, doc="when the truck is ready to leave; only with time_windows")
    trips = state(int32, low=0, tally=True, doc="returns to the depot from a customer")
    skipped = state(int32, low=0, tally=True, doc="customers not served")
    missed_must_go = state(int32, low=0, tally=True, doc="mandatory customers not served")
    length = view(float32, doc="distance driven, the same as `tour_length`")
    action_mask = mask("N")

    faults = {**Routing.faults, **OVER_CAPACITY}

    usual: ClassVar[Mapping[str, int]] = {**Routing.usual, "depot_law": DEPOT_TYPES.index("random")}
    priced: ClassVar[Mapping[str, str]] = {}  # amount -> the option with its unit price
    windows: ClassVar[bool] = False  # the world has the option `time_windows`

    @classmethod
    def size_of(cls, config: Any) -> dict[str, int]:
        timed = cls.windows and config.time_windows
        return {
            **cls.space(config),
            "A": cls.record_size(config),
            "V": config.num_loc + 1 if timed else 0,
            "U": int(timed),
        }

    @classmethod
    def record_size(cls, config: Any) -> int:
        """The most actions of an episode; at least every other one serves a new customer."""
        return 2 * (config.num_loc + 1) if config.record else 0

    def constants(self) -> dict[str, Any]:
        limit = self.config.max_length
        return {
            **super().constants(),
            "depot_law": self.depot_code(),
            "multi": TRIPS.index(self.config.trips),
            "reserves": int(self.config.must_go_reserve),
            "trip_limit": math.inf if limit is None else limit,
        }

    @classmethod
    def task_options(cls, config: Any) -> dict[str, Any]:
        return {**super().task_options(config), "trips": config.trips, "must_go_reserve": config.must_go_reserve}

    @property
    def info_fields(self) -> list[Field]:
        """Includes the fields of the report of a finished row."""
        names = ("collected", "trips", "skipped", "missed_must_go", "overflows", "failures", "lost")
        return [*super().info_fields, *(self.fields[name] for name in names if name in self.fields)]

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "start_time" in values and "end_time" in values:
            values["time_windows"] = np.stack([values.pop("start_time"), values.pop("end_time")], axis=-1)
        if "depot" in values and getattr(values.get("time_windows"), "ndim", 0) == 3:
            values = _with_depot_window(values)
        values = super().arrange_instances(values)
        rows = len(values["n_nodes"])
        values.setdefault("max_length", np.full(rows, self.trip_limit, np.float32))
        if self.fields["must_go"].role is Role.INSTANCE:
            values.setdefault("must_go", np.zeros((rows, self.sizes["N"]), bool))
        if self.sizes["U"]:
            values.setdefault("service_time", np.zeros((rows, self.sizes["N"]), np.float32))
            values["speed"] = np.asarray(values.get("speed", np.ones(rows, np.float32))).reshape(rows, 1)
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        self._check_unit(arrays)
        self._check_rewards(arrays)
        at_depot = np.eye(1, self.sizes["N"], dtype=bool)
        # Noise is a factor, not an amount; it is drawn for the depot too, whose level is 0.
        for name in (*self.customer_fields, "service_time"):
            if name in arrays and arrays[name].size and arrays[name][..., 0].any() and name != "sensor_noise":
                refuse(name, arrays[name], at_depot & (arrays[name] != 0), "the depot has none")
        if "time_windows" in arrays:
            opens, closes = arrays["time_windows"][..., 0], arrays["time_windows"][..., 1]
            if (opens > closes).any():
                refuse("time_windows", closes, opens > closes, "the window closes before it opens")
            if (still := arrays["speed"] <= 0).any():
                refuse("speed", arrays["speed"], still, "must be above 0")

    def check_states(self, arrays: dict[str, np.ndarray]) -> None:
        """The objective is at most the value collected: everything else costs."""
        super().check_states(arrays)
        objective, gained = arrays["objective"], self.gain_weight * arrays["collected"].astype(np.float64)
        slack = (arrays["i"] + 1) * 2.0**-22 * gained  # each step rounds rewards and `collected` to float32
        refuse_where("objective", objective, objective > gained + slack, "is more than was collected")

    def _check_unit(self, arrays: dict[str, np.ndarray]) -> None:
        """Refuses lengths beyond the box, for which the automatic length weight is not scaled."""
        c = self.config
        if c.length_weight != "auto" or c.map_name is not None:
            return
        rule = (
            f"more than twice the side of the box of min_loc = {c.min_loc:g} and max_loc = {c.max_loc:g}, by which "
            "length_weight = 'auto' is set; give length_weight, the price of a unit of your lengths"
        )
        if "dist" in arrays:
            refuse_where("dist", arrays["dist"], arrays["dist"] > 2.0 * c.side, rule)
        else:
            places = np.where(self.true_nodes(arrays)[..., None], arrays["locs"], arrays["locs"][:, :1])
            apart = np.abs(places - places[:, :1])
            refuse_where("locs", arrays["locs"], apart > 2.0 * (c.max_loc - c.min_loc), f"from the depot it is {rule}")

    def _check_rewards(self, arrays: dict[str, np.ndarray]) -> None:
        """Refuses lengths and amounts whose rewards would not be finite."""
        prices = {name: (weight, float(getattr(self.config, weight))) for name, weight in self.priced.items()}
        if "dist" in arrays:
            prices["dist"] = "length_weight", self.beta
        elif self.config.metric != "haversine":  # `largest_rewards` already bounds the legs there
            prices["locs"] = "length_weight", 40.0 * self.beta  # a leg is at most four coordinates long, 40 in tenths
        for name, (weight, price) in prices.items():
            refuse_beyond(name, arrays[name], LARGEST / max(price, 1.0), f"no finite reward under {weight}")

    def check_weights(self, arrays: dict[str, np.ndarray], name: str) -> None:
        """Refuses customers that weigh more than the capacity."""
        weight, capacity = arrays[name].astype(np.float64), arrays["capacity"].astype(np.float64)
        if (wrong := capacity <= 0).any():
            refuse("capacity", capacity, wrong, "must be above 0")
        # `room_left` of an empty truck, so that the mask opens every customer that passes.
        over = weight > capacity[:, None] + np.minimum(0.5, TOL * np.maximum(1.0, capacity))[:, None]
        over &= self.true_nodes(arrays)
        if over.any():
            row = int(np.argwhere(over)[0][0])
            refuse(name, weight, over, f"over the capacity {capacity[row]:g}: no truck can take it")

    def true_nodes(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """(Q, N) True at nodes that are no padding."""
        return np.arange(self.sizes["N"]) < arrays["n_nodes"][:, None]

    def scene_of_choice(self, row: int, name: str, *amounts: Any, **more: Any) -> Scene:
        """Customers, some of them mandatory, and the amounts collected so far."""
        n = int(self.n_nodes[self.instance_row[row]])
        must = self.must_go_of(row)[:n]
        s = self.scene_of_nodes(row, name, *amounts, ring=must & ~self.visited[row, :n], **more)
        if must.any() or "day" in self.fields:
            s.legend("must go", "ink", "ring")
        s.figure("collected", self.collected[row])
        for f in ("overflows", "failures"):
            if f in self.fields:
                s.figure(f, getattr(self, f)[row])
        if "capacity" in self.fields:
            s.gauge("load", self.load[row], self._field_of_rows("capacity")[row])
        return s

    chart_fields: ClassVar[tuple[str, ...]] = ("current_node",)

    def chart(self, row: int, frames: Mapping[str, np.ndarray]) -> Chart | None:
        """With time windows the timetable: a lane for each trip, each with its own clock."""
        if not self.sizes["U"]:
            return None
        q, nodes = self.instance_row[row], frames["current_node"].tolist()
        windows, service = self.time_windows[q].astype(float), self.service_time[q].astype(float)
        bars, stops, now, trip = list[Bar](), dict[int, tuple[float, str]](), 0.0, 1
        for at, (here, node) in enumerate(pairwise(nodes), start=1):
            if node == here:  # the truck stayed where it was
                continue
            lane, there = f"trip {trip}", now + self.leg(q, here, node) / float(self.speed[q, 0])
            bars.append(Bar(lane, "drive", now, there, f"\u2192{node}" if node else "", at))
            now, trip = (there, trip) if node else (0.0, trip + 1)
            if node:
                opens = max(there, float(windows[node, 0]))
                # The mask closes customers after their window; any excess is rounding.
                stops[node] = min(there, float(windows[node, 1])), lane
                bars += [Bar(lane, "wait", there, opens, "", at)] if opens > there else []
                now = opens + service[node]
                bars += [Bar(lane, "serve", opens, now, str(node), at)] if now > opens else []
        shown = [
            Window(f"customer {j}", *windows[j].tolist(), *stops.get(j, (None, "")))
            for j in range(1, int(self.n_nodes[q]))
        ]
        lanes = tuple(dict.fromkeys(bar.lane for bar in bars))
        return Chart(lanes, tuple(bars), windows=tuple(shown), unit="time since the start of the trip", kinds=STOPS)

    # -- why an action is closed ------------------------------------------------------------------------------

    def why_illegal(self, row: int, action: int) -> str:
        q = self.instance_row[row]
        if not 0 <= action < self.n_nodes[q]:
            return f"out of range 0..{self.n_nodes[q] - 1}"
        if action == 0:
            must = self.must_go_of(row)
            waits = np.flatnonzero(self.action_mask[row] & must)
            return f"depot closed by must-go {int(waits[0])}" if len(waits) else "the depot is closed"
        if self.visited[row, action]:
            return "visited"
        weight, room = self.weight_of(row, action), self.room_of(row)
        if weight > room:
            return f"over capacity: {float(self.load[row]):g} + {weight:g} is over it"
        limit = float(self.max_length[q])
        if limit < math.inf and self.map_rows(detour_fits, np.int64, action, row)[row] == 0:
            return f"too long: the trip would be over {limit:g}"
        if self.sizes["U"] and self.map_rows(in_time, np.int64, action, row)[row] == 0:
            return "too late for its window, or for that of the depot afterwards"
        return "over capacity: room is reserved for the must-go customers"

    def must_go_of(self, row: int) -> np.ndarray:
        return self.must_go[self.instance_row[row]]

    def weight_of(self, row: int, node: int) -> float:
        return 0.0

    def room_of(self, row: int) -> float:
        return math.inf


def _with_depot_window(values: dict[str, Any]) -> dict[str, Any]:
    """Adds an always open window and no service time for the depot to arrays of customers only."""
    windows, customers = values["time_windows"], values["locs"].shape[1]
    if windows.shape[1] == customers:
        always = np.zeros_like(windows[:, :1])
        # Not inf: windows must be finite.
        always[..., 1] = np.finfo(np.float32).max
        values["time_windows"] = np.concatenate([always, windows], axis=1)
    service = values.get("service_time")
    if service is not None:
        if service.ndim != 2:
            raise ShapeError(f"service_time {service.shape} must be (B, n), one for each customer")
        if service.shape[1] == customers:
            values["service_time"] = np.concatenate([np.zeros_like(service[:, :1]), service], axis=1)
    return values
