"""Actions of the list API: all forms are equivalent, invalid ones are refused, masked ones are flagged by agent."""

from argparse import Namespace

import numpy as np
import pytest

from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import ShapeError
from tests.compat.test_vrp_env import assert_bits


@pytest.mark.parametrize("preset", ["published", "default"])
def test_all_forms_of_an_action_are_equivalent(preset):
    """Integers, numpy integers, arrays of one, one-hot vectors, and arrays of all agents."""

    def ints(actions, choices):
        return actions

    def one_hot(actions, choices):
        return [np.eye(n)[a] for a, n in zip(actions, choices)]

    forms = [
        ints,
        one_hot,
        lambda actions, choices: [np.eye(n, dtype=np.int8)[a].tolist() for a, n in zip(actions, choices)],
        lambda actions, choices: tuple(np.int32(a) for a in actions),
        lambda actions, choices: [np.array(a) for a in actions],
        lambda actions, choices: [np.array([a]) for a in actions],
        lambda actions, choices: np.array(actions),
        lambda actions, choices: np.array(actions, np.uint8)[:, None],
    ]
    envs = [VRPEnv(Namespace(preset=preset, seed=2)) for _ in forms]
    for env in envs:
        env.reset()
    rng = np.random.default_rng(1)
    choices = [space.n for space in envs[0].action_space]
    for _ in range(20):
        actions = [int(rng.integers(n)) for n in choices]
        results = [env.step(form(actions, choices)) for env, form in zip(envs, forms)]
        for other in results[1:]:
            for a in range(3):
                assert_bits(other[0][a], results[0][0][a])
            assert other[1:3] == results[0][1:3]
            assert [i["executed_action"] for i in other[3]] == [i["executed_action"] for i in results[0][3]]


BAD_ACTIONS = {
    "too few": [0, 0],
    "too many": [0, 0, 0, 0],
    "no list": 3,
    "a float": [0.0, 0, 0],
    "a bool": [True, 0, 0],
    "a numpy bool": [0, np.bool_(False), 0],
    "a float array": [np.array([1.0]), 0, 0],
    "a name": ["STAY", 0, 0],
    "two numbers": [np.array([1, 2]), 0, 0],
    "one-hot of another agent": [0, np.eye(10)[1], 0],
    "two hot": [0, np.array([1, 0, 1, 0, 0]), 0],
    "none hot": [0, np.zeros(5), 0],
    "half hot": [0, np.array([0, 0.5, 0, 0, 0]), 0],
    "nearly hot": [0, np.array([0.1, 0.6, 0.1, 0.1, 0.1]), 0],
    "not a number": [0, np.array([np.nan, 0, 1, 0, 0]), 0],
    "beyond 64 bits": [2**70, 0, 0],
    "by name": {"truck_0": 0, "drone_0": 0, "drone_1": 0},
    "ragged": [[[1], [1, 2]], 0, 0],
}


@pytest.mark.parametrize("actions", BAD_ACTIONS.values(), ids=BAD_ACTIONS)
def test_an_invalid_action_is_refused_and_changes_nothing(actions):
    """ShapeError, and the row is unchanged."""
    env, other = VRPEnv(Namespace(seed=1)), VRPEnv(Namespace(seed=1))
    env.reset(), other.reset()
    with pytest.raises(ShapeError):
        env.step(actions)
    assert env.current_step == 0
    for a, b in zip(env.step([6, 0, 0])[0], other.step([6, 0, 0])[0]):
        assert_bits(a, b)


def test_actions_outside_the_mask_are_flagged_agent_by_agent():
    """Published rules: RELEASE of the airborne drone 0 is executed and flagged, 99 and -1 are action 0. Default:
    replaced."""
    env = VRPEnv(Namespace(seed=1))
    env.reset()
    env.step([6, 0, 0])
    *_, info_n = env.step([6, 99, -1])
    assert [info["illegal"] for info in info_n] == [True, True, True]
    assert [info["executed_action"] for info in info_n] == [6, 0, 0]
    *_, info_n = env.step([0, 2, 3])
    assert [info["illegal"] for info in info_n] == [False, False, True]
    assert [info["executed_action"] for info in info_n] == [0, 2, 3]
    sound = VRPEnv(Namespace(seed=1, preset="default"))
    sound.reset()
    *_, info_n = sound.step([10, 1, 0])
    assert [info["illegal"] for info in info_n] == [True, True, False]
    assert [info["executed_action"] for info in info_n] == [0, 0, 0]
