"""Functional stepping: any TensorDict can be stepped, nothing given is written, and rows are the World's to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import EnvBase
from torchrl.envs.utils import step_mdp

import milkrun
from milkrun.api.torchrl import CVRPEnv, TSPEnv, env_class
from milkrun.core.errors import ConfigError, IllegalAction, ShapeError
from tests.api.torchrl_tools import SHORT, WORLDS, assert_same, bits, checksums, leaves, random_policy, small, started

STEPPINGS = ("functional", "inplace")


@pytest.mark.parametrize("id", WORLDS)
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_rows_are_those_of_the_world(id, stepping):
    """Three episodes of seven rows: rewards, ends, masks and states are those of a World with the same keys."""
    env = env_class(id)(batch_size=7, stepping=stepping, seed=11, **small(id), **SHORT.get(id, {}))
    world = milkrun.make(id, 7, seed=11, autoreset="disabled", config=env.config)
    world.reset()
    td, episodes = env.reset(), np.zeros(7, int)
    names = [s.name for s in (*env._stepper.instance, *env._stepper.carried)]
    while episodes.min() < 3:
        td["action"] = env.sample_actions(td)
        world.step(td["action"].numpy())
        stepped, td = env.step_and_maybe_reset(td)
        following = stepped["next"]
        for name in (*names, "reward", "stream"):
            mine = following.get(name, following["hidden"].get(name, None))
            assert bits(mine.reshape(-1)) == getattr(world, name).tobytes(), name
        ended = world.terminated | world.truncated
        assert np.array_equal(following["done"][:, 0].numpy(), ended)
        episodes += ended
        if ended.any():
            world.reset(ended)


@pytest.mark.parametrize("id", WORLDS)
def test_a_rollout_is_manual_steps(id):
    """rollout(T) equals T calls of step with step_mdp and resets between, the hidden state included."""
    env = env_class(id)(batch_size=[4], seed=2, **small(id), **SHORT.get(id, {}))
    rolled = env.rollout(25, policy=random_policy(env), break_when_any_done=False)
    env.set_seed(2)
    td, steps = env.reset(), []
    for _ in range(25):
        td = env.step(td.set("action", env.sample_actions(td)))
        steps.append(td.copy())
        td = step_mdp(td, exclude_action=False, done_keys=["done", "terminated", "truncated"])
        if td["done"].any():
            td["_reset"] = td["done"].clone()
            td = env.reset(td)
    assert_same(rolled, torch.stack(steps, 1))
    assert rolled["hidden", "stream"][..., 2].max() >= 2


class Stock(CVRPEnv):
    """TorchRL's own step and step_and_maybe_reset around our `_step` and `reset`."""

    step = EnvBase.step
    step_and_maybe_reset = EnvBase.step_and_maybe_reset


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_native_step_and_maybe_reset_is_the_stock_one(stepping):
    """Over 500 steps both return the same keys and bits, with keys of others at the root and nested."""
    native = CVRPEnv(batch_size=[3], num_loc=5, seed=4, stepping=stepping)
    stock = Stock(batch_size=[3], num_loc=5, seed=4, stepping=stepping)
    a, b = native.reset(), stock.reset()
    for k in range(500):
        for env, td in ((native, a), (stock, b)):
            td["action"] = env.sample_actions(td)
            td["logits"] = torch.full((3, 2), float(k))
            td["memory"] = TensorDict({"state": torch.full((3, 2), float(k))}, [3])
        (done_a, a), (done_b, b) = native.step_and_maybe_reset(a), stock.step_and_maybe_reset(b)
        assert_same(done_a, done_b)
        assert_same(a, b)


def test_a_partial_reset_treats_keys_of_others_as_torchrl_does():
    """Rows that begin a new episode have 0 in foreign keys; other rows keep them, as under TorchRL's own reset."""
    env = CVRPEnv(batch_size=[4], num_loc=5, seed=4)
    ours, theirs = started(env, 2), None
    ours["memory"] = TensorDict({"state": torch.arange(1.0, 9.0).reshape(4, 2)}, [4])
    ours["_reset"] = torch.tensor([[True], [False], [False], [True]])
    theirs = EnvBase.reset(env, ours.clone(), select_reset_only=True)
    ours = env.reset(ours, select_reset_only=True)
    assert ours["memory", "state"].tolist() == [[0, 0], [3, 4], [5, 6], [0, 0]]
    for key in ("action", ("memory", "state")):
        assert torch.equal(ours[key], theirs[key])
    assert "_reset" not in set(ours.keys()) | set(theirs.keys())


