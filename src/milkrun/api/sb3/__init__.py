"""Milkrun's worlds, and environments in other processes, as Stable-Baselines3's vector environments."""

from __future__ import annotations

from milkrun.api.sb3.subproc import ASYNC_SubprocVecEnv, Async_SubprocVecEnv
from milkrun.api.sb3.vec import SB3VecEnv, make

__all__ = ["ASYNC_SubprocVecEnv", "Async_SubprocVecEnv", "SB3VecEnv", "make"]
