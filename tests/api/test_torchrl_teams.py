"""A team in TorchRL meets the requirements of single agents: rollouts, arrangements of rows, native steps, resets of
some rows.

Keys of groups are nested, and the hidden state is larger than in any routing world.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import EnvBase
from torchrl.envs.utils import step_mdp

import milkrun
from milkrun.api.torchrl import env_class
from tests.api.test_torchrl_delivery import SHORT, TRUCKDRONE, drawn, joint, team
from tests.api.torchrl_tools import assert_same, checksums, leaves

REWARDS, ACTIONS = ([(group, key) for group in ("truck", "drone")] for key in ("reward", "action"))
STEPPINGS = ("functional", "inplace")


def under_way(env, steps=5):
    """Some steps into the episodes, with the next actions drawn."""
    td = env.reset()
    for _ in range(steps):
        td = env.step(drawn(env, td))["next"].exclude(*REWARDS)
    return drawn(env, td)


def test_a_rollout_is_manual_steps():
    """rollout(30) over two ends a row equals 30 calls of step with step_mdp and resets between, hidden state too."""
    env = team(4)
    rolled = env.rollout(30, policy=lambda td: drawn(env, td), break_when_any_done=False)
    env.set_seed(6)
    td, steps = env.reset(), []
    for _ in range(30):
        td = env.step(drawn(env, td))
        steps.append(td.copy())
        td = step_mdp(
            td, exclude_action=False, action_keys=env.action_keys, reward_keys=env.reward_keys, done_keys=env.done_keys
        )
        if td["done"].any():
            td["_reset"] = td["done"].clone()
            td = env.reset(td)
    assert_same(rolled, torch.stack(steps, 1))
    assert rolled["hidden", "stream"][:, -1, 2].min() >= 2


def test_native_step_and_maybe_reset_is_the_stock_one():
    """Over 500 steps the same keys and bits as TorchRL's own around our `_step` and `reset`, in both steppings."""

    class Stock(env_class(TRUCKDRONE)):
        step = EnvBase.step
        step_and_maybe_reset = EnvBase.step_and_maybe_reset

    for stepping, turns in (("functional", 500), ("inplace", 60)):
        native, stock = team(3, stepping=stepping), Stock(batch_size=[3], seed=6, stepping=stepping, **SHORT)
        a, b = native.reset(), stock.reset()
        for _ in range(turns):
            (done_a, a), (done_b, b) = (
                env.step_and_maybe_reset(drawn(env, td)) for env, td in ((native, a), (stock, b))
            )
            assert_same(done_a, done_b)
            assert_same(a, b)
        assert a["hidden", "stream"][:, 2].min() >= turns // 12


def test_strided_and_expanded_rows_step_alike():
    """Tensors that are every second slice of others, and rows repeated without copies, in both orders."""
    env = team(3)
    td = under_way(env)
    before, expected = checksums(td), env.step(td.clone())["next"]
    strided = td.clone()
    for key, value in leaves(td).items():
        strided[key] = torch.stack([torch.zeros_like(value), value], 1)[:, 1]
        assert not strided[key].is_contiguous() or value.numel() == 0
    assert_same(env.step(strided)["next"], expected)
    wide, tall = env.step(td.unsqueeze(1).expand(3, 4))["next"], env.step(td.expand(4, 3))["next"]
    for s in range(4):
        assert_same(wide[:, s], expected)
        assert_same(tall[s], expected)
    assert checksums(td) == before


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_partial_reset_touches_no_other_row(stepping):
    """Rows named by `_reset` begin episode 1 as the World begins it, in new tensors; all other bits stay."""
    env = env_class(TRUCKDRONE)(batch_size=[2, 3], seed=6, stepping=stepping, **SHORT)
    td = under_way(env).exclude(*ACTIONS)
    before, handed, kept = td.clone(), checksums(td), dict(leaves(td))
    signal = torch.tensor([[True, False, False], [False, False, True]])
    new = env.reset(td.set("_reset", signal[..., None]))
    assert checksums(TensorDict(kept, [2, 3])) == handed
    assert_same(new[~signal], before[~signal])
    assert new["hidden", "stream"][signal].tolist() == [[6, 0, 1], [6, 5, 1]]
    world = milkrun.make(TRUCKDRONE, 6, seed=6, **SHORT)
    world.reset()
    world.reset()
    for key, array in {
        ("truck", "observation"): world.truck_obs,
        ("drone", "observation"): world.drone_obs,
        "state": world.state,
    }.items():
        assert np.array_equal(new[key][signal].numpy(), array[[0, 5]]), key
    stepped = env.step(drawn(env, new))["next"]
    world.step(joint(new).reshape(6, -1))
    assert np.array_equal(stepped["state"][signal].numpy(), world.state[[0, 5]])


def test_keys_of_others_in_a_group_survive_a_partial_reset():
    """The memory of a policy under a group is 0 in rows that begin an episode and stays in the others, as at the
    root."""
    env = team(3)
    td = drawn(env, env.reset())
    td["memory"], td["truck", "memory"] = torch.ones((3, 2)), torch.ones((3, 1, 2))
    new = env.reset(td.set("_reset", torch.tensor([[True], [False], [False]])))
    assert new["memory"].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert new.get(("truck", "memory"), torch.zeros(0)).tolist() == [[[0, 0]], [[1, 1]], [[1, 1]]]
    assert ("drone", "action") in new.keys(True)
