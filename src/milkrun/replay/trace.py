"""An episode that a world has kept, played once more to see what the actions alone do not tell.

A service that fails sends the truck home without an action, and nights change levels that nobody wrote down. A row of
one world, given the same instance, key and actions, goes through the same states bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.instances import instances_of
from milkrun.render.recorder import EpisodeRecorder, Recording


def trace(world: Any, row: int, fields: tuple[str, ...] = ()) -> Recording | None:
    """The recorded actions of a row played again: these fields of every frame. None where it has done nothing."""
    again = type(world)(1, world.config, autoreset="disabled")
    again.stream[:] = world.stream[row]
    again.stream[:, 2] -= 1  # the reset adds one
    again.reset(instance=instances_of(world, [row]))
    recorder = EpisodeRecorder(again, fields=fields, scenes=False)
    for action in world.taken(row):
        recorder.step([action])
    return next(iter(recorder.episodes()), None)


def days_driven(world: Any, row: int) -> list[list[int]]:
    """The nodes that a truck of a waste world drove to on each day, forced returns included."""
    days: list[list[int]] = [[]]
    seen = trace(world, row, ("failures", *(["day"] if "day" in world.fields else [])))
    if seen is None:
        return days
    failures, day = seen.columns["failures"], seen.columns.get("day", [0] * (seen.frames + 1))
    for t, action in enumerate(int(a) for a in seen.actions):
        home = [0] if world.config.recourse == "return" else [0, action]
        days[-1] += [action, *(home if failures[t + 1] > failures[t] else [])]
        if day[t + 1] > day[t] and t + 1 < seen.steps:
            days.append([])
    return days


def last_day(world: Any, row: int) -> tuple[int, float]:
    """The number of the day that a truck of a world of many days drove last, and how far it drove on it."""
    seen = trace(world, row, ("day", "tour_length"))
    if seen is None:
        return 1, 0.0
    day, length = seen.columns["day"], seen.columns["tour_length"]
    last = day[-2]  # at the end of a day it is already the next
    return int(last) + 1, float(length[-1] - length[day.index(last)])


def morning_levels(world: Any, row: int) -> np.ndarray:
    """(mornings and the end, nodes): what the bins of a world of many days held."""
    seen = trace(world, row, ("day", "real_waste"))
    if seen is None:
        return np.asarray(world.real_waste[row])[None]
    day, levels = (np.array(seen.columns[name]) for name in ("day", "real_waste"))
    # The first frame of each day, since `day` never falls.
    first: np.ndarray = levels[np.searchsorted(day, np.arange(day[-1] + 1))]
    return first
