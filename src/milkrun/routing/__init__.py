"""Vehicle routing, waste collection and dial-a-ride. Names are imported lazily, since each world compiles code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.cvrp import CVRP as CVRP
    from milkrun.routing.darp.config import DARPConfig as DARPConfig
    from milkrun.routing.darp.world import DARP as DARP
    from milkrun.routing.instances.darp import DARPInstance as DARPInstance
    from milkrun.routing.tsp import TSP as TSP

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".cvrp": "CVRP",
        ".darp.config": "DARPConfig",
        ".darp.world": "DARP",
        ".instances.darp": "DARPInstance",
        ".tsp": "TSP",
    },
)
