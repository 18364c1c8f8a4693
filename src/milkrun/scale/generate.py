"""`generate`: datasets of instances in shards. Instance n is the first that row n of a world with that seed draws, for
any shard size."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from milkrun.core.arguments import check_count, check_seed
from milkrun.core.config import Config
from milkrun.core.dataset import STEM, shards_in
from milkrun.core.errors import ConfigError
from milkrun.core.files import name_of
from milkrun.core.registry import world_spec
from milkrun.scale.driver import Arrays, Job, JobOptions, run
from milkrun.scale.evaluate import read_config, read_shards
from milkrun.scale.shard_store import ShardStore
from milkrun.scale.shards import SHARD_ROWS
from milkrun.scale.work import WorldSetup, draw


def generate(
    world_id: str,
    instances: int,
    out: str | os.PathLike[str],
    seed: int = 0,
    *,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    preset: str | None = None,
    on: str = "ray",
    address: str | None = None,
    shard_rows: int = SHARD_ROWS,
    retries: int = 5,
    cpus_per_shard: float = 1,
    threads: int = 1,
    progress: bool | None = None,
) -> Path:
    """Draws instances into the folder `out` and returns it. The same call continues after an interrupt or a kill.

    Each file `data-000042.npz` has the instance fields of `shard_rows` instances; `manifest.json` has the parameters.
    `on="local"` draws in this process, without Ray. The other arguments are those of `evaluate`.
    """
    spec = world_spec(world_id)
    if on not in ("ray", "local"):
        raise ConfigError(f"on={on!r}: must be 'ray' or 'local'")
    instances = check_count("instances", instances, 1)
    shards = read_shards(instances, instances, shard_rows)
    options = JobOptions.validate(address, retries, cpus_per_shard, threads, progress)
    setup = WorldSetup(spec, read_config(spec, preset, config), check_seed(seed), options.threads)
    key = {
        "kind": "generate",
        "world": spec.id,
        "config": setup.config.as_json(),
        "seed": setup.seed,
        "instances": instances,
        "shard_rows": shards.shard_rows,
    }
    store = ShardStore(out, key, STEM)

    def is_result(k: int, arrays: Arrays) -> bool:
        return bool(arrays) and all(values.shape[:1] == (shards[k].rows,) for values in arrays.values())

    run(
        Job(
            f"{spec.name} instances",
            len(shards),
            lambda k: (draw, (setup, shards[k])),
            is_result,
            lambda *_: None,
            lambda k: shards[k].rows,
            "instances",
        ),
        options,
        store,
        use_ray=on == "ray",
    )
    return store.folder


def instances(folder: str | os.PathLike[str]) -> Iterator[Arrays]:
    """The shards of a dataset in order, each as a dict of arrays whose first axis is the instance.

    `World.reset(instance=...)`, `solve` and the tasks take such a dict. An incomplete or changed dataset is refused."""
    yield from shards_in(Path(name_of(folder)))
