"""The checker of the waste truck on a single trip: collected waste, against length and the full bins left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance
from milkrun.routing.tasks.base import Faults
from milkrun.routing.tasks.collect import Collecting, positive, read_capacity, truck
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.replay import Job, Journey, drive


class WCVRP(Collecting):
    """`waste` (or `demand`) up to `max_waste` a bin, against `capacity` (or `vehicle_cap`) on each trip.

    A bin that is full and not visited overflows.
    """

    terms = {"waste": ("waste", -1.0), "length": ("length", 1.0), "overflows": ("overflow", 1.0)}
    length_weight = 0.6

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        waste = read_waste(data, "waste", "demand")
        return truck(data, waste, waste, read_capacity(data), "waste", "demand")

    @classmethod
    def _judge(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        job = cls._job(data)
        journey = drive(data, plan, faults, job)
        return journey, (overflowing(data, job.weight) & ~journey.visited).sum(axis=1)

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, learnt: tuple[Journey, Ints]) -> dict[str, NDArray[Any]]:
        journey, overflows = learnt
        return {"overflows": overflows, "waste": journey.collected, "length": journey.length}

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        """Waste is weighed in its own unit, therefore whatever is set against it grows with `max_waste`."""
        length = super().default_weights(n, side)["length"]
        return {"waste": 1.0, "length": length * max_waste, "overflow": 10.0 * max_waste}

    @classmethod
    def _default_weights(cls, data: Dataset) -> dict[str, Any]:
        return cls.default_weights(data.num_nodes - 1, max_waste=read_max_waste(data))


def read_max_waste(data: Dataset) -> Floats:
    """What a bin holds (B,)."""
    most = positive(data.scalar("max_waste", default=1.0), "max_waste")
    if (wrong := np.isinf(most)).any():
        raise BadInstance(f"row {wrong.argmax()}: max_waste is inf, must be finite")
    return most


def read_waste(data: Dataset, *names: str) -> Floats:
    """The level of each bin (B, N), refused above `max_waste` (but for the rounding of float32)."""
    waste, most = data.per_node(*names), read_max_waste(data)
    if (wrong := waste > most[:, None] * (1 + 1e-6)).any():
        b, j = (int(k) for k in np.argwhere(wrong)[0])
        raise BadInstance(f"row {b}: {names[0]}[{j}] is {waste[b, j]:.10g}, must be <= max_waste {most[b]:.10g}")
    return waste


def overflowing(data: Dataset, waste: Floats) -> Bools:
    """Which bins are full (B, N); padding has no bins."""
    full: Bools = (waste >= read_max_waste(data)[:, None] * (1 - 1e-6)) & data.exists()
    full[:, 0] = False
    return full
