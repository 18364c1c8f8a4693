"""A binding of any world to on-policy's MAPPO: batches of (rows, agents, numbers) with a shared observation.

The wrappers of the published truck-and-drones environment are in `milkrun.compat.vrp.env_wrappers`.
"""

from __future__ import annotations

from milkrun.api.mappo.vec import MAPPOVecEnv, make

__all__ = ["MAPPOVecEnv", "make"]
