"""Suction picking from a pile. Names are imported lazily, since the world needs MuJoCo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milkrun.core.lazy import lazy

if TYPE_CHECKING:
    from milkrun.clutter.catalogue import CATALOGUE as CATALOGUE
    from milkrun.clutter.catalogue import register_object_type as register_object_type
    from milkrun.clutter.model import model_xml as model_xml
    from milkrun.clutter.motion import ClutterMotion as ClutterMotion
    from milkrun.clutter.options import ClutterConfig as ClutterConfig
    from milkrun.clutter.task import clutter_return as clutter_return
    from milkrun.clutter.world import Clutter as Clutter

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        ".catalogue": "CATALOGUE register_object_type",
        ".model": "model_xml",
        ".motion": "ClutterMotion",
        ".options": "ClutterConfig",
        ".task": "clutter_return",
        ".world": "Clutter",
    },
)
