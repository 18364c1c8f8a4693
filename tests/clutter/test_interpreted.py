"""The kernels as plain Python play as the compiled ones do."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.check.bench import TOLERANCE, differences

from .trays import SOUP, SUGAR, tray

MODES = {"pick": {}, "tick": {"step_mode": "tick"}, "motion": {"use_discrete_action": False}}


@pytest.mark.parametrize("mode", MODES)
def test_interpreted_is_compiled(mode):
    """A box and a can, every field after every call: equal whole numbers, and floats within the tolerance."""
    given = {"box_objects": (SUGAR, SOUP), "ray_samples": 2, "bank_size": 2, "maps": True, "map_size": 4, **MODES[mode]}
    plain, compiled = tray(2, debug=True, **given), tray(2, **given)
    rng = np.random.default_rng(0)
    for turn in range(3 if mode == "pick" else 8):
        if plain.done.any():
            break
        actions = compiled.sample_actions(0, turn)
        if mode == "motion":
            actions = rng.uniform(-1, 1, (2, 4)).astype(np.float32)
        for world in (plain, compiled):
            world.step(actions)
            world.observe()
        found = differences(compiled, plain, f"when interpreted, in turn {turn}", on_demand=True, tolerance=TOLERANCE)
        assert list(found) == []
