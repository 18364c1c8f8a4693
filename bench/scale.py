"""Evaluation on Ray: speed-up of two workers, overhead per shard, memory of the caller, and simulated efficiency.

All of it runs on a local Ray, whose start is not timed. The simulation of many workers uses measured numbers: shard
times, the caller's time per shard, and the bandwidth of the object store.
"""

from __future__ import annotations

import argparse
import heapq
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from milkrun import scale
from milkrun.core.registry import world_spec
from milkrun.scale.cluster import connected
from milkrun.scale.driver import Job, JobOptions, run
from milkrun.scale.evaluate import read_config
from milkrun.scale.policies import PolicyName
from milkrun.scale.shards import Shards
from milkrun.scale.work import WorldSetup, play

from .timing import Table, set_clock

WORLDS = {"TSP-50": ("milkrun/TSP-v0", {"num_loc": 50}), "CVRP-50": ("milkrun/CVRP-v0", {"num_loc": 50})}
EPISODES = 100_000
PLAYED_ROWS = 16_384  # sixteen shards
EMPTY_SHARDS = 1_000
GATHERED = 10_000_000
STUDY = 100_000_000  # episodes of the simulated evaluation
STUDIES = {
    "CVRP-50, nearest": ("milkrun/CVRP-v0", "nearest", {"num_loc": 50}),
    "TruckDrone, greedy": ("milkrun/TruckDrone-v0", "greedy", {}),
}
ROWS = (1_024_000, 2_048_000, 5_120_000, 10_240_000, 51_200_000)
WORKERS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
PICTURE = Path(__file__).parent.parent / "docs" / "scale-efficiency.png"


def empty() -> dict[str, np.ndarray]:
    """A shard without work."""
    return {}


def timed(setup: WorldSetup, shard: Any) -> dict[str, np.ndarray]:
    """Play a shard; returns the processor seconds of its worker."""
    began = time.process_time()
    play(setup, shard)
    return {"seconds": np.array([time.process_time() - began])}


def do(tasks: int, task: Any, cpus: float = 1) -> list[dict[str, np.ndarray]]:
    """All shards on the Ray that this process is connected to; what they gave."""
    found: dict[int, dict[str, np.ndarray]] = {}
    options = JobOptions.validate(None, 5, cpus, 1, False)
    run(Job("bench", tasks, task, lambda *_: False, found.__setitem__, lambda k: 1), options, None)
    return [found[k] for k in range(tasks)]


PLAIN = """
import sys
from bench.scale import PolicyName, WorldSetup, Shards, EPISODES, PLAYED_ROWS, play, read_config, world_spec
spec = world_spec({world!r})
setup = WorldSetup(spec, read_config(spec, None, {config!r}), 1, 1, PolicyName("nearest"))
for line in sys.stdin:
    first, step = map(int, line.split())
    for shard in list(Shards(PLAYED_ROWS, EPISODES))[first::step]:
        play(setup, shard)
    print("done", flush=True)
"""


def speedup(world_id: str, config: dict[str, Any], rounds: int) -> dict[str, float]:
    """Seconds of one and two workers, and of one and two plain processes that play the same shards without Ray.

    The processes measure what the machine gives to two of them. Minima of interleaved rounds; a shard that requests
    both CPUs runs alone.
    """
    taken: dict[str, list[float]] = {name: [] for name in ("1 worker", "2 workers", "1 process", "2 processes")}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", *(p or "." for p in sys.path)])}
    command = [sys.executable, "-c", PLAIN.format(world=world_id, config=config)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
    plain: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]

    def without_ray(count: int) -> None:
        for k, process in enumerate(plain[:count]):
            process.stdin.write(f"{k} {count}\n")
            process.stdin.flush()
        for process in plain[:count]:
            assert process.stdout.readline() == "done\n"

    def on_ray(cpus: int) -> None:
        options = {"config": config, "cpus_per_shard": cpus, "progress": False}
        scale.evaluate(world_id, "nearest", EPISODES, PLAYED_ROWS, 1, **options)

    calls = {
        "1 worker": partial(on_ray, 2),
        "2 workers": partial(on_ray, 1),
        "1 process": partial(without_ray, 1),
        "2 processes": partial(without_ray, 2),
    }
    try:
        for k in range(rounds + 1):
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                if k:  # the first round starts the workers and loads kernels
                    taken[name].append(time.perf_counter() - began)
    finally:
        for process in plain:
            process.communicate()
    return {name: min(times) for name, times in taken.items()}


def overhead() -> tuple[float, float]:
    """Seconds per empty shard on two workers, and processor seconds of the caller per shard."""
    do(50, lambda k: (empty, ()))
    wall, own = time.perf_counter(), time.process_time()
    do(EMPTY_SHARDS, lambda k: (empty, ()))
    return (time.perf_counter() - wall) / EMPTY_SHARDS, (time.process_time() - own) / EMPTY_SHARDS


def bandwidth() -> float:
    """Bytes per second from the object store into an array of the caller."""
    import ray

    size = 64 * 2**20
    here = np.empty(size, np.uint8)
    reference = ray.put(np.ones(size, np.uint8))
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        here[:] = ray.get(reference)
        taken.append(time.perf_counter() - began)
    return size / statistics.median(taken)


def shard_seconds(world_id: str, policy: str, config: dict[str, Any], shards: Shards, count: int) -> np.ndarray:
    """Processor seconds of single shards, without the first, whose worker also loads kernels."""
    spec = world_spec(world_id)
    setup = WorldSetup(spec, read_config(spec, None, config), 1, 1, PolicyName(policy))
    do(2, lambda k: (timed, (setup, shards[k])), 2)
    return np.array([found["seconds"][0] for found in do(count, lambda k: (timed, (setup, shards[k])), 2)])


