"""The tasks of workers: play a shard, draw its instances, solve an instance. They do not depend on Ray."""

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
class WorldSetup:
    """The world, seed and policy that all shards of an evaluation or of a dataset share."""

    spec: WorldSpec
    config: Config
    seed: int
    threads: int
    policy: PolicyName | None = None

    def world(self, first: int, rows: int) -> Any:
        if self.spec.id not in list_worlds():  # registered by the program of the caller only
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


def check_version(version: str) -> None:
    """Raises if the caller has another version of Milkrun: results might differ."""
    if version != __version__:
        import socket

        raise ScaleError(
            f"a worker on {socket.gethostname()} has Milkrun {__version__}, the caller has {version}: "
            "install the same version on all machines"
        )


def run_task(version: str, task: Callable[..., Arrays], *arguments: Any) -> Arrays:
    """The function that the driver submits to Ray."""
    check_version(version)
    return task(*arguments)


def play(setup: WorldSetup, shard: Shard) -> Arrays:
    """Plays the episodes of a shard. An error of policy or world names the row."""
    try:
        result = _evaluate(setup, shard.first, shard.rows, shard.episodes)
    except Exception as e:
        first, last = _failing_rows(setup, shard)
        rows = f"row {first}" if first == last else f"rows {first} to {last}"
        raise shard_error(e, f"shard {shard.index}, {rows}", shard.index, first if first == last else None) from None
    return {
        "returns": result.returns,
        "lengths": result.lengths,
        "truncated": result.truncated,
        "illegal": result.illegal,
        **{KPI + name: values for name, values in result.kpis.items()},
    }


def draw(setup: WorldSetup, shard: Shard) -> Arrays:
    """Draws the instances of a shard: the fields that `World.reset(instance=...)` takes."""
    try:
        world = setup.world(shard.first, shard.rows)
        world.draw_instances(0)
        fields = [f.name for f in world.fields.values() if f.role is Role.INSTANCE and not f.on_demand]
        return {name: array for name in fields if (array := getattr(world, name)).size}
    except Exception as e:
        where = f"shard {shard.index}, rows {shard.first} to {shard.first + shard.rows - 1}"
        raise shard_error(e, where, shard.index, None) from None


def solve_instance(world: str, instance: Any, index: int, keywords: dict[str, Any]) -> Arrays:
    """Solves one instance."""
    try:
        found = solve(world, instance, **keywords)
    except Exception as e:
        raise shard_error(e, f"instance {index}", index, index) from None
    return {"actions": found.actions[0], "cost": found.cost[:1], "optimal": found.optimal[:1]}


def shard_error(error: Exception, where: str, shard: int, row: int | None) -> ScaleError:
    """An error of policy, world or solver as the caller receives it: a sentence and the end of the remote traceback."""
    lines = "".join(traceback.format_exception(error)).rstrip().splitlines()[-LAST_LINES:]
    message = str(error) if isinstance(error, MilkrunError) else f"{type(error).__name__}: {error}"
    return ScaleError(f"{where}: {message}", shard=shard, row=row, remote_traceback="\n".join(lines))


class _OutOfTime(Exception):
    """The search for the failing row has reached its time limit."""


def _evaluate(setup: WorldSetup, first: int, rows: int, episodes: int, until: float | None = None) -> Result:
    assert setup.policy is not None
    policy = setup.policy.make(setup.spec, setup.seed)

    def limited(world: Any) -> np.ndarray:
        if time.monotonic() > until:  # type: ignore[operator]
            raise _OutOfTime
        return policy(world)

    world = setup.world(first, rows)
    return evaluate(world, policy if until is None else limited, episodes, setup.seed)


def _failing_rows(setup: WorldSetup, shard: Shard) -> tuple[int, int]:
    """The first and last of the rows among which the failing one is, by bisection within a time limit. If neither half
    fails alone, all rows of the last range."""
    until = time.monotonic() + SEARCH_SECONDS
    first, rows = shard.first, shard.rows
    each, more = divmod(shard.episodes, shard.rows)
    while rows > 1:
        half = rows // 2
        for start, size in ((first, half), (first + half, rows - half)):
            episodes = each * size + min(max(more - (start - shard.first), 0), size)
            try:
                if episodes:
                    _evaluate(setup, start, size, episodes, until)
            except _OutOfTime:
                return first, first + rows - 1
            except Exception:
                first, rows = start, size
                break
        else:
            return first, first + rows - 1
    return first, first
