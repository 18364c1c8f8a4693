"""What a worker does with a shard. These functions run in the processes that Ray starts, and know nothing of it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun._version import __version__
from milkrun.core.config import Config
from milkrun.core.errors import MilkrunError, ScaleError
from milkrun.core.fields import Role
from milkrun.core.registry import WorldSpec, list_worlds, make, register
from milkrun.scale.policies import PolicyName
from milkrun.scale.shards import Shard
from milkrun.solvers.evaluate import Result, evaluate
from milkrun.solvers.solve import solve

SEARCH_SECONDS = 4.0  # for the row at which a policy fails
LAST_LINES = 12  # of a traceback, in an error

Arrays = dict[str, np.ndarray]
KPI = "kpi_"


@dataclass(frozen=True)
class Played:
    """What all shards of an evaluation, or of a dataset, share."""

    spec: WorldSpec
    config: Config
    seed: int
    threads: int
    policy: PolicyName | None = None

    def world(self, first: int, rows: int) -> Any:
        if self.spec.id not in list_worlds():  # registered by the caller's program alone
            register(self.spec.id, self.spec.entry_point, family=self.spec.family, kwargs=dict(self.spec.kwargs))
        return make(
            self.spec.id,
            rows,
            config=self.config,
            seed=self.seed,
            first_row=first,
            autoreset="disabled",
            threads=self.threads,
        )


def same_version(version: str) -> None:
    """Refuses to work for a caller of another Milkrun, whose bits may differ."""
    if version != __version__:
        import socket

        raise ScaleError(
            f"a worker on {socket.gethostname()} has Milkrun {__version__}, the caller has {version}: "
            "install the same version on all machines"
        )


def work(version: str, task: Callable[..., Arrays], *arguments: Any) -> Arrays:
    """A task as the driver hands it to Ray."""
    same_version(version)
    return task(*arguments)


def play(played: Played, shard: Shard) -> Arrays:
    """The episodes of a shard, in its own order; an error of policy or world names the row."""
    try:
        result = _evaluate(played, shard.first, shard.rows, shard.episodes)
    except Exception as e:
        first, last = _where(played, shard)
        rows = f"row {first}" if first == last else f"rows {first} to {last}"
        raise failed(e, f"shard {shard.index}, {rows}", shard.index, first if first == last else None) from None
    return {
        "returns": result.returns,
        "lengths": result.lengths,
        "truncated": result.truncated,
        "illegal": result.illegal,
        **{KPI + name: values for name, values in result.kpis.items()},
    }


def draw(played: Played, shard: Shard) -> Arrays:
    """The instances of a shard: the fields that `World.reset(instance=...)` takes."""
    try:
        world = played.world(shard.first, shard.rows)
        world.draw_instances(0)
        fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE and not f.on_demand]
        return {name: array for name in fields if (array := getattr(world, name)).size}
    except Exception as e:
        where = f"shard {shard.index}, rows {shard.first} to {shard.first + shard.rows - 1}"
        raise failed(e, where, shard.index, None) from None


def answer(world: str, instance: Any, index: int, keywords: dict[str, Any]) -> Arrays:
    """The answer to one instance."""
    try:
        found = solve(world, instance, **keywords)
    except Exception as e:
        raise failed(e, f"instance {index}", index, index) from None
    return {"actions": found.actions[0], "cost": found.cost[:1], "optimal": found.optimal[:1]}


def failed(error: Exception, where: str, shard: int, row: int | None) -> ScaleError:
    """An error of the caller's own work, as it travels home: a sentence, and the last lines of where it happened."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()[-LAST_LINES:]
    what = str(error) if isinstance(error, MilkrunError) else f"{type(error).__name__}: {error}"
    return ScaleError(f"{where}: {what}", shard=shard, row=row, remote_traceback="\n".join(lines))


class _OutOfTime(Exception):
    """The search for a row has taken long enough."""


def _evaluate(played: Played, first: int, rows: int, episodes: int, until: float | None = None) -> Result:
    assert played.policy is not None
    policy = played.policy.make(played.spec, played.seed)

    def in_time(world: Any) -> np.ndarray:
        if time.monotonic() > until:  # type: ignore[operator]
            raise _OutOfTime
        return policy(world)

    world = played.world(first, rows)
    return evaluate(world, policy if until is None else in_time, episodes, played.seed)


def _where(played: Played, shard: Shard) -> tuple[int, int]:
    """The rows among which the failing one is, by halves: a row plays the same in any batch. As narrow as time allows,
    and all of them where the halves do not fail."""
    until = time.monotonic() + SEARCH_SECONDS
    first, rows = shard.first, shard.rows
    each, more = divmod(shard.episodes, shard.rows)
    while rows > 1:
        half = rows // 2
        for start, size in ((first, half), (first + half, rows - half)):
            episodes = each * size + min(max(more - (start - shard.first), 0), size)
            try:
                if episodes:
                    _evaluate(played, start, size, episodes, until)
            except _OutOfTime:
                return first, first + rows - 1
            except Exception:
                first, rows = start, size
                break
        else:
            return first, first + rows - 1
    return first, first
