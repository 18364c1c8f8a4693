"""How a pool fails and ends: deaths, exceptions, late answers, signals, and nothing left behind afterwards."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from milkrun.api.workers import Aligned, Workers
from milkrun.core.errors import Closed, WorkerError, WorkerTimeout
from tests.api import worker_envs as envs

GRACE = 60  # seconds; none of these tests needs one
ROOT = Path(__file__).resolve().parents[2]


def is_running(pid):
    """Whether the process is there and not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def still_running(pids, seconds=0):
    """Waits until all are gone or the time is up. Returns those that are left."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])}


def python(code, *arguments):
    """A Python of its own that runs `code` with the tests importable; warnings and errors come on stderr."""
    command = [sys.executable, "-c", code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, text=True, env=ENVIRONMENT, **pipes)


def test_a_worker_that_exits_is_named():
    """os._exit(7) in worker 2 of 4: index, pid, exit code and command; the others are closed; later calls say why."""
    pool = Workers([envs.Trouble] * 4, "fork")
    pids = pool.pids
    pool.reset()
    with pytest.raises(WorkerError, match=rf"worker 2 \(process {pids[2]}\) ended with exit code 7 .*'step'") as caught:
        pool.step([0, 0, 7, 0])
    error = caught.value
    assert (error.index, error.pid, error.exit_code, error.command) == (2, pids[2], 7, "step")
    assert still_running(pids) == []
    for call in (pool.reset, lambda: pool.step([0] * 4), lambda: pool.call("t")):
        with pytest.raises(Closed, match=r"worker 2 .* ended with exit code 7"):
            call()
    pool.close()


def test_a_death_is_noticed_while_another_worker_is_busy():
    """Worker 1 would take a minute; the death of worker 0 is noticed before, and worker 1 does not survive."""
    pool = Workers([envs.Trouble] * 2, "fork")
    pids = pool.pids
    pool.reset()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 0 .* exit code 7"):
        pool.step([7, 9])
    assert time.monotonic() - began < envs.NAP
    assert still_running(pids) == []


def test_an_exception_brings_its_traceback():
    """A ValueError inside worker 1 names worker, command, message and the line that raised; the pool is closed."""
    pool = Workers([envs.Trouble] * 2, "fork")
    pids = pool.pids
    pool.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .* raised ValueError: the drum is full .*'step'") as caught:
        pool.step([0, 8])
    error = caught.value
    assert (error.index, error.exit_code, error.command) == (1, None, "step")
    assert 'raise ValueError("the drum is full")' in error.remote_traceback
    assert error.remote_traceback in str(error)
    assert still_running(pids) == []
    with pytest.raises(Closed):
        pool.reset()


def test_an_exception_is_noticed_while_another_worker_is_busy():
    """Worker 1 would take a minute; the exception of worker 0 is raised before."""
    pool = Workers([envs.Trouble] * 2, "fork")
    pool.reset()
    began = time.monotonic()
    with pytest.raises(WorkerError, match="the drum is full"):
        pool.step([8, 9])
    assert time.monotonic() - began < envs.NAP


def test_the_error_keeps_its_parts_through_a_pickle():
    """A learner in another process gets all attributes."""
    error = pickle.loads(pickle.dumps(WorkerError("worker 1 died", index=1, pid=5, exit_code=7, command="step")))
    assert (str(error), error.index, error.pid, error.exit_code, error.command) == ("worker 1 died", 1, 5, 7, "step")
    late = pickle.loads(pickle.dumps(WorkerTimeout("late", indices=[1, 2], command="step")))
    assert (str(late), late.indices, late.command) == ("late", (1, 2), "step")
    assert isinstance(late, TimeoutError)


def test_a_result_that_cannot_be_pickled_is_an_error_of_that_worker():
    """An info with a lock in it cannot be pickled; the parent does not wait for it."""
    pool = Workers([envs.Trouble] * 2, "fork")
    pool.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .*pickle"):
        pool.step([0, 11])


@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_observation_of_another_shape_is_not_stretched(shared_memory):
    """Three numbers where the space has two: both shapes are named, whichever way observations travel."""
    pool = Workers([envs.Script, envs.WrongShape], "fork", shared_memory)
    pool.reset()
    with pytest.raises(WorkerError, match=r"worker 1 .*ShapeError: .*\(2,\), it has \(3,\)"):
        pool.step([0, 0])
    with pytest.raises(Closed):
        pool.reset()


def test_an_environment_that_cannot_be_made():
    """The start fails with the worker, the traceback and no process left."""
    before = set(children())
    with pytest.raises(WorkerError, match=r"worker 1 .* raised RuntimeError: no simulator here .*'start'") as caught:
        Workers([envs.Script, envs.unmakeable], "fork")
    assert "unmakeable" in caught.value.remote_traceback
    assert not is_running(caught.value.pid)
    assert set(children()) <= before


def test_a_late_worker_is_a_timeout():
    """2 s for a minute's step: workers 0 and 2 are named, none survives, later calls are Closed."""
    pool = Workers([envs.Trouble] * 3, "fork", timeout=2)
    pids = pool.pids
    pool.reset()
    began = time.monotonic()
    with pytest.raises(WorkerTimeout, match=r"workers 0, 2 did not answer 'step' in 2 s") as caught:
        pool.step([9, 0, 9])
    assert 2 <= time.monotonic() - began < envs.NAP
    assert (caught.value.indices, caught.value.command) == ((0, 2), "step")
    assert still_running(pids) == []
    with pytest.raises(Closed, match="WorkerTimeout"):
        pool.step([0, 0, 0])


