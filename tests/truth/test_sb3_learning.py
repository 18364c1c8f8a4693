"""Stable-Baselines3 learns correct values and shorter routes through both vector environments.

Drip pays 1 a step and is truncated every five steps. With a discount of 0.9 its value is the solution of V = 1 + 0.9 V,
which is 10. A learner that takes each fifth step for a termination solves V = 1 + 0.8 * 0.9 V: 3.57.
"""

import math
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.sb3 import Async_SubprocVecEnv, SB3VecEnv
from milkrun.core.actions import discrete
from milkrun.core.fields import float32, mask, view
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from tests.api import worker_envs as envs

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]
LIMIT, GAMMA = 5, 0.9
CVRP, TRUCK_DRONE = "milkrun/CVRP-v0", "milkrun/TruckDrone-v0"


@kernel
def drip_generate(w, b):
    pass


@kernel
def drip_reset(w, b):
    w.tap[b, 0] = 1
    for j in range(2):
        w.action_mask[b, j] = True


@kernel
def drip_step(w, b, action):
    w.reward[b] = 1


class Drip(World):
    """One state, reward 1 for every action."""

    action = discrete(2)

    tap = view(float32, 1, observed=True, doc="always 1")
    action_mask = mask(2)


Drip.bind(generate=drip_generate, reset=drip_reset, step=drip_step)


class DripEnv(gymnasium.Env):
    """The same for other processes; `end` is the kind of end after five steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end):
        self.end, self.t = end, 0

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == LIMIT
        return np.ones(1, np.float32), 1.0, over and self.end == "terminated", over and self.end == "truncated", {}


def learned_value(env, n_steps=LIMIT):
    """The value of the only state by PPO's linear critic after 60 rollouts of two rows."""
    line = {"net_arch": {"pi": [], "vf": []}}
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=n_steps,
        batch_size=2 * n_steps,
        n_epochs=5,
        learning_rate=0.1,
        gamma=GAMMA,
        gae_lambda=0,
        max_grad_norm=10,
        seed=0,
        policy_kwargs=line,
        device="cpu",
    )
    model.learn(60 * 2 * n_steps)
    env.close()
    with torch.no_grad():
        return model.policy.predict_values(torch.ones(1, 1)).item()


def drips(end, mode):
    return Async_SubprocVecEnv([partial(DripEnv, end)] * 2, "fork", autoreset_mode=mode)


def test_the_value_beyond_a_time_limit_is_learned():
    """SB3VecEnv: 10, which requires `terminal_observation` and `TimeLimit.truncated` on the truncated step."""
    world = Drip(2, Drip.Config(max_steps=LIMIT), seed=1, autoreset="same_step")
    assert learned_value(SB3VecEnv(world, layout="flat")) == pytest.approx(10, abs=0.2)


def test_the_same_in_other_processes():
    """Async_SubprocVecEnv as SB3 resets: 10."""
    assert learned_value(drips("truncated", "same_step")) == pytest.approx(10, abs=0.2)


def test_a_termination_has_no_value_beyond():
    """The same steps with a termination each fifth: 3.57, so the 10 above depends on the truncation."""
    assert learned_value(drips("terminated", "same_step")) == pytest.approx(1 / (1 - 0.8 * GAMMA), abs=0.1)


def test_what_a_reset_turn_costs():
    """In aligned turns SB3 stores one transition in six without reward: V = 5/6 + 0.9 V, which is 8.33. This is the
    reason to drop `reset_turn` rows."""
    assert learned_value(drips("truncated", "next_step"), LIMIT + 1) == pytest.approx(5 / 6 / (1 - GAMMA), abs=0.2)


class Distances(BaseFeaturesExtractor):
    """Distance of every node from the vehicle, progress and load: sufficient for the policy nearest first."""

    def __init__(self, observation_space):
        super().__init__(observation_space, len(observation_space["locs"].low) + 2)

    def forward(self, obs):
        locs = obs["locs"]
        here = (locs * obs["current_node"].reshape(len(locs), -1, 1)).sum(1, keepdim=True)
        done = obs["visited"].mean(1, keepdim=True)
        return torch.cat([(locs - here).norm(dim=-1), done, obs["load"] / obs["capacity"]], 1)


@pytest.mark.slow
def test_maskable_ppo_shortens_routes():
    """CVRP of 20 customers, 32,768 steps in 64 rows. Routes of other instances are more than 2.5 shorter than the 13.2
    of random play; the standard error of the means is 0.1."""
    net = {"features_extractor_class": Distances, "net_arch": {"pi": [], "vf": [32]}}
    rows = SB3VecEnv(CVRP, 64, num_loc=20, seed_rule="row")
    model = MaskablePPO(
        "MultiInputPolicy",
        rows,
        n_steps=32,
        batch_size=512,
        n_epochs=4,
        learning_rate=0.01,
        gamma=0.9,
        policy_kwargs=net,
        seed=0,
        device="cpu",
    ).learn(32_768)
    assert_finite(model)
    others = SB3VecEnv(CVRP, 256, num_loc=20, seed_rule="row", seed=99)
    trained, _ = evaluate_policy(model, others, n_eval_episodes=256, return_episode_rewards=True)
    others.seed(99)
    others.reset()
    drawn = {}
    for t in range(60):
        _, _, dones, infos = others.step(others.world.sample_actions(3, t))
        for b in np.flatnonzero(dones):
            drawn.setdefault(int(b), infos[b]["episode"]["r"])
    assert len(trained) == len(drawn) == 256
    print(f"random {np.mean(list(drawn.values())):.2f}, trained {np.mean(trained):.2f}")
    assert -13.6 < np.mean(list(drawn.values())) < -12.8
    assert np.mean(trained) > np.mean(list(drawn.values())) + 2.5


def test_maskable_ppo_trains_a_team():
    """TruckDrone's joint view, 2,048 steps in 16 rows: losses are finite and no action is illegal."""

    class Watched(SB3VecEnv):
        def step_wait(self):
            result = super().step_wait()
            illegal.extend(info["illegal"] for info in result[3])
            return result

    illegal = []
    rows = Watched(TRUCK_DRONE, 16, layout="flat", max_steps=40)
    assert_finite(MaskablePPO("MlpPolicy", rows, n_steps=32, batch_size=256, seed=0, device="cpu").learn(2048))
    assert len(illegal) == 2048 and not any(illegal)


@pytest.mark.parametrize(
    ("algorithm", "maker"),
    [
        (PPO, envs.cart_pole),
        (PPO, partial(MilkrunEnv, CVRP, num_loc=5, layout="flat")),
        (MaskablePPO, partial(MilkrunEnv, CVRP, num_loc=5, layout="flat", illegal="raise")),
        (MaskablePPO, partial(MilkrunEnv, TRUCK_DRONE, max_steps=20, layout="flat", illegal="raise")),
    ],
    ids=["CartPole", "CVRP", "CVRP masked", "TruckDrone masked"],
)
def test_ppo_trains_over_processes(algorithm, maker):
    """256 steps of two environments in aligned turns: losses are finite, and no masked action raises as illegal."""
    env = Async_SubprocVecEnv([maker] * 2, "fork")
    model = algorithm("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu").learn(256)
    env.close()
    assert_finite(model)


def assert_finite(model):
    losses = {key: value for key, value in model.logger.name_to_value.items() if key.startswith("train/")}
    assert "train/loss" in losses and all(math.isfinite(value) for value in losses.values())
