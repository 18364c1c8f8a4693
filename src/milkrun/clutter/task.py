"""The independent checker: computes the return of an episode from its event log. Shares no code with the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from milkrun.clutter.options import ClutterConfig
from milkrun.core.errors import BadSolution

RESULTS = ("success", "dropped", "illegal", "physics_error")


def clutter_return(events: Iterable[Mapping[str, Any]], config: ClutterConfig) -> float:
    """The return of an episode from its records, as `world.events(row)` returns them."""
    total, out = 0.0, set()
    for number, event in enumerate(events):
        target, result = event["target"], event["result"]
        if result not in RESULTS:
            raise BadSolution(f"attempt {number}: the result {result!r} is none of {', '.join(RESULTS)}")
        if result == "illegal":
            total -= config.reward_illegal or 0.0
            continue
        if not 0 <= target < config.total_objects_per_env or target in out:
            raise BadSolution(f"attempt {number}: object {target} cannot be the target")
        moved = [way for i, way in enumerate(event["displacement"]) if i != target and way >= 0.002]
        seconds = event["ticks"] * config.timestep * config.substeps
        total -= (config.reward_disturb or 0.0) * min(sum(moved), 0.5)
        total -= (config.reward_blocked or 0.0) * event["blocked"]
        total -= (config.reward_lost or 0.0) * event["lost"]
        total -= (config.reward_time or 0.0) * seconds
        if result == "dropped":
            total -= config.reward_drop or 0.0
        if result == "success":
            out.add(target)
            total += config.reward_success or 0.0
            if len(out) == config.total_objects_per_env:
                total += config.reward_clear or 0.0
    return total
