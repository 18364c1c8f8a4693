"""A truck that launches and recovers drones: the world, and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.config import TruckDroneConfig
    from milkrun.delivery.truckdrone.world import TruckDrone

__getattr__ = lazy(__name__, {
    "TruckDrone": ".world",
    "TruckDroneConfig": ".config",
})  # fmt: skip

__all__ = ["TruckDrone", "TruckDroneConfig"]
