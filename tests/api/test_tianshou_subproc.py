"""SubprocVecEnv_TS: one command per process and turn under tianshou's interface; seeds, masks, failures."""

import multiprocessing
import os
import random
import time
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Batch, Collector, VectorReplayBuffer

from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.tianshou import SubprocVecEnv_TS, SubprocVectorEnv_TS, TianshouVectorEnv
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError, WorkerError
from tests.api import worker_envs as envs
from tests.api.tianshou_tools import lowest, plain
from tests.truth.test_gymnasium_conformance import assert_same

TSP = "milkrun/TSP-v0"
flat_tsp = partial(MilkrunEnv, TSP, num_loc=5, layout="flat")


@pytest.fixture
def venv_of():
    """Makes vector environments and closes them afterwards."""
    made = []

    def make(env_fns, **options):
        made.append(SubprocVecEnv_TS(env_fns, **{"context": "fork", **options}))
        return made[-1]

    yield make
    for venv in made:
        venv.close()


@pytest.mark.parametrize("share_memory", [False, True])
def test_the_script_is_1_2_5_0(venv_of, share_memory):
    """Rewards 1,2,5,0,1,2,5,0, an end on the third turn with the terminal observation, the new episode's on the
    fourth, which says that it was a reset turn; flags are bools throughout."""
    venv = venv_of(
        [envs.Script, partial(envs.Script, "truncated"), partial(envs.Classic, {})],
        context=None,
        share_memory=share_memory,
    )
    obs, infos = venv.reset()
    assert obs.tolist() == [[1, 0]] * 3
    assert infos[0] == {"episode": 1, "env_id": 0}
    turns = [venv.step(np.zeros(3, int)) for _ in range(8)]
    places = [[1, 1], [1, 2], [1, 3], [2, 0], [2, 1], [2, 2], [2, 3], [3, 0]]
    for i in range(3):
        assert [turn[0][i].tolist() for turn in turns] == places
        assert [turn[1][i] for turn in turns] == [1, 2, 5, 0, 1, 2, 5, 0]
        assert ["reset_turn" in turn[4][i] for turn in turns] == [False, False, False, True] * 2
    assert [turn[2].tolist() for turn in turns[:4]] == [[False] * 3, [False] * 3, [True, False, True], [False] * 3]
    assert [turn[3].tolist() for turn in turns[:4]] == [[False] * 3, [False] * 3, [False, True, False], [False] * 3]
    assert {(turn[2].dtype, turn[3].dtype) for turn in turns} == {(np.dtype(bool), np.dtype(bool))}
    assert turns[3][4][0] == {"episode": 2, "reset_turn": True, "env_id": 0}


def test_an_explicit_reset_leaves_nothing_due(venv_of):
    """Environment 1 is reset after its end, so its next step is a step; environment 0's is the reset turn."""
    venv = venv_of([envs.Script] * 2)
    venv.reset()
    for _ in range(3):
        venv.step([0, 0])
    obs, infos = venv.reset(1)
    assert (obs.tolist(), infos.tolist()) == ([[2, 0]], [{"episode": 2, "env_id": 1}])
    obs, rewards, *_, infos = venv.step([0, 0])
    assert (obs.tolist(), rewards.tolist()) == ([[2, 0], [2, 1]], [0, 1])
    assert ["reset_turn" in info for info in infos] == [True, False]


def test_only_the_named_environments_get_a_command(venv_of):
    """A step of 2 and 0 is one command to each of them and none to 1; results stand in that order."""
    venv = venv_of([envs.Script] * 3)
    venv.reset()
    obs, *_, infos = venv.step(np.array([2, 1]), [2, 0])
    assert [info["env_id"] for info in infos] == [2, 0]
    assert obs.tolist() == [[1, 1], [1, 1]]
    begin = ("reset", None, None)
    assert venv.get_env_attr("log") == [[begin, ("step", 1)], [begin], [begin, ("step", 2)]]


