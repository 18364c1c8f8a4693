"""The names under which the tracking benchmark's users know the parallel environments.

`Envs` needs numpy alone and is here; the wrappers of Stable-Baselines3 and tianshou are looked up when asked for, so
that nobody needs a library that they do not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.api.parallel.envs import Envs
from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.api.rows import handles
    from milkrun.api.sb3 import ASYNC_SubprocVecEnv, Async_SubprocVecEnv
    from milkrun.api.tianshou import SubprocVecEnv_TS, TS_Collector

__getattr__ = lazy(__name__, {
    "ASYNC_SubprocVecEnv": "milkrun.api.sb3", "Async_SubprocVecEnv": "milkrun.api.sb3",
    "SubprocVecEnv_TS": "milkrun.api.tianshou", "TS_Collector": "milkrun.api.tianshou", "handles": "milkrun.api.rows",
})  # fmt: skip

__all__ = ["ASYNC_SubprocVecEnv", "Async_SubprocVecEnv", "Envs", "SubprocVecEnv_TS", "TS_Collector", "handles"]
