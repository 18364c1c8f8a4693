"""Instance laws of the routing family, and the registry that names them."""

from __future__ import annotations

from typing import Any

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.cvrp import CVRPGenerator
from milkrun.routing.generators.tsp import TSPGenerator

GENERATOR_REGISTRY: dict[str, type[Generator]] = {"tsp": TSPGenerator, "cvrp": CVRPGenerator}


def get_generator(name: str, **options: Any) -> Generator:
    """The generator of a problem by its short name, with the world's options as keywords."""
    if name not in GENERATOR_REGISTRY:
        raise ConfigError(f"no generator {name!r}{did_you_mean(name, GENERATOR_REGISTRY)}")
    return GENERATOR_REGISTRY[name](**options)


__all__ = ["GENERATOR_REGISTRY", "CVRPGenerator", "Generator", "TSPGenerator", "get_generator"]