def test_seeds_are_offset_and_wait_for_the_next_reset(venv_of):
    """seed(10) gives environment i 10 + i at its next reset, once; reset(seed=20) adds the environment, not its place;
    action spaces draw by the same seeds."""
    venv = venv_of([envs.Script] * 3)
    assert venv.seed(10) == [[10], [11], [12]]
    venv.reset([1])
    venv.reset()
    venv.reset([2, 0], seed=20)
    assert venv.seed([7, 8, 9]) == [[7], [8], [9]]
    draws = [space.sample() for space in venv.action_space]
    assert draws == [spaces.Discrete(3, seed=s).sample() for s in (7, 8, 9)]
    assert venv.seed() == [None] * 3
    venv.reset([0], options={"level": 2})
    resets = [[entry[1:] for entry in log] for log in venv.get_env_attr("log")]
    assert resets == [
        [(10, None), (20, None), (None, {"level": 2})],
        [(11, None), (None, None)],
        [(12, None), (22, None)],
    ]


@pytest.mark.parametrize("by", ["method", "info"])
def test_masks_are_returned_with_the_observation(venv_of, by):
    """After a reset 1 and 2 are allowed, after a step 1, at the end nothing, which is shown as 0."""
    venv = venv_of([partial(envs.Masked, by)] * 2)
    seen = [venv.reset()[0], *(venv.step([1, 1])[0] for _ in range(4))]
    assert [obs.mask[1].tolist() for obs in seen] == [
        [False, True, True],
        [False, True, False],
        [False, True, False],
        [True, False, False],
        [False, True, True],
    ]
    assert [obs.obs[0].tolist() for obs in seen] == [[1, 0], [1, 1], [1, 2], [1, 3], [2, 0]]


def test_observations_of_other_kinds(venv_of):
    """A Dict is a Batch, words are objects, and where only some environments have masks none are shown."""
    venv = venv_of([partial(MilkrunEnv, TSP, num_loc=4)] * 2)
    obs, _ = venv.reset(seed=3)
    theirs, _ = MilkrunEnv(TSP, num_loc=4).reset(seed=4)
    assert isinstance(obs.obs, Batch)
    assert_same({key: array[1] for key, array in plain(obs.obs).items()}, dict(sorted(theirs.items())))
    words = venv_of([envs.Words] * 2)
    assert words.reset()[0].tolist() == ["start", "start"]
    assert words.step([0, 1])[0].tolist() == ["did 0", "did 1"]
    mixed = venv_of([envs.Script, partial(envs.Masked, "method")])
    assert mixed.reset()[0].tolist() == [[1, 0], [1, 0]]


def test_no_global_random_state_is_touched(venv_of):
    """The parent's numpy, torch and Python generators stand as they stood after seeds, turns and resets."""

    def states():
        return np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes(), random.getstate()

    before = states()
    venv = venv_of([flat_tsp] * 2)
    venv.seed(3)
    venv.reset()
    for _ in range(20):
        venv.step(np.array([1, 2]))
    venv.reset([1])
    assert states() == before


def test_tuples_are_refused_and_no_process_is_left(venv_of):
    """tianshou has no tuples in observations; the processes are gone."""
    with pytest.raises(ConfigError, match="no tuples"):
        venv_of(envs.rooms(2))
    assert not [p for p in multiprocessing.active_children() if p.name.startswith("milkrun-worker")]


def test_attributes_and_length(venv_of):
    """The attributes that tianshou reads: lists of spaces and attributes, set below wrappers, and no asynchrony."""
    assert SubprocVectorEnv_TS is SubprocVecEnv_TS
    venv = venv_of([envs.cart_pole] * 2, wait_num=2)
    assert (len(venv), venv.is_async) == (2, False)
    assert venv.action_space == [spaces.Discrete(2)] * 2
    assert venv.observation_space[0].shape == (4,)
    assert venv.get_env_attr("gravity", 1) == [9.8]
    venv.set_env_attr("gravity", 1.6, [1])
    assert venv.get_env_attr("gravity") == [9.8, 1.6]
    assert venv.metadata[0]["render_fps"] == 50
    tours = venv_of([partial(flat_tsp, render_mode="rgb_array")] * 2)
    tours.reset(seed=1)
    alone = flat_tsp(render_mode="rgb_array")
    alone.reset(seed=2)
    assert_same(tours.render()[1], alone.render())


