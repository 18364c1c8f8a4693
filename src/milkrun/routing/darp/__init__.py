"""Dial-a-ride: the world by the classic rule (`world`), by deadlines alone (`deadlines`), and what belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.routing.darp.config import DARPConfig
    from milkrun.routing.darp.world import DARP

__getattr__ = lazy(__name__, {
    "DARP": ".world",
    "DARPConfig": ".config",
})  # fmt: skip

__all__ = ["DARP", "DARPConfig"]
