"""`evaluate` on a cluster: the episodes of `milkrun.solvers.evaluate` in shards, with the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count, check_seed
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError
from milkrun.core.registry import WorldSpec, world_spec
from milkrun.scale.driver import Arrays, Job, JobOptions, run
from milkrun.scale.policies import read_policy
from milkrun.scale.shard_store import ShardStore
from milkrun.scale.shards import SHARD_ROWS, Shards
from milkrun.scale.work import KPI, WorldSetup, play
from milkrun.solvers.evaluate import Result

ROWS = 65_536
COLUMNS = {"returns": np.float64, "lengths": np.int64, "truncated": np.bool_, "illegal": np.int64}


def evaluate(
    world_id: str,
    policy: Any,
    episodes: int,
    rows: int | None = None,
    seed: int = 0,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    address: str | None = None,
    keep: Any = None,
    shard_rows: int = SHARD_ROWS,
    retries: int = 5,
    cpus_per_shard: float = 1,
    threads: int = 1,
    progress: bool | None = None,
) -> Result:
    """Plays `episodes` episodes in `rows` rows (default: as many as episodes, at most 65,536) on Ray.

    Number k is episode k // rows of row k % rows. The result equals that of `solvers.evaluate` with the same rows, to
    the bit, for policies that decide for each row alone. A policy whose arithmetic depends on the batch gives the same
    bits for the same `shard_rows`.

    - `policy`: the name of one of the world's policies, or "package.module:name" that the workers can import, or a pair
      of a name and options. It is made with `seed` unless the options have another.
    - `address`: None starts a Ray on this machine and stops it; "auto" or "host:port" joins a running cluster.
    - `keep`: a folder for finished shards. The same call continues there after an interrupt or a kill.
    - `retries`: how often a shard is repeated after the loss of a process or machine. An error of policy or world stops
      the call and is raised as a `ScaleError`.
    """
    spec = world_spec(world_id)
    shards = read_shards(episodes, rows, shard_rows)
    options = JobOptions.validate(address, retries, cpus_per_shard, threads, progress)
    seed = check_seed(seed)
    setup = WorldSetup(spec, read_config(spec, preset, config), seed, options.threads, read_policy(spec, policy, seed))
    assert setup.policy is not None
    store = None
    if keep is not None:
        key = {
            "kind": "evaluate",
            "world": spec.id,
            "config": setup.config.as_json(),
            "policy": setup.policy.key(spec),
            "seed": seed,
            "rows": shards.rows,
            "episodes": shards.episodes,
            "shard_rows": shards.shard_rows,
        }
        store = ShardStore(keep, key)
    whole: Arrays = {name: np.empty(shards.episodes, dtype) for name, dtype in COLUMNS.items()}

    def take(k: int, arrays: Arrays) -> None:
        numbers = shards.numbers(k)
        for name, values in arrays.items():
            if name not in whole:
                whole[name] = np.empty(shards.episodes, values.dtype)
            whole[name][numbers] = values

    def is_result(k: int, arrays: Arrays) -> bool:
        known = all(name in arrays and arrays[name].dtype == dtype for name, dtype in COLUMNS.items())
        return known and all(values.shape == (shards[k].episodes,) for values in arrays.values())

    run(
        Job(
            f"{spec.name} by {setup.policy.name}",
            len(shards),
            lambda k: (play, (setup, shards[k])),
            is_result,
            take,
            lambda k: shards[k].episodes,
        ),
        options,
        store,
    )
    kpis = {name.removeprefix(KPI): values for name, values in whole.items() if name.startswith(KPI)}
    return Result(whole["returns"], whole["lengths"], whole["truncated"], shards.rows, kpis, whole["illegal"])


def read_shards(episodes: Any, rows: Any, shard_rows: Any) -> Shards:
    episodes = check_count("episodes", episodes, 1)
    rows = min(episodes, ROWS) if rows is None else check_count("rows", rows, 1)
    return Shards(rows, episodes, check_count("shard_rows", shard_rows, 1, 2**31 - 1))


def read_config(spec: WorldSpec, preset: str | None, config: Any) -> Config:
    """The complete configuration. Its values must be plain: it is sent to workers and written into manifests."""
    built: Config = spec.load().Config.build(preset, config, **spec.kwargs)
    if given := [name for name, value in built.as_dict().items() if callable(value)]:
        raise ConfigError(f"{', '.join(given)}: functions are not sent to other machines: give a name")
    return built
