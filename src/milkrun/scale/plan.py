"""`plan`: what an evaluation would take, before a cluster is asked for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count, check_seed
from milkrun.core.clock import Clock
from milkrun.core.config import Config
from milkrun.core.registry import world_spec
from milkrun.scale.evaluate import COLUMNS, read_config, read_shards
from milkrun.scale.policies import read_policy
from milkrun.scale.shards import SHARD_ROWS
from milkrun.scale.work import Played
from milkrun.solvers.evaluate import evaluate

TRIED = 128  # episodes, on one core
EPISODE_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
SHARD_SECONDS = 0.01  # what a shard costs beside its play: measured, `python -m bench --only scale`


@dataclass(frozen=True)
class Plan:
    """What an evaluation takes."""

    shards: int
    episodes: int
    workers: int
    shard_seconds: float
    """of a core, for a whole shard, from a try of some episodes on this machine"""
    worker_bytes: int
    """the arrays of a worker's world"""
    caller_bytes: int
    """what the caller gathers"""

    @property
    def seconds(self) -> float:
        """Expected on so many workers of this machine's speed: shards are not divided."""
        return -(-self.shards // self.workers) * (self.shard_seconds + SHARD_SECONDS)

    def __str__(self) -> str:
        return (
            f"{self.shards:,} shards of {self.shard_seconds:.2f} s, {self.seconds:,.0f} s on {self.workers:,} "
            f"workers; {self.worker_bytes / 1e6:,.0f} MB a worker, {self.caller_bytes / 1e6:,.0f} MB at the "
            "caller"
        )


def plan(
    world_id: str,
    policy: Any,
    episodes: int,
    rows: int | None = None,
    seed: int = 0,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    shard_rows: int = SHARD_ROWS,
    workers: int | None = None,
) -> Plan:
    """Shards, memory and expected time of `evaluate` with these arguments, on so many workers (default: the cores of
    this machine). Starts no Ray and plays a few episodes only, here."""
    spec = world_spec(world_id)
    shards = read_shards(episodes, rows, shard_rows)
    workers = (os.cpu_count() or 1) if workers is None else check_count("workers", workers, 1)
    seed = check_seed(seed)
    played = Played(spec, read_config(spec, preset, config), seed, 1, read_policy(spec, policy, seed))
    assert played.policy is not None
    tried = min(TRIED, shards[0].rows)
    world = played.world(0, tried)
    taken = []
    for _ in range(2):  # the first also loads and compiles
        clock = Clock()
        result = evaluate(world, played.policy.make(spec, seed), tried, seed)
        taken.append(clock.seconds)
    each = EPISODE_BYTES + sum(values.itemsize for values in result.kpis.values())
    arrays = (getattr(world, name, None) for name in world.fields)
    row_bytes = sum(getattr(array, "nbytes", 0) for array in arrays) / tried
    return Plan(
        len(shards),
        shards.episodes,
        workers,
        min(taken) / tried * shards[0].episodes,
        int(row_bytes * shards[0].rows),
        each * shards.episodes,
    )