def kill_mid_step(times):
    """Pools of three whose worker 1 is killed from outside in the middle of a step."""
    for _ in range(times):
        pool = Workers([envs.Trouble] * 3, "fork")
        pids = pool.pids
        pool.reset()
        pool.send([0, 9, 0])
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"worker 1 .* signal 9 \(SIGKILL\) .*'step'") as caught:
            pool.receive()
        assert (caught.value.index, caught.value.exit_code) == (1, -9)
        assert still_running(pids) == []


def test_four_workers_killed_in_the_middle_of_a_step():
    """SIGKILL from outside, four times in a row: each named with its signal, the others closed, no descriptor lost."""
    kill_mid_step(1)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    kill_mid_step(4)
    gc.collect()
    assert abs(len(os.listdir("/proc/self/fd")) - before) <= 2


@pytest.mark.long
def test_a_hundred_workers_killed_in_the_middle_of_a_step():
    """The same a hundred times."""
    kill_mid_step(1)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    kill_mid_step(100)
    gc.collect()
    assert abs(len(os.listdir("/proc/self/fd")) - before) <= 2


def test_a_worker_that_died_while_idle_is_named():
    """Also where the call is for another worker, as soon as the dead one's descriptors are closed."""
    pool = Workers([envs.Script] * 2, "fork")
    pool.reset()
    os.kill(pool.pids[1], signal.SIGKILL)
    deadline = time.monotonic() + GRACE
    with pytest.raises(WorkerError, match=r"worker 1 .*SIGKILL.* while idle"):
        while time.monotonic() < deadline:
            pool.reset(ids=[0])


def test_a_death_behind_a_grandchild_that_holds_the_pipe_is_noticed():
    """Worker 0 leaves a child behind that holds pipe and sentinel open; its exit code 12 is noticed first."""
    pool = Workers([envs.Trouble], "fork")
    pool.reset()
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"worker 0 .* exit code 12"):
        pool.step([12])
    assert time.monotonic() - began < envs.ORPHAN


def test_a_worker_ignores_ctrl_c():
    """SIGINT reaches every process of a terminal; the workers go on, the parent decides."""
    with Workers([envs.Script], "fork") as pool:
        pool.reset()
        os.kill(pool.pids[0], signal.SIGINT)
        assert pool.step([0])[1].tolist() == [1]


def test_a_pool_that_is_forgotten_is_closed():
    """Without close(): when the last reference goes, so do the processes."""
    pool = Aligned(Workers([envs.Script] * 2, "fork"))
    pids = pool.workers.pids
    del pool
    gc.collect()
    assert still_running(pids) == []


