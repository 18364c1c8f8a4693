"""The drone-tracking benchmark under its original names, so that code for it needs only another import path.

Names are imported lazily: a name that is not used needs neither its library nor the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.api.sb3 import ASYNC_SubprocVecEnv as ASYNC_SubprocVecEnv
    from milkrun.api.sb3 import Async_SubprocVecEnv as Async_SubprocVecEnv
    from milkrun.api.tianshou import SubprocVecEnv_TS as SubprocVecEnv_TS
    from milkrun.api.tianshou import TS_Collector as TS_Collector
    from milkrun.compat.dat.bench_env import BenchEnv_Multi as BenchEnv_Multi
    from milkrun.compat.dat.constructors import GE as GE
    from milkrun.compat.dat.constructors import general_env as general_env
    from milkrun.compat.dat.constructors import make_env as make_env
    from milkrun.compat.dat.frames import process_frame as process_frame
    from milkrun.compat.dat.gym_env import UAV_VAT as UAV_VAT
    from milkrun.compat.dat.gymnasium_env import UAV_VAT_Gymnasium as UAV_VAT_Gymnasium
    from milkrun.compat.dat.smoke import gym_test as gym_test
    from milkrun.compat.dat.smoke import stableparallel_test as stableparallel_test
    from milkrun.compat.dat.smoke import test_tianshou_env as test_tianshou_env
    from milkrun.compat.parallel.envs import Envs as Envs
    from milkrun.compat.parallel.rows import handles as handles

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".bench_env": "BenchEnv_Multi",
        ".constructors": "GE general_env make_env",
        ".frames": "process_frame",
        ".gym_env": "UAV_VAT",
        ".gymnasium_env": "UAV_VAT_Gymnasium",
        ".smoke": "gym_test stableparallel_test test_tianshou_env",
        "milkrun.compat.parallel.envs": "Envs",
        "milkrun.compat.parallel.rows": "handles",
        "milkrun.api.sb3": "ASYNC_SubprocVecEnv Async_SubprocVecEnv",
        "milkrun.api.tianshou": "SubprocVecEnv_TS TS_Collector",
    },
)
