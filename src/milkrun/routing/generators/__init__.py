"""Instance laws of the routing family, and the registry of generators by the short name of their world."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from milkrun.core.errors import ConfigError, RegistryError, did_you_mean
from milkrun.core.lazy import lazy
from milkrun.core.references import refer
from milkrun.core.registry import ByWorld, named_world

if TYPE_CHECKING:
    from milkrun.routing.darp.generator import DARPGenerator as DARPGenerator
    from milkrun.routing.generators.base import Generator as Generator
    from milkrun.routing.generators.prizes import PCTSPGenerator as PCTSPGenerator
    from milkrun.routing.generators.profits import VRPPGenerator as VRPPGenerator
    from milkrun.routing.generators.tours import CVRPGenerator as CVRPGenerator
    from milkrun.routing.generators.tours import TSPGenerator as TSPGenerator
    from milkrun.routing.generators.waste import SCWCVRPGenerator as SCWCVRPGenerator
    from milkrun.routing.generators.waste import SDWCVRPGenerator as SDWCVRPGenerator
    from milkrun.routing.generators.waste import WCVRPGenerator as WCVRPGenerator
    from milkrun.routing.pdp.generator import PDPGenerator as PDPGenerator
    from milkrun.routing.vrp.generator import VRPGenerator as VRPGenerator

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".base": "Generator",
        ".prizes": "PCTSPGenerator",
        ".profits": "VRPPGenerator",
        ".tours": "CVRPGenerator TSPGenerator",
        ".waste": "SCWCVRPGenerator SDWCVRPGenerator WCVRPGenerator",
        "milkrun.routing.darp.generator": "DARPGenerator",
        "milkrun.routing.pdp.generator": "PDPGenerator",
        "milkrun.routing.vrp.generator": "VRPGenerator",
    },
)


GENERATOR_REGISTRY = ByWorld("generator", lambda spec: spec.problem, lambda world: refer(world, "generator"))
"""Short name of a world -> the generator named by its class."""


def get_generator(name: str, **options: Any) -> Generator:
    """The generator of a problem, with the options of its world as keywords.

    `name` is the short name of the problem, or the id or name of its world in any letter case.
    """
    problem = problem_of(name)
    made: Generator = GENERATOR_REGISTRY[problem](problem=problem, **options)
    return made


def problem_of(name: str) -> str:
    """The short name under which a generator is registered."""
    if name in GENERATOR_REGISTRY:
        return name
    with suppress(RegistryError):
        if (problem := named_world(name).problem) in GENERATOR_REGISTRY:
            return problem
    raise ConfigError(f"no generator {name!r}{did_you_mean(str(name), GENERATOR_REGISTRY)}")


__all__ += ["GENERATOR_REGISTRY", "get_generator"]
