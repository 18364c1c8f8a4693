"""A drone that follows a target by its camera. Its names are imported lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.tracking.config import REASONS as REASONS
    from milkrun.tracking.config import TrackingConfig as TrackingConfig
    from milkrun.tracking.config import curriculum_stages as curriculum_stages
    from milkrun.tracking.env_config import load_env_config as load_env_config
    from milkrun.tracking.files import LunarLanderConfig as LunarLanderConfig
    from milkrun.tracking.rendering import render as render
    from milkrun.tracking.world import Tracking as Tracking
    from milkrun.tracking.world import TrackingVelocity as TrackingVelocity

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".config": "REASONS TrackingConfig curriculum_stages",
        ".env_config": "load_env_config",
        ".files": "LunarLanderConfig",
        ".rendering": "render",
        ".world": "Tracking TrackingVelocity",
        "milkrun.compat.dat.bench_env": "BenchEnv_Multi",
        "milkrun.compat.dat.constructors": "GE general_env",
        "milkrun.compat.dat.frames": "process_frame",
        "milkrun.compat.parallel.envs": "Envs",
    },
)
