"""The options of the truck-and-drones world: one configuration for both rule sets, with the defaults of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from milkrun.core.config import RuledConfig, option
from milkrun.core.errors import ConfigError

RULES = ("sound", "published")
ENDS = ("served", "returned", "depot")
LAWS = ("none", "published", "band")

BY_RULES: dict[str, dict[str, Any]] = {
    "sound": {
        "num_customers": 6,
        "num_route_nodes": 6,
        "depot_node": True,
        "tw_law": "band",
        "tw_start_max": 0.3,
        "tw_width": (0.1, 0.25),
        "battery_rate": 0.4,
        "payload_factor": 0.5,
        "hover_rate": 0.2,
        "recovery_charge": 0.0,
        "charge_rate": 0.3,
        "battery_rule": "safe",
        "battery_margin": 1.0,
        "pickup": "truck",
        "reserve": True,
        "early": "wait",
        "end": "returned",
        "road_graph": False,
        "obey_mask": True,
        "obs": "v2",
        "completion_bonus": 20.0,
        "incomplete_penalty": 10.0,
        "energy_cost": 0.5,
        "late_penalty": 0.1,
        "crash_penalty": 10.0,
    },
    "published": {
        "num_customers": 3,
        "num_route_nodes": 5,
        "depot_node": False,
        "tw_law": "published",
        "battery_rate": 0.01,
        "obey_mask": False,
        "obs": "v1",
        "completion_bonus": 100.0,
        "incomplete_penalty": 20.0,
        "energy_cost": 0.01,
    },
}
"""The options of each rule set that differ, and their defaults."""


@dataclass(frozen=True, kw_only=True)
class TruckDroneConfig(RuledConfig):
    """Options of the truck-and-drones world. Options that are None have a default by the rules."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "published": {"rules": "published"}}
    rule_option: ClassVar[str] = "rules"
    by_rule: ClassVar[Mapping[str, Mapping[str, Any]]] = BY_RULES

    rules: str = option(
        "sound", "sound: calibrated, drones never crash; published: as in the public environment", choices=RULES
    )
    num_drones: int = option(2, "drones", low=1, high=64)
    num_customers: int | None = option(None, "customers: 6, or 3 under published", low=1, high=1000)
    num_route_nodes: int | None = option(None, "nodes of the truck: 6, or 5 under published", low=1, high=1000)
    episode_length: int = option(200, "steps L of an episode; windows and clocks scale with it", low=3, high=10**6)
    dt: float = option(0.1, "time units in a step", low=1e-6, high=1e3)
    truck_speed: float = option(1.0, "distance in a time unit", low=0, high=1e3)
    drone_speed: float = option(2.0, "distance in a time unit", low=1e-6, high=1e3)
    delivery_threshold: float = option(0.05, "parcels are delivered within this distance", low=0, high=10)
    recovery_threshold: float = option(0.1, "drones board the truck within this distance", low=0, high=10)
    drone_capacity: int = option(3, "places for drones on the truck; published: not enforced", low=1, high=10**6)
    depot_node: bool | None = option(None, "node 0 is in the middle, where the truck starts: True; published: False")
    route_radius: float = option(0.6, "radius of the circle of nodes", low=1e-6, high=1)
    customer_extent: float = option(0.8, "customers lie in [-extent, extent]^2", low=1e-6, high=1)
    demand_low: float = option(0.5, "smallest parcel, share of the payload", low=1e-6, high=1)
    demand_high: float = option(1.0, "largest parcel, share of the payload", low=1e-6, high=1)
    tw_law: str | None = option(
        None, "windows: none, published (wide) or band (narrow): band; published: published", choices=LAWS
    )
    tw_start_max: float | None = option(None, "sound: band law: latest opening, share of L: 0.3", low=0, high=1)
    tw_width: tuple[float, float] | None = option(
        None, "sound: band law: least and greatest width, shares of L: (0.1, 0.25)"
    )
    battery_rate: float | None = option(
        None, "battery for a unit of distance: 0.4, or 0.01 under published", low=0, high=1e3
    )
    payload_factor: float | None = option(
        None, "sound: energy is multiplied by 1 + factor * parcel under load: 0.5", low=0, high=1e3
    )
    hover_rate: float | None = option(None, "sound: battery for a time unit of hovering: 0.2", low=0, high=1e3)
    recovery_charge: float | None = option(None, "sound: battery gained at a recovery: 0", low=0, high=1)
    charge_rate: float | None = option(None, "sound: battery gained in a time unit on board: 0.3", low=0, high=1e3)
    battery_rule: str | None = option(
        None,
        "sound: safe (the default): masks actions that might strand a drone; off: does not",
        choices=("safe", "off"),
    )
    battery_margin: float | None = option(None, "sound: reserve, as a factor of the worst return: 1", low=1, high=1e3)
    pickup: str | None = option(
        None, "sound: parcels are loaded at the truck (the default), or anywhere in the air", choices=("truck", "air")
    )
    reserve: bool | None = option(None, "sound: a carried parcel is closed to other drones: True")
    early: str | None = option(
        None, "sound: on arrival before the window: wait (the default) or ignore it", choices=("wait", "ignore")
    )
    end: str | None = option(
        None,
        "sound: complete when all are served; and drones returned (the default); and the truck at the depot",
        choices=ENDS,
    )
    road_graph: bool | None = option(None, "sound: the truck drives along roads: False; needs depot_node")
    obey_mask: bool | None = option(None, "True; False, for published only: masked actions are executed and flagged")
    obs: str | None = option(None, "observations: v2, or v1 under published", choices=("v1", "v2"))
    time_penalty: float = option(0.1, "cost of each step", low=0, high=1e6)
    delivery_bonus: float = option(5.0, "reward of a delivery", low=0, high=1e6)
    completion_bonus: float | None = option(None, "reward of completion: 20, or 100 under published", low=0, high=1e6)
    incomplete_penalty: float | None = option(
        None, "cost at the end of each unserved customer: 10, or 20 under published", low=0, high=1e6
    )
    energy_cost: float | None = option(None, "cost of a full battery: 0.5, or 0.01 under published", low=0, high=1e6)
    forced_return_penalty: float = option(0.5, "cost of an overridden drone; published: of each step", low=0, high=1e6)
    late_penalty: float | None = option(None, "sound: cost of each step of lateness: 0.1", low=0, high=1e6)
    crash_penalty: float | None = option(None, "sound: cost of a crash: 10", low=0, high=1e6)
    max_steps: int | str | None = option(
        None,
        "steps until a row is truncated, at most episode_length; None and auto = episode_length",
        low=1,
        words=("auto",),
    )
    time_limit_terminal: bool = option(False, "the step limit terminates instead of truncating")

    def validate(self) -> None:
        super().validate()
        assert self.num_route_nodes is not None
        if self.demand_low > self.demand_high:
            self._refuse("demand_low", f"is above demand_high = {self.demand_high}")
        if self.depot_node and self.num_route_nodes < 2:
            self._refuse("num_route_nodes", "with a depot node at least 2")
        if self.rules == "sound":
            self._validate_sound()
        elif self.tw_law == "band":
            self._refuse("tw_law", "the rules 'published' have no tw_start_max and tw_width")

    def _validate_sound(self) -> None:
        if not self.obey_mask:
            self._refuse("obey_mask", "under the rules 'sound' masked actions are never executed")
        if self.num_drones > self.drone_capacity:
            self._refuse("num_drones", f"the truck has room for drone_capacity = {self.drone_capacity}, an option too")
        if self.end == "depot" and not self.depot_node:
            self._refuse("end", "needs depot_node=True")
        if self.road_graph and not self.depot_node:
            self._refuse("road_graph", "needs depot_node=True, the node where the truck starts")
        if self.battery_rule == "safe" and self.drone_speed <= self.truck_speed:
            self._refuse("drone_speed", f"battery_rule 'safe' needs more than truck_speed = {self.truck_speed}")
        widths: tuple[float, ...] = self.tw_width or ()
        if len(widths) != 2 or not all(isinstance(x, (int, float)) and 0 <= x <= 1 for x in widths):
            self._refuse("tw_width", "must be two shares of L, as (0.1, 0.25)")
        if widths[0] > widths[1]:
            self._refuse("tw_width", "the smaller share comes first")

    def _refuse(self, name: str, rule: str) -> None:
        raise ConfigError(f"TruckDroneConfig.{name} = {getattr(self, name)!r}: {rule}")

    @property
    def limit(self) -> int:
        """The most steps of an episode."""
        given = self.episode_length if self.max_steps in (None, "auto") else int(self.max_steps or 0)
        return min(self.episode_length, given)
