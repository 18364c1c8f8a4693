"""The base of the checkers whose truck chooses its customers: plans, limits and mandatory stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from milkrun.core.errors import BadInstance, ConfigError
from milkrun.routing.tasks.base import BaseProblem, Faults
from milkrun.routing.tasks.dataset import Dataset, Ints
from milkrun.routing.tasks.distances import Floats
from milkrun.routing.tasks.replay import Job, drive

PLACES = ("dist", "dist_matrix", "locs")


class Collecting(BaseProblem):
    """No customer twice, each trip within `capacity` and `max_length`, and nothing after the end.

    `trips="single"` ends at the first return; with `"multi"` a second 0 at the depot ends the tour. Padding zeros
    count. A plan may not end while a customer of `must_go` could still be served from the position of the truck. With
    `must_go_reserve` a single trip serves no optional customer that leaves too little room for unserved must-go
    customers."""

    limits: ClassVar[tuple[str, ...]] = ("capacity", "max_length")
    modes = {"trips": ("single", "multi"), "must_go_reserve": (True, False)}
    length_weight: ClassVar[float]  # chosen so that good tours skip about half of the customers

    @classmethod
    def _job(cls, data: Dataset) -> Job:
        """The amounts at the customers and the limits of the truck."""
        raise NotImplementedError

    @classmethod
    def _find_faults(cls, data: Dataset, plan: Ints, faults: Faults) -> Any:
        return drive(data, plan, faults, cls._job(data))

    @classmethod
    def _price(cls, data: Dataset, parts: Mapping[str, NDArray[Any]], weights: Mapping[str, float]) -> Floats:
        """The default weight of length is scaled to the unit square; other places need their own."""
        if "length" not in weights and not data.in_unit_square():
            raise ConfigError(
                "the weight 'length' is not given, and its default is for places in the unit square; "
                "these are not: give 'length', the price of a unit of their lengths"
            )
        return super()._price(data, parts, weights)

    @classmethod
    def default_weights(cls, n: int, side: float = 1.0, max_waste: Any = 1.0) -> dict[str, Any]:
        """A leg's length shrinks with sqrt(n), so the weight of length grows with it."""
        return {"length": cls.length_weight * np.sqrt(n) / side}


def truck(data: Dataset, gain: Floats, weight: Floats, capacity: Floats, *names: str) -> Job:
    """A job with all weights known in advance; `names` are the fields that may hold them."""
    return Job(
        gain=gain,
        weight=weight,
        expected=weight,
        capacity=capacity,
        max_length=data.scalar("max_length", default=np.inf),
        single=data.modes["trips"] == "single",
        must_go=data.flags("must_go"),
        reserve=data.modes["must_go_reserve"],
        keep_load=data.keeper(*names),
        keep_way=data.keeper(*PLACES),
    )


def read_capacity(data: Dataset) -> Floats:
    """The capacity of the truck (B,)."""
    return positive(data.scalar("capacity", "vehicle_cap", default=np.nan), "capacity")


def positive(value: Floats, field: str) -> Floats:
    if (wrong := ~(value > 0)).any():
        b = int(wrong.argmax())
        given = "missing or NaN" if np.isnan(value[b]) else f"{value[b]:.10g}"
        raise BadInstance(f"row {b}: {field} is {given}, must be > 0")
    return value
