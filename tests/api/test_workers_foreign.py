"""Unexpected environments and callers of a pool: readable values are accepted, others raise a clear error."""

import copy
import os
import pickle
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from milkrun.api._remote import put
from milkrun.api.workers import Aligned, Workers
from milkrun.core.errors import Closed, ConfigError, ShapeError, WorkerError
from tests.api import worker_envs as envs


class Shows(envs.Script):
    """Shows what it was given, in a Box of a dtype."""

    def __init__(self, dtype, seen):
        super().__init__()
        self.observation_space, self.seen = spaces.Box(0, 100, np.shape(seen), dtype), seen

    def _look(self):
        return self.seen


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(
    ("dtype", "seen", "message"),
    [
        (np.int32, np.array([1, 2**31 + 5]), r"int32, int64 in 1\.\.2147483653"),
        (np.int8, np.array([300, 0]), r"int8, int64 in 0\.\.300"),
        (np.int8, np.array([200], np.uint8), r"int8, uint8 in 200\.\.200"),
        (np.uint8, [-1, 2], r"uint8, int64 in -1\.\.2"),
        (np.int64, np.array([2**63], np.uint64), r"int64, uint64 in 9223372036854775808"),
        (np.int32, np.array([1.5]), "int32, float64"),
    ],
)
def test_integers_that_do_not_fit_are_refused(shared_memory, dtype, seen, message):
    """2**31 + 5 in an int32 would be -2147483643, 300 in an int8 44: the range is named, with and without shared
    memory."""
    pool = Workers([partial(Shows, dtype, seen)], "fork", shared_memory)
    with pytest.raises(WorkerError, match=rf"ShapeError: .* dtype {message}.* does not fit"):
        pool.reset()


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(
    ("dtype", "seen", "expected"),
    [
        (np.uint8, [1, 2], [1, 2]),
        (np.int8, np.array([-128, 127]), [-128, 127]),
        (np.int64, np.array([2**63 - 1], np.uint64), [2**63 - 1]),
        (np.float32, [0.1], [np.float32(0.1)]),
        (np.int16, np.zeros((0, 2), np.int64), []),
    ],
)
def test_values_that_fit_are_accepted_in_any_dtype(shared_memory, dtype, seen, expected):
    """A list of small integers in a Box of bytes, both ends of an int8, and floats that round."""
    with Workers([partial(Shows, dtype, seen)], "fork", shared_memory) as pool:
        obs, _ = pool.reset()
        assert (obs[0].dtype, obs[0].tolist()) == (dtype, expected)


class Allows(envs.Script):
    """Its mask is given, as a method, an attribute or in the info."""

    def __init__(self, by, mask):
        super().__init__()
        self.by, self.mask = by, mask
        self.mask_calls = 0
        if by != "info":
            self.action_masks = mask if by == "attribute" else self._action_masks

    def _action_masks(self):
        self.mask_calls += 1
        return self.mask

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset()
        return obs, info | ({"action_mask": self.mask} if self.by == "info" else {})


RAGGED = [[False, True], [False, False, False]]


@pytest.mark.parametrize(
    ("by", "mask", "expected"),
    [
        ("attribute", np.array([False, True, True]), [False, True, True]),
        ("method", RAGGED, [False, True, True, False, False]),
        ("info", [np.array(part) for part in RAGGED], [False, True, True, False, False]),
        ("method", np.array(RAGGED, object), [False, True, True, False, False]),
        ("method", [[False, True], [False, False]], [[False, True], [True, False]]),
    ],
)
def test_masks_of_every_form_are_read(by, mask, expected):
    """Attributes are read too; parts of different lengths are concatenated, each with something allowed."""
    with Workers([partial(Allows, by, mask)], "fork") as pool:
        pool.reset()
        assert pool.masks[0].dtype == bool
        assert pool.masks[0].tolist() == expected


@pytest.mark.parametrize("mask", [True, [], [True, [True, False]], "yes"])
def test_invalid_masks_are_refused(mask):
    """One bool, nothing, a bool next to a list, a word."""
    pool = Workers([partial(Allows, "info", mask)], "fork")
    with pytest.raises(WorkerError, match=r"ShapeError: the action mask is .*: must be an array with an entry"):
        pool.reset()


def test_masks_are_requested_again_after_a_call():
    """A change by a call is seen before the next turn, for the workers called; masks of infos stay until then."""
    first, changed = [False, True, True], [True, False, False]
    with Workers([partial(Allows, by, first) for by in ("method", "method", "info")], "fork") as pool:
        pool.reset()
        pool.call("__setattr__", "mask", changed, ids=[1, 2])
        assert [mask.tolist() for mask in pool.masks] == [first, changed, first]
        pool.call("__setattr__", "mask", first, ids=1)
        pool.send([0, 0, 0])
        assert pool.masks[1].tolist() == changed  # no worker can be called now
        pool.receive()
        assert pool.masks[1].tolist() == first