@pytest.mark.parametrize("id", WORLDS)
def test_any_arrangement_of_rows_steps_alike(id):
    """A clone, a permutation, a [2, 3] batch and strided tensors give the same rows, and inputs keep their bits."""
    env = env_class(id)(batch_size=[6], seed=5, **small(id))
    td = started(env, 2)
    before, order = checksums(td), torch.tensor([3, 0, 5, 1, 4, 2])
    expected = env.step(td.copy())["next"]
    assert_same(env.step(td.clone())["next"], expected)
    assert_same(env.step(td[order])["next"], expected[order])
    assert_same(env.step(td.reshape(2, 3))["next"], expected.reshape(2, 3))
    strided = td.copy()
    for key, value in leaves(td).items():
        strided[key] = torch.stack([torch.zeros_like(value), value], 1)[:, 1]
        assert not strided[key].is_contiguous()
    assert_same(env.step(strided)["next"], expected)
    assert env.step(td[0])["next"].batch_size == ()
    assert_same(env.step(td[0])["next"], expected[0])
    assert checksums(td) == before


@pytest.mark.parametrize("id", WORLDS)
def test_expanded_rows_share_their_instance(id):
    """td.unsqueeze(1).expand(B, S) and td.expand(S, B) step like copies, and hand the very instance memory on."""
    env = env_class(id)(batch_size=[3], seed=5, **small(id))
    td = started(env, 2)
    expected = env.step(td.copy())["next"]
    wide, tall = td.unsqueeze(1).expand(3, 4), td.expand(4, 3)
    spread = env.step(wide)["next"]
    for s in range(4):
        assert_same(spread[:, s], expected)
        assert_same(env.step(tall)["next"][s], expected)
    for key in [s.key for s in env._stepper.instance]:
        assert spread[key].data_ptr() == td[key].data_ptr()
        assert spread[key] is wide[key]
    assert ((3, 4), (False, True)) in env._stepper.checks._shared  # the rows know their instance; nothing was copied
    for s, action in enumerate(env.sample_actions(spread).unbind(1)):
        again = env.step(expected.copy().set("action", action))["next"]
        acted = env.step(spread.copy().set("action", env_actions(spread, action)))["next"]
        assert_same(acted[:, s], again)


def env_actions(td, action):
    return action.unsqueeze(1).expand(td.batch_size)


def test_half_expanded_instances_are_still_right():
    """A TensorDict with some instance fields expanded and others copied steps as the copied one."""
    env = CVRPEnv(batch_size=[3], num_loc=6, seed=5)
    td = started(env, 1).expand(2, 3)
    mixed = td.copy().set("locs", td["locs"].clone())
    assert_same(env.step(mixed)["next"], env.step(td.copy())["next"])


@pytest.mark.parametrize("id", WORLDS)
def test_the_state_spec_is_what_a_step_reads(id):
    """A td of the keys of state_spec and the action can be stepped, and none of these keys can be left out."""
    env = env_class(id)(batch_size=[3], seed=5, **small(id))
    td = started(env, 2)
    keys = list(env.state_spec.keys(True, True))
    assert_same(env.step(td.select(*keys, "action"))["next"], env.step(td.copy())["next"])
    for key in keys:
        with pytest.raises(ShapeError, match="lacks"):
            env.step(td.exclude(key))


def test_the_result_is_fresh_and_instances_are_the_same_objects():
    """No tensor of "next" shares memory with the input, but the instance fields, which are the very objects."""
    env = CVRPEnv(batch_size=[3], num_loc=6, seed=5)
    td = started(env, 1)
    following = env.step(td)["next"]
    instance = {s.name for s in env._stepper.instance}
    assert instance == {"locs", "demand_units", "capacity", "max_length", "n_nodes"}
    for key, value in leaves(following).items():
        if key in instance or key == ("hidden", "stream"):
            assert value is td[key]
        elif key != "reward":
            assert value.data_ptr() != td[key].data_ptr()


def test_a_locked_td_is_left_alone():
    """Of a locked td the result is a shallow copy with "next"."""
    env = TSPEnv(batch_size=[2], num_loc=6, seed=5)
    td = started(env, 1).lock_()
    stepped = env.step(td)
    assert stepped is not td and "next" not in set(td.keys())
    assert stepped["locs"] is td["locs"]
    assert not stepped.is_locked


