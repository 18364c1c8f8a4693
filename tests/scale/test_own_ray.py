"""A local Ray listens on loopback only and leaves no process, after Ctrl-C and after the death of its caller."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from milkrun.scale.cluster import FOLDER_PREFIX
from tests.scale.helpers import local, processes, slowly, wait_until

COMMAND = [
    "eval",
    "CVRP-v0",
    "--policy",
    "tests.scale.helpers:slowly",
    "--episodes",
    "200000",
    "--num-envs",
    "200000",
    "--seed",
    "5",
    "--set",
    "num_loc=7",
    "--on",
    "ray",
]


def listening(pids: list[int]) -> set[str]:
    """The addresses, in hex, on which these processes accept connections."""
    sockets = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                name = os.readlink(entry)
            except OSError:
                continue
            sockets |= {name[8:-1]} if name.startswith("socket:[") else set()
    texts = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    lines = [line.split() for text in texts for line in text.splitlines()[1:]]
    return {line[1].rpartition(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets}


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "ray" in name or "plasma" in name}


def of_session(process: subprocess.Popen) -> list[int]:
    """The processes of the command: those of its Ray are in the same session."""
    return processes("", "-s", str(process.pid))


@pytest.fixture
def command(tmp_path):
    """The command in a session of its own, which has kept a first shard and is at work; the folder of its Ray."""
    root = Path(tempfile.mkdtemp(prefix="mr-", dir="/tmp"))  # sockets need a short path
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."]), "TMPDIR": str(root)}
    for name in ("RAY_AUTH_MODE", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        env.pop(name, None)
    line = [sys.executable, "-m", "milkrun", *COMMAND, "--keep", str(tmp_path / "kept")]
    process = subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        kept = tmp_path / "kept"
        assert wait_until(lambda: len(list(kept.glob("shard-*.npz"))) >= 1 or process.poll() is not None, 300)
        assert process.poll() is None, process.stderr.read()
        (folder,) = root.glob(f"{FOLDER_PREFIX}*")
        yield process, folder
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(root)


def test_ctrl_c_stops_a_local_ray_and_leaves_nothing(tmp_path, interrupts, command):
    """The command says how to continue. No process, folder or shared memory of its Ray remains, all of it listened on
    loopback, and the stored shards are right to the bit."""
    command, folder = command
    memory = shared_memory()
    started = of_session(command)
    assert len(started) >= 6  # servers, agents and workers
    accepting = listening(started)
    assert accepting and accepting <= {"0100007F", "0000000000000000FFFF00000100007F"}
    began = time.monotonic()
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does: to all of the group
    _, message = command.communicate(timeout=60)
    took = time.monotonic() - began
    assert command.returncode == 130, message
    assert "shards are kept in" in message and "the same call continues" in message
    print(f"Ctrl-C took {took:.2f} s")
    assert took < 20
    assert not folder.exists()
    assert wait_until(lambda: not of_session(command))
    assert shared_memory() <= memory
    kept = tmp_path / "kept"
    expected = local("milkrun/CVRP-v0", slowly, 200_000, 200_000, 5, {"num_loc": 7})
    assert not (kept / "lock").exists() and not list(kept.glob("*.part"))
    for path in kept.glob("shard-*.npz"):
        first = 1024 * int(path.stem[-6:])
        with np.load(path, allow_pickle=False) as shard:
            assert np.array_equal(shard["returns"], expected.returns[first : first + len(shard["returns"])])


@pytest.mark.long
def test_a_local_ray_ends_with_its_killed_caller(command):
    """Servers and workers end at once, Ray's agents after a minute without a server; no shared memory remains."""
    command, folder = command
    memory = shared_memory()
    assert len(of_session(command)) >= 6
    command.kill()
    command.wait()
    began = time.monotonic()
    assert wait_until(lambda: not processes(str(folder)), 60)
    print(f"servers ended after {time.monotonic() - began:.1f} s")
    assert wait_until(lambda: not of_session(command), 600)
    print(f"all ended after {time.monotonic() - began:.1f} s")
    assert shared_memory() <= memory
