"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.tracking.config import REASONS, TrackingConfig, curriculum_stages
    from milkrun.tracking.studio import render
    from milkrun.tracking.velocity import TrackingVelocity
    from milkrun.tracking.world import Tracking

__getattr__ = lazy(__name__, {
    "Envs": "milkrun.api.parallel.envs",
    "REASONS": ".config",
    "Tracking": ".world",
    "TrackingConfig": ".config",
    "TrackingVelocity": ".velocity",
    "curriculum_stages": ".config",
    "render": ".studio",
})  # fmt: skip

__all__ = ["REASONS", "Envs", "Tracking", "TrackingConfig", "TrackingVelocity", "curriculum_stages", "render"]
