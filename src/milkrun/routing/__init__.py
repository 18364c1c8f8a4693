"""Vehicles, routes and what they carry. The names here are looked up when asked for: each world compiles code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.cvrp import CVRP
    from milkrun.routing.darp.config import DARPConfig
    from milkrun.routing.darp.world import DARP
    from milkrun.routing.instances.darp import DARPInstance
    from milkrun.routing.tsp import TSP

__getattr__ = lazy(__name__, {
    "CVRP": ".cvrp",
    "DARP": ".darp.world",
    "DARPConfig": ".darp.config",
    "DARPInstance": ".instances.darp",
    "TSP": ".tsp",
})  # fmt: skip

__all__ = ["CVRP", "DARP", "TSP", "DARPConfig", "DARPInstance"]
