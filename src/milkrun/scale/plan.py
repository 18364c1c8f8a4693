"""`plan`: estimates shards, memory and time of an evaluation without a cluster."""

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
from milkrun.scale.work import WorldSetup
from milkrun.solvers.evaluate import evaluate

SAMPLE_EPISODES = 128  # on one core
EPISODE_BYTES = sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
SHARD_SECONDS = 0.01  # overhead of a shard: measured, `python -m bench --only scale`


@dataclass(frozen=True)
class ShardPlan:
    """The estimated cost of an evaluation."""

    shards: int
    episodes: int
    workers: int
    shard_seconds: float
    """time of a whole shard on one core, from a sample of episodes on this machine"""
    worker_bytes: int
    """memory of the arrays of a worker's world"""
    caller_bytes: int
    """memory of the results at the caller"""

    @property
    def seconds(self) -> float:
        """The expected time on `workers` cores as fast as this machine. Shards are not divided."""
        return -(-self.shards // self.workers) * (self.shard_seconds + SHARD_SECONDS)

    def __str__(self) -> str:
        return (
            f"{self.shards:,} shards of {self.shard_seconds:.2f} s, {self.seconds:,.0f} s on {self.workers:,} "
            f"workers; {self.worker_bytes / 1e6:,.0f} MB per worker, {self.caller_bytes / 1e6:,.0f} MB at the "
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
) -> ShardPlan:
    """Estimates shards, memory and time of `evaluate` with these arguments. `workers` defaults to the number of cores.

    Starts no Ray; plays a few episodes in this process."""
    spec = world_spec(world_id)
    shards = read_shards(episodes, rows, shard_rows)
    workers = (os.cpu_count() or 1) if workers is None else check_count("workers", workers, 1)
    seed = check_seed(seed)
    setup = WorldSetup(spec, read_config(spec, preset, config), seed, 1, read_policy(spec, policy, seed))
    assert setup.policy is not None
    sample = min(SAMPLE_EPISODES, shards[0].rows)
    world = setup.world(0, sample)
    seconds = []
    for _ in range(2):  # the first also loads and compiles
        clock = Clock()
        result = evaluate(world, setup.policy.make(spec, seed), sample, seed)
        seconds.append(clock.seconds)
    episode_bytes = EPISODE_BYTES + sum(values.itemsize for values in result.kpis.values())
    arrays = (getattr(world, name, None) for name in world.fields)
    row_bytes = sum(getattr(array, "nbytes", 0) for array in arrays) / sample
    return ShardPlan(
        len(shards),
        shards.episodes,
        workers,
        min(seconds) / sample * shards[0].episodes,
        int(row_bytes * shards[0].rows),
        episode_bytes * shards.episodes,
    )
