"""`Workers` and `Aligned`: commands and results for every kind of environment; each start method once."""

import os
import threading
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from milkrun.api.workers import Aligned, Workers
from milkrun.core.errors import ConfigError, ResetNeeded, ShapeError
from tests.api import worker_envs as envs


def test_each_step_is_one_command_to_each_worker_that_is_named():
    """Over a reset of all and two partial calls each environment got just that, seeds and options included."""
    with Workers([envs.Script] * 3, "fork") as pool:
        pool.reset(seeds=10, options={"level": 2})
        pool.step([0, 1, 2])
        pool.step(np.array([2, 1]), ids=[2, 0])
        pool.reset(ids=[1], seeds=[99], options=[None])
        begin = [("reset", 10 + i, {"level": 2}) for i in range(3)]
        assert pool.call("log") == [
            [begin[0], ("step", 0), ("step", 1)],
            [begin[1], ("step", 1), ("reset", 99, None)],
            [begin[2], ("step", 2), ("step", 2)],
        ]


def test_an_int_seed_is_offset_by_the_worker_not_by_its_place():
    """reset(ids=[2, 0], seeds=10) gives worker 2 the seed 12 and worker 0 the seed 10."""
    with Workers([envs.Script] * 3, "fork") as pool:
        pool.reset(ids=[2, 0], seeds=10)
        assert pool.call("log") == [[("reset", 10, None)], [], [("reset", 12, None)]]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_the_raw_pool_does_not_reset_after_an_end(shared_memory):
    """Rewards 1, 2, 5 with the end on the third; results keep the order of ids and stand for that moment only."""
    with Workers([envs.Script, partial(envs.Script, "truncated")], "fork", shared_memory) as pool:
        first, infos = pool.reset()
        assert infos == [{"episode": 1}, {"episode": 1}]
        turns = [pool.step([0, 0]) for _ in range(3)]
        assert first.tolist() == [[1, 0], [1, 0]]
        assert [turn[0].tolist() for turn in turns] == [[[1, t], [1, t]] for t in (1, 2, 3)]
        assert [turn[1].tolist() for turn in turns] == [[1, 1], [2, 2], [5, 5]]
        assert [turn[2].tolist() for turn in turns] == [[False, False], [False, False], [True, False]]
        assert [turn[3].tolist() for turn in turns] == [[False, False], [False, False], [False, True]]
        assert turns[2][4] == [{"t": 3}, {"t": 3}]
        assert (first.dtype, turns[0][1].dtype, turns[0][2].dtype) == (np.float32, np.float64, bool)
        obs, _ = pool.reset(ids=1)
        assert obs.tolist() == [[2, 0]]
        obs, rewards, *_ = pool.step([0], ids=[1])
        assert (obs.tolist(), rewards.tolist()) == ([[2, 1]], [1])


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_aligned_turns_are_1_2_5_0(start_method):
    """Rewards 1,2,5,0,1,2,5,0, done on the third, the terminal observation there, the new episode's on the fourth."""
    makers = [envs.Script, partial(envs.Script, "truncated"), partial(envs.Classic, {})]
    with Aligned(Workers(makers, start_method)) as pool:
        assert pool.reset()[0].tolist() == [[1, 0]] * 3
        turns = [pool.step([0, 0, 0]) for _ in range(8)]
    for i in range(3):
        assert [turn[1][i] for turn in turns] == [1, 2, 5, 0, 1, 2, 5, 0]
        assert [bool(turn[2][i] | turn[3][i]) for turn in turns] == [False, False, True, False] * 2
        places = [[1, 1], [1, 2], [1, 3], [2, 0], [2, 1], [2, 2], [2, 3], [3, 0]]
        assert [turn[0][i].tolist() for turn in turns] == places
        assert ["reset_turn" in turn[4][i] for turn in turns] == [False, False, False, True] * 2
    assert turns[3][4][0] == {"episode": 2, "reset_turn": True}
    assert turns[2][2].tolist() == [True, False, True]
    assert turns[2][3].tolist() == [False, True, False]


