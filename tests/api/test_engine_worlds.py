"""A world on an engine behind the standard interfaces, which do not depend on the engine."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.solvers import evaluate, random_policy
from tests.core.toy_engine import Sled, SledConfig


def test_gymnasiums_checker_finds_nothing():
    """The official checker, warnings as errors."""
    check_env(MilkrunEnv(world=Sled(1, seed=2, autoreset="disabled")), skip_render_check=True)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_equals_single_environments(mode):
    """Observations, rewards and ends of a batch are those of as many environments of one row."""
    config = SledConfig(max_steps=9)
    ours = MilkrunVectorEnv(3, world=Sled(3, config, seed=0, autoreset=mode), autoreset_mode=mode)
    singles = [lambda: MilkrunEnv(world=Sled(1, config, seed=0, autoreset="disabled"))] * 3
    theirs = SyncVectorEnv(singles, autoreset_mode=mode)
    rng = np.random.default_rng(4)
    for env in (ours, theirs):
        env.action_space.seed(3)
        seen = env.reset(seed=11)[0]
    for _ in range(30):
        actions = rng.integers(0, 3, 3)
        one, two = ours.step(actions), theirs.step(actions)
        for name in one[0]:
            np.testing.assert_array_equal(one[0][name], two[0][name])
        for a, b in zip(one[1:4], two[1:4], strict=True):
            np.testing.assert_array_equal(a, b)
        if mode is AutoresetMode.DISABLED and (ended := one[2] | one[3]).any():
            for env in (ours, theirs):
                env.reset(options={"reset_mask": ended})
    assert seen


def test_evaluate_plays_an_engine_world():
    """The same episodes in a batch of any size."""
    many = evaluate(Sled(8, SledConfig(max_steps=9), seed=1), random_policy(2), 8, seed=5)
    few = evaluate(Sled(8, SledConfig(max_steps=9), seed=1, autoreset="same_step"), random_policy(2), 8, seed=5)
    np.testing.assert_array_equal(many.returns, few.returns)
