"""What a checkpoint of `reinforce` says, and the policy or the run that it makes.

The description of a file is checked value by value: the world must be registered, its options must pass its own
configuration, the sizes of the network are bounded, and every field must exist with the declared role.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

import torch

import milkrun
from milkrun.core.errors import BadCheckpoint, ConfigError
from milkrun.core.features import GROUPS, Features
from milkrun.core.registry import world_spec
from milkrun.learn.checkpoint import SUFFIX, Expected, expected_of, read
from milkrun.learn.network import Network, Sizes
from milkrun.learn.policy import NetworkPolicy, check_fields
from milkrun.learn.reinforce import BASELINES, Options, Reinforce

MOST = {"nodes": 4096, "places": 16, "numbers": 4096, "changing": 4096, "width": 1024, "heads": 64, "layers": 16}
"""Upper bounds of what a file may say of a network."""


def describe(state: Reinforce, **more: Any) -> dict[str, Any]:
    """The description of a policy or a run of `reinforce`."""
    f = state.features
    return {
        "algorithm": "reinforce",
        "world": state.world.id,
        "config": state.world.config.as_json(),
        "features": {
            "axis": f.axis,
            **{group: list(getattr(f, group)) for group in GROUPS},
            "scale": {name: list(pair) for name, pair in f.scale.items()},
            "flag": f.flag,
        },
        "sizes": asdict(state.sizes),
        "options": asdict(state.options),
        "step": state.step,
        **more,
    }


def load(path: str | os.PathLike[str], decode: str | None = None, *, seed: int = 0, device: str = "cpu") -> Any:
    """The policy in a file. `decode` is greedy, sample, sample=K or starts, with x8 after a comma; by default `starts`
    where the world allows plans, else greedy. It plays worlds of other sizes, too."""
    made: dict[str, Any] = {}

    def expect(about: dict[str, Any]) -> Expected:
        if about["algorithm"] == "ppo":
            from milkrun.learn import sb3

            return sb3.expect(about, made)
        world = world_of(about)
        made["features"] = features_of(about["features"])
        made["network"] = empty_network(sizes_of(about["sizes"]))
        _check_fit(made["features"], world, made["network"])
        found = expected_of(made["network"], "network.")
        return found if about["kind"] == "policy" else {**found, **_run_tensors(about, made["network"])}

    about, tensors = read(path, expect)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return sb3.policy_of(about, tensors, made)
    network = Network(made["network"].sizes).to(device)
    network.load_state_dict(part(tensors, "network."))
    return NetworkPolicy(network, made["features"], decode, seed)


def player(path: str, decode: str | None = None) -> Callable[[int], Any]:
    """The policy in a file as a factory of policies by seed, for `milkrun.solvers`."""
    policy = load(path, decode)
    return policy.seeded


def read_run(path: str | os.PathLike[str], device: str = "cpu") -> tuple[dict[str, Any], Reinforce]:
    """The state of a run, to continue it."""
    made: dict[str, Any] = {}

    def expect(about: dict[str, Any]) -> Expected:
        if about["kind"] != "run":
            raise BadCheckpoint("is a policy, not a run that can be continued")
        made["world"], made["features"] = world_of(about), features_of(about["features"])
        made["options"] = options_of(about["options"])
        network = empty_network(sizes_of(about["sizes"]))
        _check_fit(made["features"], made["world"], network)
        if type(about["step"]) is not int or not 0 <= about["step"] <= made["options"].steps:
            raise BadCheckpoint(f"step = {about['step']!r} of {made['options'].steps}")
        return {**expected_of(network, "network."), **_run_tensors(about, network)}

    about, tensors = read(path, expect)
    state = Reinforce(made["world"], made["features"], made["options"], device)
    state.load_tensors(tensors, about["step"])
    return about, state


def _check_fit(features: Features, world: Any, network: Network) -> None:
    try:
        check_fields(features, world, network)
    except ConfigError as e:
        raise BadCheckpoint(str(e)) from None


def _run_tensors(about: Mapping[str, Any], network: Network) -> dict[str, Any]:
    """Moments of the optimiser, and the baseline."""
    weights = {name: (p.shape, p.dtype) for name, p in network.named_parameters()}
    found = {f"{key}.{name}": what for key in ("exp_avg", "exp_avg_sq") for name, what in weights.items()}
    return found | (expected_of(network, "baseline.") if about["options"]["baseline"] == "rollout" else {})


def part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


# -- from JSON ------------------------------------------------------------------------------------------------------


def world_of(about: Mapping[str, Any]) -> Any:
    """A world of one row with the file's configuration."""
    if not isinstance(about["world"], str) or not isinstance(about["config"], dict):
        raise BadCheckpoint("world must be an id and config an object")
    spec = world_spec(about["world"])
    return milkrun.make(spec.id, 1, config=about["config"], seed=0, autoreset="disabled")


def empty_network(sizes: Sizes) -> Network:
    """A network without memory, for the names and shapes of its tensors."""
    with torch.device("meta"):
        return Network(sizes)


def sizes_of(found: Mapping[str, Any]) -> Sizes:
    for name, most in MOST.items():
        low = 0 if name in ("numbers", "changing") else 1
        if type(found[name]) is not int or not low <= found[name] <= most:
            raise BadCheckpoint(f"sizes: {name} = {str(found[name])[:40]} must be {low}..{most}")
    if found["norm"] not in ("instance", "batch") or set(found) != {f.name for f in fields(Sizes)}:
        raise BadCheckpoint("sizes: unknown entries")
    if found["width"] % found["heads"]:
        raise BadCheckpoint(f"sizes: width = {found['width']} is not divisible by heads = {found['heads']}")
    return Sizes(**found)


def features_of(found: Mapping[str, Any]) -> Features:
    def texts(values: Any) -> tuple[str, ...]:
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise BadCheckpoint("features: names must be a list of texts")
        return tuple(values)

    scale = {}
    for name, pair in dict(found["scale"]).items():
        shift, factor = (float(x) for x in pair)
        if not (math.isfinite(shift) and math.isfinite(factor)):
            raise BadCheckpoint(f"features: the scale of {str(name)[:40]!r} is not finite")
        scale[name] = shift, factor
    if not isinstance(found["axis"], str) or not isinstance(found["flag"], bool):
        raise BadCheckpoint("features: axis must be a text and flag true or false")
    groups: dict[str, Any] = {group: texts(found[group]) for group in GROUPS}
    return Features(found["axis"], **groups, scale=scale, flag=found["flag"])


def options_of(found: Mapping[str, Any]) -> Options:
    """The options of a run, each of the type of its default."""
    if set(found) != {f.name for f in fields(Options)}:
        raise BadCheckpoint("options: unknown or missing entries")
    for f in fields(Options):
        kind = int if f.default is MISSING else type(f.default)
        value = found[f.name]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise BadCheckpoint(f"options: {f.name} = {str(value)[:40]} must be of type {kind.__name__}")
        if kind in (int, float) and not 0 <= value <= 2**62:
            raise BadCheckpoint(f"options: {f.name} = {str(value)[:40]} is out of range")
    if found["baseline"] not in BASELINES or min(found["steps"], found["batch"], found["rows_each"]) < 1:
        raise BadCheckpoint("options: baseline, steps, batch or rows_each is out of range")
    if found["batch"] * found["rows_each"] > 2**22:
        raise BadCheckpoint("options: more than 4,194,304 rows")
    return Options(**found)


__all__ = ["SUFFIX", "describe", "load", "read_run"]