def test_each_environment_ends_at_its_own_turn():
    """An environment stepped twice more ends two turns earlier; the reset turn sends it a reset and no action."""
    with Aligned(Workers([envs.Script] * 2, "fork")) as pool:
        pool.reset()
        pool.step([0], ids=[1])
        pool.step([0], ids=[1])
        turns = [pool.step([1, 1]) for _ in range(4)]
        assert [turn[1].tolist() for turn in turns] == [[1, 5], [2, 0], [5, 1], [0, 2]]
        acted, reset = ("step", 1), ("reset", None, None)
        assert pool.workers.call("log")[0] == [reset, acted, acted, acted, reset]
        assert pool.workers.call("log")[1] == [reset, ("step", 0), ("step", 0), acted, reset, acted, acted]


def test_an_explicit_reset_clears_what_was_due():
    """After the end, a reset of one environment makes its next turn a step, while the other has its reset turn."""
    with Aligned(Workers([envs.Script] * 2, "fork")) as pool:
        pool.reset()
        for _ in range(3):
            pool.step([0, 0])
        pool.reset(ids=[1])
        obs, rewards, *_, infos = pool.step([0, 0])
        assert (obs.tolist(), rewards.tolist()) == ([[2, 0], [2, 1]], [0, 1])
        assert infos == [{"episode": 2, "reset_turn": True}, {"t": 1}]
        pool.step([0, 0])
        pool.step([0, 0])
        pool.reset()
        assert pool.step([0, 0])[1].tolist() == [1, 1]