def test_keys_and_shapes_are_those_of_the_spec():
    """The table of routing: current_node, i, capacity and flags are columns, the rest is (B, ...)."""
    td = started(CVRPEnv(batch_size=[5], num_loc=6), 1)
    following = CVRPEnv(num_loc=6).step(td)["next"]
    shapes = {key: tuple(value.shape) for key, value in leaves(following).items()}
    assert shapes == {
        "locs": (5, 7, 2),
        "n_nodes": (5,),
        "demand_units": (5, 7),
        "capacity": (5, 1),
        "max_length": (5,),
        "current_node": (5, 1),
        "visited": (5, 7),
        "tour_length": (5,),
        "trip_length": (5,),
        "load": (5,),
        "i": (5, 1),
        "action_mask": (5, 7),
        "reward": (5, 1),
        "done": (5, 1),
        "terminated": (5, 1),
        "truncated": (5, 1),
        ("hidden", "stream"): (5, 3),
    }
    assert following.device == td.device == torch.device("cpu")


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_finished_rows_change_nothing(stepping):
    """A row that has ended keeps its state and flags, earns 0, and allows index 0 only."""
    env = TSPEnv(batch_size=[2], num_loc=4, seed=1, stepping=stepping)
    td = started(env, 3)
    last = env.step(td)["next"]
    assert last["done"].all() and last["action_mask"].tolist() == [[True, False, False, False]] * 2
    again = env.step(last.copy().set("action", torch.tensor([2, 0])))["next"]
    assert again["reward"].tolist() == [[0.0], [0.0]]
    assert_same(again.exclude("reward"), last.exclude("reward"))


def test_illegal_actions_do_nothing_or_raise():
    """By default an illegal action only counts as a step; with illegal="raise" row, action and reason are named."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    td = env.reset()
    tried = env.step(td.copy().set("action", torch.tensor([0, -1, 99])))["next"]
    assert tried["i"].tolist() == [[1]] * 3 and tried["reward"].abs().sum() == 0
    assert torch.equal(tried["visited"], td["visited"])
    strict = CVRPEnv(batch_size=[3], num_loc=5, seed=1, illegal="raise")
    td = strict.step(strict.reset().set("action", torch.tensor([1, 2, 3])))["next"]
    with pytest.raises(IllegalAction, match="row 1: action 2: visited"):
        strict.step(td.set("action", torch.tensor([2, 2, 4])))
    with pytest.raises(IllegalAction, match="row 0: action 6: out of range"):
        strict.step(td.set("action", torch.tensor([6, 2, 4])))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("action", None, "lacks 'action'"),
        ("action", torch.zeros(3), "'action' must be torch.int64 on the cpu, not torch.float32"),
        ("action", torch.zeros(3, dtype=torch.bool), "'action' must be torch.int64"),
        ("action", torch.zeros((3, 1), dtype=torch.int64), r"'action' must have the shape \(3,\), not \(3, 1\)"),
        ("locs", torch.zeros((3, 6, 2), dtype=torch.float64), r"'locs' must be torch.float32 .* not torch.float64"),
        ("load", torch.zeros((3, 1), dtype=torch.int32), r"'load' must be torch.int32 of shape \(3,\) .* \(3, 1\)"),
        ("visited", torch.zeros((3, 5), dtype=torch.bool), r"'visited' .* \(3, 6\) .* \(3, 5\)"),
        ("visited", torch.zeros((3, 6), dtype=torch.uint8), "'visited' must be torch.bool .* not torch.uint8"),
        ("tour_length", torch.zeros(3, dtype=torch.float64), "'tour_length' must be torch.float32 .* torch.float64"),
        ("terminated", None, "lacks 'terminated'"),
        (("hidden", "stream"), None, r"lacks \('hidden', 'stream'\)"),
        (("hidden", "stream"), torch.zeros((3, 2), dtype=torch.int64), r"stream.* \(3, 3\) .* \(3, 2\)"),
        ("hidden", None, r"lacks \('hidden', 'stream'\)"),
    ],
)
def test_mismatched_keys_are_refused_by_name(key, value, message):
    """A missing key, or one of another dtype or shape, raises a ShapeError with the key, the expected and the given
    form."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    td = started(env, 1)
    td = td.exclude(key) if value is None else td.set(key, value)
    with pytest.raises(ShapeError, match=message):
        env.step(td)


