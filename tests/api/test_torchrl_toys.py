"""Worlds beyond routing: groups of agents, images made on demand, numbers as actions, scratch, foreign memory."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import check_env_specs, check_marl_grouping

import milkrun
from milkrun.api.torchrl import env_class
from milkrun.core.errors import ConfigError, ShapeError
from tests.api.torchrl_tools import assert_same, checksums
from tests.core.toys import Borrowed, Convoy, Drifter, Glider, Lantern, Sorter, Turnstile

TOYS = (Convoy, Glider, Drifter, Lantern, Sorter, Turnstile, Borrowed)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The toys by id for these tests, and gone after them."""
    from milkrun.core import registry

    for toy in TOYS:
        milkrun.register(f"toys/{toy.__name__}-v0", toy, gymnasium=False, force=True)
    yield
    for toy in TOYS:
        del registry._worlds[f"toys/{toy.__name__}-v0"]


def make(toy, stepping="functional", batch=(3,), **options):
    return env_class(f"toys/{toy.__name__}-v0")(batch_size=batch, stepping=stepping, seed=4, **options)


def acted(env, td):
    drawn = env.sample_actions(td)
    return td.update(drawn) if env.group_map else td.set("action", drawn)


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("stepping", ["functional", "inplace"])
def test_specs_hold(toy, stepping):
    """check_env_specs passes; what lives in foreign memory steps in place only."""
    if toy is Borrowed and stepping == "functional":
        with pytest.raises(ConfigError, match="use stepping='inplace'"):
            make(toy, stepping)
        return
    for batch in (None, [5], [2, 3]):
        env = make(toy, stepping, batch)
        check_env_specs(env, break_when_any_done="both")
        check_env_specs(env, seed=1)


@pytest.mark.parametrize("toy", TOYS[:-1])
def test_both_steppings_give_the_same_bits(toy):
    """Forty steps with automatic resets: every key of functional and in-place stepping is equal."""
    apart, owned = make(toy), make(toy, "inplace")
    a, b = apart.reset(), owned.reset()
    ended = 0
    for _ in range(40):
        assert_same(a, b)
        (done, a), (done_owned, b) = (
            apart.step_and_maybe_reset(acted(apart, a)),
            owned.step_and_maybe_reset(acted(owned, b)),
        )
        assert_same(done, done_owned)
        ended += int(done["next", "done"].sum())
    assert ended > 5 or toy is Sorter


@pytest.mark.parametrize("toy", [Convoy, Lantern])
def test_rollouts_carry_the_hidden_state(toy):
    """TorchRL's own step_mdp takes state that no agent sees from "next", not from the root."""
    env = make(toy, batch=(4,))
    state = "at" if toy is Convoy else "lit"
    rolled = env.rollout(9, policy=lambda td: acted(env, td))
    assert rolled.shape[1] > 1
    assert torch.equal(rolled["hidden", state][:, 1:], rolled["next", "hidden", state][:, :-1])
    assert not torch.equal(rolled["hidden", state][:, 1], rolled["hidden", state][:, 0])


def test_groups_see_act_and_earn_under_their_names():
    """A truck and two drones: nested observations, masks, actions and rewards; the critic's state at the root."""
    env = make(Convoy)
    assert env.group_map == {"truck": ["truck_0"], "drone": ["drone_0", "drone_1"]}
    check_marl_grouping(env.group_map, ["truck_0", "drone_0", "drone_1"])
    td = env.reset()
    at = td["hidden", "at"]
    assert torch.equal(td["truck", "observation"][..., 0], at[:, :1].float())
    assert torch.equal(td["drone", "observation"][..., 0], at[:, 1:].float())
    assert torch.equal(td["state"], at.float())
    assert td["truck", "action_mask"].shape == (3, 1, 4) and td["drone", "action_mask"].shape == (3, 2, 2)
    td["truck", "action"] = torch.tensor([[3], [0], [1]])
    td["drone", "action"] = torch.tensor([[1, 0], [0, 0], [1, 1]])
    before = checksums(td)
    following = env.step(td)["next"]
    assert (following["hidden", "at"] - at).tolist() == [[3, 1, 0], [0, 0, 0], [1, 1, 1]]
    assert following["truck", "reward"].tolist() == [[[4.0]], [[0.0]], [[3.0]]]
    assert following["drone", "reward"].tolist() == [[[4.0], [4.0]], [[0.0], [0.0]], [[3.0], [3.0]]]
    assert checksums(td.exclude("next")) == before
    assert set(env.action_keys) == {("truck", "action"), ("drone", "action")}
    onward = env.step_and_maybe_reset(td.exclude("next"))[1]
    assert ("drone", "reward") not in set(onward.keys(True)) and ("drone", "action") in set(onward.keys(True))


