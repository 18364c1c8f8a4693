"""Runs the shards of a call: submits them to Ray, takes their results in any order, stops at an error or Ctrl-C.

Ray schedules the shards, retries those that were lost with a process or a machine, and rebuilds lost results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun._version import __version__
from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, ScaleError, missing_extra
from milkrun.scale.cluster import connected, import_ray
from milkrun.scale.shard_store import ShardStore
from milkrun.scale.work import run_task

Arrays = dict[str, np.ndarray]
Task = tuple[Callable[..., Arrays], tuple[Any, ...]]
"""a function of `work`, and its arguments"""
Report = Callable[[int, int], None]
"""called with the numbers of shards and of units (episodes, instances) that were just finished"""

POLL_SECONDS = 0.1  # longest wait without a chance to handle Ctrl-C
CLUSTER_SECONDS = 1.0  # between two queries of the number of cores
SHARDS_PER_CORE, FEWEST_SHARDS = 3, 16  # submitted at the same time
BAR_SECONDS = 2.0  # between two queries of the number of nodes for the progress bar


@dataclass(frozen=True)
class JobOptions:
    """The options of a call that concern how its shards are run."""

    address: str | None
    retries: int
    cpus_per_shard: float
    threads: int
    progress: bool | None

    @classmethod
    def validate(cls, address: Any, retries: Any, cpus_per_shard: Any, threads: Any, progress: Any) -> JobOptions:
        if not isinstance(cpus_per_shard, (int, float)) or isinstance(cpus_per_shard, bool) or not cpus_per_shard > 0:
            raise ConfigError(f"cpus_per_shard={cpus_per_shard!r}: must be a number above 0")
        return cls(
            address, check_count("retries", retries, 0), cpus_per_shard, check_count("threads", threads, 1), progress
        )


@dataclass(frozen=True)
class Job:
    """The shards of a call."""

    title: str
    shards: int
    task: Callable[[int], Task]
    is_result: Callable[[int, Arrays], bool]
    """whether stored arrays have the form of a shard's result"""
    take: Callable[[int, Arrays], None]
    """receives the result of a shard"""
    units: Callable[[int], int]
    """the number of units in a shard, for the progress bar"""
    unit: str = "episodes"


def run(job: Job, options: JobOptions, store: ShardStore | None, use_ray: bool = True) -> None:
    """Runs every shard once. A stored result is read instead; without Ray, shards run in this process."""
    if use_ray:
        import_ray()
    with ExitStack() as stack:
        if store is not None:
            stack.enter_context(store)
        report = stack.enter_context(progress_bar(options.progress, job.title, job.shards, job.unit))
        missing = [k for k in range(job.shards) if not _load(k, job, store, report)]
        if not missing:
            return
        try:
            if not use_ray:
                for k in missing:
                    function, arguments = job.task(k)
                    _finish(k, function(*arguments), job, store, report)
                return
            stack.enter_context(connected(options.address))
            _check_cpus(options)
            _run_on_ray(missing, job, options, store, report)
        except KeyboardInterrupt:
            if store is not None:
                count = sum(store.path(k).exists() for k in range(job.shards))
                print(
                    f"stopped: {count:,} of {job.shards:,} shards are kept in {store.folder}; the same call continues "
                    "there",
                    file=sys.stderr,
                )
            raise


def _load(k: int, job: Job, store: ShardStore | None, report: Report) -> bool:
    """Takes the stored result of a shard, if there is one."""
    arrays = None if store is None else store.load(k)
    if arrays is None or not job.is_result(k, arrays):
        return False
    job.take(k, arrays)
    report(1, 0)
    return True


def _finish(k: int, arrays: Arrays, job: Job, store: ShardStore | None, report: Report) -> None:
    if store is not None:
        store.store(k, arrays)
    job.take(k, arrays)
    report(1, job.units(k))


