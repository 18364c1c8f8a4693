"""Async_SubprocVecEnv: aligned turns and SB3's own, masks, attributes, failures, and nothing left behind."""

import gc
import os
import signal
import time
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import SubprocVecEnv

from milkrun.api.sb3 import ASYNC_SubprocVecEnv, Async_SubprocVecEnv
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError, WorkerError, WorkerTimeout
from tests.api import worker_envs as envs
from tests.api.test_workers_failure import GRACE, still_running
from tests.api.test_workers_killed import files_mapped, held_anywhere
from tests.truth.test_gymnasium_conformance import arrays_in, assert_same


def monitored():
    return Monitor(envs.Script())


def limited_cart_pole():
    return gymnasium.make("CartPole-v1", max_episode_steps=20)


def tsp_env():
    """A row of a world of this library, without Gymnasium's wrappers."""
    from milkrun.api.gymnasium import MilkrunEnv

    return MilkrunEnv("milkrun/TSP-v0", num_loc=5, layout="flat")


def pixels():
    return gymnasium.make("milkrun/TSP-v0", num_loc=5, render_mode="rgb_array")


def test_aligned_turns_are_1_2_5_0():
    """Rewards 1,2,5,0,..., done on the third with the terminal observation, whichever kind of end and environment."""
    classic = partial(envs.Classic, {"TimeLimit.truncated": True})
    makers = [envs.Script, partial(envs.Script, "truncated"), partial(envs.Classic, {}), classic]
    env = Async_SubprocVecEnv(makers, "fork")
    try:
        assert env.reset().tolist() == [[1, 0]] * 4
        turns = [env.step(np.array([0, 1, 2, 0])) for _ in range(8)]
        log = env.get_attr("log", [0])[0]
    finally:
        env.close()
    for i, is_cut in enumerate([False, True, False, True]):
        assert [turn[1][i] for turn in turns] == [1, 2, 5, 0, 1, 2, 5, 0]
        assert [turn[2][i] for turn in turns] == [False, False, True, False] * 2
        places = [[1, 1], [1, 2], [1, 3], [2, 0], [2, 1], [2, 2], [2, 3], [3, 0]]
        assert [turn[0][i].tolist() for turn in turns] == places
        infos = [turn[3][i] for turn in turns]
        assert ["terminal_observation" in info for info in infos] == [False, False, True, False] * 2
        assert infos[2]["terminal_observation"].tolist() == [1, 3]
        assert [info["TimeLimit.truncated"] for info in infos] == [False, False, is_cut, False] * 2
        assert ["reset_turn" in info for info in infos] == [False, False, False, True] * 2
    assert [entry[0] for entry in log] == ["reset", *["step"] * 3, "reset", *["step"] * 3, "reset"]


def test_the_reset_turn_is_a_reset():
    """Its info is that of the reset, which is in `reset_infos` too, without the mark of the turn."""
    env = Async_SubprocVecEnv([envs.Script], "fork")
    env.reset()
    assert env.reset_infos == [{"episode": 1}]
    for _ in range(3):
        env.step(np.array([0]))
    info = env.step(np.array([0]))[3][0]
    assert info == {"episode": 2, "reset_turn": True, "TimeLimit.truncated": False}
    assert env.reset_infos == [{"episode": 2}]
    env.close()


def test_an_explicit_reset_clears_what_was_due():
    """The turn after an explicit reset is a step with reward 1; seeds and options apply to that reset only."""
    env = Async_SubprocVecEnv([envs.Script] * 2, "fork")
    assert env.seed(5) == [5, 6]
    env.set_options({"level": 2})
    env.reset()
    for _ in range(3):
        env.step(np.array([0, 0]))
    env.reset()
    obs, rewards, dones, infos = env.step(np.array([0, 0]))
    assert (rewards.tolist(), dones.tolist(), obs.tolist()) == ([1, 1], [False, False], [[2, 1]] * 2)
    assert "reset_turn" not in infos[0]
    resets = [entry for entry in env.get_attr("log")[1] if entry[0] == "reset"]
    assert resets == [("reset", 6, {"level": 2}), ("reset", None, None)]
    env.close()


