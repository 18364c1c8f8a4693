"""The options of vehicle routing, its presets, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.routing.cvrp import CAPACITY
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.vehicle import RoutingConfig
from milkrun.routing.vrp.variants import MIXTURES, VARIANTS, Attributes

LAWS = ("routefinder", "rl4co", "mvmoe", "skills")
MOST_DEPOTS = 63  # a depot is a bit of an int64


def own_capacity(law: str, n: int) -> int:
    """The capacity of a law for n customers."""
    if law == "mvmoe":
        return CAPACITY[min(CAPACITY, key=lambda size: (abs(size - n), size))]
    if n <= 20:
        return 30
    return 30 + n // 5 if n <= 1000 else 230 + int((n - 1000) / 33.3)


@dataclass(frozen=True, kw_only=True)
class VRPConfig(RoutingConfig):
    """Options of vehicle routing."""

    presets: ClassVar[Any] = {
        **RoutingConfig.presets,
        **{name: {"variant": name} for name in VARIANTS},
        "sdvrp": {"split": True, "law": "mvmoe"},
        "mtsp": {"max_demand": 0, "vehicles": 5, "objective": "max"},
        "mtsp_sum": {"max_demand": 0, "vehicles": 5},
        "svrp": {
            "law": "skills",
            "num_depots": 3,
            "vehicles": 1,
            "max_demand": 0,
            "restricted": True,
            "fleet_costs": True,
        },
    }

    depot_type: str = option("random", "place of the depots", choices=DEPOT_TYPES)
    variant: str = option("cvrp", "one of the 48 variants, or a mixture of them", choices=(*VARIANTS, *MIXTURES))
    law: str = option("routefinder", "law of capacities, windows, limits and backhauls", choices=LAWS)
    prob_open: float | None = option(None, "share of rows with open routes; None = by variant", low=0, high=1)
    prob_windows: float | None = option(None, "share of rows with time windows; None = by variant", low=0, high=1)
    prob_limit: float | None = option(None, "share of rows with a distance limit; None = by variant", low=0, high=1)
    prob_backhaul: float | None = option(None, "share of rows with backhauls; None = by variant", low=0, high=1)
    time_windows: bool | None = option(None, "windows and service times exist; None = by variant")
    limits: bool | None = option(None, "limits of distance and duration exist; None = by variant")
    backhauls: bool | None = option(None, "backhauls exist; None = by variant")
    num_depots: int | None = option(
        None, "depots, each with one kind of vehicle; None = 1, or 3 by variant", low=1, high=MOST_DEPOTS
    )
    vehicles: int | None = option(None, "vehicles of each depot; None = no limit", low=1, high=2**30)
    capacity: int | None = option(None, "units a vehicle holds; None = by law", low=1, high=2**30)
    max_demand: int = option(9, "largest demand drawn, in units; 0 = none", low=0, high=2**30)
    backhaul_ratio: float = option(0.2, "share of the customers that are backhauls", low=0, high=1)
    backhaul_only: bool = option(True, "a route may consist of backhauls while a linehaul is unserved")
    split: bool = option(False, "a delivery may be split between vehicles")
    restricted: bool = option(False, "`serves` says which depot may serve whom")
    fleet_costs: bool = option(False, "vehicles have fixed costs and costs of distance")
    objective: str = option("sum", "sum of all costs, or the longest route", choices=("sum", "max"))
    unserved_cost: float | str = option(
        "auto", "cost of a customer that a limited fleet leaves; auto = 10 sides of the box", low=0, words=("auto",)
    )

    def validate(self) -> None:
        super().validate()
        drawn = ("prob_open", "prob_windows", "prob_limit", "prob_backhaul")
        given = [name for name in drawn if getattr(self, name) is not None]
        if given and self.variant != "cvrp":
            raise ConfigError(f"variant = {self.variant!r} and {given[0]}: give one of them")
        odds = self.odds
        for name, exists in (("time_windows", odds.windows), ("limits", odds.limit), ("backhauls", odds.backhaul)):
            if getattr(self, name) is False and exists:
                raise ConfigError(f"{name} = False, but the variant draws them")
        if odds.depots and self.depots == 1:
            raise ConfigError(f"variant = {self.variant!r} has several depots: num_depots = 1")
        if self.split and self.has_backhauls:
            raise ConfigError("split = True: deliveries are split in rows without backhauls only")
        if self.objective == "max" and self.fleet_costs:
            raise ConfigError("objective = 'max' is the longest route: fleet_costs have no meaning")
        if not self.split and self.truck < self.max_demand:
            raise ConfigError(
                f"capacity = {self.truck} is below max_demand = {self.max_demand}: no vehicle can take it"
            )

    @property
    def odds(self) -> Attributes:
        """The probability of each attribute in a drawn row."""
        found = {**VARIANTS, **MIXTURES}[self.variant]
        given: dict[str, Any] = {
            "open": self.prob_open,
            "windows": self.prob_windows,
            "limit": self.prob_limit,
            "backhaul": self.prob_backhaul,
        }
        return found._replace(**{name: value for name, value in given.items() if value is not None})

    @property
    def depots(self) -> int:
        """The number of depots in force."""
        return self.num_depots or (3 if self.odds.depots else 1)

    @property
    def has_windows(self) -> bool:
        return self._exists(self.time_windows, self.odds.windows, 5)

    @property
    def has_limits(self) -> bool:
        return self._exists(self.limits, self.odds.limit, 4)

    @property
    def has_backhauls(self) -> bool:
        return self._exists(self.backhauls, self.odds.backhaul, 3)

    def _exists(self, given: bool | None, probability: float, single: int) -> bool:
        return given if given is not None else probability > 0 or self.odds.single >= single

    @property
    def truck(self) -> int:
        """The capacity in force."""
        return self.capacity or own_capacity(self.law, self.num_loc)

    @property
    def fleet(self) -> int:
        """The vehicles of each depot; by default as many as any plan needs."""
        return self.most_routes if self.vehicles is None else self.vehicles

    @property
    def most_routes(self) -> int:
        """The most routes of a plan: each serves a customer to the end or, with split deliveries, is full."""
        return self.num_loc + (self.num_loc * self.max_demand // self.truck if self.split else 0)

    @property
    def unserved_price(self) -> float:
        """The cost of an unserved customer in force."""
        return 10.0 * self.side if isinstance(self.unserved_cost, str) else self.unserved_cost
