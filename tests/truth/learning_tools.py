"""Training runs on the truck and its drones with algorithms of other libraries, and their comparison with random play.

Every policy plays the first episode of the same rows of the same seed. So a trained one and random play differ only in
their choices, and the error of the gain is that of the differences.
"""

import math
from functools import partial

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, MaskedCategorical, ProbabilisticActor
from torchrl.objectives.multiagent import MAPPOLoss

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv

ID = "milkrun/TruckDrone-v0"
SMALL = {"num_customers": 2, "num_route_nodes": 4, "episode_length": 60}
EPISODES, SEED = 128, 99
TO_THE_END = {"time_limit_terminal": True}
"""Episodes have a known end, which charges for unserved customers, so the learner needs no value beyond it."""


def gain(trained, random):
    """Mean of trained - random over the episodes, and how many standard errors of it that is."""
    difference = trained - random
    return difference.mean(), difference.mean() / (difference.std(ddof=1) / math.sqrt(len(difference)))


def returns(choose, **options):
    """(EPISODES,) returns of `choose(rows, obs, turn) -> actions`, rows being the flat joint view."""
    rows = MilkrunVectorEnv(EPISODES, ID, layout="flat", seed_rule="row", **options)
    obs, _ = rows.reset(seed=SEED)
    total, live, turn = np.zeros(EPISODES), np.ones(EPISODES, bool), 0
    while live.any():
        obs, reward, terminated, truncated, _ = rows.step(choose(rows, obs, turn))
        total += np.where(live, reward, 0)
        live &= ~(terminated | truncated)
        turn += 1
    return total


def random_returns(**options):
    """Returns of random allowed actions in the same episodes."""
    return returns(lambda rows, obs, turn: rows.world.sample_actions(3, turn), **options)


def joint_rows(num, **options):
    """SB3's vector environment of single rows, one controller for the whole team."""
    make = partial(MilkrunEnv, ID, layout="flat", seed=1, **options)
    return DummyVecEnv([partial(make, first_row=b) for b in range(num)])


def train_maskable_ppo(steps, *, lr=2e-3, gamma=0.99, **options):
    """A MaskablePPO of the joint view, its rewards scaled by VecNormalize."""
    rows = VecNormalize(joint_rows(16, **TO_THE_END, **options), norm_obs=False, gamma=gamma)
    model = MaskablePPO(
        "MlpPolicy",
        rows,
        n_steps=128,
        batch_size=256,
        n_epochs=5,
        learning_rate=lr,
        gamma=gamma,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    return model.learn(steps, log_interval=None)


def maskable_returns(model, **options):
    """Returns of its policy, sampled among the allowed actions."""
    return returns(lambda rows, obs, turn: model.predict(obs, action_masks=rows.action_masks())[0], **options)


def mappo_team(env, gamma=0.99, cells=64):
    """A policy with one net a group, shared by its agents, and for each group a MAPPOLoss with a critic of the
    state."""
    seen, actors, losses = env.observation_spec, [], {}
    net = partial(MLP, num_cells=[cells, cells], activation_class=nn.Tanh)
    for group, names in env.group_map.items():
        logits = net(seen[group, "observation"].shape[-1], seen[group, "action_mask"].shape[-1])
        actor = ProbabilisticActor(
            TensorDictModule(logits, [(group, "observation")], [(group, "logits")]),
            in_keys={"logits": (group, "logits"), "mask": (group, "action_mask")},
            out_keys=[(group, "action")],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
            log_prob_key=(group, "log_prob"),
        )
        value = nn.Sequential(net(seen["state"].shape[-1], len(names)), nn.Unflatten(-1, (len(names), 1)))
        loss = MAPPOLoss(actor, TensorDictModule(value, ["state"], [(group, "state_value")]))
        loss.set_keys(
            **{key: (group, key) for key in ("action", "reward", "advantage", "value_target")},
            value=(group, "state_value"),
            sample_log_prob=(group, "log_prob"),
        )
        loss.make_value_estimator(gamma=gamma, lmbda=0.95)
        actors.append(actor)
        losses[group] = loss
    return TensorDictSequential(*actors), losses


def advantages(losses, data):
    """Writes every group's advantage and value target into the collected data."""
    with torch.no_grad():
        for loss in losses.values():
            critic, target = loss.critic_network_params, loss.target_critic_network_params
            loss.value_estimator(data, params=critic, target_params=target)


def train_mappo(batches, *, rows=32, steps=64, scale=0.2, lr=2e-3, gamma=0.99, stepping="functional", **options):
    """A MAPPO team trained on `batches` batches of rows x steps, and the total losses of all updates."""
    env = milkrun.make(ID, rows, api="torchrl", seed=1, stepping=stepping, **TO_THE_END, **options)
    policy, losses = mappo_team(env, gamma)
    weights = [w for loss in losses.values() for w in loss.parameters()]
    optimiser = torch.optim.Adam(weights, lr)
    frames, losses_seen = rows * steps, []
    collector = Collector(
        env, policy, frames_per_batch=frames, total_frames=frames * batches, auto_register_policy_transforms=False
    )
    for data in collector:
        for group in losses:
            data["next", group, "reward"] = data["next", group, "reward"] * scale
        advantages(losses, data)
        flat = data.exclude("hidden", ("next", "hidden")).reshape(-1)
        for _ in range(4):
            for chosen in torch.randperm(frames).split(512):
                parts = [loss(flat[chosen]) for loss in losses.values()]
                total = sum(p["loss_objective"] + p["loss_critic"] + p["loss_entropy"] for p in parts)
                optimiser.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(weights, 0.5)
                optimiser.step()
                losses_seen.append(total.item())
    collector.shutdown()
    return policy, losses_seen


def mappo_returns(policy, **options):
    """(EPISODES,) returns of a TorchRL policy in the same episodes, which TorchRL's environment plays itself.

    Outside a collector TorchRL takes the likeliest action by default; here it samples, as in training."""
    env = milkrun.make(ID, EPISODES, api="torchrl", seed=SEED, **options)
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        rolled = env.rollout(env.config.episode_length, policy, break_when_any_done=False)
    done = rolled["next", "done"].long()
    first = done.cumsum(1) - done == 0
    assert done.any(1).all()
    return (rolled["next", "truck", "reward"][..., 0] * first).sum((1, 2)).numpy().astype(float)
