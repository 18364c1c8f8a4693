"""A learner for drone tracking: PPO of Stable-Baselines3 with a small convolutional net on small pictures."""

from __future__ import annotations

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from milkrun.api.sb3 import SB3VecEnv
from milkrun.solvers import evaluate
from milkrun.tracking import Tracking, TrackingConfig

TRACKING = "milkrun/Tracking-v0"
EASY = {"preset": "straight_mono", "size": 24, "ground_cell": 2.0}
"""One red car on a straight road, by day."""


class Eye(BaseFeaturesExtractor):
    """Two convolutions and a layer."""

    def __init__(self, observation_space, width=64):
        super().__init__(observation_space, width)
        channels, side, _ = observation_space.shape
        sees = nn.Sequential(nn.Conv2d(channels, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten())
        with torch.no_grad():
            found = sees(torch.zeros(1, channels, side, side)).shape[1]
        self.net = nn.Sequential(sees, nn.Linear(found, width), nn.Tanh())

    def forward(self, images):
        return self.net(images)


def learn(steps, seed=0, rows=64, rate=0.001, **options):
    """Trains PPO for `steps` steps."""
    env = SB3VecEnv(TRACKING, rows, seed=seed, **options)
    model = PPO(
        "CnnPolicy",
        env,
        n_steps=32,
        batch_size=512,
        n_epochs=4,
        gamma=0.9,
        gae_lambda=0.9,
        ent_coef=0.01,
        learning_rate=rate,
        seed=seed,
        policy_kwargs={"features_extractor_class": Eye, "net_arch": [64]},
    )
    return model.learn(steps)


def evaluate_model(model, episodes=64, seed=1000, **options):
    """Evaluates the greedy policy on unseen episodes."""
    world = Tracking(episodes, TrackingConfig.build(**options), seed=seed, autoreset="disabled")

    def policy(world):
        actions, _ = model.predict(world.observe()["image"], deterministic=True)
        return np.asarray(actions)

    return evaluate(world, policy, episodes, seed)
