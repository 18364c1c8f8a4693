"""Handles of a world: `Envs` over them steps the world in one call a turn."""

import numpy as np
import pytest

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.compat.dat import Envs, handles
from milkrun.core.errors import Closed, ConfigError, IllegalAction, ResetNeeded, ShapeError
from milkrun.core.world import World
from tests.api.worker_envs import Script
from tests.core.toys import Lantern

CVRP = "milkrun/CVRP-v0"
KEYS = {"num_loc": 5, "seed": 3}


def cvrp(rows=6, **options):
    return milkrun.make(CVRP, rows, **KEYS, **options)


def numbers(given):
    """The result of a call as plain numbers."""
    if isinstance(given, dict):
        given = list(given.values())
    return [numbers(part) for part in given] if isinstance(given, (list, tuple)) else np.asarray(given).tolist()


def same(ours, theirs):
    """Equal to the bit, dtype and keys included."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


def test_envs_over_handles_is_the_world_of_that_seed():
    """Six rows, 60 turns over several ends: every observed field, the mask, rewards and ends to the bit."""
    world = cvrp()
    world.reset()
    ends = turns_of_reset = 0
    with Envs(6, handles(cvrp())) as envs:
        states = envs.reset()
        for t in range(60):
            seen = world.observe()
            assert seen.keys() - states.keys() == {"max_length"}  # infinite: no limit to observe
            for name, state in states.items():
                assert state.tobytes() == seen[name].tobytes(), name
            actions = world.sample_actions(1, t)
            due = world.terminated | world.truncated
            world.step(actions)
            states, rewards, done = envs.step(actions)
            assert rewards.dtype == np.float64 and rewards.tolist() == world.reward.tolist()
            assert envs.terminated.tolist() == world.terminated.tolist()
            assert done.tolist() == (world.terminated | world.truncated).tolist()
            assert envs.reset_turn.tolist() == due.tolist()
            assert (rewards[due] == 0).all() and not done[due].any()
            ends, turns_of_reset = ends + done.sum(), turns_of_reset + due.sum()
    assert ends > 12 and turns_of_reset > 12


def test_returned_arrays_are_never_changed():
    """States, rewards, ends and infos of ten turns keep their values through fifty more."""
    world, kept, values = cvrp(), [], []
    with Envs(6, handles(world)) as envs:
        kept.append(envs.reset())
        values.append(numbers(kept[-1]))
        for t in range(60):
            given = [*envs.step(world.sample_actions(1, t)), envs.terminated, envs.infos]
            if t < 10:
                kept.append(given)
                values.append(numbers(given))
    assert [numbers(given) for given in kept] == values


def test_a_turn_is_one_call_of_the_world(monkeypatch):
    """Forty turns with several ends: forty steps of all rows, and one explicit reset."""
    calls = []
    step, reset = World.step, World.reset

    def counted_step(self, actions, rows=None):
        calls.append(("step", rows))
        step(self, actions, rows)

    def counted_reset(self, rows=None, **keywords):
        calls.append(("reset", rows))
        reset(self, rows, **keywords)

    monkeypatch.setattr(World, "step", counted_step)
    monkeypatch.setattr(World, "reset", counted_reset)
    world = cvrp()
    ends = 0
    with Envs(6, handles(world)) as envs:
        envs.reset()
        for t in range(40):
            ends += envs.step(world.sample_actions(1, t))[2].sum()
    assert ends > 6
    assert calls == [("reset", None)] + [("step", None)] * 40


def test_the_ignored_action_changes_nothing():
    """Two worlds that differ only in the actions of reset turns, legal or not, are equal to the bit."""
    one, two = cvrp(), cvrp()
    ignored = 0
    with Envs(6, handles(one)) as first, Envs(6, handles(two)) as second:
        first.reset(), second.reset()
        for t in range(60):
            actions = one.sample_actions(1, t)
            due = first.terminated | first.truncated
            mine, other = first.step(actions), second.step(np.where(due, 4, actions))
            assert all(same(a, b) for a, b in zip(mine, other))
            ignored += due.sum()
    assert ignored > 12


def test_an_explicit_reset_after_an_end_starts_the_next_episode():
    """A row has ended: after reset() the first call is a step, with the rewards of Gymnasium's rows."""
    world = cvrp(2)
    with Envs(2, handles(world)) as envs:
        envs.reset(seed=11)
        t = 0
        while not envs.terminated.any():
            envs.step(world.sample_actions(1, t))
            t += 1
        envs.reset(seed=11)
        _, rewards, done = envs.step([1, 2])
        assert (rewards < 0).all() and not done.any() and not envs.reset_turn.any()
        for row, action in enumerate([1, 2]):
            alone = MilkrunEnv(CVRP, num_loc=5)
            alone.reset(seed=11 + row)
            assert alone.step(action)[1] == rewards[row]


