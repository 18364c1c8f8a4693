"""The table of resets: new instances, given instances, given states, some rows; and what each leaves untouched."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import Compose, RewardSum, StepCounter, TransformedEnv

import milkrun
from milkrun.api.torchrl import CVRPEnv, TSPEnv, env_class
from milkrun.api.torchrl.generators import CVRPGenerator, get_generator
from milkrun.core.errors import BadInstance, ConfigError, ResetNeeded, ShapeError
from tests.api.torchrl_tools import (
    WORLDS,
    assert_same,
    checksums,
    leaves,
    places_in,
    random_policy,
    small,
    started,
)

STEPPINGS = ("functional", "inplace")


@pytest.mark.parametrize("id", WORLDS)
def test_full_resets_are_keyed_by_seed_row_and_count(id):
    """reset() number e gives flat row r the key (seed, r, e) and the instance that a World has under that key."""
    env = env_class(id)(batch_size=[2, 3], seed=21, **small(id))
    for e, batch in enumerate([None, 4, [3, 2], None]):
        td = env.reset(batch_size=batch)
        shape = td.batch_size
        rows = torch.arange(shape.numel())
        expected = torch.stack([torch.full_like(rows, 21), rows, torch.full_like(rows, e)], 1)
        assert torch.equal(td["hidden", "stream"].reshape(-1, 3), expected)
        world = milkrun.make(id, shape.numel(), seed=21, **small(id))
        for _ in range(e + 1):
            world.reset()
        places, field = places_in(td, id)
        assert np.array_equal(places.flatten(0, len(shape) - 1).numpy(), getattr(world, field))
        assert not td["done"].any() and "reward" not in set(td.keys())


def test_given_instances_are_checked_by_the_reset_and_not_again(monkeypatch):
    """The first step after a reset on given instances validates the state alone, as later steps do; what is changed in
    between is refused all the same."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    instance = CVRPGenerator(num_loc=5, seed=2)(3)
    counts = []
    rules = env._stepper.checks.rules
    first_broken = rules.first_broken
    monkeypatch.setattr(rules, "first_broken", lambda at, count: counts.append(count) or first_broken(at, count))
    td = env.reset(instance.clone())
    assert counts == [env._stepper.checks.of_all]
    for _ in range(2):
        td = env.step(td.set("action", env.sample_actions(td)))["next"]
    assert counts[1:] == [env._stepper.checks.of_state] * 2
    td = env.reset(instance.clone())
    td["load"][1] = 1000
    with pytest.raises(BadInstance, match="row 1: load"):
        env.step(td.set("action", env.sample_actions(td)))
    td = env.reset(instance.clone())
    td["demand_units"][2, 1] = -1
    with pytest.raises(BadInstance, match="row 2: demand_units"):
        env.step(td.set("action", env.sample_actions(td)))


def test_seeding_starts_over_and_returns_the_next_seed():
    """set_seed puts the count back to 0, returns TorchRL's next seed, and None takes entropy."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1)
    first = env.reset()
    env.reset()
    assert env.set_seed(1, static_seed=True) == 1
    assert_same(env.reset(), first)
    assert env.set_seed(1) == CVRPEnv(num_loc=5).set_seed(1) != 1
    env.set_seed(None)
    assert not torch.equal(env.reset()["locs"], first["locs"])
    assert CVRPEnv(num_loc=5).seed != CVRPEnv(num_loc=5).seed


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_given_instances_are_played_from_the_start(stepping):
    """reset(td) of a td in mid-episode plays its instances again from t = 0 and leaves the td as it was."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1, stepping=stepping)
    start = env.reset()
    first = start.clone()
    td = env.step(start.set("action", env.sample_actions(start)))["next"].exclude("reward")
    before = checksums(td)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = env.reset(td)
    assert again is not td and checksums(td) == before
    assert_same(again.exclude("hidden"), first.exclude("hidden"))
    assert again["hidden", "stream"][:, 2].tolist() == [1, 1, 1]


