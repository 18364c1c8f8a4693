"""A Ray of the call's own: it listens to this machine alone, and nothing of it is left, also after Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from milkrun.scale import cluster
from milkrun.scale.cluster import PREFIX, _processes_of, _root, _runs
from tests.scale.helpers import local, running_in, slowly, wait_until

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


def folders() -> set[Path]:
    return set(Path(_root()).glob(f"{PREFIX}*"))


def test_ctrl_c_ends_a_ray_of_our_own_and_leaves_nothing(tmp_path, interrupts):
    """The command is interrupted when a shard is kept: it says how to continue, and of its Ray no process, folder
    or shared memory is left; while it ran, all listened on loopback. What it kept is right to the bit."""
    before, memory = folders(), set(os.listdir("/dev/shm"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."]), "TMPDIR": tempfile.gettempdir()}
    env.pop("RAY_AUTH_MODE", None)
    command = [sys.executable, "-m", "milkrun", *COMMAND, "--keep", str(tmp_path / "kept")]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        kept = tmp_path / "kept"
        assert wait_until(lambda: len(list(kept.glob("shard-*.npz"))) >= 1 or process.poll() is not None, 300)
        assert process.poll() is None, process.stderr.read()
        (folder,) = folders() - before
        accepting = listening([pid for pid, _ in _processes_of(folder)])
        assert accepting and accepting <= {"0100007F", "0000000000000000FFFF00000100007F"}
        started = _processes_of(folder)
        assert len(started) >= 6  # servers, agents and workers
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of the group
        _, said = process.communicate(timeout=20)
        took = time.monotonic() - began
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "shards are kept in" in said and "the same call continues" in said
    assert took < 20
    print(f"Ctrl-C took {took:.2f} s")
    assert folders() == before and running_in(folder) == [] and not any(map(_runs, started))
    assert set(os.listdir("/dev/shm")) <= memory
    expected = local("milkrun/CVRP-v0", slowly, 200_000, 200_000, 5, {"num_loc": 7})
    assert not (kept / "lock").exists() and not list(kept.glob("*.part"))
    for path in kept.glob("shard-*.npz"):
        first = 1024 * int(path.stem[-6:])
        with np.load(path, allow_pickle=False) as shard:
            assert np.array_equal(shard["returns"], expected.returns[first : first + len(shard["returns"])])


def test_folders_of_killed_callers_are_cleared_away_and_no_others(tmp_path, monkeypatch):
    """One whose lock nobody holds goes, with a process that still runs for it; one in use stays, and so does what is
    not ours."""
    monkeypatch.setattr(cluster, "_root", lambda: str(tmp_path))
    dead, living, strange = (tmp_path / f"{PREFIX}{name}" for name in ("dead", "living", "strange"))
    for folder in (dead, living, strange):
        folder.mkdir()
    for folder in (dead, living):
        (folder / cluster.IN_USE).touch()
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    with (
        open(living / cluster.IN_USE) as held,
        subprocess.Popen(
            [sys.executable, "-c", code, f"--temp-dir={dead}/session"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as left,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        assert left.stdout.readline() == b"up\n"
        cluster._clear_abandoned()
        assert left.wait(timeout=60) == -signal.SIGKILL
    assert sorted(tmp_path.iterdir()) == [living, strange]
