"""The library's checker finds no fault in the tracking world: interpreted kernels with checked accesses, bounds,
entries beyond counts, saving, independence of rows, threads, resets.
"""

from __future__ import annotations

import pytest

import milkrun
from milkrun.tracking.tables import SCENES, WEATHERS

SMALL = {"size": 16, "ground_cell": 10.0, "max_sim_steps": 40, "max_vehicles": 3, "weather": WEATHERS}
VIEWS = {"other_state": True, "cloud": True, "lidar_points": 8, "reward_params": True, "critic": True}
OPTIONS = {
    **{scene: {"scene": scene} for scene in SCENES},
    "velocity": {"action_mode": "velocity", "curriculum": "straight"},
    "three frames": {"frame_stack": 3, "curriculum": "straight_mono", **VIEWS},
    "straight_mono": {"curriculum": "straight_mono"},
    "straight": {"curriculum": "straight", "scene": SCENES},
    "all views": VIEWS,
    "dvat": {"preset": "dvat", "occlusion": "zero", "wind_sigma": 3.0},
    "fine grey": {"channels": 1, "supersample": 2, "noise": False, "details": False, "end_reward": True},
    "one town for all": {"town": "fixed", "scene": SCENES},
    "a town a row": {"town": "row", "action_dim": 6, "reward": "E2E", "init_no_done": 0, "no_reward_done": 8},
}
EVERY_RUN = ("velocity", "three frames")
"""On straight roads, as an interpreted kernel takes a second to draw a town."""


@pytest.mark.parametrize(
    "case", [name if name in EVERY_RUN else pytest.param(name, marks=pytest.mark.long) for name in OPTIONS]
)
def test_check_world_finds_nothing(case):
    """In any scene, with velocities, with three frames, on straight roads, with all optional observations."""
    world = milkrun.make("milkrun/Tracking-v0", 8, seed=5, **{**SMALL, **OPTIONS[case]})
    assert milkrun.check_world(world, turns=8) == []