def test_a_group_without_actions_is_named():
    """A missing or misshapen group action is a ShapeError with its key."""
    env = make(Convoy)
    td = acted(env, env.reset())
    with pytest.raises(ShapeError, match=r"lacks \('drone', 'action'\)"):
        env.step(td.exclude(("drone", "action")))
    td["drone"].batch_size = [3]
    td["drone", "action"] = torch.zeros((3, 3), dtype=torch.int64)
    with pytest.raises(ShapeError, match=r"\('drone', 'action'\) must have the shape \(3, 2\), not \(3, 3\)"):
        env.step(td)


def test_draws_of_groups_are_allowed():
    """A thousand joint draws obey the masks of every agent."""
    env = make(Convoy, batch=(1000,))
    td = env.reset()
    for _ in range(3):
        td = acted(env, td)
        for group in env.group_map:
            chosen = td[group, "action_mask"].gather(-1, td[group, "action"][..., None])
            assert chosen.all()
        td = env.step(td)["next"]


def test_images_follow_the_state_of_their_own_row():
    """The image of a stepped or reset row is that of its state, 10 lit + goal, in any batch."""
    env = make(Lantern, batch=(4,))
    td = env.reset()
    for _ in range(12):
        expected = 10 * td["hidden", "lit"] + td["hidden", "goal"]
        assert torch.equal(td["image"].float().mean((1, 2)), expected.float())
        td = env.step_and_maybe_reset(acted(env, td))[1]
    assert td["hidden", "stream"][:, 2].max() > 0
    assert env.step(acted(env, td[1:3]))["next", "image"].shape == (2, 8, 8)


def test_hidden_instances_can_be_given():
    """Lantern's goal stands under "hidden": reset(td) plays it again, also from the root of a TensorDict."""
    env = make(Lantern, batch=(4,))
    td = env.reset()
    goals = td["hidden", "goal"]
    assert torch.equal(env.reset(td)["hidden", "goal"], goals)
    bare = TensorDict({"goal": goals + 1}, [4])
    assert torch.equal(env.reset(bare)["hidden", "goal"], goals + 1)


def test_scratch_serves_several_threads():
    """A world with scratch gives the same rows on one thread and on two."""
    one, two = make(Sorter, batch=(64,), threads=1), make(Sorter, batch=(64,), threads=2)
    td = acted(one, one.reset())
    assert_same(one.step(td.copy())["next"], two.step(td.copy())["next"])


def test_a_mask_of_size_0_is_no_key():
    """Neither at the root nor under "hidden", neither in a TensorDict nor in a spec."""
    for stepping in ("functional", "inplace"):
        env, plain = make(Drifter, stepping), make(Glider, stepping)
        assert set(env.reset().keys(True)) == set(plain.reset().keys(True))
        assert set(env.observation_spec.keys(True)) == set(plain.observation_spec.keys(True))


def test_worlds_without_tasks_or_starts_say_so():
    """get_reward and starts need a task and a depot."""
    env = make(Glider)
    td = env.reset()
    with pytest.raises(ConfigError, match="Glider has no task"):
        env.get_reward(td, torch.zeros((3, 2), dtype=torch.int64))
    with pytest.raises(ConfigError, match="Glider has no start nodes"):
        env.get_num_starts(td)
    with pytest.raises(ConfigError, match="no generator apart"):
        _ = env.generator


def test_a_row_that_does_not_move_shows_what_it_showed():
    """Illegal actions of all agents: views are carried, not left to whatever stood in fresh memory."""
    env = make(Convoy, batch=(64,))
    td = env.reset()
    td = env.step(acted(env, td))["next"]
    before = {group: td[group, "observation"].clone() for group in env.group_map}
    state = td["state"].clone()
    for group in env.group_map:
        td[group, "action"] = torch.full(td[group].batch_size, 99)
    after = env.step(td)["next"]
    assert torch.equal(after["state"], state)
    assert all(torch.equal(after[group, "observation"], seen) for group, seen in before.items())
