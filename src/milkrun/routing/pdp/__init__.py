"""Pickups and deliveries in pairs, with any number of vehicles and depots, time windows and limits.

| file | holds |
|---|---|
| `world.py` | the fields, the step and the mask |
| `search.py` | whether all goods aboard can still be delivered, and in which order |
| `config.py` | options and presets |
| `generator.py` | drawn instances |
| `instances.py` | defaults and validation of given instances, and the reasons of masked actions |
| `picture.py` | the scene of a row |
"""

from milkrun.routing.pdp.config import PDPConfig
from milkrun.routing.pdp.world import PDP

__all__ = ["PDP", "PDPConfig"]
