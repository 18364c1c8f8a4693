"""Figures of episodes of the truck-and-drones world, and replays from actions.

The kernel sums the figures; no recording is needed.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from milkrun.core.errors import BadSolution, ConfigError, ShapeError, did_you_mean
from milkrun.core.registry import make
from milkrun.delivery.truckdrone.config import TruckDroneConfig
from milkrun.delivery.truckdrone.flight import AMOUNTS, COUNTS
from milkrun.delivery.truckdrone.log import Recorder

WORLD_ID = "milkrun/TruckDrone-v0"
KPIS = (
    "makespan",
    "served",
    "on_time",
    "lateness",
    "lateness_max",
    "energy",
    "truck_distance",
    "drone_distance",
    "sorties",
    "aborted",
    "forced_onsets",
    "crashes",
    "truck_wait",
    "drone_wait",
    "onboard_steps",
    "illegal",
    "conflicts",
    "objective",
)
UNITS = {
    "km_per_unit": ("km", ("truck_distance", "drone_distance")),
    "seconds_per_step": (
        "s",
        ("makespan", "lateness", "lateness_max", "truck_wait", "drone_wait", "onboard_steps"),
    ),
    "wh_per_battery": ("wh", ("energy",)),
}
"""Scale -> the suffix of the added figures, and the scaled ones."""


def figures(tallies: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The figures of rows from their tallies."""
    found = {
        "makespan": tallies["i"],
        "objective": tallies["objective"],
        **dict(zip(COUNTS, tallies["sum_counts"].T, strict=True)),
        **dict(zip(AMOUNTS, tallies["sum_amounts"].T, strict=True)),
    }
    return {name: found[name].copy() for name in KPIS}


def kpis(world: Any, scale: Mapping[str, float] | None = None) -> dict[str, np.ndarray]:
    """Figures (B,) of the current or just finished episode of each row.

    A finished row keeps them until its next reset, which under autoreset "next_step" is the next step. Under
    "same_step" `step` has already reset the row: the figures are those of the new episode.

    makespan: steps done. served, on_time: customers. lateness, lateness_max: steps after the windows, summed over
    deliveries and the largest. energy: in batteries. sorties: releases. aborted: recoveries with a parcel, landings
    too. forced_onsets: fined overrides of drones. truck_wait, drone_wait: steps without motion, of drones
    those in the air. onboard_steps: of all drones. illegal: masked actions. conflicts: deliveries that another drone
    began in the same step.
    `scale` (km_per_unit, seconds_per_step, wh_per_battery) adds figures in these units: energy_wh, makespan_s, ...
    """
    found = figures({name: getattr(world, name) for name in ("i", "objective", *world.figure_fields)})
    for key, factor in (scale or {}).items():
        if key not in UNITS:
            raise ConfigError(f"scale has no key {key!r}{did_you_mean(key, UNITS)}")
        if isinstance(factor, bool) or not isinstance(factor, numbers.Real) or not 0 <= factor < math.inf:
            raise ConfigError(f"scale[{key!r}] = {factor!r}: must be a number >= 0")
        unit, names = UNITS[key]
        found |= {f"{name}_{unit}": found[name] * float(factor) for name in names}
    return found


def replay(
    config: TruckDroneConfig, instance: Mapping[str, Any], actions: Any
) -> tuple[dict[str, int | float], np.ndarray]:
    """Plays `actions` (steps, 1 + drones) on one instance (fields without a row axis); returns figures and events.

    Masked actions count as in play; actions after the end are refused.
    """
    plan = np.asarray(actions)
    agents = 1 + config.num_drones
    if plan.ndim != 2 or plan.shape[1] != agents or plan.dtype.kind not in "iu":
        raise ShapeError(f"actions must be integers of shape (steps, {agents}), not {plan.dtype} {plan.shape}")
    world: Any = make(WORLD_ID, 1, config=config, seed=0, autoreset="disabled")
    world.reset(instance={name: np.asarray(value)[None] for name, value in instance.items()})
    recorder = Recorder(world)
    for t, joint in enumerate(plan):
        if world.done[0]:
            raise BadSolution(f"the episode ended after {t} steps, but there are actions for {len(plan)}")
        recorder.step(joint[None])
    return {name: figure[0].item() for name, figure in kpis(world).items()}, recorder.events()
