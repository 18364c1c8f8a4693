"""Environments of the benchmark over a link while processes die. The simulator is killed or stopped, its parent is
killed, or a client is killed while others wait for it. Every call returns, and no process or thread is left."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.compat.dat import GE, Envs, general_env, make_env
from milkrun.core.errors import LinkError, WorkerError
from milkrun.tracking.link import client
from tests.compat.dat_tools import (
    ROW,
    ROWS,
    SEED,
    SMALL,
    by_turns,
    by_world,
    flat,
    without_supplements_at_resets,
)
from tests.tracking.link_tools import gone, simulators_of, until
from tests.tracking.test_link_processes import READY, free_port, listens

SILENCE = 3.0
"""Seconds after which a silent simulator is considered dead in these tests."""
MANY = 20
"""Number of deaths in `make truth`."""
LONG = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch):
    """A test leaves no thread or simulator; a silent simulator is given up sooner."""
    monkeypatch.setattr(client, "Patience", partial(client.Patience, silence=SILENCE))
    before = set(threading.enumerate())
    yield
    until(lambda: set(threading.enumerate()) <= before)
    assert simulators_of(os.getpid()) == []


class FirstStates:
    """The initial state of each episode of each row, by episode and row, in this process."""

    def __init__(self):
        self._envs = Envs(ROWS, GE(ROWS, SMALL, seed=SEED))
        self._states = []

    def __getitem__(self, episode):
        while len(self._states) <= episode:
            self._states.append([state.tobytes() for state in self._envs.reset()])
        return self._states[episode]

    def close(self):
        self._envs.close()


class Watched:
    """Envs with checks in every turn: the result of a lost row, and the initial state of a row."""

    def __init__(self, envs, expected):
        self.envs, self._expected = envs, expected
        self.states, self.episode = envs.reset(), np.zeros(ROWS, int)
        self._check_begun(range(ROWS))
        self.lost = np.zeros(ROWS, int)

    def turn(self):
        """Plays one turn; returns its duration in seconds."""
        envs, began = self.envs, time.monotonic()
        states, rewards, done = envs.step([1, 2, 3])
        seconds = time.monotonic() - began
        for row, env in enumerate(envs.env_list):
            if envs.reset_turn[row]:
                assert (rewards[row], done[row]) == (0.0, False)
            elif env.end_reason == "link_lost":
                assert (rewards[row], done[row], envs.truncated[row], env.r_c, env.r_d) == (0.0, True, True, 0.0, 0.0)
                assert states[row].tobytes() == self.states[row].tobytes()
                assert envs.infos[row]["TimeLimit.truncated"]
                self.lost[row] += 1
        self.states = states
        self.episode += envs.reset_turn
        self._check_begun(np.flatnonzero(envs.reset_turn))
        return seconds

    def _check_begun(self, rows):
        for row in rows:
            assert self.states[row].tobytes() == self._expected[self.episode[row]][row], (row, self.episode)


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(["killed", "stopped"], id="each once"),
        pytest.param(["killed"] * MANY, id="killed", marks=LONG),
        pytest.param(["stopped"] * MANY, id="stopped", marks=LONG),
    ],
)
def test_the_simulator_dies_in_a_step_of_envs(ways):
    """The step returns the last states, no reward, truncated by link_lost. The next turn starts another simulator,
    which continues with the next episode. A row that already had its reply is lost a turn later."""
    section = {**SMALL, "auto_start": True, "port": 0, "delay": READY, "max_restarts": len(ways)}
    with closing(FirstStates()) as expected, Envs(ROWS, GE(ROWS, section, seed=SEED)) as envs:
        watched = Watched(envs, expected)
        for death, way in enumerate(ways):
            if death % 2:
                watched.turn()
            (pid,) = simulators_of(os.getpid())
            port = envs.env_list[0]._source._link.address.port
            before = watched.lost.copy()
            killer = threading.Timer(0.002 * death, os.kill, (pid, signal.SIGKILL))
            if way == "stopped":
                os.kill(pid, signal.SIGSTOP)
                assert watched.turn() < 2.5 * SILENCE
            else:
                if death == 0:
                    os.kill(pid, signal.SIGSTOP)  # so it dies before any reply
                killer.start()
                while (watched.lost == before).any():
                    watched.turn()
                killer.join()
            if death == 0:
                assert (watched.lost == before + 1).all()
            while envs.truncated.any():
                watched.turn()
            assert gone(pid) and not listens(port)
        assert (watched.lost == len(ways)).all() and not envs.terminated.any()
        port = envs.env_list[0]._source._link.address.port
    assert not listens(port)


@pytest.mark.parametrize("times", [1, pytest.param(MANY, marks=LONG)])
def test_workers_over_a_link_die(times):
    """Two environments of a group in workers, the first of which starts the simulator, and one here. Before a death a
    worker's row equals the world's. Killing a client releases the others that wait for it. Killing the simulator's
    parent ends the simulator, and the remaining clients get an error. No process is left."""
    world = by_world(SMALL)
    for _ in range(times):
        port = free_port()
        section = {**SMALL, "port": port, "delay": READY}
        started = {**section, "auto_start": True}
        kinds = {0: True, ROW: False}  # a classic one and Gymnasium's
        makers = [make_env(ROWS, row, gym, conf_path=started, seed=SEED) for row, gym in kinds.items()]
        pool = Async_SubprocVecEnv(makers)
        here, _ = general_env("Benchmark", {**section, "link": "tcp"}, ROWS, 1, seed=SEED)
        try:
            (simulator,) = simulators_of(pool.workers.pids[0])
            assert _played(pool, here) == without_supplements_at_resets(world)
            here.send(None)
            pool.reset()
            here.receive()
            # The other worker stops, so that all wait for it, and dies.
            os.kill(pool.workers.pids[1], signal.SIGSTOP)
            here.send(0)
            pool.step_async([0, 0])
            os.kill(pool.workers.pids[1], signal.SIGKILL)
            _, reward, done, _ = here.receive()
            assert (done, here.end_reason) == (False, "") and reward != 0.0
            os.kill(pool.workers.pids[0], signal.SIGKILL)
            until(partial(gone, simulator))
            assert here.step(0)[1:3] == (0.0, True) and (here.end_reason, here.truncated) == ("link_lost", True)
            began = time.monotonic()
            with pytest.raises(
                LinkError,
                match=rf"at 127\.0\.0\.1:{port} \(environment 1 of 3 in group 'main'\): no "
                rf"simulator listens there\. Start one \(milkrun simulate --port {port}\)",
            ):
                here.reset()
            assert time.monotonic() - began < SILENCE
            with pytest.raises(WorkerError, match=r"worker \d \(process \d+\) was killed by signal 9"):
                pool.step_wait()
        finally:
            here.close()
            pool.close()
        assert all(gone(pid) for pid in pool.workers.pids) and not listens(port)


def _played(pool, here):
    """The trace of the second worker, while the others play too."""

    def begin():
        here.send(None)
        states = pool.reset()
        here.receive()
        return states[1], []

    def turn(action):
        here.send(None if here.end_reason else 5)
        states, rewards, dones, infos = pool.step(np.array([3, action]))
        here.receive()
        info = infos[1]
        assert info["TimeLimit.truncated"] == (info.get("reason") == "time")
        return states[1], rewards[1], dones[1], [] if "reset_turn" in info else info["SuppleInfo"]

    return [(*step, more if more != flat([]) else b"") for *step, more in by_turns(begin, turn, 4)]