@pytest.mark.parametrize("maker", [envs.cart_pole, envs.pendulum, limited_cart_pole])
def test_it_equals_gymnasiums_sync_vector_env(maker):
    """1,000 turns of three environments, random actions: observations, rewards and ends to the bit."""
    ours = Async_SubprocVecEnv([maker] * 3, "fork")
    theirs = SyncVectorEnv([maker] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    ours.seed(8)
    assert_same(ours.reset(), theirs.reset(seed=8)[0])
    theirs.action_space.seed(1)
    cut = over = 0
    for _ in range(1000):
        actions = theirs.action_space.sample()
        obs, rewards, dones, infos = ours.step(actions)
        obs2, rewards2, terminated, was_cut, _ = theirs.step(actions)
        assert_same([obs, rewards, dones], [obs2, rewards2, terminated | was_cut])
        for i in np.flatnonzero(dones):
            assert_same(infos[i]["terminal_observation"], obs[i])
            assert infos[i]["TimeLimit.truncated"] is bool(was_cut[i] and not terminated[i])
        cut, over = cut + was_cut.sum(), over + terminated.sum()
    ours.close()
    assert cut + over >= 12


@pytest.mark.parametrize("shared_memory", [True, False])
def test_same_step_equals_sb3s_subproc_vec_env(shared_memory):
    """300 steps of a CartPole cut off after 20: all that SB3's own class returns, reset_infos included."""
    makers = [limited_cart_pole] * 2
    ours = Async_SubprocVecEnv(makers, "fork", autoreset_mode="same_step", shared_memory=shared_memory)
    theirs = SubprocVecEnv(makers, "fork")
    try:
        ours.seed(3)
        theirs.seed(3)
        assert_same(ours.reset(), theirs.reset())
        actions, ends, cut = np.random.default_rng(1).integers(0, 2, (300, 2)), 0, 0
        for action in actions:
            obs, rewards, dones, infos = ours.step(action)
            obs2, rewards2, dones2, infos2 = theirs.step(action)
            assert_same([obs, rewards, dones, infos], [obs2, rewards2, dones2, list(infos2)])
            ends += dones.sum()
            cut += sum(info["TimeLimit.truncated"] for info in infos)
    finally:
        ours.close()
        theirs.close()
    assert ends >= 20 and cut >= 5


def test_observations_of_every_kind_arrive_and_stay():
    """Dicts and tuples of arrays, through ends of their own; no later call changes a returned array."""
    env = Async_SubprocVecEnv(envs.rooms(2), "fork")
    kept = [env.reset(), env.step(np.array([0, 0]))]
    before = [array.tobytes() for array in arrays_in(kept)]
    for _ in range(5):
        env.step(np.array([0, 0]))
    assert [array.tobytes() for array in arrays_in(kept)] == before
    assert kept[1][0]["number"].tolist() == [1, 11]
    env.close()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_terminal_observation_is_no_view_of_the_observation(mode):
    """Written into, it changes nothing else that was returned."""
    env = Async_SubprocVecEnv([envs.Script], "fork", autoreset_mode=mode)
    env.reset()
    for _ in range(3):
        obs, _, _, infos = env.step(np.array([0]))
    before = obs.copy()
    infos[0]["terminal_observation"][:] = -7
    assert_same(obs, before)
    assert obs.tolist() == ([[1, 3]] if mode == "next_step" else [[2, 0]])
    env.close()


@pytest.mark.parametrize("by", ["method", "info"])
def test_masks_come_with_the_turn(by):
    """They need no command to a worker; at an end, where nothing is allowed, the first action is."""
    env = Async_SubprocVecEnv([partial(envs.Masked, by)] * 2, "fork")
    env.reset()
    assert is_masking_supported(env)
    seen = [get_action_masks(env).tolist()]
    for _ in range(4):
        env.step(np.array([1, 1]))
        seen.append(get_action_masks(env)[1].tolist())
    start, going, over = [False, True, True], [False, True, False], [True, False, False]
    assert seen == [[start, start], going, going, over, start]
    calls = len(env.get_attr("log")[0])
    env.env_method("action_masks", indices=1)[0][:] = False
    assert env.env_method("action_masks", indices=1)[0].tolist() == start
    assert len(env.get_attr("log")[0]) == calls == 5
    env.close()


def test_masks_are_found_before_the_first_reset():
    """A method is found at once; an environment without masks has none, and the query keeps the pool alive."""
    for maker, has in ((partial(envs.Masked, "method"), True), (envs.Script, False)):
        env = Async_SubprocVecEnv([maker], "fork")
        assert is_masking_supported(env) is has
        env.reset()
        if not has:
            with pytest.raises(AttributeError, match="action_masks"):
                env.env_method("action_masks")
        env.step(np.array([0]))
        env.close()


def test_attributes_and_methods():
    """Read, called and set, also behind wrappers and of some workers only; what is not there leaves the pool alive."""
    env = Async_SubprocVecEnv([monitored] * 3, "fork")
    env.reset()
    env.step(np.array([0, 0, 0]))
    assert env.get_attr("t") == [1, 1, 1] and env.get_attr("t", indices=[]) == []
    assert env.env_method("add", 10, b=5, indices=[2, 0]) == [16, 16]
    env.set_attr("t", 2, indices=1)
    assert env.get_attr("t") == [1, 2, 1]
    assert env.step(np.array([0, 0, 0]))[1].tolist() == [2, 5, 2]
    assert env.has_attr("episode") and not env.has_attr("windmill")
    for request in (lambda: env.get_attr("windmill"), lambda: env.env_method("windmill")):
        with pytest.raises(AttributeError, match="windmill"):
            request()
    with pytest.raises(ShapeError, match=r"indices in 0\.\.2"):
        env.get_attr("t", indices=[3])
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.Wrapper, 1) == [True] and env.env_is_wrapped(envs.Rooms) == [False] * 3
    env.close()


