"""TorchRL's checkers and tools on every world: specs, transforms, collectors, batched environments, a loss."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import ActionMask, Compose, InitTracker, ParallelEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss

import milkrun
from milkrun.api.torchrl import CVRPEnv, TSPEnv, env_class
from tests import small

WORLDS = [id for id in milkrun.list_worlds() if id.startswith("milkrun/")]
WAYS = [(id, "functional") for id in WORLDS if small.functional(id)] + [(id, "inplace") for id in WORLDS]
pytestmark = pytest.mark.truth


def tuple_of(key):
    return key if isinstance(key, tuple) else (key,)


@pytest.mark.parametrize(("id", "stepping"), WAYS)
@pytest.mark.parametrize("batch", [None, [5], [2, 3]])
@pytest.mark.conformance("torchrl", "check_env_specs")
def test_check_env_specs(id, stepping, batch):
    """Specs and data agree with and without a stop at ends, seeded, and behind ActionMask; no warning is issued."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = env_class(id)(batch_size=batch, stepping=stepping, seed=3, **small.options(id))
        check_env_specs(env, break_when_any_done="both")
        check_env_specs(env, seed=1)
        keys = [tuple_of(key) for key in env.action_keys]
        masked = [ActionMask(action_key=key, mask_key=(*key[:-1], "action_mask")) for key in keys]
        check_env_specs(TransformedEnv(env, Compose(*masked)), break_when_any_done="both")


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_check_env_specs_over_ends(stepping):
    """The same if rows end and restart within the checked rollout, and are truncated by a step limit."""
    for options in ({"num_loc": 2}, {"num_loc": 5, "max_steps": 2}, {"num_loc": 2, "reward": "terminal"}):
        check_env_specs(TSPEnv(batch_size=[4], stepping=stepping, seed=3, **options), break_when_any_done=False)


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("milkrun/TSPKopt-v0", {"moves": "3opt", "num_loc": 6, "max_steps": 2}),
        ("milkrun/VRPP-v0", {"time_windows": True, "num_loc": 2, "trips": "multi"}),
        ("milkrun/SDWCVRP-v0", {"sensor_sigma": 0.3, "horizon": 1, "num_loc": 2}),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else given,
)
def test_check_env_specs_of_options(id, options, stepping):
    """Options that add fields or actions change specs and data alike."""
    env = env_class(id)(batch_size=[4], stepping=stepping, seed=3, **options)
    check_env_specs(env, break_when_any_done=False)
    check_env_specs(env, seed=1)


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_masked_rollouts_obey_the_mask(stepping):
    """Behind ActionMask TorchRL's random actions are allowed until a row ends: the mask is the current one."""
    env = TransformedEnv(CVRPEnv(batch_size=[8], num_loc=6, seed=3, stepping=stepping), ActionMask())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        rolled = env.rollout(40)
    assert rolled["next", "done"][:, -1].any()
    assert rolled["action_mask"].gather(-1, rolled["action"][..., None]).all()
    assert rolled["action_mask"].any(-1).all() and rolled["next", "action_mask"].any(-1).all()


def policy(width: int = 2) -> ProbabilisticActor:
    """Scores nodes by their coordinates alone and samples among the allowed ones."""
    scores = torch.nn.Sequential(torch.nn.Linear(width, 1), torch.nn.Flatten(-2))
    module = TensorDictModule(scores, in_keys=["locs"], out_keys=["logits"])
    return ProbabilisticActor(
        module,
        in_keys={"logits": "logits", "mask": "action_mask"},
        out_keys=["action"],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    )


@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_a_collector_trains_a_policy(stepping):
    """Collector, MaskedCategorical, RewardSum and StepCounter feed ClipPPOLoss: all actions allowed, losses finite."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        base = CVRPEnv(batch_size=[6], num_loc=5, seed=3, stepping=stepping)
        env = TransformedEnv(base, Compose(InitTracker(), RewardSum(), StepCounter()))
        actor = policy()
        value = torch.nn.Sequential(torch.nn.Flatten(-2), torch.nn.Linear(12, 1))
        loss = ClipPPOLoss(actor, ValueOperator(value, in_keys=["locs"]))
        loss.make_value_estimator()
        optimiser = torch.optim.Adam(loss.parameters(), 1e-2)
        collector = Collector(env, actor, frames_per_batch=120, total_frames=360, auto_register_policy_transforms=False)
        seen = 0
        for data in collector:
            assert data["action_mask"].gather(-1, data["action"][..., None]).all()
            done = data["next", "done"]
            lengths = data["next", "tour_length"][..., None]
            assert torch.allclose(data["next", "episode_reward"][done], -lengths[done], rtol=1e-5)
            critic, target = loss.critic_network_params, loss.target_critic_network_params
            loss.value_estimator(data, params=critic, target_params=target)
            losses = loss(data.reshape(-1))
            total = losses["loss_objective"] + losses["loss_critic"]
            assert torch.isfinite(total)
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            seen += int(done.sum())
        collector.shutdown()
        assert seen > 20


def test_parallel_environments_run_the_same_worlds():
    """ParallelEnv(2, fn) in two processes gives the same rows as the single environments with the same seeds."""
    make = functools.partial(CVRPEnv, batch_size=[3], num_loc=4)
    first, second = make(), make()
    with torch.random.fork_rng():
        parallel = ParallelEnv(2, make, mp_start_method="spawn")
        try:
            following = second.set_seed(first.set_seed(5))
            assert parallel.set_seed(5) == following
            actor = policy()
            rolled = parallel.rollout(30, policy=actor, break_when_any_done=False)
        finally:
            parallel.close()
    assert rolled.batch_size == (2, 3, 30) and rolled["next", "done"].sum() > 10
    for k, env in enumerate((first, second)):
        td = env.reset()
        for t in range(30):
            for key in ("locs", "visited", "action_mask", ("hidden", "stream"), "tour_length", "done"):
                assert torch.equal(td[key], rolled[key][k, :, t]), (key, t)
            stepped, td = env.step_and_maybe_reset(td.set("action", rolled["action"][k, :, t].clone()))
            assert torch.equal(stepped["next", "reward"], rolled["next", "reward"][k, :, t])
