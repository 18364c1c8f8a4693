"""Short training runs of Stable-Baselines3, TorchRL and RLlib on the truck and its drones beat random play.

A gain is measured on 128 fixed episodes, in standard errors of the mean difference.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.env_checker import check_env

import milkrun
from milkrun.api.gymnasium import MilkrunEnv
from milkrun.solvers.delivery import greedy
from tests.truth import learning_tools as learn
from tests.truth.learning_tools import ID, SMALL, gain

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]
PRESETS = {"default": 27, "published": 20}  # choices of the whole team


@pytest.mark.parametrize("preset", PRESETS)
def test_sb3_accepts_the_flat_view(preset):
    """SB3's check_env passes without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(MilkrunEnv(ID, preset=preset, layout="flat"))


@pytest.mark.parametrize("preset", PRESETS)
def test_sb3_warns_only_of_matrices_in_the_dict_view(preset):
    """The only warnings are on the shapes of the two groups, which have a row for each agent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(MilkrunEnv(ID, preset=preset, layout="dict"))
    warned = [str(w.message).partition(" (neither")[0] for w in caught]
    assert warned == [f"Your observation {group} has an unconventional shape" for group in ("truck", "drone")]


@pytest.mark.parametrize(("preset", "choices"), PRESETS.items())
def test_maskable_ppo_finds_the_masks(preset, choices):
    """sb3-contrib detects the masks and gets the current ones, across ends."""
    rows = learn.joint_rows(3, preset=preset, episode_length=7)
    assert is_masking_supported(rows) and is_masking_supported(rows.envs[0])
    rows.reset()
    ends = 0
    for turn in range(20):
        masks = get_action_masks(rows)
        assert masks.shape == (3, choices) and masks.dtype == bool
        assert (masks == [env.world.action_mask[0] for env in rows.envs]).all()
        *_, done, _ = rows.step([env.world.sample_actions(0, turn)[0] for env in rows.envs])
        ends += done.sum()
    assert ends >= 6


@pytest.mark.slow
def test_maskable_ppo_learns():
    """40,960 steps on two customers: beyond random play by 6 standard errors."""
    model = learn.train_maskable_ppo(40_960, **SMALL)
    losses = {key: value for key, value in model.logger.name_to_value.items() if key.startswith("train/")}
    assert "train/loss" in losses and all(math.isfinite(value) for value in losses.values())
    more, errors = gain(learn.maskable_returns(model, **SMALL), learn.random_returns(**SMALL))
    assert more > 10 and errors > 6


@pytest.mark.slow
def test_mappo_learns():
    """Two groups, two MAPPOLosses, 40,960 frames on two customers: beyond random play by 6 standard errors."""
    policy, losses = learn.train_mappo(20, **SMALL)
    assert len(losses) == 320 and np.isfinite(losses).all()
    more, errors = gain(learn.mappo_returns(policy, **SMALL), learn.random_returns(**SMALL))
    assert more > 10 and errors > 6


def test_both_evaluations_play_the_same_episodes():
    """Greedy play in the rows of the joint view and in TorchRL's environment has equal returns, row by row."""
    rows = milkrun.make(ID, learn.EPISODES, seed=learn.SEED, autoreset="next_step", **SMALL)
    rows.reset()

    def choose(td):
        joint = torch.from_numpy(greedy(rows))
        rows.step(joint.numpy())
        td["truck", "action"], td["drone", "action"] = joint[:, :1], joint[:, 1:]
        return td

    by_joint = learn.returns(lambda vec, obs, turn: greedy(vec.world), **SMALL)
    assert np.allclose(learn.mappo_returns(choose, **SMALL), by_joint, rtol=0, atol=1e-4)


def test_mappo_is_paid_once_a_step_and_stops_at_ends():
    """All agents of both groups get the team's reward; the value target at an end is the last reward alone."""
    env = milkrun.make(ID, 8, api="torchrl", seed=1, **learn.TO_THE_END, **SMALL)
    policy, losses = learn.mappo_team(env)
    data = env.rollout(90, policy, break_when_any_done=False)
    learn.advantages(losses, data)
    paid, done = data["next", "truck", "reward"], data["next", "done"][..., 0]
    assert data["next", "drone", "reward"].shape == (8, 90, 2, 1) and done.sum() >= 8
    assert (data["next", "drone", "reward"] == paid).all()
    for group, agents in (("truck", 1), ("drone", 2)):
        assert data[group, "advantage"].shape == (8, 90, agents, 1)
        target = data[group, "value_target"]
        assert torch.allclose(target[done], paid[done].expand(-1, agents, 1), rtol=0, atol=1e-4)
        assert ((target - paid)[~done].abs() > 1e-6).all()


def test_mappo_learns_the_same_in_place():
    """Three batches of training give the same losses to the bit with and without in-place stepping."""
    runs = []
    for stepping in ("functional", "inplace"):
        torch.manual_seed(5)
        runs.append(learn.train_mappo(3, rows=8, stepping=stepping, **SMALL)[1])
    assert len(runs[0]) == 12 and runs[0] == runs[1]


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_maskable_ppo_learns_the_default():
    """Six customers, 204,800 steps: beyond random play by 5 standard errors."""
    model = learn.train_maskable_ppo(204_800, lr=7e-4, gamma=0.995)
    more, errors = gain(got := learn.maskable_returns(model), learn.random_returns())
    print(f"MaskablePPO, 204,800 steps: {got.mean():.1f}, {more:.1f} more than random play, {errors:.1f} errors")
    assert errors > 5


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_mappo_learns_the_default():
    """Six customers, 409,600 frames: beyond random play by 5 standard errors."""
    policy, losses = learn.train_mappo(200, gamma=0.995)
    assert np.isfinite(losses).all()
    more, errors = gain(got := learn.mappo_returns(policy), learn.random_returns())
    print(f"MAPPO, 409,600 frames: {got.mean():.1f}, {more:.1f} more than random play, {errors:.1f} errors")
    assert errors > 5


@pytest.mark.long
def test_rllib_ppo_iterates():
    """One iteration, a policy a group, masked by RLlib's own module: losses are finite, no action was illegal (it
    would have raised), and each agent's return is the team's (RLlib's `episode_return_mean` is their sum)."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    from milkrun.api.rllib import MilkrunMultiAgentEnv

    masked = {group: RLModuleSpec(module_class=ActionMaskingTorchRLModule) for group in ("truck", "drone")}
    config = (
        PPOConfig()
        .environment(
            MilkrunMultiAgentEnv,
            env_config={"world": ID, "illegal": "raise", **SMALL},
            disable_env_checking=True,  # RLlib's checker plays without masks
        )
        .env_runners(num_env_runners=0)
        .learners(num_learners=0)
        .multi_agent(policies=set(masked), policy_mapping_fn=lambda agent, episode, **_: agent.split("_")[0])
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=masked))
        .training(train_batch_size_per_learner=480, minibatch_size=128, num_epochs=2)
        .debugging(seed=0)
    )
    try:
        algo = config.build_algo()
        result = algo.train()
        algo.stop()
    finally:
        ray.shutdown()
    for group in masked:
        stats = result["learners"][group]
        assert stats["num_module_steps_trained"] >= 480
        assert all(math.isfinite(stats[key]) for key in ("total_loss", "policy_loss", "vf_loss", "entropy"))
    played = result["env_runners"]
    each = played["agent_episode_returns_mean"]
    assert set(each) == {"truck_0", "drone_0", "drone_1"} and len(set(each.values())) == 1
    assert math.isclose(played["episode_return_mean"], 3 * each["truck_0"], rel_tol=1e-5)
