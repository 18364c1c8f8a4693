"""Calls between turns under the names of Stable-Baselines3 and tianshou: masks, attributes, names in error messages."""

import copy
import pickle
import threading
from functools import partial

import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.monitor import Monitor

from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.api.tianshou import SubprocVecEnv_TS
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, WorkerError
from tests.api import worker_envs as envs

masks_in_infos = partial(envs.Masked, "info")


@pytest.fixture
def pool_of():
    """Makes pools of SB3's class and closes them afterwards."""
    made = []

    def make(env_fns, **options):
        made.append(Async_SubprocVecEnv(env_fns, "fork", **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def resets_of(env):
    return [entry[1:] for entry in env.get_attr("log")[0] if entry[0] == "reset"]


@pytest.mark.parametrize("change", ["set_attr", "env_method", "call"])
def test_masks_are_those_after_the_change(pool_of, change):
    """A reset allows 1 and 2, t = 1 only 1: t is set in worker 1 between turns, and the masks returned follow it."""
    env = pool_of([partial(envs.Masked, "method")] * 2)
    env.reset()
    assert get_action_masks(env).tolist() == [[False, True, True]] * 2
    if change == "set_attr":
        env.set_attr("t", 1, indices=1)
    elif change == "env_method":
        env.env_method("__setattr__", "t", 1, indices=1)
    else:
        env.workers.call("__setattr__", "t", 1, ids=1)
    assert get_action_masks(env).tolist() == [[False, True, True], [False, True, False]]


def test_masks_in_infos_stay_after_a_change(pool_of):
    """No method can be called, so the masks of the last info stay in force."""
    env = pool_of([masks_in_infos])
    env.reset()
    env.set_attr("t", 1)
    assert is_masking_supported(env) and get_action_masks(env).tolist() == [[False, True, True]]


def test_a_fresh_pool_finds_masks_in_infos(pool_of):
    """The query makes one reset, with the seeds and options that were set, and the next reset() returns its result. A
    Monitor that allows no early resets accepts this."""
    env = pool_of([lambda: Monitor(masks_in_infos(), allow_early_resets=False)] * 2)
    env.seed(5)
    env.set_options({"level": 2})
    assert is_masking_supported(env) and is_masking_supported(env)
    with pytest.raises(ResetNeeded):
        env.step(np.array([1, 1]))
    assert env.reset().tolist() == [[1, 0]] * 2
    assert env.reset_infos[1]["episode"] == 1
    assert resets_of(env) == [(5, {"level": 2})]
    assert env.step(np.array([1, 1]))[1].tolist() == [1, 1]


@pytest.mark.parametrize("change", ["seed", "set_options", "set_attr", "env_method"])
def test_settings_after_the_query_take_effect(pool_of, change):
    """The reset that the query made is repeated, with the earlier seeds and all later settings."""
    env = pool_of([masks_in_infos])
    env.seed(5)
    assert is_masking_supported(env)
    act = {"seed": (6,), "set_options": ({"level": 1},), "set_attr": ("end", "never"), "env_method": ("add", 1)}
    getattr(env, change)(*act[change])
    with pytest.raises(ResetNeeded):
        env.step(np.array([1]))
    assert env.reset().tolist() == [[2, 0]]
    last = {"seed": (6, None), "set_options": (5, {"level": 1})}.get(change, (5, None))
    assert resets_of(env) == [(5, None), last]
    env.reset()
    assert resets_of(env)[2] == (None, None)


def test_a_closed_pool_begins_no_episode(pool_of):
    """Not even the one that was begun before the close."""
    env = pool_of([masks_in_infos])
    assert is_masking_supported(env)
    env.close()
    with pytest.raises(Closed):
        env.reset()


def test_only_a_query_for_masks_begins_an_episode(pool_of):
    """A query for another attribute begins none, nor one where a method gives masks, nor one in mid-episode."""
    env = pool_of([partial(envs.Masked, "method")])
    assert not env.has_attr("windmill") and is_masking_supported(env)
    assert resets_of(env) == []
    env = pool_of([envs.Script])
    assert not is_masking_supported(env) and not is_masking_supported(env)
    assert env.reset().tolist() == [[1, 0]]
    env.step(np.array([0]))
    assert not is_masking_supported(env)
    assert env.step(np.array([0]))[1].tolist() == [2]


def test_evaluate_policy_of_sb3_contrib_takes_a_fresh_pool(pool_of):
    """Episodes of 1 + 2 + 5, with masks that come in infos alone."""
    env = pool_of([lambda: Monitor(masks_in_infos())] * 2)
    model = MaskablePPO("MlpPolicy", env, n_steps=4, batch_size=4, device="cpu")
    returns, _ = evaluate_policy(model, env, n_eval_episodes=4, return_episode_rewards=True)
    assert returns == [8.0] * 4


def test_masks_that_are_an_attribute(pool_of):
    """Before and after the first reset."""
    env = pool_of([fixed_masks])
    assert is_masking_supported(env) and get_action_masks(env).tolist() == [[True, False, True]]
    env.reset()
    assert get_action_masks(env).tolist() == [[True, False, True]]


def fixed_masks():
    env = envs.Script()
    env.action_masks = np.array([True, False, True])
    return env


def test_errors_name_the_requested_attribute(pool_of):
    """The error names the method or attribute, not the function that was sent to the worker."""
    for request, command in [
        (lambda env: env.env_method("add", "word"), "env_method add"),
        (lambda env: env.get_attr("lock"), "get_attr lock"),
        (lambda env: env.set_attr("sealed", 1), "set_attr sealed"),
    ]:
        env = pool_of([Difficult])
        with pytest.raises(WorkerError, match=rf"while answering '{command}'") as caught:
            request(env)
        assert caught.value.command == command
    venv = SubprocVecEnv_TS([Difficult], context="fork")
    with pytest.raises(WorkerError, match=r"while answering 'get_env_attr lock'"):
        venv.get_env_attr("lock")


class Difficult(envs.Script):
    """Has an attribute that cannot travel and one that cannot be set."""

    sealed = property(lambda self: 0)

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


def test_missing_attributes_are_none_for_tianshou():
    """As in its own SubprocVectorEnv; the pool goes on, also where a classic environment has no metadata."""
    venv = SubprocVecEnv_TS([partial(envs.Classic, {}), envs.Script], context="fork")
    assert venv.get_env_attr("nope") == [None, None]
    assert venv.get_env_attr("seeds") == [[], None]
    assert venv.metadata == [None, envs.Script.metadata]
    assert venv.reset()[0].tolist() == [[1, 0]] * 2
    venv.close()


def test_a_worker_of_tianshou_does_not_load_it():
    """After attributes were read and set; `spawn` begins with nothing loaded."""

    def loaded_modules(env):
        import sys

        return [name for name in ("gymnasium", "torch", "tianshou") if name in sys.modules]

    venv = SubprocVecEnv_TS([envs.Script], context="spawn")
    venv.set_env_attr("t", 2)
    assert venv.get_env_attr("t") == [2]
    assert venv.pool.workers.call(loaded_modules) == [["gymnasium"]]
    venv.close()


@pytest.mark.parametrize("make", [partial(Async_SubprocVecEnv, start_method="fork"), SubprocVecEnv_TS])
def test_one_function_and_copies_are_refused(make):
    """By the classes of both libraries, with the message of the pool."""
    with pytest.raises(ConfigError, match="env_fns is a function: must be a list of functions"):
        make(lambda: envs.Script())
    env = make([envs.Script])
    for act in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ConfigError, match="cannot be copied or pickled"):
            act(env)
    env.close()