def test_actions_of_any_integer_kind_are_taken():
    """int32 and expanded actions step as int64 ones; a gradient is no obstacle."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    td = env.reset()
    expected = env.step(td.copy().set("action", torch.tensor([4, 4, 4])))["next"]
    assert_same(env.step(td.copy().set("action", torch.tensor(4, dtype=torch.int32).expand(3)))["next"], expected)
    graded = td.copy().set("locs", td["locs"].clone().requires_grad_())
    assert_same(env.step(graded.set("action", torch.tensor([4, 4, 4])))["next"].detach(), expected)


def test_some_rows_are_stepped_where_step_says_so():
    """With `_step` the rows named move; the others stay and earn 0, in every batch and both steppings."""
    for stepping in STEPPINGS:
        env = CVRPEnv(batch_size=[2, 2], num_loc=5, seed=1, stepping=stepping)
        td = started(env, 1)
        whole = CVRPEnv(num_loc=5).step(td.copy())["next"]
        td["_step"] = torch.tensor([[True, False], [False, True]])[..., None]
        some = env.step(td)["next"]
        for at, moved in (((0, 0), True), ((0, 1), False), ((1, 0), False), ((1, 1), True)):
            if moved:
                assert_same(some[at], whole[at])
            else:
                assert some["reward"][at].item() == 0
                assert_same(some[at].exclude("reward"), td[at].exclude("_step", "action", "next"))


def test_rollouts_until_all_are_done_keep_finished_rows():
    """rollout(break_when_all_done=True) works on a batch; the last state of a row is that of its end."""
    env = CVRPEnv(batch_size=[5], num_loc=9, seed=3)
    rolled = env.rollout(60, policy=random_policy(env), break_when_all_done=True)
    done = rolled["next", "done"][..., 0]
    assert done[:, -1].all() and not done[:, -2].all()
    ends = done.int().argmax(1)
    for b, t in enumerate(ends.tolist()):
        assert rolled["next", "tour_length"][b, t] == rolled["next", "tour_length"][b, -1]


def test_a_beam_begins_with_the_greedy_solution():
    """Beam search of width 4 on TSP-20 by reindexing TensorDicts: under greedy scores its first beam is greedy."""
    env = TSPEnv(num_loc=20, seed=9)
    td = env.reset(batch_size=5)

    def scores(td):
        here = td["locs"].gather(-2, td["current_node"][..., None].expand(*td.batch_size, 1, 2))
        away = (td["locs"] - here).norm(dim=-1)
        return torch.where(td["action_mask"], -away, -torch.inf)

    greedy, beams = td, td.unsqueeze(1).expand(5, 4)
    for _ in range(20):
        greedy = env.step(greedy.set("action", scores(greedy).argmax(-1)))["next"]
        ranked = scores(beams).sort(-1, descending=True).indices
        first, second = ranked[..., 0], ranked[..., 1]
        second = torch.where(beams["action_mask"].gather(-1, second[..., None])[..., 0], second, first)
        action = torch.cat([first[:, :1], second[:, :1], first[:, 1:3]], 1)
        parents = torch.tensor([0, 0, 1, 2])
        beams = env.step(beams[:, parents].set("action", action))["next"]
    assert beams["done"].all()
    assert_same(beams[:, 0].exclude("reward"), greedy.exclude("reward"))
    assert (beams["tour_length"][:, 1:] != greedy["tour_length"][:, None]).any()


def test_forks_share_instances_and_not_streams():
    """fork(td, n) gives (n, *batch) rows with stream keys of their own; a second fork gives others again."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    td = started(env, 1)
    forked, other = env.fork(td, 4), env.fork(td, 4)
    assert forked.batch_size == (4, 3)
    assert forked["locs"].data_ptr() == td["locs"].data_ptr()
    streams = torch.cat([td["hidden", "stream"][None], forked["hidden", "stream"], other["hidden", "stream"]])
    assert len(torch.unique(streams.reshape(-1, 3), dim=0)) == 27
    assert_same(env.step(forked)["next"][2].exclude("hidden"), env.step(td)["next"].exclude("hidden"))
    with pytest.raises(ConfigError, match="n=0"):
        env.fork(td, 0)
