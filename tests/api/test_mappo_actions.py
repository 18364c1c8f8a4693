"""The actions MAPPOVecEnv takes: numbers, columns and one-hot vectors, padded choices, a step in two halves."""

import numpy as np
import pytest
import torch

from milkrun.api.mappo import MAPPOVecEnv
from milkrun.core.errors import IllegalAction, ShapeError
from tests.api.test_mappo import convoy
from tests.core.toys import checksum

FORMS = {
    "numbers": lambda x: x,
    "column": lambda x: x[:, :, None],
    "int32": lambda x: x.astype(np.int32),
    "list": lambda x: x.tolist(),
    "strided": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "one-hot float32": lambda x: np.eye(4, dtype=np.float32)[x],
    "one-hot bool": lambda x: np.eye(4, dtype=bool)[x],
    "tensor": lambda x: torch.from_numpy(x),
    "one-hot tensor": lambda x: torch.nn.functional.one_hot(torch.from_numpy(x), 4),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_actions_is_the_same_step(form):
    """Numbers, a column of them and one-hot vectors move a convoy alike."""
    env, world = MAPPOVecEnv(convoy()), convoy()
    env.reset()
    world.reset()
    for t in range(12):
        actions = world.sample_actions(1, t)
        env.step(form(actions))
        world.step(actions)
    assert checksum(env.world) == checksum(world)


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((5, 2), int),
        np.zeros((5, 3)),
        np.zeros((5, 3), bool),
        np.zeros((5, 3, 4)),
        np.ones((5, 3, 4), int),
        2 * np.eye(4)[np.zeros((5, 3), int)],
        np.zeros((5, 3, 2), int),
        "go",
        [[1], [1, 2]],
    ],
)
def test_bad_actions_are_refused_and_change_nothing(actions):
    """A ShapeError, whatever is wrong; no row has moved."""
    env = MAPPOVecEnv(convoy())
    env.reset()
    before = checksum(env.world)
    with pytest.raises(ShapeError, match=r"actions|not an array"):
        env.step(actions)
    assert checksum(env.world) == before


def test_padded_actions_are_never_available():
    """pad_actions gives drones four choices as the truck has; the two they lack are masked, illegal if taken."""
    plain, env = MAPPOVecEnv(convoy()), MAPPOVecEnv(convoy(), pad_actions=True)
    assert [space.n for space in plain.action_space] == [4, 2, 2]
    assert [space.n for space in env.action_space] == [4, 4, 4]
    assert (env.reset()[2][:, 1:, 2:] == 0).all()
    actions = np.zeros((5, 3), int)
    actions[1, 2] = 3
    infos = env.step(np.eye(4)[actions])[4]
    assert [infos[b][2]["illegal"] for b in range(5)] == [False, True, False, False, False]
    strict = MAPPOVecEnv(convoy(illegal="raise"))
    strict.reset()
    with pytest.raises(IllegalAction, match="row 1"):
        strict.step(actions)


def test_step_in_two_halves():
    """step_async takes the actions, even if their array changes; step_wait plays them, once."""
    env, world = MAPPOVecEnv(convoy()), convoy()
    env.reset()
    world.reset()
    actions = np.ones((5, 3), int)
    env.step_async(actions)
    actions[:] = 0
    env.step_wait()
    world.step(np.ones((5, 3), int))
    assert checksum(env.world) == checksum(world)
    with pytest.raises(ShapeError, match="step_async"):
        env.step_wait()
