"""The checkers of single tours for prizes: the prize-collecting TSP and orienteering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.routing.tasks.base import BaseProblem, Faults, visits
from milkrun.routing.tasks.dataset import Dataset, Ints
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.profits import VRPP


class PCTSP(BaseProblem):
    """A tour that collects `prize_required`; it pays its length and the `penalty` of each customer left out.

    A visit collects `real_prize`, or `prize` if the dataset has no other. A tour of all customers needs no prize.
    """

    limits: ClassVar[tuple[str, ...]] = ("prize_required",)
    terms = {"length": ("length", 1.0), "penalty": ("penalty", 1.0)}

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {"length": 1.0, "penalty": 1.0}

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> None:
        super()._find_faults(data, plan, faults)
        ended = np.maximum.accumulate(plan == 0, axis=1) & (plan > 0)
        faults.add(ended, lambda b, m: f"customer {plan[b, m]} follows the end of the tour")
        prize = data.per_node("real_prize", "prize")
        keep = data.keeper("real_prize", "prize")
        collected = np.zeros(len(plan))
        for column in plan.T:
            collected = keep(collected + prize[np.arange(len(plan)), column])
        required = data.scalar("prize_required", default=1.0)
        some_left = _left(data, plan).any(axis=1)
        faults.add_rows(
            some_left & (collected < required - 1e-5),
            lambda found, needed: f"the tour collects {found:.10g} of the {needed:.10g} required",
            *(collected, required),
        )

    @classmethod
    def _parts(cls, data: Dataset, plan: Ints, replay: None) -> dict[str, NDArray[Any]]:
        prize, penalty = data.per_node("real_prize", "prize"), data.per_node("penalty", default=0.0)
        left = _left(data, plan)
        return {
            "length": cls._length(data, plan),
            "penalty": np.where(left, penalty, 0.0).sum(axis=1),
            "prize": np.where(left, 0.0, prize * data.exists()).sum(axis=1),
        }


def _left(data: Dataset, plan: Ints) -> NDArray[np.bool_]:
    """The customers that no tour visits (B, N)."""
    left: NDArray[np.bool_] = (visits(plan, data.num_nodes) == 0) & data.exists()
    left[:, 0] = False
    return left


class OP(VRPP):
    """Orienteering: the most prizes on one tour of at most `max_length`; its length costs nothing."""

    terms = {"profit": ("prize", -1.0)}
    modes = {**VRPP.modes, "trips": ("single",)}

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        return {"prize": 1.0}

    @classmethod
    def _price(cls, data: Dataset, parts: Mapping[str, NDArray[Any]], weights: Mapping[str, float]) -> Floats:
        return super()._price(data, parts, {"length": 0.0, **weights})
