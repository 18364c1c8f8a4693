"""Dial-a-ride: the world by the classic rule (`world`), by deadlines alone (`deadlines`), and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.darp.config import DARPConfig as DARPConfig
    from milkrun.routing.darp.world import DARP as DARP

__getattr__, __dir__, __all__ = lazy(__name__, {".config": "DARPConfig", ".world": "DARP"})
