"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.tracking.config import REASONS, TrackingConfig, curriculum_stages
    from milkrun.tracking.env_config import load_env_config
    from milkrun.tracking.lunar import LunarLanderConfig
    from milkrun.tracking.rendering import render
    from milkrun.tracking.velocity import TrackingVelocity
    from milkrun.tracking.world import Tracking

__getattr__ = lazy(__name__, {
    "BenchEnv_Multi": "milkrun.api.dat.bench_env",
    "Envs": "milkrun.api.parallel.envs",
    "GE": "milkrun.api.dat.constructors",
    "LunarLanderConfig": ".lunar",
    "REASONS": ".config",
    "Tracking": ".world",
    "TrackingConfig": ".config",
    "TrackingVelocity": ".velocity",
    "curriculum_stages": ".config",
    "general_env": "milkrun.api.dat.constructors",
    "load_env_config": ".env_config",
    "process_frame": "milkrun.api.dat.frames",
    "render": ".rendering",
})  # fmt: skip

__all__ = [
    "GE",
    "REASONS",
    "BenchEnv_Multi",
    "Envs",
    "LunarLanderConfig",
    "Tracking",
    "TrackingConfig",
    "TrackingVelocity",
    "curriculum_stages",
    "general_env",
    "load_env_config",
    "process_frame",
    "render",
]
