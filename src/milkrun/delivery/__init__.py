"""A truck and its drones. The names here are looked up when asked for: each world compiles code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.config import TruckDroneConfig
    from milkrun.delivery.truckdrone.log import Recorder
    from milkrun.delivery.truckdrone.reports import kpis, replay
    from milkrun.delivery.truckdrone.world import TruckDrone
    from milkrun.delivery.tspd.config import TSPDConfig
    from milkrun.delivery.tspd.world import TSPD

__getattr__ = lazy(__name__, {
    "Recorder": ".truckdrone.log",
    "TSPD": ".tspd.world",
    "TSPDConfig": ".tspd.config",
    "TruckDrone": ".truckdrone.world",
    "TruckDroneConfig": ".truckdrone.config",
    "VRPEnv": "milkrun.api.vrp.VRP_env",
    "kpis": ".truckdrone.reports",
    "replay": ".truckdrone.reports",
})  # fmt: skip

__all__ = ["TSPD", "Recorder", "TSPDConfig", "TruckDrone", "TruckDroneConfig", "VRPEnv", "kpis", "replay"]