def test_seeds_are_offset_by_the_row_or_given_one_each():
    """reset(seed=s) gives row i the episode of MilkrunEnv.reset(seed=s + i)."""
    with Envs(3, handles(cvrp(3))) as envs:
        for given, seeds in [(20, [20, 21, 22]), ([9, 4, 9], [9, 4, 9])]:
            states = envs.reset(given)
            for row, seed in enumerate(seeds):
                obs, _ = MilkrunEnv(CVRP, num_loc=5).reset(seed=seed)
                assert same({key: part[row] for key, part in states.items()}, obs)


def test_states_and_infos_are_those_of_gymnasium():
    """Flat states and infos, row by row, of a VectorEnv with the same seeds; states lie in their space."""
    vec = MilkrunVectorEnv(4, CVRP, num_loc=5, layout="flat")
    world = milkrun.make(CVRP, 4, num_loc=5)
    ends = 0
    with Envs(4, handles(world, layout="flat")) as envs:
        assert envs.observation_space == vec.single_observation_space and envs.action_space == vec.single_action_space
        theirs, their_infos = vec.reset(seed=5)
        ours = envs.reset(seed=5)
        for t in range(50):
            assert same(ours, theirs)
            assert envs.observation_space.contains(ours[0])
            for row, info in enumerate(envs.infos):
                here = {key for key in their_infos if not key.startswith("_") and their_infos[f"_{key}"][row]}
                added = {"reset_turn", "terminal_observation", "TimeLimit.truncated"}
                assert info.keys() - added == here
                assert all(np.array_equal(info[key], their_infos[key][row]) for key in here)
                if envs.terminated[row]:
                    assert same(info["terminal_observation"], ours[row]) and info["TimeLimit.truncated"] is False
                    ends += 1
                assert info.get("reset_turn", False) is bool(envs.reset_turn[row])
            actions = world.sample_actions(2, t)
            theirs, _, _, _, their_infos = vec.step(actions)
            ours, *_ = envs.step(actions)
    assert ends > 4


def test_truncation_is_reported():
    """max_steps=2: both rows are truncated on the second turn."""
    with Envs(2, handles(cvrp(2, max_steps=2))) as envs:
        envs.reset()
        envs.step([1, 1])
        envs.step([2, 2])
        assert (envs.terminated.tolist(), envs.truncated.tolist()) == ([False, False], [True, True])
        assert [info["TimeLimit.truncated"] for info in envs.infos] == [True, True]
        assert [info["episode_steps"] for info in envs.infos] == [2, 2]


def test_an_image_world_returns_its_image():
    """The primary view alone: 10 times the lit lamps plus the goal; earlier states keep their values."""
    world = Lantern(2, seed=1)
    with Envs(2, handles(world)) as envs:
        first = envs.reset()
        goals = world.goal.tolist()
        second, *_ = envs.step([1, 2])
        assert first.shape == (2, 8, 8) and [image[0, 0] for image in first] == goals
        assert [image[7, 7] for image in second] == [10 + goals[0], 20 + goals[1]]


def test_rewards_are_those_before_rounding():
    """TSPD has float64 rewards: `Envs` and a single handle return them without rounding to float32."""
    world, twin = (milkrun.make("milkrun/TSPD-v0", 4, seed=3, num_nodes=6) for _ in range(2))
    row, rounded = handles(twin)[2], 0
    twin.reset()
    with Envs(4, handles(world)) as envs:
        envs.reset()
        for t in range(6):
            actions = world.sample_actions(1, t)
            _, rewards, _ = envs.step(actions)
            assert rewards.dtype == np.float64 and rewards.tolist() == world.reward_exact.tolist()
            assert row.step(actions[2])[1] == rewards[2]
            rounded += (rewards != world.reward).sum()
    assert rounded > 6


