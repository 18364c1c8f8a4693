"""Suction picking from a pile. The names here are looked up when asked for: the world needs MuJoCo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.clutter.catalogue import CATALOGUE, register_object_type
    from milkrun.clutter.model import model_xml
    from milkrun.clutter.motion import ClutterMotion
    from milkrun.clutter.options import ClutterConfig
    from milkrun.clutter.task import clutter_return
    from milkrun.clutter.world import Clutter

__getattr__ = lazy(__name__, {
    "CATALOGUE": ".catalogue",
    "Clutter": ".world",
    "ClutterConfig": ".options",
    "ClutterMotion": ".motion",
    "clutter_return": ".task",
    "model_xml": ".model",
    "register_object_type": ".catalogue",
})  # fmt: skip

__all__ = ["CATALOGUE", "Clutter", "ClutterConfig", "ClutterMotion", "clutter_return", "model_xml",
           "register_object_type"]  # fmt: skip
