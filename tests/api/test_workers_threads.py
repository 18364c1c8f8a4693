"""Threads of the caller at one pool: one at a time; a second one gets an error."""

import threading
import time
from functools import partial

import pytest

from milkrun.api.workers import Workers
from milkrun.core.errors import Closed, ConfigError
from tests.api import worker_envs as envs


class Waits(envs.Script):
    """Its step creates a file when it begins, and lasts until the file is deleted."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def step(self, action):
        self.path.touch()
        while self.path.exists():
            time.sleep(0.01)
        return super().step(action)


def test_a_second_thread_is_refused_and_the_first_goes_on(tmp_path):
    """Step, send, reset, receive and call of another thread while a step is waited for; its results are untouched."""
    path, results = tmp_path / "inside", []
    with Workers([partial(Waits, path), envs.Script], "fork") as pool:
        pool.reset()
        first = threading.Thread(target=lambda: results.append(pool.step([0, 0])))
        first.start()
        while not path.exists():
            time.sleep(0.01)
        for second in (pool.step, pool.send, pool.reset, lambda _: pool.receive(), lambda _: pool.call("t")):
            with pytest.raises(ConfigError, match="another thread"):
                second(None)
        path.unlink()
        first.join()
        assert results[0][1].tolist() == [1, 1]
        assert pool.call("t") == [1, 1]


def test_another_thread_may_receive_what_was_sent():
    """One thread at a time need not always be the same thread."""
    results = []
    with Workers([envs.Script], "fork") as pool:
        pool.reset()
        pool.send([0])
        other = threading.Thread(target=lambda: results.append(pool.receive()))
        other.start()
        other.join()
        assert results[0][1].tolist() == [1]


def test_a_pool_that_another_thread_closes_is_closed(tmp_path):
    """A watchdog closes it in the middle of a step: the step raises Closed, not an error of the pipe."""
    path = tmp_path / "inside"
    pool = Workers([partial(Waits, path), envs.Script], "fork")
    pool.reset()

    def close_when_inside():
        while not path.exists():
            time.sleep(0.01)
        pool.close()

    watchdog = threading.Thread(target=close_when_inside)
    watchdog.start()
    with pytest.raises(Closed, match="this pool of 2 workers is closed"):
        pool.step([0, 0])
    path.unlink()
    watchdog.join()