def _run_on_ray(
    missing: Iterable[int], job: Job, options: JobOptions, store: ShardStore | None, report: Report
) -> None:
    """Keeps some more shards submitted than the cluster has cores, until all have finished.

    After an error or Ctrl-C the shards that still run are not cancelled one by one: Ray ends them when the call
    disconnects. In Ray 2.60, `ray.cancel` may abort this process if a shard ends at the same moment (a failed check in
    its task_manager.cc).
    """
    import ray

    resources: dict[str, Any] = {"num_cpus": options.cpus_per_shard, "max_retries": options.retries}
    remote: Any = ray.remote(retry_exceptions=False, **resources)(run_task)
    waiting = iter(missing)
    running: dict[Any, int] = {}
    queried, most = 0.0, FEWEST_SHARDS
    while True:
        if time.monotonic() - queried > CLUSTER_SECONDS:
            queried = time.monotonic()
            most = max(FEWEST_SHARDS, int(SHARDS_PER_CORE * ray.cluster_resources().get("CPU", 0)))
        # `range` first: at its end zip stops before it takes one more out of `waiting`, which would be lost.
        for _, k in zip(range(most - len(running)), waiting):
            function, arguments = job.task(k)
            running[remote.options(name=f"{job.title} {k}").remote(__version__, function, *arguments)] = k
        if not running:
            return
        # The first call waits until there is one result, the second takes all that are there by now.
        ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
        ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
        for reference in ready:
            _finish(running[reference], _result(reference, running[reference], options), job, store, report)
            del running[reference]


def _result(reference: Any, k: int, options: JobOptions) -> Arrays:
    """The result of a shard; Ray's errors are raised as a ScaleError."""
    import ray
    from ray import exceptions

    try:
        arrays: Arrays = ray.get(reference)
    except exceptions.RayTaskError as e:
        if isinstance(e.cause, ScaleError):
            raise e.cause from None
        lines = str(e).strip().splitlines()
        raise ScaleError(
            f"shard {k}: a worker cannot run Milkrun's tasks ({lines[-1]}): the same Milkrun, and the modules of the "
            "policy, must be installed on all machines",
            shard=k,
            remote_traceback="\n".join(lines[-12:]),
        ) from None
    except exceptions.RayError as e:
        reason = str(e).strip().splitlines()[0]
        raise ScaleError(
            f"shard {k} was lost with its process or machine more often than retries={options.retries}: {reason}",
            shard=k,
        ) from None
    return arrays


def _check_cpus(options: JobOptions) -> None:
    """Raises if no machine of a local Ray has the CPUs of a shard: the call would wait forever."""
    import ray

    most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if options.address is None and options.cpus_per_shard > most:
        raise ConfigError(f"cpus_per_shard={options.cpus_per_shard}: this machine has {most:g}")


@contextmanager
def progress_bar(progress: bool | None, title: str, shards: int, unit: str) -> Iterator[Report]:
    """Shows finished shards, units per second, nodes and remaining time. With None, only if stderr is a terminal."""
    if progress not in (None, True, False):
        raise ConfigError(f"progress={progress!r}: must be True, False or None (a bar on a terminal)")
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda *_: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        if progress:
            raise missing_extra("rich", "cli") from None
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("shards"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=shards, rate="")
        start, queried, done, nodes = time.monotonic(), 0.0, 0, 0

        def report(finished: int, units: int) -> None:
            nonlocal queried, done, nodes
            done += units
            now = time.monotonic()
            if now - queried > BAR_SECONDS:
                queried, nodes = now, _nodes_alive()
            speed = done / max(now - start, 1e-3)
            place = f" on {nodes} node{'s' * (nodes != 1)}" if nodes else ""
            bar.update(task, advance=finished, rate=f"{speed:,.0f} {unit}/s{place}")

        yield report


def _nodes_alive() -> int:
    ray = sys.modules.get("ray")  # a call without Ray does not load it
    return sum(node["Alive"] for node in ray.nodes()) if ray is not None and ray.is_initialized() else 0
