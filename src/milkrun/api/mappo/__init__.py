"""Worlds as vector environments of on-policy's MAPPO: batches of (rows, agents, numbers) with a shared observation."""

from __future__ import annotations

from milkrun.api.mappo.vec import MAPPOVecEnv, make

__all__ = ["MAPPOVecEnv", "make"]
