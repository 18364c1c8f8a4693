"""Calls on a real Ray cluster of several raylets give the bits of one process, whichever processes are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import ray

from milkrun import scale
from milkrun.cli import main
from milkrun.core.errors import ConfigError, ScaleError
from milkrun.routing.generators import get_generator
from milkrun.scale import driver
from milkrun.scale.cluster import connected
from milkrun.solvers import policies_for, solve
from tests.published import published_file
from tests.scale.helpers import (
    WORLDS,
    at_work,
    cluster_of,
    kill,
    local,
    lost_at_row_700,
    patiently,
    processes,
    raylet_of,
    same,
    slowly,
    wait_until,
)

CVRP = "milkrun/CVRP-v0"
SMALL = WORLDS[CVRP]
SLOW = "tests.scale.helpers:slowly"
TITLE = f"CVRP by {SLOW}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head and two nodes, of 2, 2 and 1 CPUs, with this process connected. All of it must end with the tests."""
    folder = Path("/tmp") / f"mr-test-{os.getpid()}"  # sockets need a short path
    memory = set(os.listdir("/dev/shm"))
    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # a cluster of loopback addresses, for as long as these tests take
    try:
        with cluster_of(folder, 2, 2, 1) as made, connected(made.address):
            made.wait_for_nodes()
            yield made
        assert wait_until(lambda: not processes(str(folder)))
        assert {name for name in set(os.listdir("/dev/shm")) - memory if "ray" in name or "plasma" in name} == set()
    finally:
        if before is None:
            del os.environ["RAY_AUTH_MODE"]
        for left in sorted(folder.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
        folder.rmdir()


EACH_RUN = ("milkrun/TSP-v0", "milkrun/TruckDrone-v0")
"""One agent and several; the other worlds are played in the long tests."""


@pytest.mark.parametrize(
    "world_id", [id if id in EACH_RUN else pytest.param(id, marks=pytest.mark.long) for id in WORLDS]
)
def test_it_is_the_local_evaluation_to_the_bit(cluster, world_id):
    """The world's own policy on 2 and on 5 workers, random on 5; rows that shards do not divide, and fewer episodes
    than rows. (On 1 and 4: below.)"""
    own = next(name for name in policies_for(world_id) if name != "random")
    expected = local(world_id, policies_for(world_id)[own](7), 150, 70, 7, WORLDS[world_id])
    for cpus in (2, 1):
        got = scale.evaluate(world_id, own, 150, 70, 7, config=WORLDS[world_id], shard_rows=16, cpus_per_shard=cpus)
        assert same(got, expected), cpus
    chance = scale.evaluate(world_id, ("random", {"seed": 3}), 50, 70, 7, config=WORLDS[world_id], shard_rows=16)
    assert same(chance, local(world_id, policies_for(world_id)["random"](3), 50, 70, 7, WORLDS[world_id]))


def played_with(disturb, policy=SLOW, **more):
    """The result of an evaluation of 40 shards, in a thread. Meanwhile the main thread, which can add nodes, calls
    `disturb` with the event that the evaluation sets at its end."""
    ended = threading.Event()
    results = []

    def call():
        try:
            results.append(scale.evaluate(CVRP, policy, 800, 400, 5, config=SMALL, shard_rows=10, **more))
        finally:
            ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    disturb(ended)
    thread.join()
    return results[0]


@pytest.fixture(scope="module")
def undisturbed():
    """The same, played here."""
    return local(CVRP, slowly, 800, 400, 5, SMALL)


def raylets(cluster):
    return [raylet_of(node) for node in (cluster.head_node, *cluster.worker_nodes)]


def test_killed_workers_and_a_killed_node_change_no_bit(cluster, undisturbed, tmp_path):
    """A worker process and then a whole raylet are killed at work, and another node joins: every shard counts once.
    Then there are 4 workers, and one where a shard requires the two CPUs that only the head has."""
    extra = max(cluster.worker_nodes, key=lambda node: node.get_resource_and_label_spec().num_cpus)
    others = [pid for pid in raylets(cluster) if pid != raylet_of(extra)]
    title = "CVRP by tests.scale.helpers:gated"
    gate = tmp_path / "gate"

    def waiting(nodes):
        return [pid for pid in at_work(nodes, title) if Path(f"{gate}.{pid}").exists()]

    def disturb(ended):  # a worker that waits for the gate is at work when it is killed
        try:
            assert wait_until(lambda: waiting([raylet_of(extra)]) and waiting(others))
            kill(waiting(others)[0])
            kill(raylet_of(extra))
            patiently(partial(cluster.add_node, wait=False, num_cpus=1, **cluster.common))
        finally:
            gate.touch()

    assert same(played_with(disturb, ("tests.scale.helpers:gated", {"gate": str(gate)})), undisturbed)
    expected = local(CVRP, policies_for(CVRP)["nearest"](7), 150, 70, 7, SMALL)
    for cpus in (1, 2):
        got = scale.evaluate(CVRP, "nearest", 150, 70, 7, config=SMALL, shard_rows=16, cpus_per_shard=cpus)
        assert same(got, expected)


@pytest.mark.long
def test_twenty_killed_workers_change_no_bit(cluster, undisturbed):
    """Workers are killed at random times while they run a shard."""
    count = 0

    def disturb(ended):
        nonlocal count
        rng = random.Random(1)
        while count < 20 and wait_until(lambda: ended.is_set() or at_work(raylets(cluster), TITLE)):
            ended.wait(rng.random() * 0.5)
            if pids := at_work(raylets(cluster), TITLE):
                kill(rng.choice(pids))
                count += 1
            if ended.is_set():
                return

    assert same(played_with(disturb, retries=30), undisturbed)
    assert count >= 10


DRIVER = """
import sys
from milkrun import scale
scale.evaluate({world!r}, {policy!r}, 800, 400, 5, config={config!r}, shard_rows=10, address={address!r}, keep={keep!r})
"""


def start_driver(cluster, keep):
    """Starts the same call in another process, as a user's script makes it."""
    script = DRIVER.format(world=CVRP, policy=SLOW, config=SMALL, address=cluster.address, keep=str(keep))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    return subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE)


