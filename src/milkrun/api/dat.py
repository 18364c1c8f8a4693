"""The names under which the tracking benchmark's users know the parallel environments.

`Envs` needs numpy alone and is here; the wrappers of Stable-Baselines3 and tianshou are looked up when asked for, so
that nobody needs a library that they do not use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from milkrun.tracking.envs import Envs

if TYPE_CHECKING:
    from milkrun.api.rows import handles
    from milkrun.api.sb3 import ASYNC_SubprocVecEnv, Async_SubprocVecEnv
    from milkrun.api.tianshou import SubprocVecEnv_TS, TS_Collector

_WHERE = {
    "ASYNC_SubprocVecEnv": "sb3", "Async_SubprocVecEnv": "sb3", "SubprocVecEnv_TS": "tianshou",
    "TS_Collector": "tianshou", "handles": "rows",
}  # fmt: skip

__all__ = ["ASYNC_SubprocVecEnv", "Async_SubprocVecEnv", "Envs", "SubprocVecEnv_TS", "TS_Collector", "handles"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"milkrun.api.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'milkrun.api.dat' has no attribute {name!r}")
