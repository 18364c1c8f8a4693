"""Small options, few rows and turns for tests that go over every world, where a step is a simulation of milliseconds.

Most worlds step in microseconds and are tested as they come. What the tests show does not depend on size.
"""

from __future__ import annotations

from typing import Any

import milkrun

CLUTTER, TRACKING = "milkrun/Clutter-v0", "milkrun/Tracking-v0"
SMALL: dict[str, dict[str, Any]] = {
    CLUTTER: {
        "box_objects": ("004_sugar_box", "008_pudding_box"),
        "num_objects_per_type": 1,
        "max_episode_steps_discrete": 3,
        "bank_size": 4,
    },
    TRACKING: {"ground_cell": 2.0, "size": 16, "max_sim_steps": 40, "max_vehicles": 4},
}
"""Two boxes and three attempts; a coarse ground, a small picture and 10 steps."""


def options(id: str) -> dict[str, Any]:
    return SMALL.get(id, {})


def turns(id: str, usual: int, slow: int = 24) -> int:
    """How many steps to play: as many as usual, or few of a slow world."""
    return min(usual, slow) if id in SMALL else usual


def rows(id: str, usual: int) -> int:
    """The same for rows."""
    return min(usual, 6) if id in SMALL else usual


def functional(id: str) -> bool:
    """Whether TorchRL can step this world functionally: memory of an engine is stepped in place."""
    return not any(f.strided for f in milkrun.world_spec(id).load().fields.values())