def shards_in(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*.npz")}


def killed_driver(cluster, folder, shards):
    """Starts the call, kills it (SIGKILL) when so many shards are kept; what is kept then."""
    with start_driver(cluster, folder) as process:
        assert wait_until(lambda: len(shards_in(folder)) >= shards or process.poll() is not None)
        process.kill()
    sums = (folder / "shards.sha256").read_text().splitlines() if (folder / "shards.sha256").exists() else []
    listed = {line.split()[-1] for line in sums}
    return {name: at for name, at in shards_in(folder).items() if name in listed}


def test_a_call_continues_after_its_driver_was_killed(cluster, undisturbed, tmp_path):
    """Only what was not finished is computed again, by the times of the files, and the bits are the same."""
    finished = killed_driver(cluster, tmp_path, 8)
    result = scale.evaluate(CVRP, SLOW, 800, 400, 5, config=SMALL, shard_rows=10, keep=tmp_path)
    assert same(result, undisturbed)
    after = shards_in(tmp_path)
    assert len(after) == 40 and len(finished) >= 8 and finished.items() <= after.items()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", *sorted(after)]


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 5, 13, 22, 35])
def test_a_call_continues_after_its_driver_was_killed_at_any_time(cluster, undisturbed, tmp_path, shards):
    """Early, late and in between."""
    finished = killed_driver(cluster, tmp_path, shards)
    result = scale.evaluate(CVRP, SLOW, 800, 400, 5, config=SMALL, shard_rows=10, keep=tmp_path)
    assert same(result, undisturbed) and finished.items() <= shards_in(tmp_path).items()


def test_kept_shards_are_used_and_damaged_ones_are_not(cluster, tmp_path):
    """Of five shards one is cut, and one has the content of another: these two are computed again, the others stay."""
    call = {"config": SMALL, "shard_rows": 20, "keep": tmp_path}
    first = scale.evaluate(CVRP, "nearest", 200, 100, 3, **call)
    before = shards_in(tmp_path)
    cut, other = tmp_path / "shard-000001.npz", tmp_path / "shard-000003.npz"
    cut.write_bytes(cut.read_bytes()[:-100])
    other.write_bytes((tmp_path / "shard-000004.npz").read_bytes())
    assert same(scale.evaluate(CVRP, "nearest", 200, 100, 3, **call), first)
    changed = {name for name, at in shards_in(tmp_path).items() if at != before[name]}
    assert changed == {cut.name, other.name}
    with pytest.raises(ConfigError, match=r"policy.name is 'nearest' there and 'random' here; seed is 3 there and 4"):
        scale.evaluate(CVRP, "random", 200, 100, 4, **call)