def test_masks_are_requested_no_more_often_than_needed():
    """At the reset, once after a call however often they are read, and at the step; then no further request is made."""
    with Workers([partial(Allows, "method", [False, True, True])], "fork") as pool:
        pool.reset()
        pool.call("t")
        assert pool.masks[0].tolist() == pool.masks[0].tolist() == [False, True, True]
        pool.call("t")
        pool.step([0])
        assert pool.masks[0].tolist() == [False, True, True]
        assert pool.call("mask_calls") == [3]


class Around:
    """A classic wrapper that passes on what it does not have."""

    def __init__(self, env):
        self.env, self.mine = env, "outside"

    def __getattr__(self, name):
        if name == "env":  # not yet there
            raise AttributeError(name)
        return getattr(self.env, name)


@pytest.mark.parametrize("inner", [partial(envs.Classic, {}), lambda: Around(envs.Script()), envs.cart_pole])
def test_attributes_behind_a_classic_wrapper_are_found(inner):
    """Its own, those it passes on, and those behind Gymnasium's wrappers inside it."""
    with Workers([lambda: Around(inner())], "fork") as pool:
        assert pool.call("mine") == ["outside"]
        assert pool.call("action_space")[0] in (spaces.Discrete(3), spaces.Discrete(2))
        name, value = ("gravity", 9.8) if inner is envs.cart_pole else ("observation_space", pool.observation_spaces[0])
        assert pool.call(name) == [value]
        pool.call(put, "mine", "set")
        assert pool.call("mine") == ["set"]


def test_an_attribute_that_is_not_there_leaves_the_pool_alive():
    """The error names the worker; the others were called too, and all go on. An exception while answering ends the
    pool."""
    pool = Workers([envs.Script, envs.Unseeded], "fork")
    with pytest.raises(AttributeError, match="worker 1: the environment has no 'episode'"):
        pool.call("episode")
    with pytest.raises(AttributeError, match="worker 0, 1: the environment has no 'nope'"):
        pool.call("nope", 1)
    pool.reset()
    with pytest.raises(WorkerError, match=r"worker 0 .*TypeError.* while answering 'call add'"):
        pool.call("add", "word", ids=0)
    with pytest.raises(Closed):
        pool.reset()


@pytest.mark.parametrize("result", [(np.zeros(2), 1.0, False), (np.zeros(2), 1.0, {}), None, (0, 0, 0, 0, 0, 0)])
def test_a_step_result_of_another_length_is_refused(result):
    """Three results, none, or six of one agent."""
    pool = Aligned(Workers([envs.Script, partial(Steps, result)], "fork"))
    pool.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .*ShapeError: step\(\) must return obs, reward, terminated"):
        pool.step([0, 0])


class Steps(envs.Script):
    """Its step returns what it was given."""

    def __init__(self, result):
        super().__init__()
        self.result = result

    def step(self, action):
        return self.result


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_pool_is_neither_copied_nor_pickled(act):
    """The error says what to do, and the pool goes on."""
    with Workers([envs.Script], "fork") as pool:
        with pytest.raises(ConfigError, match="a pool of processes cannot be copied or pickled: make another"):
            act(pool)
        with pytest.raises(ConfigError, match="cannot be copied"):
            copy.deepcopy(Aligned(pool))
        pool.reset()


def test_one_function_or_action_is_no_list():
    """Neither is a list of one; no worker gets a command."""
    with pytest.raises(ConfigError, match="env_fns is a function: must be a list of functions"):
        Workers(lambda: envs.Script())
    with Workers([envs.Script], "fork") as pool:
        pool.reset()
        for actions in (1, np.array(1), None):
            with pytest.raises(ShapeError, match=r"actions=.*: must have one for each of 1 workers"):
                pool.step(actions)
        assert len(pool.call("log")[0]) == 1


@pytest.mark.parametrize(("made", "message"), [(None, "None"), (7, "a int"), (object(), "a object")])
def test_a_function_that_makes_no_environment_is_named(made, message):
    """The error names the returned value and what it lacks."""
    with pytest.raises(
        WorkerError, match=rf"ConfigError: env_fns\[1\] returned {message}, which has no reset and step"
    ):
        Workers([envs.Script, lambda: made], "fork")


class Sticks(envs.Script):
    """Cannot be closed."""

    def close(self):
        raise RuntimeError("the door is stuck\nand has been for long")


def test_an_environment_that_cannot_be_closed_says_so_in_one_line(capfd):
    """There is no traceback, and close() of the pool works as usual."""
    pool = Workers([Sticks, envs.Script], "fork")
    pids = pool.pids
    pool.close()
    assert capfd.readouterr().err == f"worker 0 (process {pids[0]}): close() raised RuntimeError: the door is stuck\n"


@pytest.mark.parametrize(("code", "is_advised"), [(1, True), (7, False)])
def test_the_guard_is_advised_only_where_it_may_be_missing(code, is_advised):
    """A script that raised ends with 1; another code is not a script's."""
    with pytest.raises(WorkerError, match=f"exit code {code} while answering 'start'") as caught:
        Workers([partial(leave, code)], "fork")
    assert ("; perhaps the script" in str(caught.value)) is ("__main__" in str(caught.value)) is is_advised


def leave(code):
    os._exit(code)
