"""Milkrun's instance laws as an RL4CO generator, with RL4CO's call, parameters and layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rl4co.envs.common.utils import Generator
from tensordict import TensorDict

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.routing import generators
from milkrun.routing.vehicle import RoutingConfig

_PLACES = ("num_loc", "min_loc", "max_loc", "loc_distribution")

PROBABILITIES = ("prob_open", "prob_windows", "prob_limit", "prob_backhaul")
_MULTI_TASK = (*_PLACES, "capacity", "max_demand", "backhaul_ratio")

PROBLEMS = {"tsp": "tsp", "cvrp": "cvrp", "mtvrp": "vrp", "mtdvrp": "vrp"}
"""The world whose instances an environment draws."""

LAWS = {
    "tsp": (*_PLACES, "num_clusters"),
    "cvrp": (*_PLACES, "num_clusters", "depot_type", "capacity", "max_demand"),
    "mtvrp": (*_MULTI_TASK, *PROBABILITIES, "num_clusters", "depot_type", "variant", "law"),
}
"""The options of a world that affect drawn instances and that RL4CO's layout can represent."""

PARAMS = {
    "tsp": _PLACES,
    "cvrp": (*_PLACES, "min_demand", "max_demand", "vehicle_capacity", "capacity"),
}
"""RL4CO's own names."""

FIXED = {
    "min_demand": 1,
    "min_backhaul": 1,
    "scale_demand": True,
    "max_time": 4.6,
    "speed": 1.0,
    "subsample": True,
}
"""Parameters of the multi-task VRP that have one value here."""
PARAMS["mtvrp"] = (
    *_MULTI_TASK,
    *FIXED,
    *("prob_open", "prob_time_window", "prob_limit", "prob_backhaul"),
    *("variant_preset", "max_backhaul", "backhaul_class", "distance_limit"),
)
PARAMS["mtdvrp"] = (*PARAMS["mtvrp"][:-1], "sample_backhaul_class", "max_distance_limit", "num_depot")
LAWS["mtdvrp"] = (*LAWS["mtvrp"], "num_depots")

OPTIONAL = (
    "demand_backhaul",
    "backhaul_class",
    "distance_limit",
    "service_time",
    "open_route",
    "time_windows",
    "speed",
    "vehicle_capacity",
    "capacity_original",
)
"""Keys of the multi-task VRP that an instance may lack."""


class RL4COGenerator(Generator):
    """Draws the instances of a Milkrun generator: `generator([64])` is a TensorDict of 64 instances in RL4CO's layout.

    TSP: `locs` (B, n, 2). CVRP: also `depot` (B, 2), `demand` (B, n) = units / capacity, `capacity` (B, 1). VRP: the
    keys of the multi-task VRP, depots first among the nodes. Successive calls continue the sequence of the seed;
    `seed(s)` starts that of seed s.
    """

    def __init__(self, laws: generators.Generator) -> None:
        self.laws = laws
        self.num_loc = laws.num_loc
        self.min_loc = laws.min_loc
        self.max_loc = laws.max_loc
        if hasattr(laws.config, "truck"):
            self.capacity = float(laws.config.truck)
            self.vehicle_capacity = 1.0
        self.is_mixed = False  # all backhauls are of class 2, whatever the variant
        if hasattr(laws.config, "depots"):
            self.num_depots = laws.config.depots
            if laws.config.odds.depots not in (0.0, 1.0):
                raise ConfigError(f"variant = {laws.config.variant!r}: all rows of a batch have the same depots here")

    def seed(self, seed: int) -> None:
        self.laws.seed = seed
        self.laws.position = 0

    def _generate(self, batch_size: Any, **_: Any) -> TensorDict:
        arrays = self.laws.generate(batch_size)
        if "linehaul" in arrays:
            arrays = in_shares(arrays)
        if self.is_mixed:
            arrays["backhaul_class"][:] = 2
        drawn = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "demand_units" in drawn:
            drawn["capacity"] = drawn["capacity"].unsqueeze(-1).float()
            drawn["demand"] = drawn.pop("demand_units") / drawn["capacity"]
        return TensorDict(drawn, batch_size=batch_size)


