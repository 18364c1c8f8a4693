"""Errors of MilkrunEnv and MilkrunVectorEnv, with their messages; a refused call changes nothing."""

import numpy as np
import pytest

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.core.errors import BadInstance, ConfigError, IllegalAction, ResetNeeded, ShapeError
from tests.truth.test_gymnasium_conformance import CVRP, assert_same

TSP = "milkrun/TSP-v0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either world_id or world"),
        ({"world_id": CVRP, "world": "a world"}, "either world_id or world"),
        ({"world_id": CVRP, "num_lok": 5}, "'num_loc'"),
        ({"world_id": CVRP, "illegal": "maybe"}, "illegal"),
        ({"world": milkrun.make(CVRP, autoreset="disabled"), "num_loc": 5}, "num_loc cannot be set"),
        ({"world": milkrun.make(CVRP)}, "must be 'disabled'"),
        ({"world": milkrun.make(CVRP, num_envs=2, autoreset="disabled")}, "2 rows, not 1"),
    ],
)
def test_invalid_constructor_arguments_are_refused(arguments, message):
    """Each raises a ConfigError that names the argument."""
    with pytest.raises(ConfigError, match=message):
        MilkrunEnv(**arguments)


def test_bad_vector_arguments_are_refused():
    """Modes, rules and counts."""
    for arguments in ({"autoreset_mode": "sometimes"}, {"seed_rule": "mine"}, {"num_envs": 0}, {"seed": -1}):
        with pytest.raises(ConfigError):
            MilkrunVectorEnv(**{"num_envs": 2, "world_id": CVRP, **arguments})


def test_a_finished_row_needs_a_reset():
    """Before the first reset, after an end of a single row and of a DISABLED batch, whose rows are named."""
    env = MilkrunEnv(TSP, num_loc=2)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        env.step(1)
    env.reset()
    env.step(1)
    assert env.step(0)[2]
    with pytest.raises(ResetNeeded):
        env.step(0)
    batch = MilkrunVectorEnv(3, TSP, num_loc=2, autoreset_mode="disabled")
    with pytest.raises(ResetNeeded, match="reset_mask before"):
        batch.reset(options={"reset_mask": np.array([True, False, False])})
    batch.reset()
    batch.step(np.array([1, 0, 1]))
    batch.step(np.array([0, 1, 0]))
    with pytest.raises(ResetNeeded, match="rows 0, 2 ended"):
        batch.step(np.array([0, 0, 0]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reset_mast": np.ones(2, bool)}, ConfigError, "'reset_mast'; did you mean 'reset_mask'"),
        ({"reset_mask": np.zeros(2, bool)}, ShapeError, "names no row"),
        ({"reset_mask": np.ones(3, bool)}, ShapeError, r"\(3,\)"),
        ({"reset_mask": np.ones(2, int)}, ShapeError, "int64"),
        ({"instance": {"locs": np.zeros((1, 4, 2))}}, ShapeError, "locs"),
        ({"instance": {"locs": np.full((2, 4, 2), np.nan)}}, BadInstance, "row 0: locs"),
        ({"instance": 5}, ShapeError, "mapping"),
    ],
)
def test_bad_options_are_refused_and_change_nothing(options, error, message):
    """The message names the key; the world stays as it was."""
    env = MilkrunVectorEnv(2, TSP, num_loc=4)
    env.reset(seed=1)
    before = env.world.state_dict()
    with pytest.raises(error, match=message):
        env.reset(seed=3, options=options)
    assert_same(env.world.state_dict(), before)


@pytest.mark.parametrize(
    "actions", [np.ones(3, int), np.ones((2, 1), int), np.ones(2), np.ones(2, bool), [[1], 2], None], ids=repr
)
def test_bad_actions_are_refused_and_change_nothing(actions):
    """Wrong shape or dtype; the error of a single row has the shape of one row."""
    env = MilkrunVectorEnv(2, TSP)
    env.reset(seed=1)
    before = env.world.state_dict()
    with pytest.raises(ShapeError, match="actions"):
        env.step(actions)
    assert_same(env.world.state_dict(), before)
    single = MilkrunEnv(TSP)
    single.reset()
    for action in ([1], np.array([1]), 1.0, True, "1", [[1], 2]):
        with pytest.raises(ShapeError, match="action"):
            single.step(action)


def test_illegal_actions_do_nothing_or_raise():
    """Out of range and masked alike; illegal="raise" names row, action and reason and moves no row."""
    env = MilkrunVectorEnv(3, TSP, num_loc=4)
    env.reset(seed=1)
    *_, infos = env.step(np.array([2**40, -1, 1]))
    assert infos["illegal"].tolist() == [True, True, False]
    strict = MilkrunVectorEnv(3, TSP, num_loc=4, illegal="raise")
    strict.reset(seed=1)
    before = strict.world.state_dict()
    with pytest.raises(IllegalAction, match="row 1: action 4: out of range"):
        strict.step(np.array([1, 4, 1]))
    assert_same(strict.world.state_dict(), before)
    single = MilkrunEnv(TSP, num_loc=4, illegal="raise")
    single.reset()
    with pytest.raises(IllegalAction, match="row 0: action 0"):
        single.step(0)
