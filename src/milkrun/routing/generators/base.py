"""Generator: instance i of seed s is a pure function of (s, i, episode, configuration).

A generator runs the same kernel as its world, so `generate(128, seed=7)` returns the instances that a world reset with
seed 7 plays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from milkrun.core.arguments import check_count, check_seed
from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.references import refer, resolve
from milkrun.core.registry import each_world


class Generator:
    """Makes instances of one world.

    Subclasses may place customers and depots in Python through the two hooks; fields that depend on places follow them.
    """

    world: ClassVar[Any]  # "module:Class" of the default world
    keys: ClassVar[tuple[str, ...]]  # the instance fields returned, where the world has them
    renamed: ClassVar[Mapping[str, str]] = {}  # field -> the key under which it is returned
    aliases: ClassVar[Mapping[str, str]] = {}  # second key -> the key whose array it shares

    def __init__(self, *, problem: str | None = None, seed: int = 0, device: Any = "cpu", **config: Any) -> None:
        if str(device) != "cpu":
            raise ConfigError(
                f"device={device!r}: these generators return numpy arrays; milkrun.api.torchrl.generators "
                "has the same laws on a device"
            )
        self.problem, self._world = self._find_world(problem)
        self.config = self._world.Config.build(**config)
        self.seed = check_seed(seed)
        self.position = 0
        self.device = "cpu"

    @classmethod
    def _find_world(cls, problem: str | None) -> tuple[str, Any]:
        """The short name and the world of a problem; its class must name this generator or a base of it."""
        default = resolve(cls.world, f"{cls.__name__}.world")
        known = {
            spec.problem: world
            for spec, world in each_world()
            if world is default or (world.generator and refer(world, "generator") in cls.__mro__)
        }
        if problem is None:
            return next((name for name, world in known.items() if world is default), default.__name__.lower()), default
        if problem not in known:
            raise ConfigError(f"{cls.__name__} makes no {problem!r}{did_you_mean(str(problem), known)}")
        return problem, known[problem]

    def __getattr__(self, name: str) -> Any:
        if name in ("num_loc", "min_loc", "max_loc", "loc_distribution"):
            return getattr(self.config, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def generate(
        self, batch_size: int | Iterable[int], *, seed: int | None = None, first: int = 0, episode: int = 0
    ) -> dict[str, np.ndarray]:
        """A batch of instances, or a single one if the batch size is empty.

        Without `seed` the position advances, so that repeated calls return new instances.
        """
        episode, first = check_count("episode", episode, 0), check_count("first", first, 0)
        shape = batch_shape(batch_size)
        count = math.prod(shape)
        if seed is None:
            seed, first = self.seed, first + self.position
            self.position += count
        flat = self._draw(count, check_seed(seed), first, episode)
        return {name: array.reshape((*shape, *array.shape[1:])) for name, array in flat.items()}

    __call__ = generate

    def _draw(self, count: int, seed: int, first: int, episode: int) -> dict[str, np.ndarray]:
        world = self._world.variant(self.config)(max(count, 1), self.config, seed=seed, first_row=first)
        if count and hasattr(world, "stand_at"):
            places = self._generate_locations(count, seed, first, episode)
            world.stand_at(places, self._generate_depot(count, seed, first, episode) if world.depot_apart else None)
        world.draw_instances(episode)
        present = [name for name in self.keys if name in world.fields and 0 not in getattr(world, name).shape[1:]]
        nodes = {name: getattr(world, name)[:count] for name in present}
        if world.sizes.get("M"):
            nodes["dist"] = world.dist[:count]
        if getattr(world, "depot_apart", False):
            depots, locs = world.first_customer, nodes["locs"]
            nodes["depot"] = (locs[:, 0] if depots == 1 else locs[:, :depots]).copy()
            nodes["locs"] = locs[:, depots:].copy()
            for name in world.customer_fields:
                if name in nodes:
                    nodes[name] = world.without_depots(name, nodes[name], depots).copy()
        nodes = {self.renamed.get(name, name): array for name, array in nodes.items()}
        return nodes | {alias: nodes[name] for alias, name in self.aliases.items() if name in nodes}

    def _generate_locations(self, count: int, seed: int, first: int, episode: int) -> np.ndarray | None:
        """Hook: (count, n, 2) places in place of the drawn ones, or None."""
        return None

    def _generate_depot(self, count: int, seed: int, first: int, episode: int) -> np.ndarray | None:
        """Hook: (count, 2) depots in place of the drawn ones, or None."""
        return None


def batch_shape(batch_size: Any) -> tuple[int, ...]:
    """The shape of a batch: one axis for an integer, one for each of several integers, none for an empty sequence."""
    try:
        several = isinstance(batch_size, Iterable) and not (isinstance(batch_size, np.ndarray) and batch_size.ndim == 0)
        shape = tuple(operator.index(size) for size in (batch_size if several else [batch_size]))
    except (TypeError, ValueError):
        raise ConfigError(f"batch_size {batch_size!r}: must be an integer or several") from None
    if min(shape, default=0) < 0:
        raise ConfigError(f"batch_size {shape}: must not be negative")
    return shape
