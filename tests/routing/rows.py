"""One row of a routing world with its fields as plain numbers, for tests by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun

SQUARE = [(0, 0), (3, 0), (3, 4), (0, 4)]
"""Depot and three customers: distances 0-1 3, 0-2 5, 0-3 4, 1-2 4, 1-3 5, 2-3 3."""


class Row:
    """A world of one row that plays one instance. An attribute is the field of that row."""

    def __init__(self, world_id: str, instance: dict[str, Any], **options: Any) -> None:
        if "dist" in instance:
            options["metric"] = "matrix"
        nodes = len(instance["dist"] if "dist" in instance else instance["locs"])
        self.world = milkrun.make(
            f"milkrun/{world_id}-v0", 1, num_loc=nodes - 1, autoreset="disabled", **{"max_steps": None, **options}
        )
        given = {name: np.asarray(value) for name, value in instance.items()}
        for name, array in given.items():
            if array.dtype.kind == "f" or name not in ("n_nodes", "must_go", "demand_units"):
                given[name] = array.astype(np.float32) if array.dtype != np.bool_ else array
        self.world.reset(instance={name: array[None] for name, array in given.items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)[0].tolist()

    def step(self, action: int) -> None:
        self.world.step(np.array([action]))

    @property
    def allowed(self) -> list[int]:
        return np.flatnonzero(self.world.action_mask[0]).tolist()

    @property
    def visited(self) -> list[int]:
        return np.flatnonzero(self.world.visited[0]).tolist()

    @property
    def tour(self) -> list[Any]:
        """The legal actions taken, a list for each day where there are days."""
        counts = np.atleast_1d(self.world.tour_len[0])
        days = [tour[:count].tolist() for tour, count in zip(np.atleast_2d(self.world.tour[0]), counts, strict=True)]
        return days if self.world.tour_len.ndim == 2 else days[0]


def check(row: Row, **expected: Any) -> None:
    """Compares fields; `allowed` and `visited` are the nodes that are True. Reals agree to 1e-6."""
    for name, value in expected.items():
        actual = getattr(row, name)
        nested = isinstance(value, list) and value and isinstance(value[0], list)
        assert actual == (value if nested else pytest.approx(value, abs=1e-6)), name


def play(row: Row, actions: list[int]) -> list[float]:
    """The rewards of these actions, none of them illegal."""
    rewards = []
    for action in actions:
        row.step(action)
        assert not row.illegal
        rewards.append(row.reward)
    return rewards
