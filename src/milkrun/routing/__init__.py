"""Vehicles, routes and what they carry. The names here are looked up when asked for: each world compiles code."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milkrun.routing.cvrp import CVRP
    from milkrun.routing.darp import DARP
    from milkrun.routing.darp_config import DARPConfig
    from milkrun.routing.instances.darp import DARPInstance
    from milkrun.routing.tsp import TSP

_WHERE = {"CVRP": "cvrp", "DARP": "darp", "DARPConfig": "darp_config", "DARPInstance": "instances.darp", "TSP": "tsp"}

__all__ = ["CVRP", "DARP", "TSP", "DARPConfig", "DARPInstance"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"milkrun.routing.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'milkrun.routing' has no attribute {name!r}")
