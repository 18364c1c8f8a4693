"""The generators of the routing family with TensorDicts as results, and calls of any generator by environments.

They are the numpy generators of `milkrun.routing.generators`, with the same laws, options and keys (instance i of seed
s). The CVRP has RL4CO's layout: `demand` is a share of the vehicle, `capacity` (B, 1) its units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from milkrun.core.errors import ConfigError, ShapeError
from milkrun.core.references import refer
from milkrun.core.registry import ByWorld
from milkrun.routing import generators as core
from milkrun.routing.generators.base import batch_shape


def as_device(device: Any) -> torch.device:
    """An available device; None is the CPU."""
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as e:
        raise ConfigError(f"device={device!r} is no device: {e}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={device!r}: no CUDA device is available here")
    return found


class TensorGenerator(core.Generator):
    """The common base; it precedes a numpy generator among the bases."""

    def __init__(self, *, seed: int = 0, device: Any = "cpu", **config: Any) -> None:
        super().__init__(seed=seed, **config)
        self.device = as_device(device)

    def generate(
        self, batch_size: int | Iterable[int], *, seed: int | None = None, first: int = 0, episode: int = 0
    ) -> TensorDict:
        """A batch of instances, or a single one if the batch size is empty. Without `seed`, successive calls continue
        in the sequence of instances."""
        batch = batch_shape(batch_size)
        arrays = super().generate(batch, seed=seed, first=first, episode=episode)
        tensors = {name: torch.from_numpy(array) for name, array in self._lay_out(arrays).items()}
        return TensorDict(tensors, batch).to(self.device)

    __call__ = generate

    def _lay_out(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return arrays


class TSPGenerator(TensorGenerator, core.TSPGenerator):
    """`locs` (B, n, 2); the tour starts at node 0."""


class CVRPGenerator(TensorGenerator, core.CVRPGenerator):
    """`locs` (B, n, 2), `depot` (B, 2), `demand` (B, n) as a share of the vehicle, `capacity` (B, 1) in units."""

    def _lay_out(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        capacity = arrays["capacity"][..., None].astype(np.float32)
        places = {name: array for name, array in arrays.items() if name not in ("demand_units", "capacity")}
        return {**places, "demand": arrays["demand_units"].astype(np.float32) / capacity, "capacity": capacity}


class VRPPGenerator(TensorGenerator, core.VRPPGenerator):
    """`locs` (B, n, 2), `depot` (B, 2), `prize` = `demand` (B, n), `capacity` (B,), infinite in the VRPP, `must_go`;
    in the CVRPP also `weight`; with time_windows also `time_windows` (B, n + 1, 2), `service_time` and `speed`."""


class WCVRPGenerator(TensorGenerator, core.WCVRPGenerator):
    """`locs` (B, n, 2), `depot` (B, 2), `waste` = `demand` (B, n), `max_waste` (B,), `capacity` (B,), `must_go`."""


class SCWCVRPGenerator(TensorGenerator, core.SCWCVRPGenerator):
    """`locs` (B, n, 2), `depot` (B, 2), `expected_waste`, `real_waste` (B, n), `max_waste`, `capacity`, `must_go`."""


class SDWCVRPGenerator(TensorGenerator, core.SDWCVRPGenerator):
    """`locs` (B, n, 2), `depot` (B, 2), `initial_waste` = `demand` (B, n), `daily_fill` (B, T, n), `fill_mean`,
    `fill_std` (B, n), `max_waste`, `capacity`; with a noisy sensor also `sensor_noise` (B, T, n)."""


class DARPGenerator(TensorGenerator, core.DARPGenerator):
    """`locs` (B, N, 2), `demand` (B, N), `capacity` (B, V), `time_windows` (B, N), the depot at index 0; under the law
    `classic` also `window_open`, `service_time`, `max_ride_time` (B, R), `max_route_duration` (B,)."""


def tensor_class(numpy_class: type) -> type[TensorGenerator]:
    """The TensorDict version of a numpy generator: one of those above, or a new class."""
    if numpy_class not in _classes:
        _classes[numpy_class] = type(numpy_class.__name__, (TensorGenerator, numpy_class), {"__module__": __name__})
    return _classes[numpy_class]


_classes: dict[type, type[TensorGenerator]] = {c.__bases__[1]: c for c in TensorGenerator.__subclasses__()}


GENERATOR_REGISTRY = ByWorld("generator", lambda spec: spec.problem, lambda w: tensor_class(refer(w, "generator")))
"""Generators by the same names as the numpy ones."""


def get_generator(name: str, **options: Any) -> TensorGenerator:
    """The generator of a problem by its short name, or by the id or name of its world in any letter case, with the
    world's options, `seed` and `device` as keywords."""
    problem = core.problem_of(name)
    made: TensorGenerator = GENERATOR_REGISTRY[problem](problem=problem, **options)
    return made


def is_addressable(generator: Any) -> bool:
    """Whether the generator can draw the instance of a given key (seed, row, episode), as Milkrun's generators do."""
    return isinstance(generator, core.Generator)


def draws_as(generator: Any, world: type) -> bool:
    """Whether the world's own kernel draws the same instances: it is Milkrun's generator with no hook overridden."""
    if not is_addressable(generator) or generator._world is not world:
        return False
    ours = {core.Generator, *core.GENERATOR_REGISTRY.values()}
    hooks = ("_generate_locations", "_generate_depot", "_draw")
    # The hook of the first class in the method resolution order is called.
    return all(next(c for c in type(generator).__mro__ if hook in vars(c)) in ours for hook in hooks)


def draw(generator: Any, streams: torch.Tensor, device: torch.device) -> TensorDict:
    """One instance for each key (rows, 3): of these keys if the generator is addressable, else the next ones."""
    count = len(streams)
    if is_addressable(generator):
        pieces = [
            generator.generate(n, seed=seed, first=first, episode=episode)
            for seed, first, episode, n in _runs(streams.tolist()) or [(0, 0, 0, 0)]
        ]
        made: Any = {key: _joined([piece[key] for piece in pieces]) for key in list(pieces[0].keys())}
    else:
        made = generator.generate(count) if hasattr(generator, "generate") else generator(count)
    if not isinstance(made, (Mapping, TensorDictBase)):
        raise ShapeError(f"{type(generator).__name__} made a {type(made).__name__}, not a TensorDict or a mapping")
    tensors = {k: torch.as_tensor(v) for k, v in made.items()}
    for key, value in tensors.items():
        if value.shape[:1] != (count,):
            raise ShapeError(
                f"{type(generator).__name__} was asked for {count} instances; its {key!r} has the shape "
                f"{tuple(value.shape)}"
            )
    return TensorDict(tensors, [count]).to(device)


def _runs(keys: list[list[int]]) -> list[tuple[int, int, int, int]]:
    """(seed, first row, episode, length) of the runs in which only the row increases, by one."""
    runs: list[tuple[int, int, int, int]] = []
    for seed, row, episode in keys:
        if runs:
            last_seed, first, last_episode, n = runs[-1]
            if (seed, row, episode) == (last_seed, first + n, last_episode):
                runs[-1] = (seed, first, episode, n + 1)
                continue
        runs.append((seed, row, episode, 1))
    return runs


def _joined(pieces: list[Any]) -> torch.Tensor:
    return torch.cat([torch.as_tensor(piece) for piece in pieces])
