"""An episode that has been recorded, played once more to see what the actions alone do not tell.

A service that fails sends the truck home without an action, and nights change levels that nobody wrote down. A row of
one world, given the same instance, key and actions, goes through the same states bit for bit; here they are noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.fields import Role


@dataclass
class Trace:
    """What one row did."""

    days: list[list[int]] = field(default_factory=lambda: [[]])  # nodes driven to, forced returns included
    levels: list[NDArray[np.float32]] = field(default_factory=list)  # of all nodes on each morning, and at the end


def retrace(world: Any, row: int) -> Trace:
    """The recorded actions of a row of a waste world with recourse, played again."""
    q = world.instance_row[row]
    fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE]
    again = type(world)(1, world.config, autoreset="disabled")
    again.stream[:] = world.stream[row]
    again.stream[:, 2] -= 1  # the reset adds one
    again.reset(instance={f: getattr(world, f)[q : q + 1] for f in fields if 0 not in getattr(world, f).shape})
    many = "day" in world.fields
    trace = Trace()
    if many:
        trace.levels.append(again.real_waste[0].copy())
    for day, actions in enumerate(np.atleast_2d(world.solution()[row])):
        taken = int(np.atleast_1d(world.tour_len[row])[day])
        for action in actions[:taken].tolist():
            failures = int(again.failures[0])
            again.step([action])
            trace.days[-1] += _nodes(action, int(again.failures[0]) > failures, world.config.recourse)
        if many and int(again.day[0]) == day + 1:
            trace.levels.append(again.real_waste[0].copy())
            if not again.terminated[0]:
                trace.days.append([])
    return trace


def _nodes(action: int, failed: bool, recourse: str) -> list[int]:
    if not failed:
        return [action]
    return [action, 0] if recourse == "return" else [action, 0, action]