def makespan(times: np.ndarray, workers: int, before: float, after: float) -> float:
    """Seconds until a caller has submitted all shards and received all results: list scheduling, as in Ray."""
    free = [0.0] * workers
    heapq.heapify(free)
    caller, results = 0.0, []
    for seconds in times:
        caller += before
        start = max(caller, heapq.heappop(free))
        heapq.heappush(free, start + seconds)
        results.append(start + seconds)
    taken = 0.0
    for ready in sorted(results):
        taken = max(taken, ready) + after
    return taken


def efficiency(times: np.ndarray, workers: int, own: float, result_bytes: float, speed: float) -> float:
    """Share of the workers' time spent playing."""
    return float(times.sum() / (workers * makespan(times, workers, own / 2, own / 2 + result_bytes / speed)))


def simulated(measured: np.ndarray, per_shard: int, own: float, speed: float) -> dict[int, tuple[float, int]]:
    """By number of workers: the best efficiency, and its number of rows.

    `measured` are seconds of shards of `per_shard` episodes; a longer shard is a sum of random ones of them.
    """
    rng = np.random.default_rng(0)
    found: dict[int, tuple[float, int]] = {}
    for rows in ROWS:
        shards = -(-rows // 1024)
        episodes = STUDY / shards
        parts = max(1, round(episodes / per_shard))
        times = rng.choice(measured, (shards, parts)).sum(1) * episodes / (per_shard * parts)
        for w in WORKERS:
            found[w] = max(found.get(w, (0.0, 0)), (efficiency(times, w, own, 17 * episodes, speed), rows))
    return found


def draw(found: dict[str, dict[int, tuple[float, int]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, line in found.items():
        axes.plot(list(line), [100 * value for value, _ in line.values()], "o-", label=name)
    axes.axhline(90, color="grey", lw=0.8, ls="--")
    axes.set(
        xscale="log",
        ylim=(0, 102),
        xlabel="workers",
        ylabel="time spent playing, %",
        title=f"{STUDY:,} episodes, simulated from measured shards",
    )
    axes.legend(loc="lower left")
    axes.grid(alpha=0.3)
    figure.savefig(PICTURE, dpi=110)


GATHER = """
import resource, sys
from milkrun import scale
result = scale.evaluate("milkrun/TSP-v0", "nearest", {episodes}, seed=1, config={{"num_loc": 5}}, address=sys.argv[1],
                        progress=False)
assert result.episodes == {episodes}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def gathered(episodes: int) -> float:
    """Peak memory of a caller's process in MB while it receives this many episodes."""
    import ray

    address = ray.get_runtime_context().gcs_address
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", GATHER.format(episodes=episodes), address]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return float(done.stdout.split()[-1])


def scale_table(options: argparse.Namespace) -> tuple[Table, dict[str, float]]:
    """What evaluation on Ray costs and gains on this machine, and what follows for many."""
    set_clock("wall")  # the work is done in other processes
    table = Table(
        "Evaluation on Ray, a Ray of this machine, its start not counted", ["measured", "value", "second value"]
    )
    promised: dict[str, float] = {}
    # Ray ends workers that idle for a second, and would restart the one that waits while the other works alone.
    os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "600000")
    with connected():
        empty_seconds, own = overhead()
        table.add(
            measured="an empty shard, ms (second: processor time of the caller)",
            value=1e3 * empty_seconds,
            **{"second value": 1e3 * own},
        )
        promised["overhead of a shard, ms (promised 25, goal 8)"] = 1e3 * empty_seconds
        for name, (world_id, config) in WORLDS.items():
            took = speedup(world_id, config, 1 if options.quick else 4)
            for one, two in (("1 worker", "2 workers"), ("1 process", "2 processes")):
                table.add(
                    measured=f"{name}, {EPISODES:,} episodes, s by {one} (second: by {two})",
                    value=took[one],
                    **{"second value": took[two]},
                )
            gain, bound = took["1 worker"] / took["2 workers"], took["1 process"] / took["2 processes"]
            promised[f"2 workers / 1 worker, {name} (promised 1.7, goal 1.9)"] = gain
            promised[f"2 processes without Ray / 1, {name}: what this machine gives"] = bound
        speed = bandwidth()
        table.add(measured="out of the object store, GB/s", value=speed / 1e9)
        measured = {}
        for name, (world_id, policy, config) in STUDIES.items():
            times = shard_seconds(world_id, policy, config, Shards(65_536, 65_536), 8 if options.quick else 24)
            measured[name] = times
            table.add(
                measured=f"{name}: a shard of 1,024 episodes, processor s (second: standard deviation)",
                value=float(times.mean()),
                **{"second value": float(times.std())},
            )
        episodes = GATHERED // 10 if options.quick else GATHERED
        megabytes = gathered(episodes)
        table.add(measured=f"memory of the caller, {episodes:,} episodes gathered, MB", value=megabytes)
        promised["memory of the caller, 10^7 episodes, MB (promised 1000, goal 500)"] = megabytes
    found = {name: simulated(times, 1024, own, speed) for name, times in measured.items()}
    for name, line in found.items():
        for workers, (value, rows) in line.items():
            table.add(
                measured=f"{name}, simulated: % of time playing on {workers:,} workers (second: rows)",
                value=100 * value,
                **{"second value": rows},
            )
        promised[f"simulated efficiency at 1,000 workers, 10^8 episodes, {name} (goal 0.9)"] = line[1_000][0]
    if not options.quick:
        draw(found)
    return table, promised
