"""Threads, forks, spawned processes and the disk cache, each in a process of its own: a crash or a hang is a failure
here and not the end of the test run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import milkrun
from tests.core.toys import rolled

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(Path(milkrun.__file__).parents[1]), str(ROOT)])
PATIENCE = 240  # seconds until a process counts as hung


def start(script: str, *arguments: str, path: str = PATH, **environment: str) -> subprocess.Popen[str]:
    """A Python process that prints one JSON line."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MILKRUN_NUM", "NUMBA_"))}
    env = {**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


def printed(process: subprocess.Popen[str]) -> Any:
    """The JSON line that the process printed; fails with its standard error if it died or hung."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children too: they hold the pipes
        pytest.fail(f"hung; last words: {process.communicate()[1][-2000:]}")
    assert process.returncode == 0, f"exit {process.returncode}: {err[-3000:]}"
    return json.loads(out.splitlines()[-1])


# -- threads, forks, pools -----------------------------------------------------------------------------------------

CROWD = """
import json, multiprocessing, os, sys, threading
from tests.core.toys import rolled

def in_threads(seeds):
    found = {}
    def work(seed):
        found[seed] = [rolled(seed) for _ in range(3)]
    crew = [threading.Thread(target=work, args=(s,)) for s in seeds]
    for t in crew: t.start()
    for t in crew: t.join()
    return [found[s] for s in seeds]

def in_fork(seed):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, rolled(seed).encode())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    os.close(write)
    return os.read(read, 100).decode() or f"the child died: {status}"

def in_pool(method, seeds):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map_async(rolled, seeds).get(60)

if __name__ == "__main__":
    rolled(0)
    out = {"threads": in_threads([0, 1, 2]), "fork": in_fork(3)}
    out["threads after fork"] = in_threads([0, 1])
    for method in sys.argv[1:]:
        out["pool of " + method] = in_pool(method, [4, 5])
    print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """Checksums of seeds 0..5, one thread, this process."""
    return [rolled(seed, threads=1) for seed in range(6)]


@pytest.fixture(scope="module", params=["omp", "workqueue"])
def crowd(request, alone) -> dict[str, Any]:
    """One process under each threading layer that steps big batches in every way at once."""
    layer = {} if request.param == "omp" else {"NUMBA_THREADING_LAYER": request.param}
    pools = ["fork", "spawn", "forkserver"] if request.param == "omp" else ["fork"]
    return printed(start(CROWD, *pools, MILKRUN_NUM_THREADS="2", **layer))


def test_python_threads_may_step_different_worlds_at_once(crowd, alone):
    """Three threads, each on parallel kernels, see what one thread alone sees; also after a fork."""
    assert crowd["threads"] == [[alone[s]] * 3 for s in (0, 1, 2)]
    assert crowd["threads after fork"] == [[alone[s]] * 3 for s in (0, 1)]


def test_a_forked_child_steps_big_batches(crowd, alone):
    """The parent has used all threads before; the child neither crashes nor hangs, and computes the same."""
    assert crowd["fork"] == alone[3]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools_see_the_same_rows(crowd, alone, method):
    """Pools of all three start methods give the rows that one process gives."""
    if f"pool of {method}" not in crowd:
        pytest.skip("one layer is enough for processes that start afresh")
    assert crowd[f"pool of {method}"] == alone[4:]


FORK_IN_COMPILE = """
import json, os, sys, threading
import numpy as np
from milkrun.core.clock import listening
from milkrun.core.kernels import kernel
from tests.core.toys import Lantern, rolled

def fresh(k):
    @kernel
    def score(w, b, x, y):
        s = 0.0
        for j in range(w.S):
            s += np.sin(w.lit[b] * k + j) ** x + np.cos(j) ** y
        return s
    return score

rolled(0)
os.environ["MILKRUN_CACHE_DIR"] = sys.argv[1]  # from here on nothing is found compiled
world = Lantern(2048, seed=0, threads=2)
world.reset()
begun, stop = threading.Event(), threading.Event()
def compile_on():
    k = 0
    with listening(lambda busy: begun.set() if busy else begun.clear()):
        while not stop.is_set():
            world.map_rows(fresh(k), np.float64, 2, 3)
            k += 1
crew = threading.Thread(target=compile_on)
crew.start()
forks = []
for n in range(3):
    begun.wait()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        late = Lantern(2048, seed=0, threads=2)
        late.reset()
        late.map_rows(fresh(1000 + n), np.float64, 1, 1)
        os.write(write, rolled(n).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    forks.append(os.read(read, 100).decode())
stop.set()
crew.join()
print(json.dumps(forks))
"""


def test_fork_while_another_thread_compiles(alone, tmp_path):
    """A child forked during a compile can compile and step: no lock is left held."""
    rolled(0, threads=2)
    assert printed(start(FORK_IN_COMPILE, str(tmp_path))) == alone[:3]
    assert len(list(tmp_path.glob("score_*.code"))) > 3


# -- the disk cache ------------------------------------------------------------------------------------------------

RULES = """
from milkrun.core.kernels import kernel
BONUS = 10
@kernel
def pay(action):
    return action + BONUS
"""

