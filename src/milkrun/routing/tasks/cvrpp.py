"""The checker of the truck that chooses its customers for their prizes and can carry so much a trip."""

from __future__ import annotations

from milkrun.routing.tasks.collect import read_capacity, truck
from milkrun.routing.tasks.dataset import Dataset
from milkrun.routing.tasks.replay import Job
from milkrun.routing.tasks.vrpp import VRPP, read_windows


class CVRPP(VRPP):
    """VRPP with `weight` against `capacity` on each trip; without `weight` the prizes themselves weigh."""

    limits = ("capacity", "max_length")
    length_weight = 40.0

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        prize = data.per_node("prize", "demand")
        weight = prize if data.find("weight") is None else data.per_node("weight")
        job = truck(data, prize, weight, read_capacity(data), "weight", "prize", "demand")
        job.windows = read_windows(data)
        return job
