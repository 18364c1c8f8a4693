"""Replays the recorded actions of an episode, to get values that the actions alone do not hold.

A failed service sends the truck to the depot without an action, and levels change overnight. A world of one row with
the same instance, stream and actions has the same states bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.instances import instances_of
from milkrun.render.recorder import EpisodeRecorder, Recording


def trace(world: Any, row: int, fields: tuple[str, ...] = ()) -> Recording | None:
    """Replay the recorded actions of a row and record these fields; None if there is no action."""
    copy = type(world)(1, world.config, autoreset="disabled")
    copy.stream[:] = world.stream[row]
    copy.stream[:, 2] -= 1  # the reset adds one
    copy.reset(instance=instances_of(world, [row]))
    recorder = EpisodeRecorder(copy, fields=fields, scenes=False)
    for action in world.taken(row):
        recorder.step([action])
    return next(iter(recorder.episodes()), None)


def days_driven(world: Any, row: int) -> list[list[int]]:
    """The nodes visited on each day by the truck of a waste world, forced returns included."""
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
    """The number of the last day in a world of many days, and the distance driven on it."""
    seen = trace(world, row, ("day", "tour_length"))
    if seen is None:
        return 1, 0.0
    day, length = seen.columns["day"], seen.columns["tour_length"]
    last = day[-2]  # the day changes within the last step of a day
    return int(last) + 1, float(length[-1] - length[day.index(last)])


def morning_levels(world: Any, row: int) -> np.ndarray:
    """Bin levels of a world of many days at each morning and at the end, (mornings + 1, nodes)."""
    seen = trace(world, row, ("day", "real_waste"))
    if seen is None:
        return np.asarray(world.real_waste[row])[None]
    day, levels = (np.array(seen.columns[name]) for name in ("day", "real_waste"))
    # The first frame of each day, since `day` never decreases.
    first: np.ndarray = levels[np.searchsorted(day, np.arange(day[-1] + 1))]
    return first
