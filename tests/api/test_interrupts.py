"""A keyboard interrupt that is caught: the call it met has happened whole or not at all, and play goes on."""

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.api.tianshou import SubprocVecEnv_TS
from milkrun.api.workers import Aligned, Workers
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv, VRPSubprocVecEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import ResetNeeded
from milkrun.tracking import Envs
from tests.api import worker_envs as envs
from tests.api.interrupt_tools import assert_whole_or_not_at_all, call_until, interrupt, plain
from tests.api.test_workers_failure import ENVIRONMENT, ROOT

EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
"""At every ninth line, and where there is time at every line."""


@EVERY
def test_envs_of_other_environments_finish_the_turn(every):
    """Each in its thread: an interrupt at any line, and the next step is the next one of all, never of some."""
    line, came = 1, True
    while came:
        with Envs(2, [envs.Script(), envs.Script()]) as play:
            play.reset()
            came, _ = call_until(lambda e=play: e.step([0, 0]), line)
            seen = play.step([0, 0])[0].tolist()
        assert seen in ([[1, 1]] * 2, [[1, 2]] * 2)
        line += every
    assert line > 20


# -- environments in other processes ---------------------------------------------------------------------------


def signalled():
    """As a terminal does it: the handler that is installed decides."""
    signal.raise_signal(signal.SIGINT)


def pool_step(env):
    return env.step(np.zeros(2, int))


def vrp_step(env):
    return env.step(np.zeros((2, 3), int))


POOLS = {
    "Aligned": (lambda: Aligned(Workers([envs.Script] * 2, "fork")), pool_step),
    "Async_SubprocVecEnv": (lambda: Async_SubprocVecEnv([envs.Script] * 2, "fork"), pool_step),
    "Async_SubprocVecEnv, same_step": (
        lambda: Async_SubprocVecEnv([envs.Script] * 2, "fork", autoreset_mode="same_step", shared_memory=False),
        pool_step,
    ),
    "SubprocVecEnv_TS": (lambda: SubprocVecEnv_TS([envs.Script] * 2, context="fork"), pool_step),
}


def outcomes(make, step, before, call):
    """What two more turns give, without the call and after it."""
    given = []
    for with_call in (False, True):
        env = make()
        env.reset()
        for _ in range(before):
            step(env)
        if with_call:
            call(env)
        given.append([plain(step(env)) for _ in range(2)])
        env.close()
    return given


@pytest.mark.parametrize("deliver", [interrupt, signalled], ids=["raised", "signalled"])
@pytest.mark.parametrize("name", POOLS)
@EVERY
def test_a_pool_outlives_an_interrupt_at_any_line(name, deliver, every, interrupts):
    """Four turns of the script 1, 2, 5, 0, each interrupted at a line of its own: what the next turns give is never
    shifted, and no environment is ahead of the other."""
    make, step = POOLS[name]
    wanted = {before: outcomes(make, step, before, step) for before in range(4)}
    env, line, came = make(), 1, True
    assert wanted[1][0] != wanted[1][1]
    while came:
        before = line % 4
        _rewind(env)
        for _ in range(before):
            step(env)
        came, _ = call_until(lambda: step(env), line, deliver)
        found = [plain(step(env)) for _ in range(2)]
        assert found in wanted[before], f"interrupted at line {line} of the call"
        line += every
    env.close()
    assert line > 50


def _rewind(env):
    """As just made and reset."""
    workers = env.pool.workers if hasattr(env, "pool") else env.workers
    workers.call(_forget)
    env.reset()


def _forget(env):
    env.episode = env.t = 0


@pytest.mark.parametrize("deliver", [interrupt, signalled], ids=["raised", "signalled"])
@EVERY
def test_seeds_of_a_pool_are_used_once(deliver, every, interrupts):
    """An interrupted reset has used its seeds up, or the next one does."""
    env, line, came = Async_SubprocVecEnv([envs.Script] * 2, "fork"), 1, True
    while came:
        env.set_attr("log", [])
        env.seed(7)
        came, _ = call_until(env.reset, line, deliver)
        env.reset()
        told = [[entry[1] for entry in log] for log in env.get_attr("log")]
        assert told in ([[7, None], [8, None]], [[7], [8]]), f"interrupted at line {line}"
        line += every
    env.close()


def test_a_team_in_processes_goes_on(interrupts):
    """VRPSubprocVecEnv over a step interrupted at every fifth line: the clock of both teams stays the same."""
    env = VRPSubprocVecEnv([partial(VRPEnv, _namespace())] * 2, start_method="fork")
    line, came = 1, True
    env.reset()
    while came:
        came, _ = call_until(lambda: vrp_step(env), line, signalled)
        *_, dones, infos = vrp_step(env)
        assert len({row[0]["time_step"] for row in infos}) == 1 and len(set(map(tuple, dones.tolist()))) == 1
        line += 5
    env.close()


def test_a_team_in_this_process_is_whole_or_not_at_all():
    """VRPDummyVecEnv on one world where an episode ends in the step: its next one has begun, whatever came between."""
    env = VRPDummyVecEnv([partial(VRPEnv, _namespace(episode_length=3))] * 2)
    env.reset()
    vrp_step(env), vrp_step(env)
    assert_whole_or_not_at_all(env, vrp_step, lambda e: [vrp_step(e) for _ in range(3)])


def test_teams_that_share_no_world_ask_for_a_reset():
    """Two that have begun already, of which one has moved when the other is interrupted: no half step is continued."""

    def begun():
        env = VRPEnv(_namespace())
        env.reset()
        return env

    env = VRPDummyVecEnv([begun] * 2)
    env.reset()
    env.envs[1].step = interrupted
    with pytest.raises(KeyboardInterrupt):
        vrp_step(env)
    del env.envs[1].step
    with pytest.raises(ResetNeeded, match="broken off"):
        vrp_step(env)
    env.reset()
    assert {row[0]["time_step"] for row in vrp_step(env)[3]} == {1}


def interrupted(*args):
    raise KeyboardInterrupt


def _namespace(**options):
    from argparse import Namespace

    return Namespace(seed=5, **options)


GROUP = """
import os, signal, sys
import numpy as np
from milkrun.api.workers import Aligned, Workers
from tests.api import worker_envs as envs
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    env = Aligned(Workers([envs.Interrupter] * 2, sys.argv[1]))
    env.reset()
    caught = 0
    try:
        env.step(np.array([0, 1]))
    except KeyboardInterrupt:
        caught = 1
    print(caught, env.step(np.array([0, 0]))[1].tolist(), env.step(np.array([0, 0]))[1].tolist(), flush=True)
    env.close()
"""


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_ctrl_c_at_a_terminal_leaves_the_pool_alive(start_method):
    """SIGINT for the whole group of processes in mid-step: the parent is interrupted, the workers go on, and the next
    turns are the second and the third."""
    run = subprocess.run(
        [sys.executable, "-c", GROUP, start_method],
        cwd=ROOT,
        env=ENVIRONMENT,
        text=True,
        capture_output=True,
        timeout=120,
        start_new_session=True,
    )
    assert run.stdout.strip() == "1 [2.0, 2.0] [5.0, 5.0]", run.stderr


def test_an_interrupted_pool_is_closed_without_waiting(interrupts):
    """Worker 1 sleeps for a minute when the interrupt comes; close() does not wait for it, and nobody is left."""
    pool = Workers([envs.Interrupter] * 2, "fork")
    pids = pool.pids
    pool.reset()
    with pytest.raises(KeyboardInterrupt):
        pool.step([0, 2])
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