WORLD = """
from milkrun.core.actions import discrete
from milkrun.core.fields import instance, int32, mask, state
from milkrun.core.kernels import kernel
from milkrun.core.world import World
from parcel.rules import pay

class Parcel(World):
    action = discrete(3)
    weight = instance(int32)
    paid = state(int32)
    action_mask = mask(3)

@kernel
def generate(w, b):
    w.weight[w.instance_row[b]] = b

@kernel
def reset(w, b):
    w.paid[b] = 0
    for j in range(3):
        w.action_mask[b, j] = True

@kernel
def step(w, b, action):
    w.paid[b] += pay(action)
    w.reward[b] = pay(action)

Parcel.bind(generate=generate, reset=reset, step=step)
"""

USE = """
import json, sys
from numba.core import event
heard = event.RecordingListener()
event.register("numba:compile", heard)
import numpy as np
from parcel.world import Parcel

everything = "everything" in sys.argv
for threads in (1, 2) if everything else (1,):
    world = Parcel(8, seed=1, threads=threads, illegal="raise" if everything else "noop")
    world.reset()
    world.step(np.full(8, 2))
    assert not everything or world.sample_actions().max() < 3
reward = float(world.reward.sum()) / 8
compiled = sorted({e.data["dispatcher"].py_func.__name__ for _, e in heard.buffer})
print(json.dumps({"reward": reward, "compiled": compiled}))
"""


@pytest.fixture(scope="module")
def parcel(tmp_path_factory) -> Path:
    """A package outside the library: a world in one file, a rule it calls in another."""
    home = tmp_path_factory.mktemp("home")
    (home / "parcel").mkdir()
    (home / "parcel" / "__init__.py").write_text("")
    (home / "parcel" / "rules.py").write_text(RULES)
    (home / "parcel" / "world.py").write_text(WORLD)
    return home


def use(parcel: Path, *how: str, **environment: str) -> subprocess.Popen[str]:
    """A process that resets and steps its world; with "everything" also in parallel, under `raise`, and with a
    policy."""
    here = {"MILKRUN_CACHE_DIR": str(parcel / "cache"), **environment}
    return start(USE, *how, path=os.pathsep.join([PATH, str(parcel)]), **here)


@pytest.fixture(scope="module")
def first_users(parcel) -> list[Any]:
    """Two processes that meet on an empty cache."""
    return [printed(p) for p in [use(parcel, "everything"), use(parcel)]]


def test_two_processes_may_meet_on_an_empty_cache(first_users, parcel):
    """Both compile (or one takes what the other wrote) and both are right: the action 2 pays 12."""
    assert [u["reward"] for u in first_users] == [12, 12]
    assert any("step_rows" in u["compiled"] for u in first_users)
    kept = {path.name.split(".")[1] for path in (parcel / "cache").glob("world_*.code")}
    assert {"generate_rows", "restart_rows", "step_rows", "count_illegal"} <= kept


def test_the_next_process_compiles_nothing(first_users, parcel):
    """Serial and parallel, reset, step, the check of actions and a policy: all come from the disk."""
    later = printed(use(parcel, "everything"))
    assert later["compiled"] == [] and later["reward"] == 12


def test_a_change_in_another_file_is_recompiled(first_users, parcel):
    """First the callee's body, then a constant it reads; going back finds the old code on the disk."""
    rules = parcel / "parcel" / "rules.py"
    seen = []
    for text in (RULES.replace("action + BONUS", "2 * action + BONUS"), RULES.replace("10", "30"), RULES):
        rules.write_text(text)
        seen.append(printed(use(parcel)))
    assert [s["reward"] for s in seen] == [14, 32, 12]
    assert ["step_rows" in s["compiled"] for s in seen] == [True, True, False]


def test_a_cache_folder_that_cannot_be_written_does_no_harm(first_users, parcel, tmp_path):
    """Here its parent is a file; nothing is kept, nor left anywhere else."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert printed(use(parcel, MILKRUN_CACHE_DIR=str(blocked / "cache"), TMPDIR=str(tmp_path)))["reward"] == 12
    assert list(tmp_path.iterdir()) == [blocked]


# -- import --------------------------------------------------------------------------------------------------------

LOOK = """
import json, sys, time
begin = time.process_time()
import milkrun
worlds = milkrun.list_worlds()
spec = milkrun.world_spec(worlds[0])
print(json.dumps({"seconds": time.process_time() - begin, "worlds": worlds, "modules": sorted(sys.modules)}))
"""

HEAVY = {
    "torch",
    "torchrl",
    "tensordict",
    "mujoco",
    "ray",
    "pettingzoo",
    "stable_baselines3",
    "tianshou",
    "pyvrp",
    "ortools",
    "matplotlib",
    "numba",
    "llvmlite",
    "scipy",
    "rl4co",
    "milkrun.routing",
}


def test_import_is_quick_and_light():
    """Importing milkrun and listing its worlds takes below a second of the processor and imports nothing heavy."""
    looks = [printed(start(LOOK)) for _ in range(5)]
    assert "milkrun/CVRP-v0" in looks[0]["worlds"]
    assert HEAVY & set(looks[0]["modules"]) == set()
    assert min(look["seconds"] for look in looks) < 1.0
