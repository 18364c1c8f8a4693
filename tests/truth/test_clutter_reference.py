"""The clutter world equals its scalar reference, one plain MjData a row, to the bit and under all options."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

from tests.clutter.reference_pair import Pair
from tests.clutter.trays import CANS, SOUP

VARIED = {"mass_range": (0.5, 1.5), "friction_range": (0.4, 1.6), "suction_range": (0.3, 1.0)}


def picks(pair: Pair, turns: int, seed: int = 5) -> None:
    """Random allowed objects, and occasionally one that is not allowed."""
    world = pair.world
    for turn in range(turns):
        if world.done.all():
            return
        actions = world.sample_actions(seed, turn)
        if turn % 4 == 2:
            b = turn // 4 % world.num_envs
            actions[b] = (np.flatnonzero(~world.action_mask[b]).tolist() or [-1 if turn % 8 == 2 else 99])[0]
        pair.step(actions)


@pytest.mark.parametrize(
    "options",
    [
        {"num_objects_per_type": 2, "max_episode_steps_discrete": 8},
        {"num_objects_per_type": 2, "max_episode_steps_discrete": 8, **CANS},
        {"num_objects_per_type": 2, "max_episode_steps_discrete": 8, **VARIED},
        {"canonical": False, **VARIED, **CANS},
        {"sleep": False, "suction_force": 12},
        {"timestep": 0.01, "substeps": 2, "rewards": "published"},
        {"lift_acc": 60.0, "suction_force": 500.0, "num_objects_per_type": 2, "max_episode_steps_discrete": 8},
        {"settle_max": 3, "rest_ticks": 4, "max_steps": 3},
        {"ray_samples": 1, "rest_ticks": 1},
    ],
    ids=["boxes", "cans", "factors", "not canonical", "no sleep", "fast", "thrown out", "never still", "one ray"],
)
def test_picks_are_those_of_the_reference(options):
    """States, masks, rewards, observations, log and physics are equal to the bit."""
    pair = Pair(3, **options)
    picks(pair, 8)
    world = pair.world
    assert pair.calls >= 9 and (world.log_result == 3).any()
    if "lift_acc" in options:
        assert world.lost.any()
    if "suction_force" in options and "lift_acc" not in options:
        assert (world.log_result == 2).sum() >= 3


@pytest.mark.parametrize(
    "options",
    [{}, {"canonical": False, **CANS}, {"sleep": False, **VARIED}, {"max_ticks": 90}],
    ids=["boxes", "cans", "factors", "ends by ticks"],
)
def test_ticks_are_those_of_the_reference(options):
    """Every tick of a pick; choices for busy rows are ignored."""
    pair = Pair(2, step_mode="tick", max_episode_steps_discrete=2, ray_samples=1, **options)
    while not pair.world.done.all() and pair.world.tick_count.max() < 300:
        pair.step(pair.world.sample_actions(1, int(pair.world.i.max())))
    assert pair.world.done.all() and pair.world.tick_count.min() > 80


def steering(world, rng: np.random.Generator) -> np.ndarray:
    """Moves to an object, lifts it and carries it off, with errors: early releases and actions out of bounds."""
    found = np.zeros((world.num_envs, 4))
    for b in range(world.num_envs):
        cup = world.cup_pos[b]
        if world.current_suction_object[b] >= 0:
            goal, suction = (np.array(world.drop) if cup[2] > 0.4 else np.array([*cup[:2], 0.45])), 1.0
            if np.linalg.norm(cup - world.drop) < 0.02 or rng.random() < 0.01:
                suction = -1.0
        else:
            i = int(np.argmax(np.where(world.reachable[b], world.top[b], -1.0)))
            goal = world.grip_point[b, i].astype(float)
            suction = 1.0 if rng.random() < 0.8 else -1.0
            if np.linalg.norm(goal[:2] - cup[:2]) > 0.004:
                goal[2] = max(cup[2], goal[2] + 0.05)
        found[b, :3], found[b, 3] = np.clip((goal - cup) / 0.02 * rng.uniform(0.5, 1.0), -1, 1), suction
        if rng.random() < 0.02:
            found[b, int(rng.integers(4))] = rng.choice([np.nan, np.inf, -1.5])
    return found.astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [{}, {"sleep": False, **VARIED}, {"canonical": False, "box_objects": (SOUP,), "num_objects_per_type": 2}],
    ids=["boxes", "factors", "cans"],
)
def test_motions_are_those_of_the_reference(options):
    """A cup moved by the policy: holds, loads, drops, banked objects, actions out of bounds."""
    pair = Pair(2, use_discrete_action=False, max_episode_steps_discrete=2, max_ticks=150, ray_samples=1, **options)
    rng = np.random.default_rng(2)
    while not pair.world.done.all():
        pair.step(steering(pair.world, rng))
    assert pair.world.records.sum() >= 2


def test_maps_are_those_of_the_reference():
    """Heights are equal within rounding, and so is the object under each pixel."""
    pair = Pair(2, maps=True, map_size=24, num_objects_per_type=2, **CANS)
    picks(pair, 2)
    seen = pair.world.observe()
    for b, row in enumerate(pair.rows):
        height, segmentation = row.maps()
        assert (seen["segmentation"][b] == segmentation).all()
        np.testing.assert_allclose(seen["height"][b], height, 3e-7, 1e-7)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, CANS, VARIED], ids=["boxes", "cans", "factors"])
def test_two_hundred_picks_of_full_trays(options):
    """Eight rows of twelve objects, until two hundred picks have been compared."""
    calls, seed = 0, 0
    while calls < 200:
        pair = Pair(8, seed=seed, num_objects_per_type=4, bank_size=16, max_episode_steps_discrete=15, **options)
        picks(pair, 15, seed)
        calls, seed = calls + pair.calls, seed + 1
