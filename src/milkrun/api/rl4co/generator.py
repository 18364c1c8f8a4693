"""Milkrun's instance laws as an RL4CO generator, with RL4CO's call, parameters and layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rl4co.envs.common.utils import Generator
from tensordict import TensorDict

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.routing import generators
from milkrun.routing.vehicle import RoutingConfig

_PLACES = ("num_loc", "min_loc", "max_loc", "loc_distribution")

LAWS = {
    "tsp": (*_PLACES, "num_clusters"),
    "cvrp": (*_PLACES, "num_clusters", "depot_type", "capacity", "max_demand"),
}
"""The options of a world that affect drawn instances and that RL4CO's layout can represent."""

PARAMS = {
    "tsp": _PLACES,
    "cvrp": (*_PLACES, "min_demand", "max_demand", "vehicle_capacity", "capacity"),
}
"""RL4CO's own names."""


class RL4COGenerator(Generator):
    """Draws the instances of a Milkrun generator: `generator([64])` is a TensorDict of 64 instances in RL4CO's layout.

    TSP: `locs` (B, n, 2). CVRP: also `depot` (B, 2), `demand` (B, n) = units / capacity, `capacity` (B, 1).
    Successive calls continue the sequence of the seed; `seed(s)` starts that of seed s.
    """

    def __init__(self, laws: generators.Generator) -> None:
        self.laws = laws
        self.num_loc = laws.num_loc
        self.min_loc = laws.min_loc
        self.max_loc = laws.max_loc
        if hasattr(laws.config, "truck"):
            self.capacity = float(laws.config.truck)
            self.vehicle_capacity = 1.0

    def seed(self, seed: int) -> None:
        self.laws.seed = seed
        self.laws.position = 0

    def _generate(self, batch_size: Any, **_: Any) -> TensorDict:
        drawn = {name: torch.from_numpy(array) for name, array in self.laws.generate(batch_size).items()}
        if "demand_units" in drawn:
            drawn["capacity"] = drawn["capacity"].unsqueeze(-1).float()
            drawn["demand"] = drawn.pop("demand_units") / drawn["capacity"]
        return TensorDict(drawn, batch_size=batch_size)


def laws_of(name: str, config: RoutingConfig) -> generators.Generator:
    """The Milkrun generator of a configuration; raises ConfigError for options that RL4CO's layout cannot represent."""
    plain = type(config)()
    for option, value in config.as_dict().items():
        if option not in (*LAWS[name], "start") and value != getattr(plain, option):
            raise ConfigError(
                f"{option} = {value!r}: an RL4CO environment has no such option; those of the instances "
                f"are {', '.join(LAWS[name])}"
            )
    return generators.get_generator(name, **config.as_dict())


def from_params(name: str, params: Mapping[str, Any]) -> RL4COGenerator:
    """The generator behind RL4CO's `generator_params`."""
    options = dict(params)
    for key in options:
        if key not in PARAMS[name]:
            raise ConfigError(
                f"generator_params has no {key!r} here{did_you_mean(key, PARAMS[name])}; "
                "for other laws give RL4CO's generator as `generator`"
            )
    law = options.get("loc_distribution", "uniform")
    if law not in ("uniform", torch.distributions.Uniform):
        raise ConfigError(
            f"loc_distribution = {law!r}: must be 'uniform'; for other laws give RL4CO's generator as `generator`"
        )
    options["loc_distribution"] = "uniform"
    for key in ("min_demand", "vehicle_capacity"):
        if options.pop(key, 1) != 1:
            raise ConfigError(f"{key} = {params[key]!r}: must be 1")
    if isinstance(options.get("max_demand"), int):
        options["max_demand"] -= 1  # RL4CO draws below it, Milkrun up to it
    if isinstance(options.get("capacity"), float) and options["capacity"].is_integer():
        options["capacity"] = int(options["capacity"])
    return RL4COGenerator(generators.get_generator(name, **options))


__all__ = ["RL4COGenerator", "from_params", "laws_of"]
