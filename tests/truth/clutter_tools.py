"""A learner for picking from clutter: MaskablePPO with one small net that scores every object.

`python -m tests.truth.clutter_tools` prints the learning curve as a table.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from milkrun.api.sb3 import SB3VecEnv
from milkrun.clutter import Clutter
from milkrun.solvers import evaluate

WIDTH = 32
DEFAULT = {"picks": 60_000, "seed": 0, "rate": 0.002}  # the run on the default pile


class Scores(BaseFeaturesExtractor):
    """Scores each object from its features, the objects above and below it, and the state of the cup. The critic's
    input follows: the mean over the objects in play."""

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
    """No layer mixes objects, so the policy does not depend on their indices."""

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.action_net = First(self.action_space.n)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def learn(picks, seed, rows=64, rate=0.005, callback=None, **config):
    """A model trained on `picks` picks."""
    world = Clutter(rows, Clutter.Config(**config), seed=seed, autoreset="same_step")
    net = {"features_extractor_class": Scores, "net_arch": {"pi": [], "vf": [WIDTH]}}
    model = MaskablePPO(
        ObjectPolicy,
        SB3VecEnv(world),
        n_steps=8,
        batch_size=128,
        n_epochs=10,
        learning_rate=rate,
        gamma=0.95,
        gae_lambda=0.9,
        policy_kwargs=net,
        seed=seed,
        device="cpu",
    )
    return model.learn(picks, callback)


def evaluate_model(model, **config):
    """Evaluates the model's greedy policy on the 64 test scenes."""
    world = Clutter(64, Clutter.Config(split="test", **config), autoreset="disabled")

    def choose(world):
        seen = {name: getattr(world, name) for name in ("objects", "cover", "globals")}
        return model.predict(seen, action_masks=world.action_mask, deterministic=True)[0].astype(np.int64)

    return evaluate(world, choose, 64)


class Curve(BaseCallback):
    """Prints a line of the table every `every` picks. Evaluation draws no random numbers, so it does not change the
    run."""

    def __init__(self, every):
        super().__init__()
        self.every, self.next = every, 0

    def _on_step(self):
        return True

    def _on_rollout_start(self):  # all picks so far have been learned from
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.print_line()

    def print_line(self):
        result = evaluate_model(self.model)
        low, high = result.interval
        cleared = result.kpis["percent_cleared"].mean()
        print(f"| {self.num_timesteps:,} | {result.mean:.1f} \xb1 {(high - low) / 2:.1f} | {cleared:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picks", type=int, default=DEFAULT["picks"])
    parser.add_argument("--every", type=int, default=10_000)
    given = parser.parse_args()
    torch.set_num_threads(1)  # as the test: sums in one order
    curve = Curve(given.every)
    print("| picks | return | cleared |\n|---|---|---|")
    learn(**{**DEFAULT, "picks": given.picks}, callback=curve)
    curve.print_line()


if __name__ == "__main__":
    main()
