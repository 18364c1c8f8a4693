"""Instance laws of the routing family, and the registry that names them."""

from __future__ import annotations

from typing import Any

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.routing.darp.generator import DARPGenerator
from milkrun.routing.generators.base import Generator
from milkrun.routing.generators.cvrp import CVRPGenerator
from milkrun.routing.generators.scwcvrp import SCWCVRPGenerator
from milkrun.routing.generators.sdwcvrp import SDWCVRPGenerator
from milkrun.routing.generators.tsp import TSPGenerator
from milkrun.routing.generators.vrpp import VRPPGenerator
from milkrun.routing.generators.wcvrp import WCVRPGenerator

GENERATOR_REGISTRY: dict[str, type[Generator]] = {
    "tsp": TSPGenerator, "tsp_kopt": TSPGenerator, "cvrp": CVRPGenerator, "vrpp": VRPPGenerator,
    "cvrpp": VRPPGenerator, "wcvrp": WCVRPGenerator, "cwcvrp": WCVRPGenerator, "scwcvrp": SCWCVRPGenerator,
    "sdwcvrp": SDWCVRPGenerator, "darp": DARPGenerator,
}  # fmt: skip


def get_generator(name: str, **options: Any) -> Generator:
    """The generator of a problem by its short name, with the world's options as keywords."""
    if name not in GENERATOR_REGISTRY:
        raise ConfigError(f"no generator {name!r}{did_you_mean(name, GENERATOR_REGISTRY)}")
    return GENERATOR_REGISTRY[name](problem=name, **options)


__all__ = [
    "GENERATOR_REGISTRY", "CVRPGenerator", "DARPGenerator", "Generator", "SCWCVRPGenerator", "SDWCVRPGenerator",
    "TSPGenerator", "VRPPGenerator", "WCVRPGenerator", "get_generator",
]  # fmt: skip
