"""The scenarios by name."""

from __future__ import annotations

import importlib
from typing import Any

from milkrun.core.errors import ConfigError, did_you_mean

NAMES = ("truck_drone_basic",)


def load(name: str) -> Any:
    """The module of a scenario, which has its class `Scenario`; the name may end in ".py"."""
    bare = str(name).removesuffix(".py")
    if bare not in NAMES:
        raise ConfigError(f"scenario_name={name!r} is unknown{did_you_mean(bare, NAMES)}")
    return importlib.import_module(f"{__name__}.{bare}")