def test_a_handle_renders_only_its_own_row():
    """64 pictures: a reset or step of one handle renders one, a turn of `Envs` renders each once."""
    world = Lantern(64, seed=1)
    rows = handles(world)
    assert world.looks.sum() == 0
    for k, row in enumerate(rows):
        obs, _ = row.reset()
        assert (obs == world.goal[k]).all() and world.looks.sum() == k + 1
    obs, *_ = rows[7].step(1)
    assert (obs == 10 + world.goal[7]).all() and world.looks.sum() == 65 and world.looks[7] == 2
    flat = handles(Lantern(3, seed=1), layout="flat")
    assert [row.reset()[0].tolist() for row in flat] == [[float(row.world.goal[row.row])] * 64 for row in flat]
    assert flat[1].step(1)[0].tolist() == [10.0 + flat[1].world.goal[1]] * 64
    world = Lantern(64, seed=1)
    with Envs(64, handles(world)) as envs:
        envs.reset()
        envs.step([1] * 64)
        assert world.looks.tolist() == [2] * 64


def test_a_handle_alone_is_a_gymnasium_environment_of_its_row():
    """Row 1 of three, played beyond its end, equals MilkrunEnv; the other rows keep every bit."""
    world = cvrp(3)
    row, alone = handles(world)[1], MilkrunEnv(CVRP, num_loc=5)
    world.reset(seed=8)
    before = world.state_dict([0, 2])
    ends = 0
    (obs, info), (obs2, info2) = row.reset(seed=4), alone.reset(seed=4)
    assert same(obs, obs2) and same(info["action_mask"], info2["action_mask"])
    for t in range(40):
        action = int(alone.world.sample_actions(3, t)[0])
        obs, *rest, info = row.step(action)
        obs2, *rest2, info2 = alone.step(action)
        assert same(obs, obs2) and rest == rest2 and same(info, info2)
        if rest[1]:
            (obs, _), (obs2, _) = row.reset(), alone.reset()
            assert same(obs, obs2)
            ends += 1
    assert ends > 2
    assert same(world.state_dict([0, 2]), before)
    with pytest.raises(ShapeError, match="shape"):
        row.step([1])


def test_handles_that_are_not_all_rows_in_order_are_refused():
    """Two threads on one world would write to the same buffers."""
    rows = handles(cvrp(3))
    for items in (rows[::-1], rows[:2], [*rows[:2], Script()]):
        with pytest.raises(ShapeError, match="handles"):
            Envs(len(items), items)


def test_single_rows_of_different_worlds_run_in_threads():
    """A handle of each of two worlds equals rows 0 and 1 of a world with both."""
    (one,), (two,) = handles(cvrp(1), layout="flat"), handles(cvrp(1, first_row=1), layout="flat")
    whole = milkrun.make(CVRP, 2, **KEYS)
    whole.reset()
    with Envs(2, [one, two]) as envs:
        envs.reset()
        whole.step([1, 2])
        assert envs.step(np.array([1, 2]))[1].tolist() == whole.reward.tolist()


def test_a_refused_action_changes_nothing():
    """The world's errors are propagated, and the turn can be repeated."""
    world = cvrp(2, illegal="raise")
    with Envs(2, handles(world)) as envs:
        with pytest.raises(ResetNeeded):
            envs.step([1, 1])
        envs.reset()
        before = world.state_dict()
        with pytest.raises(IllegalAction, match="row 1"):
            envs.step([1, 0])
        with pytest.raises(ShapeError):
            envs.step(np.array([1.5, 1.5]))
        assert same(world.state_dict(), before)
        assert envs.step([1, 1])[1].tolist() == world.reward.tolist()
    with pytest.raises(Closed):
        world.reset()


def test_the_world_must_reset_on_the_next_step():
    for mode in ("same_step", "disabled"):
        with pytest.raises(ConfigError, match=mode):
            handles(cvrp(2, autoreset=mode))
