"""The checker of the waste truck over many days, with bins that fill up every night."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import ShapeError
from milkrun.routing.tasks.base import Faults, walk
from milkrun.routing.tasks.collect import PLACES, read_capacity
from milkrun.routing.tasks.dataset import Dataset, Ints
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.replay import Job, drive
from milkrun.routing.tasks.scwcvrp import SCWCVRP
from milkrun.routing.tasks.wcvrp import overflowing, read_max_waste, read_waste

LEVELS = ("initial_waste", "waste", "demand")


class SDWCVRP(SCWCVRP):
    """`pi` (B, T, L): day t is a plan of SCWCVRP on what the bins hold that morning; then comes the night.

    `initial_waste` is the first morning's level, `daily_fill` (Q, T, N) what each night adds; what exceeds `max_waste`
    is lost, and bins full after the night overflow. With `sensor_noise` (Q, T, N) the plan counts on level times noise.
    All amounts are (B, T). Which customers must be visited is a rule of the world's config, so it is not judged here.
    """

    modes = {"trips": ("multi", "single"), "recourse": ("return", "round_trip")}
    terms = {**SCWCVRP.terms, "lost": ("lost", 1.0)}
    plan_axes = 3

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {**super().default_weights(n, side, max_waste), "lost": 0.0}

    @classmethod
    def _length(cls, data: Dataset, plan: Ints) -> Floats:
        return np.stack([data.length(walk(plan[:, t])) for t in range(plan.shape[1])], axis=1)

    @classmethod
    def _judge(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        days = plan.shape[1]
        fill, noise = data.per_day("daily_fill", days), data.per_day("sensor_noise", days)
        if fill is None:
            raise ShapeError("the dataset lacks `daily_fill`, (instances, days, nodes): what each night adds")
        real, keep = read_waste(data, *LEVELS), data.keeper(*LEVELS)
        capacity, max_length = read_capacity(data), data.scalar("max_length", default=np.inf)
        most, exists = read_max_waste(data)[:, None], data.exists()
        journeys, overflows, lost = [], [], []
        for t in range(days):
            job = Job(
                gain=real,
                weight=real,
                expected=real.copy() if noise is None else keep(np.minimum(most, real * noise(t))),
                capacity=capacity,
                max_length=max_length,
                single=data.modes["trips"] == "single",
                round_trip=data.modes["recourse"] == "round_trip",
                keep_load=keep,
                keep_way=data.keeper(*PLACES),
                where=f"day {t}: ",
            )
            journeys.append(drive(data, plan[:, t], faults, job))
            evening = np.where(journeys[-1].visited, 0.0, real) + np.where(exists, fill(t), 0.0)
            lost.append(np.maximum(evening - most, 0.0).sum(axis=1))
            real = keep(np.minimum(evening, most))
            overflows.append(overflowing(data, real).sum(axis=1))
        parts = {
            "overflows": _by_day(overflows),
            "waste": _by_day([day.collected for day in journeys]),
            "length": _by_day([day.length for day in journeys]),
            "failures": _by_day([day.failures for day in journeys]),
            "lost": _by_day(lost),
        }
        return journeys, parts

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, learnt: Any) -> dict[str, NDArray[Any]]:
        parts: dict[str, NDArray[Any]] = learnt[1]
        return parts

    @classmethod
    def _driven(cls, learnt: Any) -> Ints:
        days = [day.nodes() for day in learnt[0]]
        width = max(nodes.shape[1] for nodes in days)
        return np.stack([np.pad(nodes, ((0, 0), (0, width - nodes.shape[1]))) for nodes in days], axis=1)


def _by_day(columns: list[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(columns, axis=1)