def in_shares(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Instances (*B, ...) of `VRP-v0` in the layout of the multi-task VRP; raises ConfigError for what it lacks."""
    given = dict(arrays)
    locs = given.pop("locs")
    if "depot" in given:
        depot = given.pop("depot")
        depot = depot[..., None, :] if depot.ndim < locs.ndim else depot
        locs = np.concatenate([depot, locs], axis=-2)
    rows, nodes = locs.shape[:-2], locs.shape[-2]
    capacity = given.pop("capacity").astype(np.float32)
    if (capacity != capacity[..., :1]).any():
        raise ConfigError("capacity: the depots of an instance must have the same")
    depots, shares = capacity.shape[-1], {}
    for name in ("linehaul", "backhaul"):
        units = given.pop(name, np.zeros((*rows, nodes), np.float32))
        units = np.concatenate([np.zeros((*rows, nodes - units.shape[-1])), units], axis=-1)
        shares[f"demand_{name}"] = (units / capacity[..., :1]).astype(np.float32)
    windows = np.zeros((*rows, nodes, 2), np.float32)
    windows[..., 1] = np.inf
    limits = given.pop("distance_limit", np.full((*rows, depots), np.inf, np.float32))
    layout = {
        "locs": locs.astype(np.float32),
        **shares,
        "backhaul_class": given.pop("backhaul_class", np.ones((*rows, 1))).astype(np.float32),
        "distance_limit": limits[..., :1].copy(),
        "service_time": given.pop("service_time", np.zeros((*rows, nodes), np.float32)),
        "open_route": given.pop("open_route")[..., None],
        "time_windows": given.pop("time_windows", windows),
        "speed": given.pop("speed", np.ones((*rows, 1), np.float32)),
        "vehicle_capacity": np.ones((*rows, 1), np.float32),
        "capacity_original": capacity[..., :1].copy(),
    }
    for derived in ("has_clock", "alone"):
        given.pop(derived, None)
    if (np.asarray(given.pop("vehicles", nodes)) < nodes - depots).any():
        raise ConfigError("vehicles: the layout of the multi-task VRP cannot represent a limited fleet")
    plain = {
        "n_nodes": nodes,
        "n_depots": depots,
        "duration_limit": np.inf,
        "fixed_cost": 0,
        "distance_cost": 1,
    }
    for name, array in given.items():
        if name not in plain or (array != plain[name]).any():
            raise ConfigError(f"{name}: the layout of the multi-task VRP cannot represent it")
    return layout


def laws_of(name: str, config: RoutingConfig) -> generators.Generator:
    """The Milkrun generator of a configuration; raises ConfigError for options that RL4CO's layout cannot represent."""
    plain = type(config)()
    for option, value in config.as_dict().items():
        if option not in (*LAWS[name], "start") and value != getattr(plain, option):
            raise ConfigError(
                f"{option} = {value!r}: an RL4CO environment has no such option; those of the instances "
                f"are {', '.join(LAWS[name])}"
            )
    return generators.get_generator(PROBLEMS[name], **config.as_dict())


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
    if isinstance(options.get("capacity"), float) and options["capacity"].is_integer():
        options["capacity"] = int(options["capacity"])
    if PROBLEMS[name] == "vrp":
        kind = options.pop("backhaul_class", 1)
        if kind not in (1, 2):
            raise ConfigError(f"backhaul_class = {kind!r}: must be 1 or 2")
        made = RL4COGenerator(generators.get_generator("vrp", **multi_task(name, options)))
        made.is_mixed = kind == 2
        return made
    for key in ("min_demand", "vehicle_capacity"):
        if options.pop(key, 1) != 1:
            raise ConfigError(f"{key} = {params[key]!r}: must be 1")
    if isinstance(options.get("max_demand"), int):
        options["max_demand"] -= 1  # RL4CO draws below it, Milkrun up to it
    return RL4COGenerator(generators.get_generator(name, **options))


def multi_task(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """The options of the VRP for parameters of the multi-task VRP."""
    options = {**params}
    fixed = {**FIXED, "distance_limit": 3.0} if name == "mtvrp" else {**FIXED, "max_distance_limit": 2.8}
    for key in fixed.keys() & options.keys():
        if options.pop(key) != fixed[key]:
            raise ConfigError(f"{key} = {params[key]!r}: must be {fixed[key]}")
    most = options.pop("max_demand", 10)
    if options.pop("max_backhaul", 10) != most:
        raise ConfigError(f"max_demand = {most!r}: must be max_backhaul")
    options["max_demand"] = most - 1 if isinstance(most, int) else most  # RL4CO draws below it, Milkrun up to it
    if "prob_time_window" in options:
        options["prob_windows"] = options.pop("prob_time_window")
    chances = {key: options.get(key, 0.5) for key in PROBABILITIES}
    preset, mixes = options.pop("variant_preset", None), options.pop("sample_backhaul_class", False)
    if preset is not None and chances.keys() & options.keys():
        raise ConfigError(f"variant_preset = {preset!r} and prob_*: give one of them")
    if mixes and (preset not in (None, "all") or chances.keys() & options.keys()):
        raise ConfigError("sample_backhaul_class = True: needs variant_preset = 'all'")
    if chances.keys() & options.keys():
        options |= chances
    else:
        options["variant"] = "all24" if mixes else "all16" if preset in (None, "all") else preset
    if name == "mtdvrp":
        options["num_depots"] = options.pop("num_depot", 3)
    return {**options, "law": "rl4co" if name == "mtvrp" else "routefinder"}


__all__ = ["RL4COGenerator", "from_params", "laws_of"]
