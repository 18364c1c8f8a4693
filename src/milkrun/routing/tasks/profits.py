"""The checkers of the worlds with prizes: the VRPP, and the CVRPP with a limited truck."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.collect import Collecting, positive, read_capacity, truck
from milkrun.routing.tasks.dataset import Dataset, Ints
from milkrun.routing.tasks.replay import Job, Journey, Windows


class VRPP(Collecting):
    """Prizes of the visited customers against length, with unlimited capacity.

    `demand` is a synonym of `prize`. If the dataset has `time_windows` (or `start_time` and `end_time`), they apply
    with `service_time` and `speed`: no service starts and no truck returns after closing. Waiting is free, and every
    trip leaves the depot at time 0."""

    limits: ClassVar[tuple[str, ...]] = ("max_length",)
    terms = {"profit": ("prize", -1.0), "length": ("length", 1.0)}
    length_weight = 60.0

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {"prize": 1.0, **super().default_weights(n, side)}

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        prize = data.per_node("prize", "demand")
        job = truck(data, prize, np.zeros_like(prize), np.full(len(prize), np.inf))
        job.windows = read_windows(data)
        return job

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: Journey) -> dict[str, NDArray[Any]]:
        return {"profit": replay.collected, "length": replay.length}


def read_windows(data: Dataset) -> Windows | None:
    windows = data.windows()
    if windows is None:
        return None
    speed = positive(data.scalar("speed", default=1.0), "speed")
    return Windows(*windows, data.per_node("service_time", default=0.0), speed)


class CVRPP(VRPP):
    """VRPP with `weight` against `capacity` on each trip; without `weight` the prizes are the weights."""

    limits = ("capacity", "max_length")
    length_weight = 40.0

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        prize = data.per_node("prize", "demand")
        weight = prize if data.find("weight") is None else data.per_node("weight")
        job = truck(data, prize, weight, read_capacity(data), "weight", "prize", "demand")
        job.windows = read_windows(data)
        return job
