"""Vehicle routing with any set of attributes: capacity, backhauls, time windows, limits, open routes, several depots,
mixed fleets, split deliveries.

| file | holds |
|---|---|
| `world.py` | the fields, the step and the mask |
| `rules.py` | the named rules: load, clock, limits, which depot may send a vehicle |
| `config.py`, `variants.py` | options and presets; the names of the 48 variants |
| `generator.py` | drawn instances |
| `instances.py` | defaults and validation of given instances |
| `timetable.py` | the chart of routes with time windows |
"""

from milkrun.routing.vrp.config import VRPConfig
from milkrun.routing.vrp.world import VRP

__all__ = ["VRP", "VRPConfig"]
