"""Milkrun's RL4CO environments equal those of RL4CO 0.7 on the same instances, actions and policies.

Keys must have the same bits up to the step that serves the last customer. From there a CVRP may differ: ours ends on
the return to the depot, theirs may end before it.
"""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("rl4co", reason="needs rl4co")

from rl4co.data.transforms import StateAugmentation
from rl4co.envs import CVRPEnv as TheirCVRPEnv
from rl4co.envs import TSPEnv as TheirTSPEnv
from rl4co.models import REINFORCE, AttentionModelPolicy
from rl4co.utils.trainer import RL4COTrainer
from tensordict import TensorDict

from milkrun.api.rl4co import CVRPEnv, TSPEnv
from milkrun.routing import tasks

pytestmark = pytest.mark.truth

OURS = {"tsp": TSPEnv, "cvrp": CVRPEnv}
THEIRS = {"tsp": TheirTSPEnv, "cvrp": TheirCVRPEnv}
KEYS = {
    "tsp": ("locs", "first_node", "current_node", "i", "action_mask"),
    "cvrp": ("locs", "demand", "current_node", "used_capacity", "vehicle_capacity", "visited", "action_mask"),
}


@pytest.fixture(autouse=True)
def own_torch():
    """Isolates torch's global seed, which RL4CO sets, and limits torch to one thread, the fastest for small
    policies."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        yield
    torch.set_num_threads(threads)


def pair(name, num_loc, rows):
    """Our environment and theirs, each reset to the same instances, drawn by RL4CO's generator."""
    theirs = THEIRS[name](generator_params={"num_loc": num_loc}, seed=1)
    ours = OURS[name](generator=theirs.generator, threads=1)
    data = theirs.generator([rows])
    return (ours, ours.reset(data.clone())), (theirs, theirs.reset(data.clone()))


def small_policy(name):
    """RL4CO's attention model with random weights."""
    sizes = {"embed_dim": 64, "num_heads": 4, "num_encoder_layers": 2, "feedforward_hidden": 64}
    return AttentionModelPolicy(env_name=name, **sizes).eval()


def padded(ours, theirs):
    """Both action sequences, the shorter one padded with the depot."""
    width = max(ours.shape[1], theirs.shape[1])
    return [torch.nn.functional.pad(a, (0, width - a.shape[1])) for a in (ours, theirs)]


def layout_of(td):
    """Shape and dtype of each key, without nested entries."""
    return {key: ("nested",) if key == "_w" else (tuple(value.shape), value.dtype) for key, value in td.items()}


@pytest.mark.parametrize("name", OURS)
def test_the_layouts_differ_as_documented(name):
    """docs/use-it-with.md lists exactly these differences: at the reset, after a step, and after the last."""
    (ours, td), (theirs, other) = pair(name, 5, 3)
    mine, others = layout_of(td), layout_of(other)
    extra = {"_w"} if name == "tsp" else {"_w", "reward"}
    assert mine.keys() - others.keys() == extra and others.keys() <= mine.keys()
    assert all(mine[key] == others[key] for key in others)
    assert other["done"].shape == other["terminated"].shape == (3, 1)
    ends = []
    while not td["done"].all():
        action = td["action_mask"].flip(-1).int().argmax(-1).mul(-1) + td["action_mask"].shape[1] - 1
        td, other = ours.step(td.set("action", action))["next"], theirs.step(other.set("action", action))["next"]
        mine, others = layout_of(td), layout_of(other)
        assert mine.keys() - others.keys() == {"_w"} and others.keys() <= mine.keys()
        assert {key for key in others if mine[key] != others[key]} == {"done", "reward"}
        assert mine["done"] == ((3, 1), torch.bool) and others["done"] == ((3,), torch.bool)
        assert mine["reward"] == ((3, 1), torch.float32) and others["reward"] == ((3,), torch.bool)
        assert not td["reward"].any() and not other["reward"].any()
        ends.append((td["done"].all().item(), other["done"].all().item()))
    assert td["terminated"].all() and not other["terminated"].any()
    if name == "tsp":
        assert ends == [(False, False)] * 4 + [(True, True)]
        assert (td["action_mask"].sum(1) == 1).all() and not other["action_mask"].any()
    else:
        assert torch.equal(td["action_mask"], other["action_mask"])


def test_a_cvrp_of_two_trips_ends_a_step_later():
    """Trips 1 and 2: theirs is done at customer 2, ours on the return to the depot. With one trip both end there."""
    for shares, expected in (([0.6, 0.6], (True, False)), ([0.4, 0.4], (False, False))):
        data = TensorDict(
            {
                "locs": torch.rand(1, 2, 2),
                "depot": torch.rand(1, 2),
                "demand": torch.tensor([shares]),
                "capacity": torch.tensor([[10.0]]),
            },
            [1],
        )
        theirs = TheirCVRPEnv(generator_params={"num_loc": 2})
        ours = CVRPEnv(generator=theirs.generator)
        td, other = ours.reset(data.clone()), theirs.reset(data.clone())
        for action in [1, 0, 2] if shares[0] > 0.5 else [1, 2]:
            td.set("action", torch.tensor([action]))
            other.set("action", torch.tensor([action]))
            td, other = ours.step(td)["next"], theirs.step(other)["next"]
        assert (other["done"].all().item(), td["done"].all().item()) == expected
        td = ours.step(td.set("action", torch.tensor([0])))["next"]
        other = theirs.step(other.set("action", torch.tensor([0])))["next"]
        assert td["done"].all() and other["done"].all()


