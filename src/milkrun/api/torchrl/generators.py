"""The generators of the routing family as makers of TensorDicts on a device, and how environments ask any generator.

They are the numpy generators of `milkrun.routing.generators` with the same laws, options and addresses (instance i of
seed s). The CVRP's are laid out as RL4CO's are: `demand` is a share of the vehicle, `capacity` (B, 1) its units.
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
    """A device that is there; None is the CPU."""
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as e:
        raise ConfigError(f"device={device!r} is no device: {e}") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={device!r}: no CUDA device is available here")
    return found


class TensorGenerator(core.Generator):
    """What all of them share; goes before a numpy generator among the bases."""

    def __init__(self, *, seed: int = 0, device: Any = "cpu", **config: Any) -> None:
        super().__init__(seed=seed, **config)
        self.device = as_device(device)

    def generate(
        self, batch_size: int | Iterable[int], *, seed: int | None = None, first: int = 0, episode: int = 0
    ) -> TensorDict:
        """A batch of instances, or one alone if the batch size is empty. Without `seed` the generator walks on, so
        repeated calls give fresh ones."""
        batch = batch_shape(batch_size)
        arrays = super().generate(batch, seed=seed, first=first, episode=episode)
        tensors = {name: torch.from_numpy(array) for name, array in self._lay_out(arrays).items()}
        return TensorDict(tensors, batch).to(self.device)

    __call__ = generate

    def _lay_out(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return arrays


class TSPGenerator(TensorGenerator, core.TSPGenerator):
    """`locs` (B, n, 2); node 0 is where the tour starts."""


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
    """The maker of TensorDicts with the laws of a numpy generator: one of those above, or one made here."""
    if numpy_class not in _classes:
        _classes[numpy_class] = type(numpy_class.__name__, (TensorGenerator, numpy_class), {"__module__": __name__})
    return _classes[numpy_class]


_classes: dict[type, type[TensorGenerator]] = {c.__bases__[1]: c for c in TensorGenerator.__subclasses__()}


GENERATOR_REGISTRY = ByWorld("generator", lambda spec: spec.problem, lambda w: tensor_class(refer(w, "generator")))
"""The same names as those of the numpy generators."""


def get_generator(name: str, **options: Any) -> TensorGenerator:
    """The generator of a problem by its short name, or by the id or name of its world in any letter case, with the
    world's options, `seed` and `device` as keywords."""
    problem = core.problem_of(name)
    made: TensorGenerator = GENERATOR_REGISTRY[problem](problem=problem, **options)
    return made


def is_addressable(generator: Any) -> bool:
    """Ours: asked for the instance of a key (seed, row, episode), not for any."""
    return isinstance(generator, core.Generator)


def draws_as(generator: Any, world: type) -> bool:
    """Ours, for this world, and no hook is overridden: the world's own kernel draws the same instances."""
    if not is_addressable(generator) or generator._world is not world:
        return False
    ours = {core.Generator, *core.GENERATOR_REGISTRY.values()}
    hooks = ("_generate_locations", "_generate_depot", "_draw")
    # The first class of the order of resolution that has a hook is the one whose hook is called.
    return all(next(c for c in type(generator).__mro__ if hook in vars(c)) in ours for hook in hooks)


def draw(generator: Any, streams: torch.Tensor, device: torch.device) -> TensorDict:
    """As many instances as there are keys (rows, 3): of these keys if it knows keys, else the next ones it makes."""
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
    """(seed, first row, episode, length) of the stretches in which only the row goes up, by one."""
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
