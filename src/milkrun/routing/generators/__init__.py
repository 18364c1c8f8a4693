"""Instance laws of the routing family, and the registry that names them.

The classes are looked up when asked for: the generator of a world that is a package stands there, and needs `base`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.darp.generator import DARPGenerator
    from milkrun.routing.generators.base import Generator
    from milkrun.routing.generators.cvrp import CVRPGenerator
    from milkrun.routing.generators.scwcvrp import SCWCVRPGenerator
    from milkrun.routing.generators.sdwcvrp import SDWCVRPGenerator
    from milkrun.routing.generators.tsp import TSPGenerator
    from milkrun.routing.generators.vrpp import VRPPGenerator
    from milkrun.routing.generators.wcvrp import WCVRPGenerator

    GENERATOR_REGISTRY: dict[str, type[Generator]]

MODULES = {
    "CVRPGenerator": ".cvrp", "DARPGenerator": "milkrun.routing.darp.generator", "Generator": ".base",
    "SCWCVRPGenerator": ".scwcvrp", "SDWCVRPGenerator": ".sdwcvrp", "TSPGenerator": ".tsp", "VRPPGenerator": ".vrpp",
    "WCVRPGenerator": ".wcvrp",
}  # fmt: skip
PROBLEMS = {
    "tsp": "TSPGenerator", "tsp_kopt": "TSPGenerator", "cvrp": "CVRPGenerator", "vrpp": "VRPPGenerator",
    "cvrpp": "VRPPGenerator", "wcvrp": "WCVRPGenerator", "cwcvrp": "WCVRPGenerator", "scwcvrp": "SCWCVRPGenerator",
    "sdwcvrp": "SDWCVRPGenerator", "darp": "DARPGenerator",
}  # fmt: skip

_find = lazy(__name__, MODULES)


@cache
def _registry() -> dict[str, type[Generator]]:
    return {problem: _find(made_by) for problem, made_by in PROBLEMS.items()}


def __getattr__(name: str) -> Any:
    return _registry() if name == "GENERATOR_REGISTRY" else _find(name)


def get_generator(name: str, **options: Any) -> Generator:
    """The generator of a problem by its short name, with the world's options as keywords."""
    if name not in (registry := _registry()):
        raise ConfigError(f"no generator {name!r}{did_you_mean(name, registry)}")
    return registry[name](problem=name, **options)


__all__ = [
    "GENERATOR_REGISTRY", "CVRPGenerator", "DARPGenerator", "Generator", "SCWCVRPGenerator", "SDWCVRPGenerator",
    "TSPGenerator", "VRPPGenerator", "WCVRPGenerator", "get_generator",
]  # fmt: skip