def test_solving_one_by_one_is_solving_the_batch(cluster):
    """64 instances by a heuristic and by PyVRP of few iterations, and a worker killed at it."""
    instances = get_generator("cvrp", num_loc=9).generate(64, seed=2)
    ended = threading.Event()

    def disturb():
        if wait_until(lambda: ended.is_set() or at_work(raylets(cluster), "CVRP by pyvrp")):
            for pid in at_work(raylets(cluster), "CVRP by pyvrp")[:1]:
                kill(pid)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        got = scale.solve("CVRP", instances, "pyvrp", iterations=30, seed=1)
    finally:
        ended.set()
        thread.join()
    for here, there in zip(solve("CVRP", instances, "pyvrp", iterations=30, seed=1), got, strict=True):
        assert here.dtype == there.dtype and np.array_equal(here, there)
    for here, there in zip(solve("CVRP", instances, "ls"), scale.solve("CVRP", instances, "ls"), strict=True):
        assert np.array_equal(here, there)


def test_workers_of_another_version_are_named(cluster, monkeypatch):
    """Both versions, before anything is played."""
    monkeypatch.setattr(driver, "__version__", "9.9.9")
    with pytest.raises(ScaleError, match=r"has Milkrun 0\.\d+\.\d+, the caller has 9\.9\.9"):
        scale.evaluate(CVRP, "nearest", 10, config=SMALL)


def test_instances_are_the_same_for_any_size_of_shard(cluster, tmp_path):
    """On the cluster in shards of 7, here in one of 40: the same arrays, and those of a world's rows."""
    scale.generate(CVRP, 40, tmp_path / "a", 3, config=SMALL, shard_rows=7)
    scale.generate(CVRP, 40, tmp_path / "b", 3, config=SMALL, shard_rows=64, on="local")
    parts, (whole,) = list(scale.instances(tmp_path / "a")), scale.instances(tmp_path / "b")
    for name, values in whole.items():
        assert np.array_equal(np.concatenate([part[name] for part in parts]), values), name


def test_the_commands_print_on_the_cluster_what_they_print_here(cluster, capsys, tmp_path):
    """eval, solve of a folder of two files and dataset, with --on ray and without: the same figures and files."""
    instances = tmp_path / "instances"
    instances.mkdir()
    for name in ("routing/cvrplib/A-n32-k5.vrp", "routing/tsplib/eil51.tsp"):
        (instances / Path(name).name).write_bytes(published_file(name).read_bytes())
    outputs = []
    for on in (["--on", "ray", "--address", cluster.address], []):
        out = tmp_path / ("ray" if on else "here")
        keep = {name: ["--keep", tmp_path / "kept" / name] if on else [] for name in ("eval", "solve")}
        for arguments in (
            [
                "eval",
                CVRP,
                "--policies",
                "random,nearest",
                "--instances",
                "40",
                "--num-envs",
                "20",
                "--out",
                out,
                "--set",
                "num_loc=6",
                *on,
                *keep["eval"],
            ],
            ["solve", instances, "--method", "ls", "--out", out, *on, *keep["solve"]],
            ["dataset", CVRP, "--instances", "30", "--out", out / "data", "--shard-rows", "20", *on],
        ):
            with pytest.raises(SystemExit) as exit:
                main([str(word) for word in arguments])
            assert exit.value.code in (0, None), capsys.readouterr()
        figures = json.loads((out / "CVRP-v0_eval.json").read_text())["policies"]
        solved = json.loads((out / "instances_solved.json").read_text())
        files = {path.name: path.read_bytes() for path in (out / "data").iterdir()}
        outputs.append([[{**row, "seconds": 0} for row in figures], solved, files])
    assert outputs[0] == outputs[1]
    assert sorted(files) == ["data-000000.npz", "data-000001.npz", "manifest.json"]
    assert [line["file"] for line in solved["files"]] == ["A-n32-k5.vrp", "eil51.tsp"]
    assert {path.name for path in (tmp_path / "kept" / "eval").iterdir()} == {"random", "nearest"}


def test_another_address_than_the_connected_one_is_refused(cluster):
    """One process has one connection to Ray."""
    with pytest.raises(ConfigError, match="this process is connected to the Ray at"):
        scale.evaluate(CVRP, "nearest", 10, config=SMALL, address="127.0.0.1:1")


def test_an_error_of_a_policy_names_shard_and_row(cluster):
    """Row 700 is in shard 5 of 128 rows; it is raised once, not tried again, and the others end with the call."""
    ray.shutdown()  # the call makes a connection of its own, as a script does
    with pytest.raises(ScaleError, match=r"shard 5, row 700: ValueError: no way out of here") as caught:
        scale.evaluate(CVRP, lost_at_row_700, 30_000, 15_000, 1, config=SMALL, shard_rows=128, address=cluster.address)
    assert not ray.is_initialized()
    assert (caught.value.shard, caught.value.row) == (5, 700)
    assert "lost_at_row_700" in caught.value.remote_traceback
    title = "CVRP by tests.scale.helpers:lost_at_row_700"
    assert wait_until(lambda: not at_work(raylets(cluster), title))
