"""A truck and its drones. The names here are looked up when asked for: each world compiles code."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milkrun.delivery.log import Recorder
    from milkrun.delivery.reports import kpis, replay
    from milkrun.delivery.truckdrone import TruckDrone
    from milkrun.delivery.truckdrone_config import TruckDroneConfig
    from milkrun.delivery.tspd import TSPD, TSPDConfig
    from milkrun.delivery.vrp.VRP_env import VRPEnv

_WHERE = {
    "Recorder": "log", "TSPD": "tspd", "TSPDConfig": "tspd", "TruckDrone": "truckdrone",
    "TruckDroneConfig": "truckdrone_config", "VRPEnv": "vrp.VRP_env", "kpis": "reports", "replay": "reports",
}  # fmt: skip

__all__ = ["TSPD", "Recorder", "TSPDConfig", "TruckDrone", "TruckDroneConfig", "VRPEnv", "kpis", "replay"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"milkrun.delivery.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'milkrun.delivery' has no attribute {name!r}")
