"""One row of the truck-and-drones world with its fields as plain numbers, for tests by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.core.kernels import kernel
from milkrun.delivery.truckdrone.flight import AMOUNTS, COUNTS
from milkrun.delivery.truckdrone.observations import update_views
from milkrun.delivery.truckdrone.step import mark

ONBOARD, FLYING, RETURNING, CRASHED = range(4)
CUSTOMER = (0.5, 0.0)


@kernel
def derive(w, b, _, __):
    """Mask and views from the state."""
    mark(w, b)
    update_views(w, b)
    return 0


class Row:
    """A world of one row that plays one instance. An attribute is the field of that row, places as tuples."""

    def __init__(self, preset: str, instance: dict[str, Any], **options: Any) -> None:
        customers = len(instance["customer_pos"])
        options = {"num_drones": 2, "num_customers": customers, "autoreset": "disabled", **options}
        self.world = milkrun.make("milkrun/TruckDrone-v0", 1, preset=preset, **options)
        self.world.reset(instance={name: np.asarray(value)[None] for name, value in instance.items()})

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.world, name)[0].tolist()
        if name.endswith(("_pos", "_vel", "route_nodes")):
            return tuple(value) if name.startswith("truck") else [tuple(place) for place in value]
        return value

    def put(self, **fields: Any) -> None:
        """Sets state fields, also to unreachable values, and derives the mask and the views."""
        for name, value in fields.items():
            getattr(self.world, {"world_step": "i"}.get(name, name))[0] = value
        self.world.map_rows(derive, np.int64)

    def step(self, actions: Any) -> None:
        self.world.step(np.array([actions]))

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def illegal(self) -> list[bool]:
        """Which agents' actions were masked."""
        return self.illegal_agents

    @property
    def truck_mask(self) -> list[bool]:
        return self.world.truck_mask[0, 0].tolist()

    @property
    def masks(self) -> list[list[bool]]:
        return [self.truck_mask, *self.drone_mask]

    @property
    def seen_by_truck(self) -> list[float]:
        return self.world.truck_obs[0, 0].tolist()

    def kpis(self) -> dict[str, float]:
        counts = dict(zip(COUNTS, self.sum_counts, strict=True))
        amounts = dict(zip(AMOUNTS, self.sum_amounts, strict=True))
        return {**counts, **amounts, "makespan": self.i, "objective": self.objective}


def row(preset: str, *customers: Any, demand: float = 0.8, window: Any = (0, 200), **options: Any) -> Row:
    """A row whose customers all have the same demand and window; one drone by default."""
    n = len(customers)
    instance = {"customer_pos": customers, "demand": [demand] * n, "tw_start": [window[0]] * n}
    return Row(preset, {**instance, "tw_end": [window[1]] * n}, **{"num_drones": 1, **options})


def bits(flags: list[bool]) -> str:
    return "".join("01"[flag] for flag in flags)


def masks(model: Row) -> list[str]:
    """The masks of the truck and of each drone as digits."""
    return [bits(mask) for mask in model.masks]


def near(value: Any) -> Any:
    return pytest.approx(value, rel=0, abs=1e-12)


def near_pairs(*pairs: Any) -> list[Any]:
    return [near(pair) for pair in pairs]


def play(model: Row, *steps: Any) -> Row:
    for actions in steps:
        model.step(actions)
    return model
