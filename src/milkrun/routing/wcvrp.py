"""Waste collection: empty the bins that pay for their detour or would overflow, within one truckload.

Observations: `locs`, `n_nodes`, `waste`, `max_waste`, `capacity`, `must_go`, `current_node`, `visited`, `load`,
    `collected`, `tour_length`, `trip_length`, `i` (and `dist` with a matrix, `max_length` where given).
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: bins not yet emptied whose waste fits the room left and whose trip fits `max_length`; a single trip
    reserves room for mandatory bins; the depot unless it would end the tour while a mandatory bin is open.
Ends: terminated on the first return (trips="single", the default here), or with trips="multi" by choosing the depot at
    the depot, or on a return after which no bin is open.
Reward: waste_weight * waste - length_weight * distance of each step; the last step also costs overflow_weight for every
    full bin left.
References: Ramos, de Morais, Barbosa-Povoa 2018 (smart waste collection routing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import constant, float32, float64, instance, int32, int64, state
from milkrun.core.instances import refuse
from milkrun.core.kernels import kernel
from milkrun.render.scene import Scene
from milkrun.routing.collect import Collect, CollectConfig
from milkrun.routing.generators.fills import FILL_ALIASES, FILL_LAWS, MUST_GO_LAWS
from milkrun.routing.generators.waste import generate_known as generate
from milkrun.routing.trips import (
    any_customer,
    begin_tour,
    drive,
    ends_tour,
    fault,
    free_room,
    mark_allowed,
    room_left,
    take,
)
from milkrun.routing.vehicle import write_down

FULL = 1.0 - 1e-6
"""The share of `max_waste` from which a bin overflows."""


@dataclass(frozen=True, kw_only=True)
class WasteConfig(CollectConfig):
    """Options of the waste worlds."""

    truck_bins: ClassVar[float] = 0.12  # capacity in bins for each customer
    thrift: ClassVar[float] = 0.55  # of the automatic length weight

    waste_weight: float = option(1.0, "reward of a unit of waste", low=0, high=1e30)
    overflow_weight: float | str = option(
        "auto", "cost of a bin that overflows; auto = 10 max_waste", low=0, high=1e30, words=("auto",)
    )
    capacity: float | str = option("auto", "capacity of the truck; auto by the size", low=0, words=("auto",))
    fill_distribution: str = option(
        "gamma1",
        "how bins fill in a day, or their level itself (uniform, beta, constant, dist)",
        choices=(*FILL_LAWS, *FILL_ALIASES),
    )
    fill_days: int = option(4, "the last emptying was 1..fill_days days ago", low=1, high=1000)
    fill_value: float = option(0.5, "level under the law 'constant', as a share of a bin", low=0, high=1)
    max_waste: float = option(1.0, "capacity of a bin; 100 gives percent", low=1e-6, high=1e9)
    must_go: str = option("random", "which bins are mandatory", choices=MUST_GO_LAWS[:3])
    must_go_rate: float = option(0.1, "chance of each bin under must_go='random'", low=0, high=1)
    must_go_level: float = option(0.9, "share of a bin from which must_go='level' makes it mandatory", low=0, high=1)

    def validate(self) -> None:
        super().validate()
        if self.truck < self.max_waste:
            raise ConfigError(
                f"capacity = {self.truck:g} is below max_waste = {self.max_waste:g}: a full bin would fit no truck"
            )

    def largest_rewards(self) -> dict[str, float]:
        waste = f"waste_weight = {self.waste_weight:g} times max_waste"
        return {**super().largest_rewards(), waste: self.waste_weight * self.max_waste}

    @property
    def truck(self) -> float:
        """The capacity in force."""
        if isinstance(self.capacity, str):
            return max(2.0, self.truck_bins * self.num_loc) * self.max_waste
        return self.capacity

    @property
    def overflow_price(self) -> float:
        """The overflow weight in force."""
        return 10.0 * self.max_waste if isinstance(self.overflow_weight, str) else self.overflow_weight

    def auto_length_weight(self) -> float:
        return self.thrift * math.sqrt(self.num_loc) / self.side * self.waste_weight * self.max_waste


@dataclass(frozen=True, kw_only=True)
class WCVRPConfig(WasteConfig):
    """Options of the WCVRP."""

    truck_bins: ClassVar[float] = 0.35
    thrift: ClassVar[float] = 0.6
    presets: ClassVar[Any] = {**WasteConfig.presets, "cf90": {"must_go": "level"}}


class Waste(Collect):
    """The waste worlds."""

    Config = WasteConfig
    config: WasteConfig

    usual = {**Collect.usual, "fill_law": FILL_LAWS.index("gamma1"), "must_go_law": MUST_GO_LAWS.index("random")}
    bin_size = constant(float64)
    truck = constant(float64)
    fill_law = constant(int64)
    fill_days = constant(int64)
    fill_value = constant(float64)
    must_go_law = constant(int64)
    must_go_rate = constant(float64)
    must_go_level = constant(float64)
    overflow_price = constant(float64)

    max_waste = instance(float32, low=0, column=True, doc="capacity of a bin")
    capacity = instance(float32, low=0, column=True, doc="capacity of the truck")

    synonyms: ClassVar[Any] = {
        "demand": "waste",
        "current_waste": "waste",
        "vehicle_cap": "capacity",
        "current_load": "load",
        "collected_waste": "collected",
    }
    priced = {"max_waste": "waste_weight"}  # no level exceeds it
    levels: ClassVar[str] = "waste"  # the field of the levels that the agent knows

    def constants(self) -> dict[str, Any]:
        law = self.config.fill_distribution
        return {
            **super().constants(),
            "gain_weight": self.config.waste_weight,
            "bin_size": self.config.max_waste,
            "fill_law": FILL_LAWS.index(FILL_ALIASES.get(law, law)),
            "must_go_law": MUST_GO_LAWS.index(self.config.must_go),
        }

    @classmethod
    def task_weights(cls, config: Any) -> dict[str, float]:
        return {"waste": config.waste_weight, "length": config.beta, "overflow": config.overflow_price}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        for synonym, name in (("vehicle_cap", "capacity"), ("current_waste", self.levels), ("demand", self.levels)):
            if synonym in values:
                values.setdefault(name, values[synonym])
                del values[synonym]
        values = super().arrange_instances(values)
        rows = len(values["n_nodes"])
        values.setdefault("capacity", np.full(rows, self.config.truck, np.float32))
        values.setdefault("max_waste", np.full(rows, self.config.max_waste, np.float32))
        return values

    def scene(self, row: int) -> Scene:
        """Bins drawn at their levels; visited bins are empty."""
        self.check_row(row)
        q = self.instance_row[row]
        n, waste = int(self.n_nodes[q]), self.waste_of(row) / self.max_waste[q]
        level = np.where(self.visited[row], 0.0, waste)[:n]
        return self.scene_of_choice(row, "bins", level=np.clip(level, 0, 1))

    def waste_of(self, row: int) -> np.ndarray:
        """The level of each bin before it is emptied."""
        return self._field_of_rows("waste")[row]

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        full = arrays["max_waste"]
        if (wrong := full <= 0).any():
            refuse("max_waste", full, wrong, "must be above 0")
        if (wrong := arrays["capacity"] < full).any():
            refuse("capacity", arrays["capacity"], wrong, "is below max_waste: a full bin would fit no truck")
        for name in ("waste", "expected0", "real_waste", "initial_waste"):
            if name in arrays and (over := (arrays[name] > full[:, None]) & self.true_nodes(arrays)).any():
                refuse(name, arrays[name], over, "is over max_waste")

    def room_of(self, row: int) -> float:
        return float(room_left.py_func(float(self.capacity[self.instance_row[row]]), float(self.load[row])))


class WCVRP(Waste):
    """Waste collection: empty the bins that pay for their detour or would overflow, within one truckload."""

    id = "milkrun/WCVRP-v0"
    Config: ClassVar[type[WasteConfig]] = WCVRPConfig
    config: WasteConfig
    task = "milkrun.routing.tasks:WCVRP"
    generator = "milkrun.routing.generators:WCVRPGenerator"
    customer_fields = ("waste", "must_go")

    waste = instance(float32, "N", low=0, doc="in each bin; 0 at the depot")
    overflows = state(int32, low=0, tally=True, doc="full bins left, counted at the end")

    def weight_of(self, row: int, node: int) -> float:
        return float(self.waste[self.instance_row[row], node])


@kernel
def reset(w, b):
    begin_tour(w, b)
    w.overflows[b] = 0
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    was_out = w.current_node[b] != 0
    leg = drive(w, b, q, action)
    write_down(w, b, action)
    if action != 0:
        waste = w.waste[q, action]
        take(w, b, action, waste, waste, w.must_go[q, action])
        w.reward[b] = w.gain_weight * waste - w.beta * leg
        mark(w, b)
        return
    ends = ends_tour(w, b, was_out)
    if not ends:
        mark(w, b)
        ends = not any_customer(w, b)
    full = count_full(w, b, w.waste, q) if ends else 0
    w.overflows[b] = full
    w.reward[b] = -w.beta * leg - w.overflow_price * full
    w.terminated[b] = ends


@kernel(inline=True)
def mark(w, b):
    q = w.instance_row[b]
    mark_allowed(w, b, w.waste, q, w.must_go, q, free_room(w, b, q))


@kernel
def count_full(w, b, level, r):
    """Counts the bins that overflow: full, and not emptied."""
    q = w.instance_row[b]
    full = np.float64(w.max_waste[q]) * FULL
    total = 0
    for j in range(1, w.n_nodes[q]):
        total += (not w.visited[b, j]) and level[r, j] >= full
    return total


Waste.bind(generate=generate, reset=reset, step=step, fault=fault, derive_mask=mark)

__all__ = ["WCVRP", "WCVRPConfig", "Waste", "WasteConfig", "count_full", "generate", "reset", "step"]
