"""A truck that launches and recovers drones: the world, and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.config import TruckDroneConfig as TruckDroneConfig
    from milkrun.delivery.truckdrone.world import TruckDrone as TruckDrone

__getattr__, __dir__, __all__ = lazy(__name__, {".config": "TruckDroneConfig", ".world": "TruckDrone"})
