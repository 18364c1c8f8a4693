"""The kernels as plain Python play the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from .trays import SOUP, SUGAR, bits, differing, tray

MODES = {"pick": {}, "tick": {"step_mode": "tick"}, "motion": {"use_discrete_action": False}}


@pytest.mark.parametrize("mode", MODES)
def test_interpreted_is_compiled(mode):
    """A box and a can, every field after every call."""
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
        for b in range(2):
            assert differing(bits(compiled, b), bits(plain, b)) == [], turn
