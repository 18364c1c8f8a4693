"""Capacitated vehicle routing with profits: the VRPP with weights and a truck of limited capacity.

Observations: as in the VRPP, and `weight`, `capacity`, `load`.
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: as in the VRPP, and the customer's weight fits the room left; a single trip reserves room for mandatory ones.
Ends: as in the VRPP; with trips="multi" a return empties the truck.
Reward: prize_weight * prize - length_weight * distance of each step; the return is the net profit.
References: Archetti, Speranza, Vigo 2014 (vehicle routing with profits); Bulhoes et al. 2018 (prize-collecting files).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import constant, float32, float64, instance, int64
from milkrun.core.kernels import kernel
from milkrun.routing.generators.profits import MAX_UNITS, WEIGHT_LAWS
from milkrun.routing.generators.profits import generate_capacitated as generate
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
from milkrun.routing.vrpp import Profit, ProfitConfig

ROOM = {"prize": 30.0, "units": 1.5, "one": 0.3}
"""Capacity for each customer by the law of the weights: full trucks, with half of the customers left."""


WINDOWS = {"trips": "multi", "time_windows": True, "length_weight": 1.0, "prize_weight": 1.0}
"""Options for files with time windows: mandatory customers without a prize, or optional ones with prizes."""


@dataclass(frozen=True, kw_only=True)
class CVRPPConfig(ProfitConfig):
    """Options of the CVRPP."""

    weight_law: str = option(
        "prize", "prize: weight = prize; units: whole numbers 1..9; one: all 1", choices=WEIGHT_LAWS
    )
    capacity: float | str = option("auto", "capacity of a truck; auto by law and size", low=0, words=("auto",))

    def validate(self) -> None:
        super().validate()
        if self.truck < self.heaviest:
            raise ConfigError(
                f"capacity = {self.truck:g} is below {self.heaviest:g}, the largest weight drawn: no truck can take it"
            )

    @property
    def heaviest(self) -> float:
        """The largest weight that the law can draw."""
        largest = 100.0 if self.prize_distribution == "dist" else self.max_prize
        return {"prize": largest, "units": float(MAX_UNITS), "one": 1.0}[self.weight_law]

    @property
    def truck(self) -> float:
        """The capacity in force."""
        if isinstance(self.capacity, str):
            return max(ROOM[self.weight_law] * self.num_loc, self.heaviest)
        return self.capacity

    def auto_length_weight(self) -> float:
        return 40.0 * math.sqrt(self.num_loc) / self.side


class CVRPP(Profit):
    """Capacitated vehicle routing with profits: serve the customers that pay for their detour and fit the truck."""

    id = "milkrun/CVRPP-v0"
    Config = CVRPPConfig
    config: CVRPPConfig
    task = "milkrun.routing.tasks:CVRPP"
    file_kinds = {"CVRPTW": WINDOWS, "PCVRPTW": WINDOWS}
    customer_fields = ("prize", "weight", "must_go")
    synonyms = {"demand": "prize", "collected_profit": "collected", "current_load": "load"}

    usual = {**Profit.usual, "weight_law": WEIGHT_LAWS.index("prize")}
    weight_law = constant(int64)
    truck = constant(float64)

    weight = instance(float32, "N", low=0, doc="weight of a customer; 0 at the depot")
    capacity = instance(float32, low=0, column=True, doc="capacity of the truck")

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "weight_law": WEIGHT_LAWS.index(self.config.weight_law)}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "vehicle_cap" in values:
            values.setdefault("capacity", values.pop("vehicle_cap"))
        values = super().arrange_instances(values)
        if "weight" not in values and "prize" in values and self.config.weight_law == "prize":
            values["weight"] = values["prize"]
        values.setdefault("capacity", np.full(len(values["n_nodes"]), self.config.truck, np.float32))
        return values

    def check_instances(self, arrays: dict[str, np.ndarray]) -> None:
        super().check_instances(arrays)
        self.check_weights(arrays, "weight")

    def weight_of(self, row: int, node: int) -> float:
        return float(self.weight[self.instance_row[row], node])

    def room_of(self, row: int) -> float:
        return float(room_left.py_func(float(self.capacity[self.instance_row[row]]), float(self.load[row])))


@kernel
def reset(w, b):
    begin_tour(w, b)
    mark(w, b)


@kernel(inline=True)
def step(w, b, action):
    q = w.instance_row[b]
    was_out = w.current_node[b] != 0
    leg = drive(w, b, q, action)
    write_down(w, b, action)
    if action != 0:
        take(w, b, action, w.prize[q, action], w.weight[q, action], w.must_go[q, action])
        w.reward[b] = w.gain_weight * w.prize[q, action] - w.beta * leg
        mark(w, b)
        return
    w.reward[b] = -w.beta * leg
    ends = ends_tour(w, b, was_out)
    if not ends:
        mark(w, b)
        ends = not any_customer(w, b)
    w.terminated[b] = ends


@kernel(inline=True)
def mark(w, b):
    q = w.instance_row[b]
    mark_allowed(w, b, w.weight, q, w.must_go, q, free_room(w, b, q))


CVRPP.bind(generate=generate, reset=reset, step=step, fault=fault, derive_mask=mark)

__all__ = ["CVRPP", "CVRPPConfig", "generate", "reset", "step"]
