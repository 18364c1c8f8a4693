"""Conformance with Stable-Baselines3: its checker on one row of every world, its mask functions on batches."""

import warnings

import numpy as np
import pytest
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecCheckNan

import milkrun
from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.sb3 import SB3VecEnv
from tests.truth.test_gymnasium_conformance import WORLDS

pytestmark = pytest.mark.truth
DISCRETE = [id for id in WORLDS if milkrun.world_spec(id).action != "box"]


@pytest.mark.parametrize("id", DISCRETE)
@pytest.mark.conformance("stable-baselines3", "check_env")
def test_check_env_flat(id):
    """The checker accepts the flat layout without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(MilkrunEnv(id, layout="flat"))


@pytest.mark.parametrize("id", DISCRETE)
@pytest.mark.conformance("stable-baselines3", "check_env")
def test_check_env_dict(id):
    """Its only warning on the dict layout is for each matrix that is no image."""
    env = MilkrunEnv(id, layout="dict")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    matrices = [key for key, space in env.observation_space.items() if len(space.shape) > 1 and space.dtype != np.uint8]
    warned = [str(w.message) for w in caught]
    assert len(warned) == len(matrices)
    for key, text in zip(matrices, warned):
        assert text.startswith(f"Your observation {key} has an unconventional shape")


@pytest.mark.parametrize("id", DISCRETE)
@pytest.mark.conformance("sb3-contrib", "get_action_masks")
def test_masks_are_found(id):
    """sb3-contrib detects the masks and gets the current ones, none of them empty, across ends."""
    env = SB3VecEnv(id, 4, seed=1, max_steps=6)
    assert is_masking_supported(env)
    env.reset()
    width, ends = sum(env.world.action.nvec(env.world.sizes)), 0
    for t in range(20):
        masks = get_action_masks(env)
        assert masks.dtype == bool and masks.shape == env.world.action_mask.shape
        assert masks.shape == (4, width) or not env.world.mask_lists_all
        assert (masks == env.world.action_mask).all() and masks.any(1).all()
        ends += env.step(env.world.sample_actions(1, t))[2].sum()
    assert ends >= 8


@pytest.mark.parametrize("id", DISCRETE)
@pytest.mark.conformance("stable-baselines3", "VecCheckNan")
def test_observations_lie_in_their_spaces(id):
    """SB3's VecCheckNan and the space itself accept every row, terminal observations included."""
    env = SB3VecEnv(id, 3, seed=2, max_steps=5)
    checked = VecCheckNan(env, raise_exception=True)
    obs = checked.reset()
    for t in range(12):
        rows = obs if isinstance(obs, np.ndarray) else [{k: array[b] for k, array in obs.items()} for b in range(3)]
        assert all(env.observation_space.contains(row) for row in rows)
        obs, rewards, dones, infos = checked.step(env.world.sample_actions(1, t))
        assert (rewards.dtype, dones.dtype) == (np.float32, bool)
        for b in np.flatnonzero(dones):
            assert env.observation_space.contains(infos[b]["terminal_observation"])
