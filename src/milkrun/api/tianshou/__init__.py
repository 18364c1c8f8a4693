"""Worlds as tianshou vector environments, for its collectors and algorithms.

`TianshouVectorEnv` is a batch of rows with one native call a step. `SubprocVecEnv_TS` runs any environments in
processes in lockstep, and `TS_Collector` collects from it without waiting for resets; tianshou's own `Collector` works
with both.
"""

from __future__ import annotations

from milkrun.core.errors import missing_extra

try:
    import tianshou  # noqa: F401
except ImportError as e:
    raise missing_extra("tianshou", "tianshou") from e

from milkrun.api.tianshou.collector import TS_Collector
from milkrun.api.tianshou.subproc import SubprocVecEnv_TS, SubprocVectorEnv_TS
from milkrun.api.tianshou.vec import TianshouVectorEnv, make

__all__ = ["SubprocVecEnv_TS", "SubprocVectorEnv_TS", "TS_Collector", "TianshouVectorEnv", "make"]
