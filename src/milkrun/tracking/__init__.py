"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.api.parallel.envs import Envs

__getattr__ = lazy(__name__, {
    "Envs": "milkrun.api.parallel.envs",
})  # fmt: skip

__all__ = ["Envs"]