def test_given_tensors_are_handed_on_where_they_fit():
    """Contiguous and expanded instance tensors are kept, as they are; strided ones are copied into order."""
    env = CVRPEnv(num_loc=5, seed=1)
    td = env.reset(batch_size=3).exclude("hidden")
    assert env.reset(td)["locs"].data_ptr() == td["locs"].data_ptr()
    wide = env.reset(td.expand(2, 3))
    assert wide["locs"].data_ptr() == td["locs"].data_ptr() and wide.batch_size == (2, 3)
    strided = td.copy().set("locs", torch.stack([td["locs"]] * 2, 1)[:, 0])
    assert env.reset(strided)["locs"].is_contiguous()
    assert_same(env.reset(strided).exclude("hidden"), env.reset(td).exclude("hidden"))


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_the_layout_of_rl4co_is_read(stepping):
    """Shares of a vehicle times its capacity are whole units; the keys of the layout go, other keys stay."""
    env = CVRPEnv(batch_size=[4], num_loc=6, capacity=31, max_demand=9, seed=3, stepping=stepping)
    data = CVRPGenerator(num_loc=6, capacity=31).generate(4, seed=3)
    assert {k: tuple(v.shape) for k, v in leaves(data).items()} == {
        "locs": (4, 6, 2),
        "depot": (4, 2),
        "demand": (4, 6),
        "capacity": (4, 1),
    }
    before, drawn = checksums(data), env.reset()
    td = env.reset(data.set("name", torch.arange(4)))
    assert_same(td.exclude("hidden", "name"), drawn.exclude("hidden"))
    assert td["name"].tolist() == [0, 1, 2, 3]
    assert "depot" not in set(td.keys()) and "demand" not in set(td.keys())
    assert checksums(data.exclude("name")) == before
    assert_same(env.reset(data).exclude("hidden"), td.exclude("hidden"))


def test_shares_that_are_no_whole_units_are_counted_in_millionths():
    """demand 0.3333 of a vehicle of 7 is no whole number: capacity 1,000,000 and 333,300 units."""
    env = CVRPEnv(num_loc=2, max_demand=1)
    data = TensorDict(
        {
            "locs": torch.rand(2, 2, 2),
            "depot": torch.rand(2, 2),
            "capacity": torch.tensor([[7.0], [7.0]]),
            "demand": torch.tensor([[0.3333, 0.5], [3 / 7, 1.0]]),
        },
        [2],
    )
    td = env.reset(data)
    assert td["capacity"].tolist() == [[1_000_000], [7]]
    assert td["demand_units"].tolist() == [[0, 333_300, 500_000], [0, 3, 7]]
    for wrong, message in ((torch.nan, "demand"), (-0.5, "demand"), (1.5, "over the capacity")):
        data["demand"][1, 0] = wrong
        with pytest.raises(BadInstance, match=f"row 1: .*{message}"):
            env.reset(data)


def test_incomplete_instances_are_refused():
    """Some instance fields and not all: ShapeError names the missing; none: new instances, other keys kept."""
    env = CVRPEnv(num_loc=5, seed=1)
    td = env.reset(batch_size=3)
    with pytest.raises(ShapeError, match="lacks 'demand_units'"):
        env.reset(td.select("locs", "capacity"))
    with pytest.raises(BadInstance, match=r"row 2: demand_units\[1\]"):
        wrong = td.clone()
        wrong["demand_units"][2, 1] = 99
        env.reset(wrong)
    bare = TensorDict({"name": torch.arange(4)}, [4])
    new = env.reset(bare)
    assert new is bare and new["name"].tolist() == [0, 1, 2, 3] and new["locs"].shape == (4, 6, 2)
    with pytest.raises(ShapeError, match=r"batch_size=5 does not go with a TensorDict of batch \[3\]"):
        env.reset(td, batch_size=5)
    with pytest.raises(ConfigError, match="reset has no keyword 'batchsize'; did you mean 'batch_size'"):
        env.reset(batchsize=3)


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_set_state_continues_or_ignores(stepping):
    """set_state=True goes on from the state in td; False draws new instances; a missing state key is named."""
    env = CVRPEnv(batch_size=[3], num_loc=5, seed=1, stepping=stepping)
    td = started(env, 2).exclude("next")
    on = env.reset(td.clone(), set_state=True)
    assert_same(on, td)
    other = CVRPEnv(batch_size=[3], num_loc=5, seed=77, stepping=stepping)
    other.reset()
    assert_same(other.step(other.reset(td.clone(), set_state=True))["next"], env.step(on)["next"])
    new = env.reset(td.clone(), set_state=False)
    assert not torch.equal(new["locs"], td["locs"]) and new["i"].sum() == 0
    with pytest.raises(ShapeError, match="lacks 'load'"):
        env.reset(td.exclude("load"), set_state=True)
    with pytest.raises(ShapeError, match="set_state=True needs"):
        env.reset(set_state=True)
    with pytest.raises(ConfigError, match="cannot go with `_reset`"):
        env.reset(td.set("_reset", torch.ones((3, 1), dtype=torch.bool)), set_state=True)


