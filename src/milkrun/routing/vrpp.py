"""Vehicle routing with profits: visit the customers that pay for their detour, then return.

Observations: `locs`, `n_nodes`, `prize`, `must_go`, `current_node`, `visited`, `tour_length`, `trip_length`,
    `collected`, `i` (and `dist` with a matrix, `max_length` where given; `time_windows`, `service_time`,
    `speed`, `current_time` with windows).
Actions: the node to go to, Discrete(num_loc + 1); 0 is the depot.
Mask: customers not yet visited from which the trip can return in time and within `max_length`; the depot unless it
    would end the tour while a mandatory customer is open.
Ends: terminated on the first return (trips="single"), or with trips="multi" by choosing the depot at the depot, or on a
    return after which no customer is open.
Reward: prize_weight * prize - length_weight * distance of each step; the return is the net profit.
References: Feillet, Dejax, Gendreau 2005 (profitable tour); Kool et al. 2019 (prize laws).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.core.fields import constant, float32, float64, instance, int64, state
from milkrun.core.kernels import kernel
from milkrun.render.scene import Scene
from milkrun.routing.collect import Collect, CollectConfig
from milkrun.routing.generators.profits import PRIZE_LAWS, generate
from milkrun.routing.trips import any_customer, begin_tour, drive, ends_tour, mark_allowed, take
from milkrun.routing.vehicle import write_down


@dataclass(frozen=True, kw_only=True)
class ProfitConfig(CollectConfig):
    """Options of the worlds with prizes."""

    prize_weight: float = option(1.0, "reward of a unit of prize", low=0, high=1e30)
    min_prize: float = option(1, "smallest prize drawn", low=0, high=1e9)
    max_prize: float = option(100, "largest prize drawn", low=0, high=1e9)
    prize_distribution: str = option(
        "uniform",
        "whole numbers min_prize..max_prize; const: all max_prize; dist: grows with the distance from the depot, "
        "1..100; continuous: any number between",
        choices=PRIZE_LAWS,
    )
    time_windows: bool = option(False, "customers have windows and service times")

    def validate(self) -> None:
        super().validate()
        if self.min_prize > self.max_prize:
            raise ConfigError(f"min_prize = {self.min_prize} is above max_prize = {self.max_prize}")
        whole = self.min_prize == math.floor(self.min_prize) and self.max_prize == math.floor(self.max_prize)
        if self.prize_distribution == "uniform" and not whole:
            raise ConfigError(
                f"min_prize = {self.min_prize}, max_prize = {self.max_prize}: the law 'uniform' draws "
                "whole numbers; 'continuous' draws any"
            )

    def largest_rewards(self) -> dict[str, float]:
        # The law 'dist' draws up to 100.
        prize = f"prize_weight = {self.prize_weight:g} times the largest prize"
        return {**super().largest_rewards(), prize: self.prize_weight * max(self.max_prize, 100.0)}


@dataclass(frozen=True, kw_only=True)
class VRPPConfig(ProfitConfig):
    """Options of the VRPP."""

    presets: ClassVar[Any] = {
        **CollectConfig.presets,
        "published": {"length_weight": 0.1},
        **{
            f"op{law}{n}": {
                "num_loc": n,
                "prize_distribution": distribution,
                "prize_weight": 0.01,
                "length_weight": 0.0,
                "max_length": longest,
            }
            for law, distribution in (("", "dist"), ("_unif", "uniform"), ("_const", "const"))
            for n, longest in ((20, 2.0), (50, 3.0), (100, 4.0))
        },
    }

    def auto_length_weight(self) -> float:
        return 60.0 * math.sqrt(self.num_loc) / self.side


class Profit(Collect):
    """The worlds with prizes."""

    Config = ProfitConfig
    config: ProfitConfig
    generator = "milkrun.routing.generators:VRPPGenerator"
    windows = True
    priced = {"prize": "prize_weight"}

    usual = {**Collect.usual, "prize_law": PRIZE_LAWS.index("uniform")}
    prize_law = constant(int64)
    min_prize = constant(float64)
    max_prize = constant(float64)

    prize = instance(float32, "N", low=0, doc="for serving a customer; 0 at the depot")

    def constants(self) -> dict[str, Any]:
        return {
            **super().constants(),
            "gain_weight": self.config.prize_weight,
            "prize_law": PRIZE_LAWS.index(self.config.prize_distribution),
        }

    @classmethod
    def task_weights(cls, config: Any) -> dict[str, float]:
        return {"prize": config.prize_weight, "length": config.beta}

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        if "demand" in values:
            values.setdefault("prize", values["demand"])
            del values["demand"]
        return super().arrange_instances(values)

    def scene(self, row: int) -> Scene:
        self.check_row(row)
        prize = self.prize[self.instance_row[row]]
        return self.scene_of_choice(row, "customers", prize, lambda: [f"prize {p:g}" for p in prize.tolist()])


class VRPP(Profit):
    """Vehicle routing with profits: visit the customers that pay for their detour."""

    id = "milkrun/VRPP-v0"
    Config = VRPPConfig
    config: VRPPConfig
    task = "milkrun.routing.tasks:VRPP"
    file_kinds = {"OP": {"length_weight": 0.0, "trips": "single"}}
    customer_fields = ("prize", "must_go")
    synonyms = {"demand": "prize", "collected_profit": "collected"}

    load = state(float32, tally=True, doc="stays 0: the truck has no limit")

    def arrange_instances(self, values: dict[str, Any]) -> dict[str, Any]:
        values.pop("capacity", None)  # generators return the same keys for both worlds; here it is infinite
        return super().arrange_instances(values)


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
        take(w, b, action, w.prize[q, action], 0.0, w.must_go[q, action])
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
    mark_allowed(w, b, w.prize, q, w.must_go, q, np.inf)


Profit.bind(generate=generate, reset=reset, step=step, derive_mask=mark)

__all__ = ["VRPP", "Profit", "ProfitConfig", "VRPPConfig", "generate", "reset", "step"]
