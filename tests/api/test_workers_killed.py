"""A worker of either library's class killed in mid-step: it is named, and the system's lists hold nothing of the pool.

Observations lie in a nameless file of memory, which the system lists under every process that maps it or holds it open.
"""

import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from milkrun.api.sb3 import Async_SubprocVecEnv
from milkrun.api.tianshou import SubprocVecEnv_TS
from milkrun.core.errors import Closed, WorkerError
from tests.api import worker_envs as envs

MAPPED = re.compile(r"[0-9a-f:]+ (\d+) +/memfd:milkrun-observations")
POOLS = {
    "sb3": lambda: Async_SubprocVecEnv([envs.Trouble] * 3, "fork"),
    "tianshou": lambda: SubprocVecEnv_TS([envs.Trouble] * 3, context="fork", share_memory=True),
}


def workers_of(env):
    return getattr(env, "workers", None) or env.pool.workers


def files_mapped(process=Path("/proc/self")):
    """The inodes of such files that a process maps."""
    return set(MAPPED.findall((process / "maps").read_text()))


def files_open(process):
    """Those that it has open."""
    inodes = set()
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor that lists the others
            if "memfd:milkrun-observations" in os.readlink(link):
                inodes.add(str(os.stat(link).st_ino))
    return inodes


def held_anywhere(inodes):
    """Processes of the system that still map one of these files or have it open."""
    holders = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # gone by now, or of another user
            if (files_mapped(process) | files_open(process)) & inodes:
                holders.append(int(process.name))
    return holders


@pytest.mark.parametrize("make", POOLS.values(), ids=POOLS)
def test_three_kills_in_a_row_leave_nothing(make):
    """SIGKILL of worker 1 inside a step of a minute: the error names it before that ends; then no process is there, not
    even a zombie, no process holds the memory, and close() is idempotent."""
    for _ in range(3):
        known = files_mapped()
        env = make()
        env.reset()
        pids, inodes = workers_of(env).pids, files_mapped() - known
        assert len(inodes) == 1 and sorted(held_anywhere(inodes)) == sorted([os.getpid(), *pids])
        killer = threading.Timer(0.05, os.kill, (pids[1], signal.SIGKILL))
        killer.start()
        began = time.monotonic()
        with pytest.raises(WorkerError, match=rf"worker 1 \(process {pids[1]}\) was killed by signal 9") as caught:
            env.step(np.array([0, 9, 0]))
        assert time.monotonic() - began < envs.NAP
        killer.join()
        assert (caught.value.index, caught.value.command) == (1, "step")
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
        with pytest.raises(Closed, match="worker 1"):
            env.reset()
        env.close()
        env.close()
        del env, caught
        assert held_anywhere(inodes) == []
    names = os.listdir("/dev/shm") if Path("/dev/shm").is_dir() else []
    assert not [name for name in names if any(str(pid) in name for pid in pids)]