def test_an_ended_row_is_not_continued_unless_allowed():
    """set_state=True of a finished row is ResetNeeded; allow_done_after_reset=True takes it."""
    ended = started(TSPEnv(num_loc=3, seed=1), 2, batch=2)
    ended = TSPEnv(num_loc=3).step(ended)["next"]
    with pytest.raises(ResetNeeded, match="row 0 has ended"):
        TSPEnv(num_loc=3).reset(ended.clone(), set_state=True)
    assert TSPEnv(num_loc=3, allow_done_after_reset=True).reset(ended, set_state=True)["done"].all()


@pytest.mark.parametrize("id", WORLDS)
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_partial_reset_touches_no_other_row(id, stepping):
    """Rows named by `_reset` get episode + 1 and a new instance, in new tensors; all other bits stay."""
    env = env_class(id)(batch_size=[2, 3], seed=5, **small(id), stepping=stepping)
    td = started(env, 2)
    before, handed = td.clone(), checksums(td)
    kept = {key: value for key, value in leaves(td).items()}
    signal = torch.tensor([[True, False, False], [False, False, True]])
    new = env.reset(td.set("_reset", signal[..., None]))
    assert {key: value for key, value in checksums(TensorDict(kept, [2, 3])).items()} == handed
    assert_same(new[~signal], before[~signal])
    assert new["hidden", "stream"][signal].tolist() == [[5, 0, 1], [5, 5, 1]]
    world = milkrun.make(id, 6, seed=5, **small(id))
    world.reset()
    world.reset()
    places, field = places_in(new, id)
    assert np.array_equal(places[signal].numpy(), getattr(world, field)[[0, 5]])
    assert leaves(new).get("i", leaves(new).get(("hidden", "i")))[signal].sum() == 0
    none = env.reset(new.clone().set("_reset", torch.zeros((2, 3), dtype=torch.bool)))
    assert_same(none, new)


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_tensors_handed_out_stay_as_they_were(stepping):
    """Through a hundred automatic resets no tensor of any earlier TensorDict changes."""
    env = CVRPEnv(batch_size=[4], num_loc=3, seed=5, stepping=stepping)
    td, seen, resets = env.reset(), [], 0
    while resets < 100:
        td["action"] = env.sample_actions(td)
        stepped, td = env.step_and_maybe_reset(td)
        resets += int(stepped["next", "done"].sum())
        seen.append((stepped, checksums(stepped)))
    assert all(checksums(stepped) == kept for stepped, kept in seen)


def test_given_instances_give_way_to_new_ones_in_partial_resets():
    """A row that played a given instance gets a drawn one with its next episode, in both steppings alike."""
    results = []
    for stepping in STEPPINGS:
        env = CVRPEnv(batch_size=[2], num_loc=4, seed=5, stepping=stepping)
        td = env.reset(get_generator("cvrp", num_loc=4).generate(2, seed=99))
        td["_reset"] = torch.tensor([[False], [True]])
        results.append(env.reset(td))
    assert_same(*results)
    assert results[0]["hidden", "stream"].tolist() == [[5, 0, 0], [5, 1, 1]]


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_reset_that_fails_changes_nothing(stepping):
    """After a reseeding, too: rows go on as they were, can be copied, and the next reset is the first of its seed."""
    env, plain = (CVRPEnv(num_loc=5, batch_size=[2], seed=1, stepping=stepping) for _ in range(2))
    td = env.reset()
    bad = td.select("locs", "demand_units", "capacity", "n_nodes").clone()
    bad["demand_units"] += 10**6
    env.set_seed(5)
    plain.set_seed(5)
    with pytest.raises(BadInstance, match="row 0: demand_units"):
        env.reset(bad)
    td["action"] = env.sample_actions(td)
    assert copy.deepcopy(env).step(td.copy())["next", "hidden", "stream"].tolist() == [[1, 0, 0], [1, 1, 0]]
    assert_same(env.reset(), plain.reset())


