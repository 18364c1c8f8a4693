"""tianshou's algorithms learn through both vector environments: DQN with masks, PPO on tours."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step
from torch import nn

import milkrun
from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.tianshou import SubprocVecEnv_TS, TianshouVectorEnv, TS_Collector

pytestmark = pytest.mark.truth
CVRP, TSP = "milkrun/CVRP-v0", "milkrun/TSP-v0"


@pytest.fixture(autouse=True)
def one_thread():
    """Small nets are slower on many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Nearest(nn.Module):
    """A score for each node from its position relative to the vehicle; forbidden nodes are masked."""

    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))

    def numbers(self, obs):
        locs, here = torch.as_tensor(obs.obs.locs), torch.as_tensor(obs.obs.current_node)
        offset = locs - locs[torch.arange(len(locs)), here][:, None]
        return self.score(torch.cat([offset, offset.norm(dim=2, keepdim=True)], 2))[..., 0]

    def forward(self, obs, state=None, info=None):
        return self.numbers(obs).masked_fill(~torch.as_tensor(obs.mask), -1e9), state


class Worth(Nearest):
    """The value of the rest of a tour: a sum over the remaining nodes."""

    def forward(self, obs, state=None, info=None):
        return (self.numbers(obs) * torch.as_tensor(obs.mask)).sum(1, keepdim=True)


def venv_of(kind, count):
    if kind == "one world":
        return TianshouVectorEnv(CVRP, count, num_loc=6)
    return SubprocVecEnv_TS([partial(MilkrunEnv, CVRP, num_loc=6, layout="flat")] * count, context="fork")


@pytest.mark.parametrize(
    ("kind", "collector_class"), [("one world", Collector), ("processes", Collector), ("processes", TS_Collector)]
)
def test_dqn_trains_by_the_masks(kind, collector_class):
    """12 rounds of 32 transitions and an update: finite losses and changed weights. Every action, random ones included,
    is allowed by its mask."""
    torch.manual_seed(1)
    np.random.seed(1)
    venv = venv_of(kind, 4)
    net = Net(state_shape=venv.observation_space[0].shape, action_shape=7, hidden_sizes=[32])
    policy = DiscreteQLearningPolicy(model=net, action_space=venv.action_space[0], eps_training=0.3)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=20)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    buffer = VectorReplayBuffer(4000, 4)
    collector = collector_class(policy, venv, buffer, exploration_noise=True)
    collector.reset(gym_reset_kwargs={"seed": 3})
    losses = []
    with policy_within_training_step(policy):
        for _ in range(12):
            collector.collect(n_step=32)
            losses.append(algorithm.update(buffer, 64).loss)
    venv.close()
    data = buffer[:]
    assert all(map(math.isfinite, losses))
    assert data.obs.mask[np.arange(len(data)), data.act].all()
    assert not data.info.illegal.any()
    assert len(data) >= 384
    assert all((now != then).any() for now, then in zip(net.parameters(), before))


def tours(actor, count=256):
    """Lengths of greedy tours in the first episodes of `count` rows of a seed; of random tours without an actor."""
    venv = TianshouVectorEnv(TSP, count, num_loc=10, layout="dict", seed_rule="row", seed=77)
    obs, _ = venv.reset()
    for turn in range(10):
        chosen = venv.world.sample_actions(5, turn)
        if actor is not None:
            with torch.no_grad():
                chosen = actor(obs)[0].argmax(1)
        obs, _, terminated, _, infos = venv.step(chosen)
    assert terminated.all()
    return -np.array([info["objective"] for info in infos])


def test_ppo_beats_random_on_tsp():
    """8 updates on 640 transitions each, finite losses, 256 unseen instances of 10 nodes. Before training, greedy tours
    are longer than random ones (10 times 0.521, the mean distance of two points in the unit square). After it they are
    shorter by three tenths."""
    torch.manual_seed(2)
    venv = milkrun.make(TSP, 16, api="tianshou", num_loc=10, layout="dict")
    actor, critic = Nearest(), Worth()
    untrained, random = tours(actor).mean(), tours(None).mean()
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=venv.action_space[0],
        action_scaling=False,
        action_bound_method=None,
    )
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-2), gamma=1.0)
    buffer = VectorReplayBuffer(640, 16)
    collector = Collector(policy, venv, buffer)
    collector.reset(gym_reset_kwargs={"seed": 1000})
    losses = []
    for _ in range(8):
        collector.collect(n_step=640)
        with policy_within_training_step(policy):
            losses.append(algorithm.update(buffer, 160, 4).loss)
        collector.reset_buffer(keep_statistics=True)
    assert all(math.isfinite(loss) for loss in np.ravel([loss.mean for loss in losses]))
    trained = tours(actor).mean()
    assert random == pytest.approx(5.21, abs=0.1)
    assert untrained > random
    assert trained < 0.7 * random
