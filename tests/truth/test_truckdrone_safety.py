"""Under the sound rules with `battery_rule="safe"` and any policy no drone ever crashes, no mask is ever empty, and no
airborne drone can only hover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import milkrun
from milkrun.delivery.truckdrone.flight import CRASHED, HOVER, ONBOARD

pytestmark = pytest.mark.truth

CONFIGS = st.fixed_dictionaries(
    {
        "num_drones": st.integers(1, 3),
        "num_customers": st.integers(1, 8),
        "num_route_nodes": st.integers(2, 7),
        "drone_speed": st.floats(1.3, 3.0),
        "battery_rate": st.floats(0.1, 0.9),
        "payload_factor": st.floats(0.0, 1.5),
        "hover_rate": st.floats(0.0, 1.0),
        "recovery_threshold": st.floats(0.05, 0.2),
        "end": st.sampled_from(["served", "returned", "depot"]),
        "reserve": st.booleans(),
        "pickup": st.sampled_from(["truck", "air"]),
        "episode_length": st.just(80),
        "road_graph": st.booleans(),
    }
)


def fleeing(world: Any, actions: np.ndarray) -> np.ndarray:
    """The truck drives to the allowed node farthest from its first airborne drone."""
    for b in range(world.num_envs):
        airborne = np.flatnonzero((world.status[b] != ONBOARD) & (world.status[b] != CRASHED))
        if len(airborne):
            away = np.hypot(*(world.route_nodes[b] - world.drone_pos[b, airborne[0]]).T)
            may = world.truck_mask[b, 0, 1 : 1 + len(away)]
            actions[b, 0] = 1 + int(np.where(may, away, -1.0).argmax()) if may.any() else 0
    return actions


@pytest.mark.parametrize("play", ["masked", "fleeing", "unmasked"])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(config=CONFIGS, seed=st.integers(0, 2**31))
def test_no_drone_ever_crashes(play: str, config: dict[str, Any], seed: int):
    """No crash, airborne batteries above 0, masks never empty, airborne drones can always do more than hover. Masked
    play is never corrected."""
    world = milkrun.make("milkrun/TruckDrone-v0", 32, seed=seed, autoreset="next_step", **config)
    world.reset()
    choices = world.action.nvec(world.sizes)
    rng = np.random.default_rng(seed)
    ends = np.cumsum(choices)
    for turn in range(90):
        actions = world.sample_actions(seed, turn)
        if play == "fleeing":
            actions = fleeing(world, actions)
        elif play == "unmasked":
            actions = np.stack([rng.integers(0, n, 32) for n in choices], axis=1)
        world.step(actions)
        assert not (world.status == CRASHED).any()
        airborne = world.status != ONBOARD
        assert (world.battery[airborne] > 0).all()
        homeward = world.action_mask[:, choices[0] :].reshape(32, -1, choices[1])[..., HOVER + 1 :].any(axis=2)
        assert (homeward | ~airborne | world.done[:, None]).all(), "a drone that can only hover"
        assert all(part.any(axis=1).all() for part in np.split(world.action_mask, ends[:-1], axis=1))
        if play != "unmasked":
            assert not world.illegal.any() and not world.forced.any()
