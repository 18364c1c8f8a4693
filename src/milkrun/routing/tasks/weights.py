"""The weights of the objectives by the short name of a problem. Each checker states its own, in `default_weights`."""

from __future__ import annotations

from typing import Any

from milkrun.core.errors import ConfigError, did_you_mean
from milkrun.core.references import refer
from milkrun.core.registry import each_world


def default_weights(name: str, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
    """What problem `name` weighs with `n` customers in a box of this side; `max_waste` may be an array."""
    tasks = {spec.problem: refer(world, "task") for spec, world in each_world() if world.task}
    known = {problem: task for problem, task in tasks.items() if hasattr(task, "default_weights")}
    if name.lower() not in known:
        raise ConfigError(f"problem {name!r} is unknown{did_you_mean(name.lower(), known)}")
    weights: dict[str, Any] = known[name.lower()].default_weights(n, side, max_waste)
    return weights
