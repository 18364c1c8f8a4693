"""The checker of the waste truck that learns what a bin holds when it gets there."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from milkrun.routing.tasks.collect import read_capacity, truck
from milkrun.routing.tasks.cwcvrp import CWCVRP
from milkrun.routing.tasks.dataset import Dataset, Ints, like
from milkrun.routing.tasks.replay import Job, Journey
from milkrun.routing.tasks.wcvrp import read_waste


class SCWCVRP(CWCVRP):
    """The plan may count on `expected0` (or `expected_waste`), the truck loads `real_waste`.

    A service fails where the truck is too full for what the bin really holds, which is known from then on.
    `recourse="return"`: nothing is collected and the truck goes home (a single trip is over); the customer may be named
    again. `"round_trip"`: the truck fills up, empties at the depot and comes back for the rest. In `pi` stand the
    actions, not the forced returns: after one the truck is at the depot, where 0 ends the tour.
    """

    modes = {**CWCVRP.modes, "recourse": ("return", "round_trip")}
    terms = {**CWCVRP.terms, "failures": ("failure", 1.0)}
    calls = 2

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {**super().default_weights(n, side, max_waste), "failure": 1.0}

    @classmethod
    def expand(cls, dataset: Any, pi: Any, *, metric: str | None = None, **limits: Any) -> Any:
        """The nodes really driven to (B, M), forced returns included, padded with 0. Rows that break a rule raise."""
        *_, learnt, faults = cls._study(dataset, pi, metric, limits)
        if not faults.valid.all():
            raise faults.first()
        return like(pi, cls._driven(learnt))

    @classmethod
    def _driven(cls, learnt: Any) -> Ints:
        return learnt[0].nodes()

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        real = read_waste(data, "real_waste")
        job = truck(data, real, real, read_capacity(data), "real_waste")
        job.expected = read_waste(data, "expected0", "expected_waste")
        job.round_trip = data.modes["recourse"] == "round_trip"
        return job

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, learnt: tuple[Journey, Ints]) -> dict[str, NDArray[Any]]:
        return {**super()._parts(data, plan, learnt), "failures": learnt[0].failures}
