"""Policies that workers import, a cluster of several raylets on this machine, and functions that find its processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np

import milkrun
from milkrun.solvers import evaluate, nearest

WORLDS = {
    "milkrun/TSP-v0": {"num_loc": 8},
    "milkrun/CVRP-v0": {"num_loc": 7, "max_demand": 9, "capacity": 10},
    "milkrun/SDWCVRP-v0": {"num_loc": 5, "horizon": 2},
    "milkrun/DARP-v0": {"num_requests": 3, "num_agents": 2},
    "milkrun/TruckDrone-v0": {"max_steps": 12},
}
BY_ROW = 0.004


def slowly(world):
    """Nearest, and some milliseconds a turn."""
    time.sleep(BY_ROW)
    return nearest(world)


def gated(gate):
    """Nearest, but batches from row 100 on wait until there is a file of this name. A waiting process writes a file
    with its number."""

    def policy(world):
        if world.stream[0, 1] >= 100:
            Path(f"{gate}.{os.getpid()}").touch()
            wait_until(Path(gate).exists)
        return nearest(world)

    return policy


def lost_at_row_700(world):
    """Raises at the third step of row 700, in any batch."""
    if ((world.stream[:, 1] == 700) & (world.i == 2)).any():
        raise ValueError("no way out of here")
    return nearest(world)


def local(world_id, policy, episodes, rows, seed, config):
    """The result that the call on a cluster must give."""
    return evaluate(milkrun.make(world_id, rows, config=config), policy, episodes, seed)


def same(a, b) -> bool:
    """To the bit: every array, and the order of the figures."""
    columns = [(r.returns, r.lengths, r.truncated, *(r.kpis[name] for name in sorted(r.kpis))) for r in (a, b)]
    return (
        a.rows == b.rows
        and a.kpis.keys() == b.kpis.keys()
        and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(*columns, strict=True))
    )


@contextmanager
def cluster_of(folder: Path, *cpus: int):
    """A Ray cluster of real raylets on this machine, loopback only: the head has the first number of CPUs."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # the tests wait for the workers
    from ray.cluster_utils import Cluster

    common = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "temp_dir": str(folder)}
    # Ray writes the address of the newest cluster into its usual folder, not into `temp_dir`, and does not create it.
    (folder / "ray").mkdir(parents=True)
    usual = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = str(folder)
    try:
        cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], **common}))
        cluster.common = {"node_ip_address": "127.0.0.1"}
        for count in cpus[1:]:
            patiently(partial(cluster.add_node, wait=False, num_cpus=count, **cluster.common))
        yield cluster
        cluster.shutdown()
    finally:
        for pid in processes(str(folder)):  # of nodes that did not come up
            kill(pid)
        if usual is None:
            del os.environ["RAY_TMPDIR"]
        else:
            os.environ["RAY_TMPDIR"] = usual


def patiently(start):
    """Ray gives a node 30 seconds to come up, which may not do while others use the cores."""
    for _ in range(4):
        try:
            return start()
        except Exception as e:
            if "timed out during startup" not in str(e):
                raise
    return start()


def raylet_of(node) -> int:
    return node.all_processes["raylet"][0].process.pid


def at_work(raylets: list[int], title: str) -> list[int]:
    """The processes of these raylets that run a shard of this call: Ray names them after their task."""
    return processes(f"^ray::{re.escape(title)}", "-P", ",".join(map(str, raylets)))


def processes(pattern: str, *options: str) -> list[int]:
    """The numbers of other processes whose command line matches."""
    found = subprocess.run(["pgrep", *options, "-f", "--", pattern], stdout=subprocess.PIPE, text=True).stdout.split()
    return [int(pid) for pid in found if int(pid) != os.getpid()]


def wait_until(condition, seconds=180.0):
    """Polls a condition; whether it became true in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.01)
    return False


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
