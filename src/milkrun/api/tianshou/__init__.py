"""Milkrun's worlds in tianshou's words: vector environments that its collectors and algorithms take for their own.

`TianshouVectorEnv` is a batch of rows in one native call. `SubprocVecEnv_TS` runs any environments in processes of
their own, steps and resets on one beat, and `TS_Collector` collects from it without ever holding up the others for a
reset; tianshou's own `Collector` works with both.
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
