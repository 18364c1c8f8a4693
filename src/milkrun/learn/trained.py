"""What a checkpoint says, and the policy or the run that it makes.

The description of a file is checked value by value: the world must be registered, its options must pass its own
configuration, the sizes of the network are bounded, and every field must exist with the declared role.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import cached_property
from typing import Any

import torch

from milkrun.core.errors import BadCheckpoint, ConfigError, TrainingError
from milkrun.core.features import GROUPS, Features
from milkrun.core.registry import make, world_spec
from milkrun.learn.checkpoint import (
    SUFFIX,
    Expected,
    expected_moments,
    expected_of,
    name_of_infinite,
    options_from,
    part,
    read,
)
from milkrun.learn.network import Network, NetworkClass, Sizes
from milkrun.learn.policy import NetworkPolicy, check_fields
from milkrun.learn.reinforce import BASELINES, Options, Reinforce

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

    @cached_property
    def _policy(self) -> NetworkPolicy:
        return NetworkPolicy(self.network, self.features)

    def policy(self) -> NetworkPolicy:
        """The policy as it is now; a further step changes it. One object for all evaluations: it finds out once whether
        the world allows plans."""
        if name := name_of_infinite(self.network):
            raise TrainingError(f"step {self.step}, seed {self.options.seed}: {name} is not finite")
        self._policy.forget()
        return self._policy

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


def load(
    path: str | os.PathLike[str],
    decode: str | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    network: NetworkClass = Network,
) -> Any:
    """The policy in a file; `network` is the class with which it was trained. `decode` is greedy, sample, sample=K or
    starts, with x8 after a comma; by default `starts` where the world allows plans, else greedy. It plays worlds of
    other sizes, too."""
    made: dict[str, Any] = {}
    about, tensors = read(path, lambda about: expect(about, made, network))
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return sb3.policy_of(tensors, made, decode, seed, device)
    trained = network(made["network"].sizes).to(device)
    trained.load_state_dict(part(tensors, "network."))
    return NetworkPolicy(trained, made["features"], decode, seed)


def player(path: str, decode: str | None = None) -> Callable[[int], Any]:
    """The policy in a file as a factory of policies by seed, for `milkrun.solvers`."""
    policy = load(path, decode)
    return policy.seeded


def read_run(
    path: str | os.PathLike[str], device: str = "cpu", network: NetworkClass = Network
) -> tuple[dict[str, Any], Any]:
    """The state of a run, to continue it."""
    made: dict[str, Any] = {}

    def expect_run(about: dict[str, Any]) -> Expected:
        if about["kind"] != "run":
            raise BadCheckpoint("is a policy, not a run that can be continued")
        return expect(about, made, network)

    about, tensors = read(path, expect_run)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return about, sb3.run_of(about, tensors, made, device)
    state = ReinforceRun(made["world"], made["features"], made["options"], device, network)
    state.load_tensors(tensors, about["step"])
    return about, state


def expect(about: dict[str, Any], made: dict[str, Any], network: NetworkClass = Network) -> Expected:
    """The tensors that a description promises. Adds what it describes to `made`."""
    world = made["world"] = world_of(about)
    if about["algorithm"] == "ppo":
        from milkrun.learn import sb3

        return sb3.expect(about, made)
    made["features"] = features_of(about["features"])
    empty = made["network"] = empty_network(sizes_of(about["sizes"]), network)
    _check_fit(made["features"], world, empty)
    found = expected_of(empty, "network.")
    if about["kind"] == "policy":
        return found
    options = made["options"] = options_of(about["options"])
    sizes, norm = empty.sizes, "batch" if options.baseline == "rollout" else "instance"
    if (sizes.width, sizes.heads, sizes.layers, sizes.norm) != (options.width, options.heads, options.layers, norm):
        raise BadCheckpoint("sizes and options describe different networks")
    if type(about["step"]) is not int or not 0 <= about["step"] <= options.steps:
        raise BadCheckpoint(f"step = {about['step']!r} of {options.steps}")
    baseline = expected_of(empty, "baseline.") if options.baseline == "rollout" else {}
    return found | expected_moments(empty) | baseline


def _check_fit(features: Features, world: Any, network: Network) -> None:
    try:
        check_fields(features, world, network)
    except ConfigError as e:
        raise BadCheckpoint(str(e)) from None


# -- from JSON ------------------------------------------------------------------------------------------------------


def world_of(about: Mapping[str, Any]) -> Any:
    """A world of one row with the file's configuration."""
    if not isinstance(about["world"], str) or not isinstance(about["config"], dict):
        raise BadCheckpoint("world must be an id and config an object")
    spec = world_spec(about["world"])
    return make(spec.id, 1, config=about["config"], seed=0, autoreset="disabled")


def empty_network(sizes: Sizes, network: NetworkClass) -> Any:
    """A network without memory, for the names and shapes of its tensors."""
    with torch.device("meta"):
        return network(sizes)


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
