"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from milkrun.core.lazy import lazy

__getattr__ = lazy(__name__, {"Envs": "milkrun.api.parallel.envs"})

__all__ = ["Envs"]