@pytest.mark.parametrize("wrong", [{"wait_num": 1}, {"wait_num": 3}, {"wait_num": 0}, {"timeout": 0.5}])
def test_asynchrony_is_refused(wrong):
    """All move in lockstep: no waiting for some."""
    with pytest.raises(ConfigError, match="lockstep"):
        SubprocVecEnv_TS([envs.Script] * 2, **wrong)


def test_a_dead_worker_is_named(venv_of):
    """os._exit(7) in worker 2 of 4 is a WorkerError while the others are in a step of a minute; then the environment is
    closed, the others gone."""
    venv = venv_of([envs.Trouble] * 4)
    pids = venv.pool.workers.pids
    venv.reset()
    begin = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 2 .* exit code 7") as caught:
        venv.step([9, 9, 7, 9])
    assert time.monotonic() - begin < envs.NAP
    assert (caught.value.index, caught.value.exit_code) == (2, 7)
    with pytest.raises(Closed):
        venv.step([0, 0, 0, 0])
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_exception_comes_with_its_traceback(venv_of):
    """What the environment raised, and where."""
    venv = venv_of([envs.Trouble] * 2)
    venv.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .* ValueError: the drum is full(?s:.*)worker_envs.py"):
        venv.step([0, 8])


def test_bad_calls_are_refused(venv_of):
    """A step before the reset, no actions, too few, unknown ids, too few seeds, use after close."""
    venv = venv_of([envs.Script] * 2)
    with pytest.raises(ResetNeeded):
        venv.step([0, 0])
    venv.reset()
    for action, id in ((None, None), ([0], None), ([0], [2]), ([0, 0], [1, 1])):
        with pytest.raises(ShapeError):
            venv.step(action, id)
    with pytest.raises(ShapeError, match="3 seeds for 2"):
        venv.seed([1, 2, 3])
    for seed in (-1, [0, -1], 2**63 - 1):
        with pytest.raises(ConfigError):
            venv.seed(seed)
    unseeded = venv_of([envs.Unseeded] * 2)
    unseeded.seed(1)
    with pytest.raises(ConfigError, match="worker 0: its environment takes no seed"):
        unseeded.reset()
    venv.close()
    venv.close()
    for call in (venv.reset, venv.seed, lambda: venv.get_env_attr("log")):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("how", [{"n_step": 45}, {"n_episode": 7}])
def test_the_stock_collector_finds_the_same_as_in_one_process(venv_of, how):
    """tianshou's Collector over 3 processes of one row each and over 3 rows of one world fills the same buffer."""
    buffers = []
    for venv in (venv_of([flat_tsp] * 3), TianshouVectorEnv(TSP, 3, num_loc=5)):
        buffers.append(VectorReplayBuffer(300, 3))
        collector = Collector(lowest(venv), venv, buffers[-1])
        collector.reset(gym_reset_kwargs={"seed": 5})
        stats = collector.collect(**how)
        assert set(stats.lens.tolist()) == {5}
        assert stats.n_collected_steps == len(buffers[-1])
    ours, theirs = (buffer[:] for buffer in buffers)
    assert len(ours) == (45 if "n_step" in how else 35)
    for key in ("obs", "act", "rew", "terminated", "truncated", "obs_next"):
        assert_same(plain(ours[key]), plain(theirs[key]))
    assert_same(ours.info.objective, theirs.info.objective)
    assert "reset_turn" not in ours.info