@pytest.mark.truth
@pytest.mark.parametrize("maker", [envs.cart_pole, envs.pendulum])
def test_aligned_equals_gymnasiums_sync_vector_env(maker):
    """CartPole-v1 and Pendulum-v1 equal SyncVectorEnv(NEXT_STEP) to the bit for 1000 steps with ends in both."""
    theirs = SyncVectorEnv([maker] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    theirs.action_space.seed(5)
    ended = 0
    with Aligned(Workers([maker] * 3, "fork")) as ours:
        assert np.array_equal(ours.reset(seeds=7)[0], theirs.reset(seed=7)[0])
        for _ in range(1000):
            actions = theirs.action_space.sample()
            mine, reference = ours.step(actions)[:4], theirs.step(actions)[:4]
            for a, b in zip(mine, reference):
                assert a.dtype == b.dtype
                assert np.array_equal(a, b)
            ended += int((mine[2] | mine[3]).sum())
    assert ended >= 3
    theirs.close()


def test_a_milkrun_environment_plays_the_same_in_a_worker():
    """TSP-5 by the first allowed action: a forked child of a process whose threads are at work plays as this process
    does; the masks that come with a reply are the environment's own."""
    import milkrun

    world = milkrun.make("milkrun/TSP-v0", 4096, num_loc=5, seed=0, threads=2)
    world.reset()
    world.step(world.sample_actions(1, 0))
    here = [envs.tsp() for _ in range(2)]
    with Workers([envs.tsp] * 2, "fork") as pool:
        obs, _ = pool.reset(seeds=3)
        expected = [env.reset(seed=3 + i)[0] for i, env in enumerate(here)]
        for _ in range(5):
            for i, one in enumerate(expected):
                assert all(np.array_equal(obs[key][i], value) for key, value in one.items())
                assert np.array_equal(pool.masks[i], here[i].unwrapped.action_masks())
            actions = np.array([mask.argmax() for mask in pool.masks])
            obs, rewards, terminated, _, _ = pool.step(actions)
            played = [env.step(action) for env, action in zip(here, actions)]
            expected = [turn[0] for turn in played]
            assert rewards.tolist() == [turn[1] for turn in played]
        assert terminated.all()


@pytest.mark.parametrize("shared_memory", [True, False])
def test_every_kind_of_array_space_is_stacked(shared_memory):
    """Box, Discrete, MultiDiscrete, MultiBinary in a Dict and a Tuple: values by hand, dtypes of the spaces."""
    with Workers(envs.rooms(3), "fork", shared_memory) as pool:
        kept, _ = pool.reset()
        obs = pool.step([0, 0, 0])[0]
        assert obs["number"].tolist() == [1, 11, 21]
        assert obs["picture"][:, 1, 2].tolist() == [1, 11, 21]
        assert obs["pair"][0].tolist() == [[1, 0], [1, 1], [1, 2]]
        assert obs["pair"][1].tolist() == [[0, 1, 1]] * 3
        assert [a.dtype for a in (obs["picture"], obs["number"], *obs["pair"])] == ["uint8", "int64", "int64", "int8"]
        assert pool.step([0], ids=[2])[0]["number"].tolist() == [22]
        assert kept["number"].tolist() == [0, 10, 20]
        assert obs["number"].tolist() == [1, 11, 21]


def test_other_spaces_come_as_a_list():
    """Text, an environment without a declared space, and spaces that differ from worker to worker."""
    with Workers([envs.Words] * 2, "fork") as pool:
        assert pool.reset()[0] == ["start", "start"]
        assert pool.step([0, 1])[0] == ["did 0", "did 1"]
    with Workers([envs.Unseeded], "fork") as pool:
        assert pool.reset() == (["here"], [{}])
        assert pool.step(["x"])[0] == ["after x"]
    with Workers([envs.Script, partial(envs.Rooms, 1)], "fork") as pool:
        obs, _ = pool.reset()
        assert obs[0].tolist() == [1, 0]
        assert obs[1]["number"] == 10


@pytest.mark.parametrize(("info", "ends"), [({}, (True, False)), ({"TimeLimit.truncated": True}, (False, True))])
def test_a_classic_done_is_read_by_its_time_limit(info, ends):
    """done is terminated, or truncated where info["TimeLimit.truncated"]; seeds go to seed()."""
    with Workers([partial(envs.Classic, info)], "fork") as pool:
        pool.reset(seeds=4)
        assert pool.call("seeds") == [[4]]
        flags = [tuple(part.item() for part in pool.step([0])[2:4]) for _ in range(3)]
        assert flags == [(False, False), (False, False), ends]


def test_lists_of_agents_pass_unchanged():
    """What a MAPPO list environment returns arrives as it left, lists as lists; Aligned refuses it."""
    with Workers([envs.Team] * 2, "fork") as pool:
        obs, infos = pool.reset()
        assert [[o.tolist() for o in one] for one in obs] == [[[0.0], [1.0]]] * 2
        assert infos == [{}, {}]
        obs_n, reward_n, done_n, info_n = pool.step([[1, 0], [0, 1]])[1]
        assert [o.tolist() for o in obs_n] == [[2.0], [3.0]]
        assert (reward_n, done_n, info_n) == ([[1.0], [-1.0]], [False, True], [{"a": 0}, {"a": 1}])
        with pytest.raises(ConfigError, match="one agent"):
            Aligned(pool).step([[0, 0], [0, 0]])


@pytest.mark.parametrize("by", ["method", "info"])
def test_masks_come_with_a_step_and_are_never_empty(by):
    """Allowed are 1 and 2 at first, then 1; at the end nothing, which becomes index 0. A call renews its own."""
    with Workers([partial(envs.Masked, by)] * 2, "fork") as pool:
        pool.reset()
        assert [mask.tolist() for mask in pool.masks] == [[False, True, True]] * 2
        pool.step([1], ids=[1])
        assert [mask.tolist() for mask in pool.masks] == [[False, True, True], [False, True, False]]
        pool.step([1, 1])
        pool.step([1, 1])
        assert [mask.tolist() for mask in pool.masks] == [[False, True, False], [True, False, False]]
        assert pool.masks[0].dtype == bool


def test_no_masks_where_there_are_none():
    """An environment without masks has None."""
    with Workers([envs.Script], "fork") as pool:
        pool.reset()
        assert pool.masks == [None]


def test_call_reaches_methods_attributes_wrappers_and_functions():
    """A method with arguments, an attribute behind a wrapper, a function of the environment, some workers only."""
    with Workers([envs.Script, envs.cart_pole], "fork") as pool:
        pool.reset()
        assert pool.call("add", 1, ids=[0], b=2) == [4]
        assert pool.call("gravity", ids=1) == [9.8]
        assert pool.call(lambda env, word: word + type(env).__name__, "a ") == ["a Script", "a TimeLimit"]
        assert pool.call("__setattr__", "end", "never", ids=[0]) == [None]
        assert pool.call("end", ids=[0]) == ["never"]
        assert pool.call(lambda env: os.getpid()) == pool.pids


def test_actions_arrive_as_the_types_they_were():
    """A row of an int64 array is a numpy int64, a row of a float array an array that may be written to."""
    with Workers([envs.Script], "fork") as pool:
        pool.reset()
        pool.step(np.array([2]))
        pool.step(np.array([[1.5, -1.0]], np.float32)[:, ::-1])
        (_, first), (_, second) = pool.call("log")[0][1:]
        assert (type(first), first) == (np.int64, 2)
        assert (second.dtype, second.tolist(), second.flags.writeable) == (np.float32, [-1.0, 1.5], True)


def test_an_environment_is_made_once_in_its_worker_and_closed_there(tmp_path):
    """None is made in the parent to read its spaces; a with-block closes each, and a second close does nothing."""
    log = tmp_path / "log"
    with Workers([partial(envs.Counted, str(log))] * 2, "fork") as pool:
        pids = pool.pids
        assert len(pool) == 2
        assert sorted(log.read_text().split()) == sorted(["made", str(pids[0]), "made", str(pids[1])])
    pool.close()
    assert sorted(log.read_text().splitlines()) == sorted(f"{word} {p}" for word in ("made", "closed") for p in pids)


def test_invalid_calls_are_refused_and_the_pool_goes_on():
    """Wrong counts, ids, seeds and options are errors of the parent: no worker gets a command."""
    with Workers([envs.Script, partial(envs.Classic, {}), envs.Unseeded], "fork") as pool:
        with pytest.raises(ResetNeeded, match="worker 0, 2"):
            pool.step([0, 0], ids=[0, 2])
        pool.reset()
        with pytest.raises(ShapeError, match="2 actions for 3 workers"):
            pool.step([0, 0])
        for ids in ([3], [-1], [0, 0], [0.5], [True, False], []):
            with pytest.raises(ShapeError, match="ids="):
                pool.step([0] * len(ids), ids=ids)
        with pytest.raises(ShapeError, match="1 seeds for 3"):
            pool.reset(seeds=[1])
        with pytest.raises(ConfigError, match="seed -1"):
            pool.reset(ids=[0], seeds=-1)
        with pytest.raises(ConfigError, match="worker 2: its environment takes no seed"):
            pool.reset(seeds=1)
        with pytest.raises(ConfigError, match="worker 1: the reset of its environment takes no options"):
            pool.reset(options={"level": 1})
        assert [len(log) for log in pool.call("log", ids=[0])] == [1]


def test_an_invalid_pool_is_refused():
    """No functions, another value than a function, one that cannot be pickled, an unknown start method, an invalid
    timeout."""
    with pytest.raises(ConfigError, match="at least one"):
        Workers([])
    with pytest.raises(ConfigError, match=r"env_fns\[1\] is Script"):
        Workers([envs.Script, envs.Script()])
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"env_fns\[0\] cannot be sent"):
        Workers([lambda: lock])
    with pytest.raises(ConfigError, match="'thread'"):
        Workers([envs.Script], "thread")
    for timeout in (0, -1.0, "1", True):
        with pytest.raises(ConfigError, match="timeout"):
            Workers([envs.Script], timeout=timeout)


def test_spaces_are_known():
    """The spaces of each environment, None where it has none."""
    with Workers([envs.Script, envs.Unseeded], "fork") as pool:
        assert pool.observation_spaces == [envs.Script.observation_space, None]
        assert pool.action_spaces == [gymnasium.spaces.Discrete(3), None]