def test_a_worker_does_not_load_the_learning_library():
    """After calls for attributes, methods and wrappers, the worker has loaded neither torch nor stable_baselines3."""

    def loaded_modules(env):
        import sys

        return [name for name in ("gymnasium", "torch", "stable_baselines3") if name in sys.modules]

    env = Async_SubprocVecEnv([envs.Script], "spawn")
    env.reset()
    env.step(np.array([0]))
    assert env.env_is_wrapped(Monitor) == [False] and env.has_attr("t")
    loaded = env.workers.call(loaded_modules)[0]
    env.close()
    assert loaded == ["gymnasium"]


def test_returns_are_the_true_ones():
    """Three episodes of 1 + 2 + 5 by Monitor in the workers and by evaluate_policy's own count, in both modes."""

    class Zero:
        def predict(self, obs, state=None, episode_start=None, deterministic=True):
            return np.zeros(len(obs), int), None

    for mode in ("next_step", "same_step"):
        env = Async_SubprocVecEnv([monitored] * 2, "fork", autoreset_mode=mode)
        returns, lengths = evaluate_policy(Zero(), env, n_eval_episodes=6, return_episode_rewards=True, warn=False)
        assert (returns, lengths) == ([8.0] * 6, [3] * 6)
        env.close()
        env = Async_SubprocVecEnv([envs.Script] * 2, "fork", autoreset_mode=mode)
        returns, _ = evaluate_policy(Zero(), env, n_eval_episodes=6, return_episode_rewards=True, warn=False)
        assert returns == [8.0] * 6
        env.close()


def test_worlds_of_this_library_in_processes():
    """Rows of TSP in two workers, masked to their end; pictures come through too."""
    env = Async_SubprocVecEnv([tsp_env] * 2, "fork")
    obs = env.reset()
    assert obs.dtype == np.float32 and env.observation_space.contains(obs[0])
    ends = 0
    for _ in range(12):
        *_, dones, infos = env.step(get_action_masks(env).argmax(1))
        assert not any(info.get("illegal") for info in infos)
        ends += dones.sum()
    assert ends == 4  # a tour of five takes five turns and one reset turn
    assert env.render_mode is None and env.get_images() == [None, None]
    env.close()
    env = Async_SubprocVecEnv([pixels] * 2, "fork")
    env.reset()
    assert [image.shape for image in env.get_images()] == [(512, 512, 3)] * 2
    env.close()


