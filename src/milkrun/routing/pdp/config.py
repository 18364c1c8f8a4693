"""The options of pickups and deliveries, its presets, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.core.config import option
from milkrun.core.errors import ConfigError
from milkrun.routing.generators.laws import DEPOT_TYPES
from milkrun.routing.vehicle import RoutingConfig
from milkrun.routing.vrp.config import MOST_DEPOTS

NO_LIMIT = 2**30
"""The capacity of a vehicle without limit."""


@dataclass(frozen=True, kw_only=True)
class PDPConfig(RoutingConfig):
    """Options of pickups and deliveries."""

    presets: ClassVar[Any] = {
        **RoutingConfig.presets,
        "mdcpdp": {"num_depots": 5, "capacity": 3},
        "mpdp": {"vehicles": 2, "most_vehicles": 10, "objective": "max"},
    }

    num_loc: int = option(20, "pickups and deliveries, an even number", low=2, high=10_000)
    depot_type: str = option("random", "place of the depots", choices=DEPOT_TYPES)
    num_depots: int = option(1, "depots, each with one kind of vehicle", low=1, high=MOST_DEPOTS)
    vehicles: int = option(1, "vehicles of each depot", low=1, high=2**30)
    most_vehicles: int | None = option(
        None, "the vehicles are drawn from `vehicles` to this number; None = not drawn", low=1, high=2**30
    )
    capacity: int | None = option(None, "units a vehicle holds; None = no limit", low=1, high=NO_LIMIT)
    max_demand: int = option(1, "largest amount of a pair drawn, in units", low=1, high=2**16)
    time_windows: bool = option(False, "windows and service times exist; no law draws them")
    limits: bool = option(False, "limits of distance and duration exist; no law draws them")
    fleet_costs: bool = option(False, "vehicles have fixed costs and costs of distance")
    search_limit: int = option(
        2000, "deliveries that the search for an order tries before it refuses a node", low=0, high=2**30
    )
    objective: str = option("sum", "sum of all costs, or the longest route", choices=("sum", "max"))
    unserved_cost: float | str = option(
        "auto", "cost of a node that a limited fleet leaves; auto = 10 sides of the box", low=0, words=("auto",)
    )

    def validate(self) -> None:
        super().validate()
        if self.num_loc % 2:
            raise ConfigError(f"num_loc = {self.num_loc}: pickups and deliveries are pairs, the number must be even")
        if self.most_vehicles is not None and self.most_vehicles < self.vehicles:
            raise ConfigError(f"most_vehicles = {self.most_vehicles} is below vehicles = {self.vehicles}")
        if self.objective == "max" and self.fleet_costs:
            raise ConfigError("objective = 'max' is the longest route: fleet_costs have no meaning")
        if self.truck < self.max_demand:
            raise ConfigError(
                f"capacity = {self.truck} is below max_demand = {self.max_demand}: no vehicle can take it"
            )

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.num_loc // 2

    @property
    def truck(self) -> int:
        """The capacity in force."""
        return NO_LIMIT if self.capacity is None else self.capacity

    @property
    def largest_fleet(self) -> int:
        """The largest number of vehicles of a depot."""
        return self.most_vehicles or self.vehicles

    @property
    def unserved_price(self) -> float:
        """The cost of an unserved node in force."""
        return 10.0 * self.side if isinstance(self.unserved_cost, str) else self.unserved_cost
