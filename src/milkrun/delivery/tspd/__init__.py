"""The travelling salesperson with a drone: the world and its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.delivery.tspd.config import TSPDConfig as TSPDConfig
    from milkrun.delivery.tspd.world import TSPD as TSPD

__getattr__, __dir__, __all__ = lazy(__name__, {".config": "TSPDConfig", ".world": "TSPD"})