@pytest.mark.parametrize("num_loc", [20, 50])
@pytest.mark.parametrize("name", OURS)
def test_keys_and_rewards_of_random_episodes(name, num_loc):
    """512 rows: bit-equal keys at every step up to the last customer, rewards to 1e-5 of theirs and of the task."""
    (ours, td), (theirs, other) = pair(name, num_loc, 512)
    actions, compared = [], 0
    while not td["done"].all():
        served = td["i"].squeeze(-1) if name == "tsp" else td["visited"][:, 1:].sum(-1)
        live = served < num_loc
        compared += int(live.sum())
        for key in KEYS[name]:
            assert td[key].dtype == other[key].dtype and td[key].shape == other[key].shape
            assert torch.equal(td[key][live], other[key][live]), key
        action = torch.multinomial(td["action_mask"].float(), 1).squeeze(-1)
        actions.append(action)
        td, other = ours.step(td.set("action", action))["next"], theirs.step(other.set("action", action))["next"]
    assert compared >= 512 * num_loc and other["done"].all()
    actions = torch.stack(actions, 1)
    reward = ours.get_reward(td, actions)
    torch.testing.assert_close(reward, theirs.get_reward(other, actions), rtol=1e-5, atol=0)
    task = {"tsp": tasks.TSP, "cvrp": tasks.CVRP}[name]
    cost, _, _ = task.get_costs({key: td[key] for key in ("locs", "demand") if key in KEYS[name]}, actions)
    torch.testing.assert_close(-reward.double(), cost, rtol=1e-5, atol=0)


@pytest.mark.parametrize("decode", ["greedy", "multistart_greedy"])
@pytest.mark.parametrize("name", OURS)
def test_attention_model_decides_the_same(name, decode):
    """64 instances of 20 customers, random weights: the same actions, rewards to 1e-5, log-likelihood to 1e-4."""
    (ours, td), (theirs, other) = pair(name, 20, 64)
    policy = small_policy(name)
    with torch.inference_mode():
        out = policy(td, ours, decode_type=decode)
        expected = policy(other, theirs, decode_type=decode)
    assert len(out["actions"]) == 64 * (1 if decode == "greedy" else 20)
    assert out["actions"].shape[1] - expected["actions"].shape[1] in ((0,) if name == "tsp" else (0, 1))
    a, b = padded(out["actions"], expected["actions"])
    assert torch.equal(a, b)
    torch.testing.assert_close(out["reward"], expected["reward"], rtol=1e-5, atol=0)
    torch.testing.assert_close(out["log_likelihood"], expected["log_likelihood"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", OURS)
def test_best_of_augmented_starts_is_the_same(name):
    """POMO's evaluation, eight symmetric copies with every start of each, picks the same tours."""
    (ours, td), (theirs, other) = pair(name, 10, 8)
    policy, augment = small_policy(name), StateAugmentation(num_augment=8, augment_fn="dihedral8")
    with torch.inference_mode():
        out = policy(augment(td), ours, decode_type="multistart_greedy", select_best=True)
        expected = policy(augment(other), theirs, decode_type="multistart_greedy", select_best=True)
    assert len(out["reward"]) == 64 and torch.equal(*padded(out["actions"], expected["actions"]))
    torch.testing.assert_close(out["reward"], expected["reward"], rtol=1e-5, atol=0)


@pytest.mark.parametrize("decode", ["sampling", "beam_search"])
@pytest.mark.parametrize("name", OURS)
def test_other_decoders_give_valid_tours(name, decode):
    """Sampled and searched solutions of our instances pass the checker; their evaluation gives the same reward."""
    env = OURS[name](generator_params={"num_loc": 20}, seed=4)
    policy, data = small_policy(name), env.generator([32])
    more = {"beam_width": 4} if decode == "beam_search" else {}
    with torch.inference_mode():
        out = policy(env.reset(data.clone()), env, decode_type=decode, **more)
        again = policy(env.reset(data.clone()), env, actions=out["actions"])
    assert len(out["reward"]) == 32 and (out["reward"] < 0).all()
    torch.testing.assert_close(again["reward"], out["reward"], rtol=0, atol=0)
    if decode == "sampling":
        torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "baseline"), [("cvrp", "rollout"), ("tsp", "no")])
def test_an_epoch_of_reinforce_runs(name, baseline, tmp_path, monkeypatch):
    """RL4CO's trainer fits REINFORCE on our environment: weights move, losses and rewards are finite."""
    monkeypatch.chdir(tmp_path)
    env = OURS[name](generator_params={"num_loc": 10}, seed=5)
    policy = small_policy(name).train()
    before = [p.detach().clone() for p in policy.parameters()]
    sizes = {"batch_size": 16, "train_data_size": 64, "val_data_size": 32, "test_data_size": 16}
    model = REINFORCE(env, policy, baseline=baseline, **sizes)
    trainer = RL4COTrainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        precision="32-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        matmul_precision=None,
        disable_profiling_executor=False,
    )
    trainer.fit(model)
    assert trainer.global_step == 4
    assert any(not torch.equal(p, q) for p, q in zip(policy.parameters(), before, strict=True))
    metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
    assert -20 < metrics["val/reward"] < -2 and abs(metrics["train/loss"]) < 1e4