def test_a_forked_copy_of_the_pool_does_no_harm():
    """A child of the user's own, forked while the pool is open: Closed in it, and the parent's pool goes on."""
    with Workers([envs.Script] * 2, "fork") as pool:
        pool.reset()
        child = os.fork()
        if child == 0:
            try:
                pool.step([0, 0])
            except Closed:
                pool.close()
                os._exit(3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert pool.step([0, 0])[1].tolist() == [1, 1]


def test_a_forked_worker_holds_no_pipe_but_its_own():
    """Three workers of two pools, forked one after the other: each has one socket more than its parent had before."""
    before = envs.sockets()
    with Workers([envs.Script], "fork") as one, Workers([envs.Script] * 2, "fork") as two:
        assert one.call(envs.sockets) + two.call(envs.sockets) == [before + 1] * 3
        assert envs.sockets() == before + 3


PARENT = """
import sys
from functools import partial
from milkrun.api.workers import Workers
from tests.api import worker_envs as envs
if __name__ == "__main__":
    stays = sys.argv[2] == "stay"
    pool = Workers([envs.Trouble if stays else partial(envs.Counted, sys.argv[2])] * 2, sys.argv[1])
    pool.reset()
    print(*pool.pids, flush=True)
    if stays:
        pool.step([9, 0])
"""


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_a_killed_parent_leaves_no_worker(start_method):
    """SIGKILL of the parent: soon no worker is there, neither the idle one nor the one inside a step. A worker behind a
    fork server notices it in another way than a child."""
    parent = python(PARENT, start_method, "stay")
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert [is_running(pid) for pid in pids] == [True, True]
    time.sleep(0.2)  # for the step to begin; if it has not, the test is only easier
    parent.kill()
    try:
        assert still_running(pids, GRACE) == []
    finally:
        parent.communicate()


def test_a_parent_that_ends_without_close_is_silent(tmp_path):
    """At exit the pool is closed, its environments too: exit code 0, no worker, nothing on stderr."""
    log = tmp_path / "log"
    parent = python(PARENT, "fork", str(log))
    out, err = parent.communicate(timeout=600)
    assert (parent.returncode, err) == (0, "")
    assert still_running([int(word) for word in out.split()]) == []
    closed = [line for line in log.read_text().splitlines() if line.startswith("closed")]
    assert sorted(closed) == sorted(f"closed {pid}" for pid in out.split())


CYCLES = """
import gc, multiprocessing, os, sys
from functools import partial
from milkrun.api.workers import Workers
from tests.api import worker_envs as envs
if __name__ == "__main__":
    method, cycles, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    multiprocessing.set_forkserver_preload(["milkrun.api.workers", "tests.api.worker_envs"])
    def cycle():
        with Workers(envs.rooms(workers), method) as pool:
            pool.reset()
            pool.step([0] * workers)
            return pool.pids
    cycle()
    def named():  # what Python's shared memory and arrays are called; semaphores there are other processes'
        return {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "pym-"))}
    before, shm = len(os.listdir("/proc/self/fd")), named()
    pids = [pid for _ in range(cycles) for pid in cycle()]
    alive = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    mapped = open("/proc/self/maps").read().count("milkrun-observations")
    print(alive, len(os.listdir("/proc/self/fd")) - before, named() - shm, mapped)
"""


def open_and_close(start_method, cycles, workers):
    run = python(CYCLES, start_method, str(cycles), str(workers))
    out, err = run.communicate(timeout=3000)
    assert err == ""
    alive, descriptors, rest = out.replace("[] ", "none ", 1).split(" ", 2)
    assert alive == "none"
    assert abs(int(descriptors)) <= 2
    assert rest.strip() == "set() 0"


def test_opening_and_closing_leaves_nothing():
    """No process, no descriptor (+-2), no shared memory, no message of the resource tracker after fifty cycles."""
    open_and_close("fork", 50, 2)


@pytest.mark.long
def test_fifty_spawned_pools_leave_nothing():
    """The same for fifty pools of fresh interpreters."""
    open_and_close("spawn", 50, 2)


UNGUARDED = """
from milkrun.api.workers import Workers
from tests.api import worker_envs as envs
Workers([envs.Script], "spawn")
"""


def test_an_unguarded_script_gets_advice(tmp_path):
    """A script that makes a pool on import, which each worker does: the error names the guard."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    run = subprocess.run([sys.executable, script], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)
    assert run.returncode == 1
    assert "worker 0 " in run.stderr
    assert 'must do it below `if __name__ == "__main__":`' in run.stderr


def test_a_worker_that_does_not_react_is_killed():
    """Worker 1 is stopped and answers neither close nor SIGTERM; when worker 0 fails it is killed all the same."""
    pool = Workers([envs.Trouble] * 2, "fork")
    pids = pool.pids
    pool.reset()
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(WorkerError, match="the drum is full"):
        pool.step([8, 0])
    assert still_running(pids) == []


def children():
    """The process ids of this process's children."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_the_environments_are_closed_when_another_fails(tmp_path):
    """One raises; the healthy ones still get their close()."""
    log = tmp_path / "log"
    pool = Workers([partial(envs.Counted, str(log)), envs.Trouble], "fork")
    pids = pool.pids
    pool.reset()
    with pytest.raises(WorkerError):
        pool.step([0, 8])
    assert log.read_text() == f"made {pids[0]}\nclosed {pids[0]}\n"