def test_a_law_that_refuses_changes_nothing_in_place():
    """Rows keep their keys in a full reset; in one of a single row that row still plays the instance it was given."""
    fails = False

    def law(rng, count):
        if fails:
            raise OSError("no more places")
        return rng.random((count, 2))

    env = TSPEnv(num_loc=5, batch_size=[2], seed=1, stepping="inplace", loc_distribution=law)
    td = env.reset()
    for signal in (None, TensorDict({"_reset": torch.tensor([[True], [False]])}, [2])):
        before, fails = env._owner.save(), True
        with pytest.raises(OSError, match="no more places"):
            env.reset(signal)
        after, fails = env._owner.save(), False
        assert all(np.array_equal(after[key], before[key]) for key in ("stream", "given", "locs", "visited"))
        env.reset(td.select("locs"))


def test_missing_views_are_recomputed_or_required():
    """A missing picture is drawn again in rows that go on; a view that only a step writes is required, unless every row
    begins."""
    env = env_class("milkrun/Tracking-v0")(batch_size=[2], seed=1, size=16)
    td = env.reset()
    td["action"] = env.sample_actions(td)
    td = env.step(td)["next"].exclude("reward").set("_reset", torch.tensor([[True], [False]]))
    assert_same(env.reset(td.exclude("image")), env.reset(td.copy()))
    env = env_class("milkrun/TruckDrone-v0")(batch_size=[2], seed=1)
    td = env.reset().exclude("state")
    with pytest.raises(ShapeError, match="lacks 'state'"):
        env.reset(td.copy().set("_reset", torch.tensor([[True], [False]])))
    assert env.reset(td.copy().set("_reset", torch.tensor([[True], [True]])))["state"].any(1).all()


def test_wrong_signals_are_refused():
    """`_reset` must be bool with the batch of its td."""
    env = CVRPEnv(num_loc=4, seed=5)
    td = env.reset(batch_size=3)
    for wrong in (torch.ones((3, 1)), torch.ones((3, 1), dtype=torch.int64), torch.ones((3, 2), dtype=torch.bool)):
        with pytest.raises(ShapeError, match=r"rows are named by bool of shape \(3, 1\)"):
            env.reset(td.copy().set("_reset", wrong))
    with pytest.raises(ShapeError, match=r"lacks \('hidden', "):
        env.reset(td.exclude("hidden").set("_reset", torch.tensor([[True], [False], [False]])))


@pytest.mark.parametrize("stepping", STEPPINGS)
def test_transformed_environments_reset_rows_that_ended(stepping):
    """Behind transforms TorchRL passes only which rows ended: they begin new episodes, all keys different."""
    env = CVRPEnv(batch_size=[3], num_loc=4, seed=5, stepping=stepping)
    rolled = TransformedEnv(env, Compose(RewardSum(), StepCounter())).rollout(
        60, policy=random_policy(env), break_when_any_done=False
    )
    streams, done = rolled["hidden", "stream"], rolled["next", "done"][..., 0]
    assert (streams[:, 1:, 2] > streams[:, :-1, 2]).equal(done[:, :-1])
    assert torch.equal(streams[..., 1], torch.arange(3)[:, None].expand(3, 60))
    assert torch.equal(rolled["step_count"][:, 1:] == 0, done[:, :-1, None])
    fresh = rolled["locs"][:, 1:][done[:, :-1]]
    assert len(torch.unique(fresh.reshape(len(fresh), -1), dim=0)) == len(fresh) > 10


def test_transformed_environments_play_given_instances():
    """TransformedEnv.reset(td) with all instance fields plays them; set_state is for the environment itself."""
    env = CVRPEnv(batch_size=[3], num_loc=4, seed=5)
    td = env.reset()
    transformed = TransformedEnv(CVRPEnv(batch_size=[3], num_loc=4, seed=6), RewardSum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(transformed.reset(td.clone())["locs"], td["locs"])
    assert transformed.reset(batch_size=[3])["locs"].shape == (3, 5, 2)
