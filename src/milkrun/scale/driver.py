"""A call from its caller's side: shards go to Ray, results come back in any order and are taken one at a time.

Ray schedules, moves, retries what was lost with a process or a machine, and rebuilds lost results. Here is only what
to hand in, what to do with a result, and how to stop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun._version import __version__
from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, ScaleError
from milkrun.scale.cluster import connected, import_ray
from milkrun.scale.keep import Kept
from milkrun.scale.progress import Tell, bar
from milkrun.scale.work import work

Arrays = dict[str, np.ndarray]
Task = tuple[Callable[..., Arrays], tuple[Any, ...]]
"""a function of `work`, and its arguments"""

POLL_SECONDS = 0.1  # a wait is cut into pieces of this, between which Ctrl-C is heard
LOOK_SECONDS = 1.0  # between two looks at how many cores the cluster has
AHEAD, AT_LEAST = 3, 16  # shards handed in at once: so many a core of the cluster, and no fewer than


@dataclass(frozen=True)
class Asked:
    """What every call may say of how its work is done."""

    address: str | None
    retries: int
    cpus_per_shard: float
    threads: int
    progress: bool | None

    @classmethod
    def read(cls, address: Any, retries: Any, cpus_per_shard: Any, threads: Any, progress: Any) -> Asked:
        if not isinstance(cpus_per_shard, (int, float)) or isinstance(cpus_per_shard, bool) or not cpus_per_shard > 0:
            raise ConfigError(f"cpus_per_shard={cpus_per_shard!r}: must be a number above 0")
        return cls(
            address, check_count("retries", retries, 0), cpus_per_shard, check_count("threads", threads, 1), progress
        )


@dataclass(frozen=True)
class Work:
    """What a call does: `tasks` shards, what each is, whether kept arrays are its result, and what is done with it."""

    title: str
    tasks: int
    task: Callable[[int], Task]
    fits: Callable[[int, Arrays], bool]
    take: Callable[[int, Arrays], None]
    units: Callable[[int], int]
    unit: str = "episodes"


def run(what: Work, asked: Asked, kept: Kept | None, ray_needed: bool = True) -> None:
    """Does all shards, each once; those that are kept already are read instead. Without Ray, in this process."""
    if ray_needed:
        import_ray()
    with ExitStack() as stack:
        if kept is not None:
            stack.enter_context(kept)
        tell = stack.enter_context(bar(asked.progress, what.title, what.tasks, what.unit, _nodes_alive))
        missing = [k for k in range(what.tasks) if not _known(k, what, kept, tell)]
        if not missing:
            return
        try:
            if not ray_needed:
                for k in missing:
                    function, arguments = what.task(k)
                    _done(k, function(*arguments), what, kept, tell)
                return
            stack.enter_context(connected(asked.address))
            _refuse_what_never_fits(asked)
            _hand_out(missing, what, asked, kept, tell)
        except KeyboardInterrupt:
            if kept is not None:
                count = sum(kept.path(k).exists() for k in range(what.tasks))
                print(
                    f"stopped: {count:,} of {what.tasks:,} shards are kept in {kept.folder}; the same call continues "
                    "there",
                    file=sys.stderr,
                )
            raise


def _known(k: int, what: Work, kept: Kept | None, tell: Tell) -> bool:
    arrays = None if kept is None else kept.load(k)
    if arrays is None or not what.fits(k, arrays):
        return False
    what.take(k, arrays)
    tell(1, 0)
    return True


def _done(k: int, arrays: Arrays, what: Work, kept: Kept | None, tell: Tell) -> None:
    if kept is not None:
        kept.store(k, arrays)
    what.take(k, arrays)
    tell(1, what.units(k))


def _hand_out(missing: Iterable[int], what: Work, asked: Asked, kept: Kept | None, tell: Tell) -> None:
    """Hands shards to Ray, some more than it has cores, and takes what comes back until all have.

    What is out when this stops (an error, Ctrl-C) ends as the connection does: Ray ends what a caller that has left had
    under way. `ray.cancel` would do it one by one, but in Ray 2.60 it may abort this process when a shard ends at that
    very moment (a failed check in its task_manager.cc).
    """
    import ray

    options: dict[str, Any] = {"num_cpus": asked.cpus_per_shard, "max_retries": asked.retries}
    remote: Any = ray.remote(retry_exceptions=False, **options)(work)
    waiting = iter(missing)
    out: dict[Any, int] = {}
    looked, most = 0.0, AT_LEAST
    while True:
        if time.monotonic() - looked > LOOK_SECONDS:
            looked, most = time.monotonic(), max(AT_LEAST, int(AHEAD * ray.cluster_resources().get("CPU", 0)))
        # `range` first: at its end zip stops before it takes one more out of `waiting`, which would be lost.
        for _, k in zip(range(most - len(out)), waiting):
            function, arguments = what.task(k)
            out[remote.options(name=f"{what.title} {k}").remote(__version__, function, *arguments)] = k
        if not out:
            return
        # The first call waits until there is one result, the second takes all that are there by now.
        ray.wait(list(out), num_returns=1, timeout=POLL_SECONDS)
        ready, _ = ray.wait(list(out), num_returns=len(out), timeout=0)
        for reference in ready:
            _done(out[reference], _result(reference, out[reference], asked), what, kept, tell)
            del out[reference]


def _result(reference: Any, k: int, asked: Asked) -> Arrays:
    """What a shard became; its failure is told in our words."""
    import ray
    from ray import exceptions

    try:
        arrays: Arrays = ray.get(reference)
    except exceptions.RayTaskError as e:
        if isinstance(e.cause, ScaleError):
            raise e.cause from None
        lines = str(e).strip().splitlines()
        raise ScaleError(
            f"shard {k}: a worker cannot run Milkrun's tasks ({lines[-1]}): the same Milkrun, and what "
            "the policy is made of, must be installed on all machines",
            shard=k,
            remote_traceback="\n".join(lines[-12:]),
        ) from None
    except exceptions.RayError as e:
        reason = str(e).strip().splitlines()[0]
        raise ScaleError(
            f"shard {k} was lost with its process or machine more often than retries={asked.retries}: {reason}", shard=k
        ) from None
    return arrays


def _refuse_what_never_fits(asked: Asked) -> None:
    """A Ray of our own does not grow: what no machine of it can run would wait forever."""
    import ray

    most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if asked.address is None and asked.cpus_per_shard > most:
        raise ConfigError(f"cpus_per_shard={asked.cpus_per_shard}: this machine has {most:g}")


def _nodes_alive() -> int:
    import ray

    return sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else 0
