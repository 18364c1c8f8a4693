"""Checkers of other libraries on the tracking benchmark's classes: Stable-Baselines3's checker and PPO, tianshou's
Collector. The processes step in lockstep around an end."""

from __future__ import annotations

import warnings
from argparse import Namespace

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from tianshou.data import Collector, VectorReplayBuffer

from milkrun.api.sb3 import SB3VecEnv
from milkrun.compat.dat import (
    Async_SubprocVecEnv,
    SubprocVecEnv_TS,
    TS_Collector,
    UAV_VAT_Gymnasium,
    make_env,
    stableparallel_test,
    test_tianshou_env,
)
from milkrun.compat.dat.smoke import policy_for
from tests.api.tianshou_tools import lowest
from tests.compat.dat_tools import SEED, SMALL, by_turns, by_world, flat, without_supplements_at_resets

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]
TRACKING, ROWS, ROW = "milkrun/Tracking-v0", 3, 2
OPTIONS = {"conf_path": SMALL, "seed": SEED}
FULL = {"conf_path": {"ground_cell": 2.0, "max_sim_steps": 400}, "seed": SEED}
"""Pictures of 84 x 84, for runs of a minute."""


def both_kinds(**options):
    """The same row as a classic and as a Gymnasium environment."""
    return [make_env(ROWS, ROW, gym, **options) for gym in (True, False)]


def expected():
    """The trace of the world, as returned by processes."""
    return without_supplements_at_resets(by_world(SMALL))


def supplement(info):
    return b"" if "reset_turn" in info else flat(info["SuppleInfo"])


@pytest.mark.conformance("stable-baselines3", "check_env of UAVVAT-v0", world=TRACKING)
@pytest.mark.parametrize("norm", [0, 1, None])
def test_stable_baselines_checks_it(norm):
    """No warning for bytes; for normalised pictures the warnings that SB3's policies expect bytes from 0 to 255."""
    env = UAV_VAT_Gymnasium(conf_path={**SMALL, "size": 36, "Norm_Type": norm}, seed=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env)
    texts = [str(one.message) for one in said]
    assert len(texts) == (0 if norm is None else 2)
    known = "It seems that your observation  is an image but its", "It seems that your observation space  is an image"
    assert all(text.startswith(known) for text in texts)


@pytest.mark.conformance("stable-baselines3", "PPO.learn of UAVVAT-v0", world=TRACKING)
def test_stable_baselines_plays_both_kinds_in_processes():
    """Around an end (reward, done) is (r, True), (0, False), (r', False), to the byte as in the world; then PPO trains
    on them."""
    env = Async_SubprocVecEnv(both_kinds(**OPTIONS))
    try:
        seen = []

        def begin():
            obs = env.reset()
            seen.append([(obs[k].tobytes(), 0.0, False, b"") for k in range(2)])
            return obs[0], []

        def turn(action):
            obs, rewards, dones, infos = env.step(np.array([action, action]))
            seen.append([(obs[k].tobytes(), float(rewards[k]), bool(dones[k]), supplement(infos[k])) for k in range(2)])
            for k in np.flatnonzero(dones):
                assert infos[k]["terminal_observation"].tobytes() == obs[k].tobytes()
                assert infos[k]["TimeLimit.truncated"] == (infos[k]["reason"] == "time")
            return obs[0], rewards[0], dones[0], []

        by_turns(begin, turn, ignored=5)
        for kind in range(2):
            assert [one[kind] for one in seen] == expected()
        _learn(env, 64)
    finally:
        env.close()


def _learn(env, steps):
    """Training changes the weights, which stay finite."""
    policy, how = policy_for(env.observation_space)
    sizes = {"n_steps": steps // env.num_envs, "batch_size": 32, "n_epochs": 1}
    learner = PPO(policy, env, **sizes, device="cpu", policy_kwargs=how)
    before = [p.detach().clone() for p in learner.policy.parameters()]
    learner.learn(steps)
    after = list(learner.policy.parameters())
    assert learner.num_timesteps == steps and all(p.isfinite().all() for p in after)
    assert any((p != q).any() for p, q in zip(before, after))


@pytest.mark.conformance("tianshou", "Collector of UAVVAT-v0", world=TRACKING)
def test_tianshou_plays_both_kinds_in_processes():
    """The same turns; then tianshou's Collector and ours collect from them, ours without the reset turns."""
    env = SubprocVecEnv_TS(both_kinds(**OPTIONS))
    try:
        seen = []

        def begin():
            obs, _ = env.reset()
            seen.append([(obs[k].tobytes(), 0.0, False, b"") for k in range(2)])
            return obs[0], []

        def turn(action):
            obs, rewards, terminated, truncated, infos = env.step(np.array([action, action]))
            done = terminated | truncated
            assert truncated.tolist() == [info.get("reason") == "time" for info in infos]
            seen.append([(obs[k].tobytes(), float(rewards[k]), bool(done[k]), supplement(infos[k])) for k in range(2)])
            return obs[0], rewards[0], done[0], []

        by_turns(begin, turn, ignored=1)
        for kind in range(2):
            assert [one[kind] for one in seen] == expected()
        for collector in (Collector, TS_Collector):
            found = collector(lowest(env), env, VectorReplayBuffer(200, 2))
            stats = found.collect(n_step=60, reset_before_collect=True)
            assert stats.n_collected_steps == 60 and stats.n_collected_episodes >= 4
            assert len(found.buffer) == 60 and found.buffer.done.sum() == stats.n_collected_episodes
    finally:
        env.close()


def test_the_calls_of_the_original_run():
    """stableparallel_test and test_tianshou_env, shortened: steps, episodes, mean reward."""
    found = stableparallel_test(n_envs=1, gym=True, steps=40, **OPTIONS)
    assert found["steps"] + found["episodes"] in (40, 41) and found["episodes"] >= 3  # a reset turn after each end
    assert 0 <= found["mean_reward"] < 1
    found = test_tianshou_env(Namespace(n_envs=1, steps=30, lr=0.1), **OPTIONS)
    assert found["steps"] == 30 and found["episodes"] >= 2 and np.isfinite(found["mean_reward"])
    assert test_tianshou_env.__test__ is False


@pytest.mark.conformance("stable-baselines3", "PPO.learn of UAVVAT-v0", world=TRACKING)
def test_ppo_learns_on_the_world_itself():
    """In one native call a turn, with bytes for pictures."""
    _learn(SB3VecEnv(TRACKING, 2, seed=1, size=16, ground_cell=10.0, max_sim_steps=48, max_vehicles=4), 64)


@pytest.mark.long
@pytest.mark.parametrize("gym", [True, False])
def test_ppo_learns_for_2048_steps_in_processes(gym):
    """Whole pictures, convolutions."""
    env = Async_SubprocVecEnv([make_env(4, i, gym, **FULL) for i in range(4)])
    try:
        _learn(env, 2048)
    finally:
        env.close()


@pytest.mark.long
def test_ppo_learns_for_2048_steps_on_the_world_itself():
    """Whole pictures."""
    _learn(SB3VecEnv(TRACKING, 8, seed=1, ground_cell=2.0), 2048)


@pytest.mark.long
def test_tianshou_collects_a_thousand_steps():
    """By the original call with its default picture size. A collection ends with the turn of four environments in which
    it reaches its number; environments that are reset in a turn do not count."""
    found = test_tianshou_env(Namespace(n_envs=4, steps=1000), **FULL)
    assert 1000 <= found["steps"] < 1004 and found["episodes"] >= 4
