"""What `Envs` refuses, and its behaviour when an environment fails."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError, WorkerError
from milkrun.tracking import Envs
from tests.api.worker_envs import Classic, Script, Unseeded
from tests.tracking.items import Breaks, Link, Pair, scripts, threads


def test_a_failing_link_is_named_after_all_replies():
    """For failures in send and in receive; no reply is outstanding afterwards, and a reset starts a new episode."""
    for fails, received in [("send", ["a", "c"]), ("receive", ["a", "b", "c"])]:
        log = []
        links = [Link("a", log), Link("b", log, fails), Link("c", log)]
        with Envs(3, links) as envs:
            envs.reset()
            log.clear()
            with pytest.raises(WorkerError, match="item 1 failed at its step: OSError") as caught:
                envs.step([0, 0, 0])
            assert caught.value.index == 1
            assert [call[1] for call in log if call[0] == "receive"] == received
            assert envs.reset().tolist() == [[2, 0]] * 3


def test_an_interrupted_turn_of_links_does_not_shift_replies():
    """Ctrl-C while waiting for the first: outstanding replies are received before the next reset."""
    log = []
    links = [Link("a", log), Link("b", log)]
    with Envs(2, links) as envs:
        envs.reset()
        links[0].fails = "interrupt"
        with pytest.raises(KeyboardInterrupt):
            envs.step([0, 0])
        with pytest.raises(ResetNeeded):
            envs.step([0, 0])
        assert envs.reset().tolist() == [[2, 0], [2, 0]]
        assert envs.step([0, 0])[0].tolist() == [[2, 1], [2, 1]]


def test_an_environment_that_raises_is_named_after_the_turn():
    """Items 1 and 3 raise: the WorkerError is of 1, mentions 3 and has the traceback; 0 and 2 have stepped."""
    items = [Script(), Breaks(), Script(), Breaks()]
    with Envs(4, items) as envs:
        envs.reset()
        envs.step([0, 0, 0, 0])
        with pytest.raises(WorkerError, match=r"item 1 failed at its step: ValueError: the propeller is bent.*3") as e:
            envs.step([2, 2, 2, 2])
        assert (e.value.index, e.value.command) == (1, "step")
        assert 'raise ValueError("the propeller is bent")' in e.value.remote_traceback
        assert isinstance(e.value.__cause__, ValueError)
        assert [item.t for item in items] == [2, 1, 2, 1]
        with pytest.raises(ResetNeeded):
            envs.step([0, 0, 0, 0])
        assert envs.reset().tolist() == [[2, 0]] * 4
        assert envs.step([0, 0, 0, 0])[1].tolist() == [1, 1, 1, 1]


def test_a_wrong_number_of_results_names_the_environment():
    """The error on a step with three results names the item."""
    script = Script()
    script.step = lambda action: (np.zeros(2), 1.0, False)
    with Envs(2, [Script(), script]) as envs:
        envs.reset()
        with pytest.raises(WorkerError, match=r"item 1 .*step\(\) must return") as caught:
            envs.step([0, 0])
        assert caught.value.index == 1


def test_states_that_do_not_fit_together_are_refused():
    """Different shapes or keys; the error names the item."""
    longer = Script()
    longer._look = lambda: np.zeros(3)
    for items, text in [
        ([Script(), longer], r"item 1 has the shape \(3,\), item 0 \(2,\)"),
        ([Pair(), Script()], "item 1 has other keys"),
    ]:
        with Envs(2, items) as envs, pytest.raises(ShapeError, match=text):
            envs.reset()


def test_an_environment_that_takes_no_seed_is_named_and_nothing_changes():
    """The other is not reset, and the episode continues."""
    script = Script()
    with Envs(2, [script, Unseeded()]) as envs:
        with pytest.raises(ConfigError, match="item 1 takes no seed"):
            envs.reset(seed=3)
        assert script.log == []
    with Envs(2, [script, Classic({})]) as envs:
        envs.reset()
        with pytest.raises(ConfigError):
            envs.reset(seed=2**63)
        assert envs.step([0, 0])[0].tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"num_envs": 3, "env_list": [Script(), Script()]}, ShapeError, "2 environments, num_envs is 3"),
        ({"num_envs": 2, "env_list": [Script(), 7]}, ConfigError, "item 1 is a int"),
        ({"num_envs": 0, "env_list": []}, ConfigError, "num_envs=0"),
        ({"num_envs": 2}, ConfigError, "either env_list or env_mk"),
        ({"num_envs": 1, "env_list": [Script()], "env_mk": Script}, ConfigError, "either env_list or env_mk"),
        ({"num_envs": 1, "env_list": [Script()], "logs_show": 2}, ConfigError, "logs_show=2"),
        ({"num_envs": 1, "env_list": [Script()], "logs_show": -1}, ConfigError, "logs_show=-1"),
        ({"num_envs": 2, "env_list": [Link(0, []), Script()]}, ConfigError, "item 0 is a link without reset"),
    ],
)
def test_invalid_arguments_are_refused(keywords, error, text):
    with pytest.raises(error, match=text):
        Envs(**keywords)
    assert threads() == []


def test_one_environment_twice_is_refused():
    """[env] * 2 would step it twice a turn."""
    with pytest.raises(ShapeError, match="items 0 and 1 are one environment"):
        Envs(2, [Script()] * 2)


def test_invalid_steps_are_refused():
    """Before a reset, with too few actions or none, after close(); closing twice is allowed."""
    envs = Envs(2, scripts("gymnasium"))
    with pytest.raises(ResetNeeded):
        envs.step([0, 0])
    envs.reset()
    for wrong in ([0], np.zeros((3,), int), np.int64(1)):
        with pytest.raises(ShapeError, match="one for each of the 2"):
            envs.step(wrong)
    assert envs.step((0, 0))[0].tolist() == [[1, 1], [1, 1]]
    envs.close()
    envs.close()
    for call in (envs.reset, lambda: envs.step([0, 0]), lambda: envs.infos):
        with pytest.raises(Closed):
            call()


class Held(Script):
    """Raises SIGINT during a step, which continues when `let` is set.

    It repeats the signal until the main thread has caught it: Python misses a signal just before the main thread waits.
    """

    def __init__(self):
        super().__init__()
        self.caught, self.let, self.finished = threading.Event(), threading.Event(), False

    def step(self, action):
        os.kill(os.getpid(), signal.SIGINT)
        while not self.caught.wait(2):
            os.kill(os.getpid(), signal.SIGINT)
        self.let.wait()
        self.finished = True
        return super().step(action)


def test_close_waits_for_a_turn_that_was_interrupted(interrupts):
    """Ctrl-C in the middle of a step: close() finds it finished, and no thread is left."""
    held = Held()
    envs = Envs(1, [held])
    envs.reset()
    with pytest.raises(KeyboardInterrupt):
        envs.step([0])
    held.caught.set()
    assert not held.finished
    threading.Timer(0.2, held.let.set).start()  # longer than a close() without waiting
    envs.close()
    assert held.finished and threads() == []


HANGS = """
import os, signal, threading, time
from milkrun.compat.parallel.envs import Envs
caught = threading.Event()
class Hangs:
    def reset(self): return 0
    def step(self, action):
        while action:
            os.kill(os.getpid(), signal.SIGINT)
            if caught.wait(2): break
        time.sleep(3600)
signal.signal(signal.SIGINT, signal.default_int_handler)
envs = Envs(2, [Hangs(), Hangs()])
envs.reset()
try:
    envs.step([0, 1])
except KeyboardInterrupt:
    caught.set()
    raise
"""


def test_the_interpreter_exits_although_a_step_hangs():
    """Ctrl-C in a step of an hour ends the program with KeyboardInterrupt."""
    run = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=600)
    assert run.returncode == -signal.SIGINT
    assert run.stderr.rstrip().endswith("KeyboardInterrupt")


def test_system_exit_is_propagated_from_the_thread():
    """SystemExit of an environment reaches the caller, and its thread continues."""
    script = Script()
    script.step = lambda action: sys.exit(3)
    with Envs(1, [script]) as envs:
        envs.reset()
        with pytest.raises(SystemExit):
            envs.step([0])
        assert envs.reset().tolist() == [[2, 0]]
