"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.tracking.config import REASONS as REASONS
    from milkrun.tracking.config import TrackingConfig as TrackingConfig
    from milkrun.tracking.config import curriculum_stages as curriculum_stages
    from milkrun.tracking.env_config import load_env_config as load_env_config
    from milkrun.tracking.lunar import LunarLanderConfig as LunarLanderConfig
    from milkrun.tracking.rendering import render as render
    from milkrun.tracking.velocity import TrackingVelocity as TrackingVelocity
    from milkrun.tracking.world import Tracking as Tracking

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".config": "REASONS TrackingConfig curriculum_stages",
        ".env_config": "load_env_config",
        ".lunar": "LunarLanderConfig",
        ".rendering": "render",
        ".velocity": "TrackingVelocity",
        ".world": "Tracking",
        "milkrun.compat.dat.bench_env": "BenchEnv_Multi",
        "milkrun.compat.dat.constructors": "GE general_env",
        "milkrun.compat.dat.frames": "process_frame",
        "milkrun.compat.parallel.envs": "Envs",
    },
)
