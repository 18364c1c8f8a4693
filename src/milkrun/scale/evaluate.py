"""`evaluate` on a cluster: the numbered episodes of `milkrun.solvers.evaluate`, shard by shard, the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count, check_seed
from milkrun.core.config import Config
from milkrun.core.errors import ConfigError
from milkrun.core.registry import WorldSpec, world_spec
from milkrun.scale.driver import Arrays, Asked, Work, run
from milkrun.scale.keep import Kept
from milkrun.scale.policies import read_policy
from milkrun.scale.shards import SHARD_ROWS, Shards
from milkrun.scale.work import KPI, Played, play
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

    Number k is episode k // rows of row k % rows, and the result is that of `solvers.evaluate` with as many rows, to
    the bit, for policies that look at one row at a time. `policy`: the name of one of the world's, or
    "package.module:name" that the workers can import, or a pair of that and its options; it is made with `seed` unless
    they say another. `address` None: a Ray on this machine that the call starts and stops; "auto" or "host:port": a
    running cluster. `keep`: a folder in which finished shards stay, so that the same call continues one that was
    stopped. `retries` are of lost processes and machines; an error of policy or world stops the call and is raised as a
    `ScaleError`. `shard_rows` is part of the law: a policy whose arithmetic depends on the batch gives the same bits
    for the same `shard_rows`.
    """
    spec = world_spec(world_id)
    shards = read_shards(episodes, rows, shard_rows)
    asked = Asked.read(address, retries, cpus_per_shard, threads, progress)
    seed = check_seed(seed)
    played = Played(spec, read_config(spec, preset, config), seed, asked.threads, read_policy(spec, policy, seed))
    assert played.policy is not None
    kept = None
    if keep is not None:
        key = {
            "kind": "evaluate",
            "world": spec.id,
            "config": played.config.as_json(),
            "policy": played.policy.key(spec),
            "seed": seed,
            "rows": shards.rows,
            "episodes": shards.episodes,
            "shard_rows": shards.shard_rows,
        }
        kept = Kept(keep, key)
    whole: Arrays = {name: np.empty(shards.episodes, dtype) for name, dtype in COLUMNS.items()}

    def take(k: int, arrays: Arrays) -> None:
        numbers = shards.numbers(k)
        for name, values in arrays.items():
            if name not in whole:
                whole[name] = np.empty(shards.episodes, values.dtype)
            whole[name][numbers] = values

    def fits(k: int, arrays: Arrays) -> bool:
        known = all(name in arrays and arrays[name].dtype == dtype for name, dtype in COLUMNS.items())
        return known and all(values.shape == (shards[k].episodes,) for values in arrays.values())

    run(
        Work(
            f"{spec.name} by {played.policy.name}",
            len(shards),
            lambda k: (play, (played, shards[k])),
            fits,
            take,
            lambda k: shards[k].episodes,
        ),
        asked,
        kept,
    )
    kpis = {name.removeprefix(KPI): values for name, values in whole.items() if name.startswith(KPI)}
    return Result(whole["returns"], whole["lengths"], whole["truncated"], shards.rows, kpis, whole["illegal"])


def read_shards(episodes: Any, rows: Any, shard_rows: Any) -> Shards:
    episodes = check_count("episodes", episodes, 1)
    rows = min(episodes, ROWS) if rows is None else check_count("rows", rows, 1)
    return Shards(rows, episodes, check_count("shard_rows", shard_rows, 1, 2**31 - 1))


def read_config(spec: WorldSpec, preset: str | None, config: Any) -> Config:
    """The whole configuration, which must be plain values: it is sent, and written into manifests."""
    built: Config = spec.load().Config.build(preset, config, **spec.kwargs)
    if given := [name for name, value in built.as_dict().items() if callable(value)]:
        raise ConfigError(
            f"{', '.join(given)} was given as a function, which is not sent to other machines: give its name"
        )
    return built
