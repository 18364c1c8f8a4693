"""Ctrl-C during a call of a pool: no process is left, no later result is shifted, and the pool requires a reset."""

import os
import signal
import subprocess
import sys
from argparse import Namespace
from functools import partial

import numpy as np
import pytest

from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.api.tianshou import SubprocVecEnv_TS
from milkrun.api.workers import Aligned, Workers
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import ResetNeeded
from milkrun.tracking import Envs
from tests.api import worker_envs as envs
from tests.api.interrupt_tools import COMPAT, call_until
from tests.api.test_workers_failure import ENVIRONMENT, ROOT

EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
"""At every ninth line, and where there is time at every line."""


def interrupt():
    """As a terminal does it: the handler that is installed decides."""
    signal.raise_signal(signal.SIGINT)


def step(env):
    return env.step(np.zeros(2, int))


POOLS = {
    "Aligned": lambda: Aligned(Workers([envs.Script] * 2, "fork")),
    "Async_SubprocVecEnv, same_step": lambda: Async_SubprocVecEnv(
        [envs.Script] * 2, "fork", autoreset_mode="same_step", shared_memory=False
    ),
    "SubprocVecEnv_TS": lambda: SubprocVecEnv_TS([envs.Script] * 2, context="fork"),
    "Envs": lambda: Envs(2, [envs.Script(), envs.Script()]),
}


def rewards(result):
    return np.asarray(result[1]).tolist()


@pytest.mark.parametrize("name", POOLS)
@EVERY
def test_an_interrupted_step_counts_or_requires_a_reset(name, every, interrupts):
    """After the reset a step pays 1, the next one 2. Ctrl-C interrupts one of them at a chosen line. The following step
    pays the next reward in both environments, or raises ResetNeeded; after a reset a step pays 1 again."""
    env, line, came, needed = POOLS[name](), 1, True, 0
    while came:
        env.reset()
        came, result = call_until(lambda: step(env), line, interrupt, COMPAT)
        try:
            following = rewards(step(env))
        except ResetNeeded:
            needed += 1
        else:
            assert following in ([[2, 2]] if result is not None else [[1, 1], [2, 2]]), f"interrupted at line {line}"
        env.reset()
        assert rewards(step(env)) == [1, 1], f"interrupted at line {line}"
        line += every
    env.close()
    assert line > 20 and needed > 0


@EVERY
def test_an_interrupted_reset_can_be_repeated(every, interrupts):
    """Its seeds are used by that reset or by the next one."""
    env, line, came = Async_SubprocVecEnv([envs.Script] * 2, "fork"), 1, True
    while came:
        env.reset()
        env.set_attr("log", [])
        env.seed(7)
        came, _ = call_until(env.reset, line, interrupt)
        env.reset()
        seeds = [[entry[1] for entry in log] for log in env.get_attr("log")]
        assert seeds in ([[7, None], [8, None]], [[7, 7], [8, 8]], [[7], [8]]), f"interrupted at line {line}"
        line += every
    env.close()


class Interrupts(envs.Script):
    """On action 2 its parent gets Ctrl-C before it gets the reply."""

    def step(self, action):
        if action == 2:
            os.kill(os.getppid(), signal.SIGINT)
        return super().step(action)


def test_only_interrupted_workers_require_a_reset(interrupts):
    """The error names the workers; calls still succeed, and so does a step of another worker."""
    with Workers([Interrupts] * 3, "fork") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step([0, 2], [0, 2])
        with pytest.raises(ResetNeeded, match="worker 0, 2 must be reset"):
            pool.step([0, 0, 0])
        with pytest.raises(ResetNeeded, match="an interrupt met the step"):
            pool.receive()
        assert pool.step([0], [1])[1].tolist() == [1]
        assert pool.call("t") == [1, 1, 1]
        pool.reset([0, 2])
        assert pool.step([0, 0, 0])[1].tolist() == [1, 2, 1]


GROUP = """
import os, signal, sys
import numpy as np
from milkrun.api.workers import Aligned, Workers
from milkrun.core.errors import ResetNeeded
from tests.api import worker_envs as envs
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    env = Aligned(Workers([envs.Interrupter] * 2, sys.argv[1]))
    env.reset()
    caught = []
    for action in (1, 0):
        try:
            env.step(np.array([0, action]))
        except (KeyboardInterrupt, ResetNeeded) as e:
            caught.append(type(e).__name__)
    env.reset()
    print(caught, env.step(np.array([0, 0]))[1].tolist(), env.step(np.array([0, 0]))[1].tolist(), flush=True)
    env.close()
"""


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_ctrl_c_at_a_terminal_leaves_the_pool_alive(start_method):
    """SIGINT for the whole group of processes in mid-step: the parent is interrupted, the workers go on."""
    run = subprocess.run(
        [sys.executable, "-c", GROUP, start_method],
        cwd=ROOT,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=600,
        start_new_session=True,
    )
    assert run.stdout.strip() == "['KeyboardInterrupt', 'ResetNeeded'] [1.0, 1.0] [2.0, 2.0]", run.stderr


def test_an_interrupted_pool_is_closed_without_waiting(interrupts):
    """Worker 1 sleeps for a minute when the interrupt comes; close() does not wait for it, and no process is left."""
    pool = Workers([envs.Interrupter] * 2, "fork")
    pids = pool.pids
    pool.reset()
    with pytest.raises(KeyboardInterrupt):
        pool.step([0, 2])
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def vrp_step(env):
    return env.step(np.zeros((2, 3), int))


def test_teams_on_one_world_require_a_reset(interrupts):
    """VRPDummyVecEnv where an episode ends in the step, at every fifth line: a whole step, or ResetNeeded."""
    env, line, came, needed = VRPDummyVecEnv([partial(VRPEnv, Namespace(seed=5, episode_length=3))] * 2), 1, True, 0
    while came:
        env.reset()
        vrp_step(env), vrp_step(env)
        came, _ = call_until(lambda: vrp_step(env), line, interrupt, COMPAT)
        try:
            infos = vrp_step(env)[3]
        except ResetNeeded:
            needed += 1
        else:
            assert {row[0]["time_step"] for row in infos} in ({1}, {0}), f"interrupted at line {line}"
        line += 5
    assert needed > 0


def test_teams_without_a_shared_world_require_a_reset():
    """Both have begun, and one of them has moved when the other is interrupted: no half step is continued."""

    def begun():
        env = VRPEnv(Namespace(seed=5))
        env.reset()
        return env

    def interrupted(*args):
        raise KeyboardInterrupt

    env = VRPDummyVecEnv([begun] * 2)
    env.reset()
    env.envs[1].step = interrupted
    with pytest.raises(KeyboardInterrupt):
        vrp_step(env)
    del env.envs[1].step
    with pytest.raises(ResetNeeded, match="was interrupted"):
        vrp_step(env)
    env.reset()
    assert {row[0]["time_step"] for row in vrp_step(env)[3]} == {1}
