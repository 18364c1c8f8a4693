"""`step_async` and `step_wait`: the two halves of a turn; environments in processes step in between."""

import threading
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from milkrun.api.mappo import MAPPOVecEnv
from milkrun.api.sb3 import Async_SubprocVecEnv, SB3VecEnv
from milkrun.api.workers import Workers
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import Closed, ConfigError, ShapeError
from tests.api import worker_envs as envs


class Marks(envs.Script):
    """Leaves a file on every step."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def step(self, action):
        self.path.touch()
        return super().step(action)


def appears(path: Path, seconds: float) -> bool:
    waiting = threading.Event()
    for _ in range(int(100 * seconds)):
        if path.exists():
            return True
        waiting.wait(0.01)
    return False


def test_environments_step_before_step_wait(tmp_path):
    """Both steps finish before `step_wait` is called; then the turn is an ordinary one."""
    paths = [tmp_path / "0", tmp_path / "1"]
    env = Async_SubprocVecEnv([partial(Marks, path) for path in paths], "fork")
    env.reset()
    env.step_async(np.array([0, 0]))
    assert all(appears(path, 10) for path in paths)
    obs, rewards, dones, _ = env.step_wait()
    assert (obs.tolist(), rewards.tolist(), dones.tolist()) == ([[1, 1]] * 2, [1, 1], [False, False])
    env.close()


def test_other_calls_between_the_halves_are_refused():
    """A second step and a query raise, and the turn is unaffected; after it there is nothing to wait for."""
    env = Async_SubprocVecEnv([envs.Script] * 2, "fork")
    env.reset()
    env.step_async(np.array([0, 0]))
    for request in (lambda: env.step_async(np.array([0, 0])), lambda: env.get_attr("log")):
        with pytest.raises(ConfigError, match="a turn is under way"):
            request()
    assert env.step_wait()[1].tolist() == [1, 1]
    with pytest.raises(ShapeError, match="no turn is under way"):
        env.step_wait()
    env.step_async(np.array([0, 0]))
    env.close()
    with pytest.raises(Closed):
        env.step_wait()


def test_a_reset_between_the_halves_drops_the_turn():
    """Its results are dropped; the next step is the first of the new episode, and no end is left over from it."""
    env = Async_SubprocVecEnv([envs.Script], "fork")
    env.reset()
    for _ in range(2):
        env.step(np.array([0]))
    env.step_async(np.array([0]))
    assert env.reset().tolist() == [[2, 0]]
    obs, rewards, dones, _ = env.step(np.array([0]))
    assert (obs.tolist(), rewards.tolist(), dones.tolist()) == ([[2, 1]], [1], [False])
    env.close()


def test_a_pool_without_a_framework_has_the_halves_too():
    """`send` and `receive` of some workers are `step` of them."""
    with Workers([envs.Script] * 3, "fork") as pool:
        pool.reset()
        pool.send([0, 0], [2, 0])
        assert pool.under_way
        obs, rewards, *_ = pool.receive()
        assert not pool.under_way
        assert (obs.tolist(), rewards.tolist()) == ([[1, 1]] * 2, [1, 1])


@pytest.mark.parametrize(
    ("make", "actions"),
    [
        (lambda: SB3VecEnv("milkrun/TSP-v0", 2, num_loc=5), np.array([1, 1])),
        (lambda: MAPPOVecEnv("milkrun/TSP-v0", 2, num_loc=5), np.array([[1], [1]])),
        (lambda: VRPDummyVecEnv([partial(VRPEnv, Namespace(seed=5))] * 2), np.zeros((2, 3), int)),
    ],
    ids=["SB3VecEnv", "MAPPOVecEnv", "VRPDummyVecEnv"],
)
def test_in_this_process_a_second_step_async_is_refused(make, actions):
    """The first one's actions would be lost; a reset forgets them."""
    env = make()
    env.reset()
    env.step_async(actions)
    with pytest.raises(ConfigError, match="step_async\\(\\) was called twice"):
        env.step_async(actions)
    env.reset()
    with pytest.raises(ShapeError, match="step_wait\\(\\) has no actions"):
        env.step_wait()
    env.close()
