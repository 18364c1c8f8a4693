"""The original drone-tracking benchmark by its own names: whoever has code for it changes the import path alone.

Each name is looked up when it is asked for, so that nobody needs a library, or waits for a compiler, that they do not
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.api.dat.bench_env import BenchEnv_Multi
    from milkrun.api.dat.constructors import GE, general_env, make_env
    from milkrun.api.dat.frames import process_frame
    from milkrun.api.dat.gym_env import UAV_VAT
    from milkrun.api.dat.gymnasium_env import UAV_VAT_Gymnasium
    from milkrun.api.dat.smoke import gym_test, stableparallel_test, test_tianshou_env
    from milkrun.api.parallel.envs import Envs
    from milkrun.api.rows import handles
    from milkrun.api.sb3 import ASYNC_SubprocVecEnv, Async_SubprocVecEnv
    from milkrun.api.tianshou import SubprocVecEnv_TS, TS_Collector

__getattr__ = lazy(__name__, {
    "ASYNC_SubprocVecEnv": "milkrun.api.sb3", "Async_SubprocVecEnv": "milkrun.api.sb3",
    "BenchEnv_Multi": ".bench_env", "Envs": "milkrun.api.parallel.envs", "GE": ".constructors",
    "SubprocVecEnv_TS": "milkrun.api.tianshou", "TS_Collector": "milkrun.api.tianshou", "UAV_VAT": ".gym_env",
    "UAV_VAT_Gymnasium": ".gymnasium_env", "general_env": ".constructors", "gym_test": ".smoke",
    "handles": "milkrun.api.rows", "make_env": ".constructors", "process_frame": ".frames",
    "stableparallel_test": ".smoke", "test_tianshou_env": ".smoke",
})  # fmt: skip

__all__ = [
    "GE",
    "UAV_VAT",
    "ASYNC_SubprocVecEnv",
    "Async_SubprocVecEnv",
    "BenchEnv_Multi",
    "Envs",
    "SubprocVecEnv_TS",
    "TS_Collector",
    "UAV_VAT_Gymnasium",
    "general_env",
    "gym_test",
    "handles",
    "make_env",
    "process_frame",
    "stableparallel_test",
    "test_tianshou_env",
]
