"""The travelling salesperson with a drone: the world, and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.tspd.config import TSPDConfig
    from milkrun.delivery.tspd.world import TSPD

__getattr__ = lazy(__name__, {
    "TSPD": ".world",
    "TSPDConfig": ".config",
})  # fmt: skip

__all__ = ["TSPD", "TSPDConfig"]
