"""A truck and its drones. Names are imported lazily, since each world compiles code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.truckdrone.config import TruckDroneConfig as TruckDroneConfig
    from milkrun.delivery.truckdrone.log import Recorder as Recorder
    from milkrun.delivery.truckdrone.reports import kpis as kpis
    from milkrun.delivery.truckdrone.reports import replay as replay
    from milkrun.delivery.truckdrone.world import TruckDrone as TruckDrone
    from milkrun.delivery.tspd.config import TSPDConfig as TSPDConfig
    from milkrun.delivery.tspd.world import TSPD as TSPD

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".truckdrone.config": "TruckDroneConfig",
        ".truckdrone.log": "Recorder",
        ".truckdrone.reports": "kpis replay",
        ".truckdrone.world": "TruckDrone",
        ".tspd.config": "TSPDConfig",
        ".tspd.world": "TSPD",
        "milkrun.compat.vrp.VRP_env": "VRPEnv",
    },
)
