"""A drone that follows a target by its camera. The names here are looked up when asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milkrun.tracking.envs import Envs

_WHERE = {"Envs": "envs"}

__all__ = ["Envs"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"milkrun.tracking.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'milkrun.tracking' has no attribute {name!r}")