def test_a_worker_killed_in_mid_step_is_named():
    """SIGKILL from outside while all workers run a step of a minute: the error names worker 1 before any step could
    end. All workers are gone, later calls report it, and close() is idempotent."""
    env = Async_SubprocVecEnv([envs.Trouble] * 3, "fork")
    env.reset()
    pids = env.workers.pids
    began = time.monotonic()
    env.step_async(np.array([9, 9, 9]))
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerError, match=rf"worker 1 \(process {pids[1]}\) was killed by signal 9 .*'step'") as caught:
        env.step_wait()
    assert time.monotonic() - began < envs.NAP
    assert caught.value.index == 1
    assert still_running(pids) == []
    for call in (env.reset, lambda: env.step(np.array([0, 0, 0])), lambda: env.get_attr("t")):
        with pytest.raises(Closed, match="worker 1"):
            call()
    env.close()
    env.close()


def test_an_exception_and_a_late_answer():
    """The traceback of the one, the indices of the other."""
    env = Async_SubprocVecEnv([envs.Trouble] * 2, "fork")
    env.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .*the drum is full"):
        env.step(np.array([0, 8]))
    env = Async_SubprocVecEnv([envs.Trouble] * 2, "fork", timeout=2)
    env.reset()
    with pytest.raises(WorkerTimeout, match="worker 0 did not answer") as caught:
        env.step(np.array([9, 0]))
    assert caught.value.indices == (0,)


def test_nothing_is_left_behind():
    """Twelve environments opened, stepped and closed or forgotten: no process, no descriptor, no shared memory."""

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    Async_SubprocVecEnv([envs.Script], "fork").close()
    gc.collect()
    fds, known, memory, pids = descriptors(), files_mapped(), set(), []
    for k in range(12):
        env = Async_SubprocVecEnv([envs.Script] * 2, "fork")
        pids += env.workers.pids
        env.reset()
        env.step(np.array([0, 0]))
        memory |= files_mapped() - known
        if k % 2:
            env.close()
            env.close()
        del env
    gc.collect()
    assert still_running(pids, GRACE) == []
    assert descriptors() <= fds + 2
    assert len(memory) == 12 and held_anywhere(memory) == []


def test_invalid_use_is_refused():
    """Modes, environments with different spaces or none, steps before a reset; no process survives."""
    with pytest.raises(ConfigError, match="disabled"):
        Async_SubprocVecEnv([envs.Script], "fork", autoreset_mode="disabled")
    with pytest.raises(ConfigError, match="worker 1: its observation_space is"):
        Async_SubprocVecEnv([envs.Script, envs.cart_pole], "fork")
    with pytest.raises(ConfigError, match="worker 0: its environment has no observation_space"):
        Async_SubprocVecEnv([envs.Unseeded], "fork")
    env = Async_SubprocVecEnv([envs.Script] * 2, "fork")
    with pytest.raises(ResetNeeded):
        env.step(np.array([0, 0]))
    env.reset()
    with pytest.raises(ShapeError, match="3 actions for 2 workers"):
        env.step(np.array([0, 0, 0]))
    with pytest.raises(ShapeError, match="step_wait"):
        env.step_wait()
    with pytest.raises(ShapeError, match="1 seeds for 2 workers"):
        env.seed([4])
    state = np.random.get_state()[1].tolist()
    assert env.seed() != env.seed()
    assert np.random.get_state()[1].tolist() == state
    env.close()


def test_both_spellings_name_the_same_class():
    """The published name has two spellings."""
    assert ASYNC_SubprocVecEnv is Async_SubprocVecEnv


def test_indices_count_from_the_end_too():
    """As in Python's lists: the last of three is -1; -4 and 3 are out of range, and repetitions are refused."""
    env = Async_SubprocVecEnv([monitored] * 3, "fork")
    env.reset()
    env.set_attr("t", 2, indices=-1)
    assert env.get_attr("t", indices=[0, -1]) == [0, 2]
    assert env.env_method("add", 10, indices=[-1, 0]) == [11, 11]
    assert env.env_is_wrapped(Monitor, indices=-3) == [True]
    for wrong in (-4, [0, 3], [2, -1], [True], 0.5):
        with pytest.raises(ShapeError):
            env.get_attr("t", indices=wrong)
    env.close()
