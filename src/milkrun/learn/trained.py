"""What a checkpoint says, and the policy or the run that it makes.

The description of a file is checked value by value: the world must be registered, its options must pass its own
configuration, the sizes of the network are bounded, and every field must exist with the declared role.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

import torch

from milkrun.core.errors import BadCheckpoint, ConfigError
from milkrun.core.features import GROUPS, Features
from milkrun.core.registry import make, world_spec
from milkrun.learn.checkpoint import SUFFIX, Expected, expected_of, options_from, read
from milkrun.learn.network import Network, Sizes
from milkrun.learn.policy import NetworkPolicy, check_fields
from milkrun.learn.reinforce import BASELINES, Options, Reinforce, part

MOST = {"nodes": 4096, "places": 16, "numbers": 4096, "changing": 4096, "width": 1024, "heads": 64, "layers": 16}
"""Upper bounds of what a file may say of a network."""


class ReinforceRun(Reinforce):
    """`Reinforce` with its policy and its files, for the loop of `run.py`."""

    title = "REINFORCE"
    unit = "instances"

    @property
    def per_step(self) -> int:
        return self.options.batch

    @property
    def episodes(self) -> int:
        return self.step * self.options.batch

    def policy(self) -> NetworkPolicy:
        """The policy as it is now; a further step changes it."""
        return NetworkPolicy(self.network, self.features)

    def after_evaluation(self, number: int) -> None:
        """Renews a greedy baseline that the network surpasses."""
        self.renew_baseline(number)

    def describe(self, **more: Any) -> dict[str, Any]:
        """The description of the policy or the run."""
        f = self.features
        return {
            "algorithm": "reinforce",
            "world": self.world.id,
            "config": self.world.config.as_json(),
            "features": {
                "axis": f.axis,
                **{group: list(getattr(f, group)) for group in GROUPS},
                "scale": {name: list(pair) for name, pair in f.scale.items()},
                "flag": f.flag,
            },
            "sizes": asdict(self.sizes),
            "options": asdict(self.options),
            "step": self.step,
            **more,
        }

    def explain(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "features": str(self.features).splitlines(),
            "linear": "1x1 convolution on the CPU from 16 instances, float32",
        }

    def weights(self) -> dict[str, torch.Tensor]:
        """All that the policy is."""
        return {f"network.{name}": t for name, t in self.network.state_dict().items()}


def load(path: str | os.PathLike[str], decode: str | None = None, *, seed: int = 0, device: str = "cpu") -> Any:
    """The policy in a file. `decode` is greedy, sample, sample=K or starts, with x8 after a comma; by default `starts`
    where the world allows plans, else greedy. It plays worlds of other sizes, too."""
    made: dict[str, Any] = {}

    def expect(about: dict[str, Any]) -> Expected:
        world = made["world"] = world_of(about)
        if about["algorithm"] == "ppo":
            from milkrun.learn import sb3

            return sb3.expect(about, made)
        made["features"] = features_of(about["features"])
        made["network"] = empty_network(sizes_of(about["sizes"]))
        _check_fit(made["features"], world, made["network"])
        found = expected_of(made["network"], "network.")
        return found if about["kind"] == "policy" else {**found, **_run_tensors(about, made["network"])}

    about, tensors = read(path, expect)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return sb3.policy_of(tensors, made, decode, seed, device)
    network = Network(made["network"].sizes).to(device)
    network.load_state_dict(part(tensors, "network."))
    return NetworkPolicy(network, made["features"], decode, seed)


def player(path: str, decode: str | None = None) -> Callable[[int], Any]:
    """The policy in a file as a factory of policies by seed, for `milkrun.solvers`."""
    policy = load(path, decode)
    return policy.seeded


def read_run(path: str | os.PathLike[str], device: str = "cpu") -> tuple[dict[str, Any], Any]:
    """The state of a run, to continue it."""
    made: dict[str, Any] = {}

    def expect(about: dict[str, Any]) -> Expected:
        if about["kind"] != "run":
            raise BadCheckpoint("is a policy, not a run that can be continued")
        made["world"] = world_of(about)
        if about["algorithm"] == "ppo":
            from milkrun.learn import sb3

            return sb3.expect(about, made)
        made["features"] = features_of(about["features"])
        made["options"] = options_of(about["options"])
        network = empty_network(sizes_of(about["sizes"]))
        _check_fit(made["features"], made["world"], network)
        if type(about["step"]) is not int or not 0 <= about["step"] <= made["options"].steps:
            raise BadCheckpoint(f"step = {about['step']!r} of {made['options'].steps}")
        return {**expected_of(network, "network."), **_run_tensors(about, network)}

    about, tensors = read(path, expect)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return about, sb3.run_of(about, tensors, made, device)
    state = ReinforceRun(made["world"], made["features"], made["options"], device)
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


# -- from JSON ------------------------------------------------------------------------------------------------------


def world_of(about: Mapping[str, Any]) -> Any:
    """A world of one row with the file's configuration."""
    if not isinstance(about["world"], str) or not isinstance(about["config"], dict):
        raise BadCheckpoint("world must be an id and config an object")
    spec = world_spec(about["world"])
    return make(spec.id, 1, config=about["config"], seed=0, autoreset="disabled")


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
    if not isinstance(found["axis"], str) or not isinstance(found["flag"], int) or found["flag"] < 0:
        raise BadCheckpoint("features: axis must be a text and flag a number of entries")
    groups: dict[str, Any] = {group: texts(found[group]) for group in GROUPS}
    return Features(found["axis"], **groups, scale=scale, flag=int(found["flag"]))


def options_of(found: Mapping[str, Any]) -> Options:
    """The options of a run, each of the type of its default."""
    options = options_from(found, Options)
    if options.baseline not in BASELINES or min(options.steps, options.batch, options.rows_each) < 1:
        raise BadCheckpoint("options: baseline, steps, batch or rows_each is out of range")
    if options.batch * options.rows_each > 2**22:
        raise BadCheckpoint("options: more than 4,194,304 rows")
    return options


__all__ = ["SUFFIX", "ReinforceRun", "load", "read_run"]
