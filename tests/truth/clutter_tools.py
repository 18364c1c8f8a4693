"""A learner for picking from clutter: MaskablePPO with one small net that scores every object alike."""

from __future__ import annotations

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from milkrun.api.sb3 import SB3VecEnv
from milkrun.clutter import Clutter
from milkrun.solvers import evaluate

WIDTH = 32


class Scores(BaseFeaturesExtractor):
    """Of each object a score, made of its own numbers, what covers it, what it covers and the state of the cup; then
    what the critic reads: the mean over the objects in play."""

    def __init__(self, observation_space):
        objects, width = observation_space["objects"].shape
        super().__init__(observation_space, objects + WIDTH)
        given = width + 2 + observation_space["globals"].shape[0]
        self.look = nn.Sequential(nn.Linear(given, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, obs):
        objects, cover = obs["objects"], obs["cover"]
        around = obs["globals"][:, None].expand(-1, objects.shape[1], -1)
        own = torch.diagonal(cover, dim1=1, dim2=2)
        hides = torch.stack([cover.sum(2) - own, cover.sum(1) - own], 2)
        seen = self.look(torch.cat([objects, hides, around], 2))
        in_play = objects[..., 14:15]
        pooled = (seen * in_play).sum(1) / in_play.sum(1).clamp(min=1)
        return torch.cat([self.score(seen)[..., 0], pooled], 1)


class First(nn.Module):
    """The scores are the logits."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, features):
        return features[:, : self.count]


class ObjectPolicy(MaskableMultiInputActorCriticPolicy):
    """No layer mixes objects, so that none is told from another by its number."""

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.action_net = First(self.action_space.n)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def learn(picks, seed, rows=64, rate=0.005, **config):
    """A model that has learned from so many picks."""
    world = Clutter(rows, Clutter.Config(**config), seed=seed, autoreset="same_step")
    net = {"features_extractor_class": Scores, "net_arch": {"pi": [], "vf": [WIDTH]}}
    return MaskablePPO(ObjectPolicy, SB3VecEnv(world), n_steps=8, batch_size=128, n_epochs=10, learning_rate=rate,
                       gamma=0.95, gae_lambda=0.9, policy_kwargs=net, seed=seed, device="cpu").learn(picks)  # fmt: skip


def judged(model, **config):
    """What it earns on the 64 test scenes, taking what it likes best."""
    world = Clutter(64, Clutter.Config(split="test", **config), autoreset="disabled")

    def choose(world):
        seen = {name: getattr(world, name) for name in ("objects", "cover", "globals")}
        return model.predict(seen, action_masks=world.action_mask, deterministic=True)[0].astype(np.int64)

    return evaluate(world, choose, 64)
