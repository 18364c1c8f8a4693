"""The options of the dial-a-ride problem: one configuration for both rules, with the defaults of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from milkrun.core.config import RuledConfig, option
from milkrun.core.errors import ConfigError

RULES = ("classic", "deadlines")
FARTHEST = 5e8
"""Rule `deadlines`: the largest travel time from the depot, so that no leg takes longer than 1e9."""
STYLES = {"a": {"seats": 3, "ride": 30.0}, "b": {"seats": 6, "ride": 45.0}}

BY_RULE: dict[str, dict[str, Any]] = {
    "classic": {
        "num_requests": 16,
        "num_agents": 2,
        "law": "classic",
        "style": "a",
        "speed": 1.0,
        "reward": "dense",
        "max_onboard": 8,
        "side": 10.0,
        "window_width": 15,
        "open_end": 1440.0,
        "vehicle_capacity": None,
        "max_duration": None,
        "max_ride": None,
        "service": None,
    },
    "deadlines": {
        "num_requests": 10,
        "num_agents": 5,
        "law": "deadlines",
        "speed": 25.0,
        "reward": "terminal",
        "vehicle_capacity": 5,
        "min_loc": 0.0,
        "max_loc": 100.0,
        "min_demand": 1,
        "max_demand": 3,
        "min_pickup_tw": 10,
        "max_pickup_tw": 30,
        "depot_deadline": 48,
    },
}
"""The options of each rule and their defaults; None: derived from others."""


@dataclass(frozen=True, kw_only=True)
class DARPConfig(RuledConfig):
    """Options of the dial-a-ride problem. Options that are None have a default by the rule or by the style."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "classic": {},
        "classic-b": {"style": "b"},
        "published": {"rule": "deadlines"},
    }
    by_rule: ClassVar[Mapping[str, Mapping[str, Any]]] = BY_RULE
    synonyms: ClassVar[Mapping[str, str]] = {"vehicle_speed": "speed", "num_loc": "num_requests"}

    rule: str = option("classic", "classic: windows, ride times, durations; deadlines: deadlines only", choices=RULES)
    num_requests: int | None = option(
        None, "requests: 16, or 10 under deadlines; num_loc = twice as many is accepted too", low=1, high=5000
    )
    num_agents: int | None = option(None, "vehicles: 2, or 5 under deadlines", low=1, high=5000)
    law: str | None = option(None, "law of drawn requests, the same as the rule", choices=RULES)
    style: str | None = option(
        None, "classic law: a: single riders, cars of 3; b: groups of up to 6, buses of 6", choices=("a", "b")
    )
    metric: str = option("euclid", "distance between nodes; matrix: given, classic only", choices=("euclid", "matrix"))
    speed: float | None = option(None, "distance in a unit of time: 1, or 25 under deadlines", low=1e-6, high=1e9)
    penalty_unvisited: float = option(100.0, "cost of an unvisited node", low=0, high=1e9)
    reward: str | None = option(
        None, "dense: paid per step; terminal: all on the last, as always in deadlines", choices=("dense", "terminal")
    )
    max_onboard: int | None = option(None, "requests aboard at once, 8 unless given", low=1, high=8)
    max_steps: int | str | None = option(
        "auto", "steps until a row is truncated; auto = 4 (2 requests + vehicles)", low=1, high=2**62, words=("auto",)
    )
    side: float | None = option(None, "classic law: places lie in [-side, side]^2", low=1e-3, high=1e6)
    window_width: int | None = option(None, "classic law: width of a request's window", low=0, high=10**6)
    open_end: float | None = option(None, "classic law: end of open windows", low=0, high=1e9)
    max_duration: float | None = option(
        None, "classic law: longest route; None = 60 requests / vehicles", low=60, high=1e9
    )
    vehicle_capacity: int | None = option(None, "seats; None = by the style, 5 under deadlines", low=1, high=10**6)
    max_ride: float | None = option(None, "classic law: longest ride; None = 30 or 45 by the style", low=1e-6, high=1e9)
    service: float | None = option(
        None, "classic law: time of a stop; None = 3, or in style b a unit for each rider", low=0, high=1e6
    )
    min_loc: float | None = option(None, "deadlines law: lower end of both coordinates", low=-1e6, high=1e6)
    max_loc: float | None = option(None, "deadlines law: upper end of both coordinates", low=-1e6, high=1e6)
    min_demand: int | None = option(None, "deadlines law: smallest group", low=1, high=10**6)
    max_demand: int | None = option(None, "deadlines law: largest group", low=1, high=10**6)
    min_pickup_tw: int | None = option(None, "deadlines law: earliest deadline of a pickup", low=0, high=10**6)
    max_pickup_tw: int | None = option(None, "deadlines law: latest deadline of a pickup", low=0, high=10**6)
    depot_deadline: int | None = option(None, "deadlines law: end of the day", low=1, high=10**6)
    record: bool = option(True, "keep the actions taken, for `solution()`")

    def validate(self) -> None:
        super().validate()
        if self.law != self.rule:
            raise ConfigError(f"DARPConfig.law = {self.law!r}: the rule {self.rule!r} uses its own law only")
        if self.rule == "deadlines":
            self._validate_deadlines()
        elif not self.duration >= 60:
            raise ConfigError(
                f"DARPConfig.max_duration = {self.duration:g}: the classic law needs at least 60 "
                "(60 requests / vehicles unless given)"
            )

    def _validate_deadlines(self) -> None:
        for name, only in (("metric", "euclid"), ("reward", "terminal")):
            if getattr(self, name) != only:
                raise ConfigError(
                    f"DARPConfig.{name} = {getattr(self, name)!r}: under the rule 'deadlines' it is {only!r}"
                )
        for low, high in (("min_loc", "max_loc"), ("min_demand", "max_demand"), ("min_pickup_tw", "max_pickup_tw")):
            if getattr(self, low) > getattr(self, high):
                raise ConfigError(f"DARPConfig.{low} = {getattr(self, low)} is above {high} = {getattr(self, high)}")
        assert self.min_loc is not None and self.max_loc is not None and self.speed is not None
        across = math.hypot(self.max_loc - self.min_loc, self.max_loc - self.min_loc) / self.speed
        if 1.001 * across > FARTHEST:  # float32 may round places outwards
            raise ConfigError(
                f"DARPConfig.speed = {self.speed:g}: from min_loc = {self.min_loc:g} to max_loc = "
                f"{self.max_loc:g} and across it takes {across:g} units of time, at most {FARTHEST:g} is "
                "allowed"
            )
        assert self.max_demand is not None and self.vehicle_capacity is not None
        if self.max_demand > self.vehicle_capacity:
            raise ConfigError(
                f"DARPConfig.max_demand = {self.max_demand} is over vehicle_capacity = "
                f"{self.vehicle_capacity}: such a group fits no vehicle"
            )

    @property
    def num_loc(self) -> int:
        """Nodes without the depot: two for each request."""
        assert self.num_requests is not None
        return 2 * self.num_requests

    @property
    def duration(self) -> float:
        """The longest route in force."""
        assert self.num_requests is not None and self.num_agents is not None
        return 60.0 * self.num_requests / self.num_agents if self.max_duration is None else self.max_duration

    @property
    def seats(self) -> int:
        """The capacity in force."""
        return int(STYLES[self.style or "a"]["seats"]) if self.vehicle_capacity is None else self.vehicle_capacity

    @classmethod
    def _known(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(given)
        places = values.pop("num_loc", None)
        if places is not None:
            if not isinstance(places, (int, np.integer)) or isinstance(places, bool) or places % 2 or places < 2:
                raise ConfigError(f"num_loc = {places!r}: must be even, a pickup and a dropoff for each request")
            if "num_requests" in values:
                raise ConfigError("DARPConfig: 'num_loc' and 'num_requests' were both given")
            values["num_requests"] = int(places) // 2
        return super()._known(values)
