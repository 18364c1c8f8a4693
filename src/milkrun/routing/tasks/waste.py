"""The checkers of the waste worlds, from a single trip to many days.

A plan collects waste against length, and pays for the full bins it leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.routing.tasks.base import Faults, walk
from milkrun.routing.tasks.collect import PLACES, Collecting, positive, read_capacity, truck
from milkrun.routing.tasks.dataset import Bools, Dataset, Ints, like
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
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        job = cls._job(data)
        journey = drive(data, plan, faults, job)
        return journey, (overflowing(data, job.weight) & ~journey.visited).sum(axis=1)

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: tuple[Journey, Ints]) -> dict[str, NDArray[Any]]:
        journey, overflows = replay
        return {"overflows": overflows, "waste": journey.collected, "length": journey.length}

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        """Waste counts in its own unit, so the other weights grow with `max_waste`."""
        length = super().default_weights(n, side)["length"]
        return {"waste": 1.0, "length": length * max_waste, "overflow": 10.0 * max_waste}

    @classmethod
    def _default_weights(cls, data: Dataset) -> dict[str, Any]:
        return cls.default_weights(data.num_nodes - 1, max_waste=read_max_waste(data))


def read_max_waste(data: Dataset) -> Floats:
    """The capacity of a bin (B,)."""
    most = positive(data.scalar("max_waste", default=1.0), "max_waste")
    if (wrong := np.isinf(most)).any():
        raise BadInstance(f"row {wrong.argmax()}: max_waste is inf, must be finite")
    return most


def read_waste(data: Dataset, *names: str) -> Floats:
    """The level of each bin (B, N), refused above `max_waste` (up to float32 rounding)."""
    waste, most = data.per_node(*names), read_max_waste(data)
    if (wrong := waste > most[:, None] * (1 + 1e-6)).any():
        b, j = (int(k) for k in np.argwhere(wrong)[0])
        raise BadInstance(f"row {b}: {names[0]}[{j}] is {waste[b, j]:.10g}, must be <= max_waste {most[b]:.10g}")
    return waste


def overflowing(data: Dataset, waste: Floats) -> Bools:
    """True at full bins (B, N), False at padding."""
    full: Bools = (waste >= read_max_waste(data)[:, None] * (1 - 1e-6)) & data.exists()
    full[:, 0] = False
    return full


class CWCVRP(WCVRP):
    """The WCVRP with several trips: the truck empties at the depot and leaves again."""

    modes = {**WCVRP.modes, "trips": ("multi", "single")}
    length_weight = 0.55


class SCWCVRP(CWCVRP):
    """The plan uses `expected0` (or `expected_waste`), the truck loads `real_waste`.

    A service fails if the real waste does not fit; the real waste is then known. `recourse="return"`: nothing is
    collected and the truck returns (which ends a single trip); the customer may be visited again. `"round_trip"`: the
    truck fills up, empties at the depot and comes back for the rest. `pi` holds the actions without forced returns:
    after one the truck is at the depot, where 0 ends the tour.
    """

    modes = {**CWCVRP.modes, "recourse": ("return", "round_trip")}
    terms = {**CWCVRP.terms, "failures": ("failure", 1.0)}
    calls = 2

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {**super().default_weights(n, side, max_waste), "failure": 1.0}

    @classmethod
    def expand(cls, dataset: Any, pi: Any, *, metric: str | None = None, **limits: Any) -> Any:
        """The nodes visited (B, M), forced returns included, padded with 0. Rows that break a rule raise."""
        *_, replay, faults = cls._evaluate(dataset, pi, metric, limits)
        if not faults.valid.all():
            raise faults.first()
        return like(pi, cls._driven(replay))

    @classmethod
    def _driven(cls, replay: Any) -> Ints:
        return replay[0].nodes()

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        real = read_waste(data, "real_waste")
        job = truck(data, real, real, read_capacity(data), "real_waste")
        job.expected = read_waste(data, "expected0", "expected_waste")
        job.round_trip = data.modes["recourse"] == "round_trip"
        return job

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: tuple[Journey, Ints]) -> dict[str, NDArray[Any]]:
        return {**super()._parts(data, plan, replay), "failures": replay[0].failures}


LEVELS = ("initial_waste", "waste", "demand")


class SDWCVRP(SCWCVRP):
    """`pi` (B, T, L): day t is a plan of the SCWCVRP on the levels of that morning; the night follows.

    `initial_waste` is the first morning's level, `daily_fill` (Q, T, N) the fill of each night; waste above `max_waste`
    is lost, and bins full after the night overflow. With `sensor_noise` (Q, T, N) the plan uses level times noise.
    All amounts are (B, T). Mandatory customers follow from the config of the world, so they are not checked here.
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
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        days = plan.shape[1]
        fill, noise = data.per_day("daily_fill", days), data.per_day("sensor_noise", days)
        if fill is None:
            raise ShapeError("the dataset lacks `daily_fill`, (instances, days, nodes): the fill of each night")
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
    def _parts(cls, data: Dataset, plan: Ints, replay: Any) -> dict[str, NDArray[Any]]:
        parts: dict[str, NDArray[Any]] = replay[1]
        return parts

    @classmethod
    def _driven(cls, replay: Any) -> Ints:
        days = [day.nodes() for day in replay[0]]
        width = max(nodes.shape[1] for nodes in days)
        return np.stack([np.pad(nodes, ((0, 0), (0, width - nodes.shape[1]))) for nodes in days], axis=1)


def _by_day(columns: list[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(columns, axis=1)
