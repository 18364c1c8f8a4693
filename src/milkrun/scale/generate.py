"""`generate`: datasets of instances in shards. Instance n is what row n of a world with that seed draws first, whatever
the size of a shard."""

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
from milkrun.scale.driver import Arrays, Asked, Work, run
from milkrun.scale.evaluate import read_config, read_shards
from milkrun.scale.keep import Kept
from milkrun.scale.shards import SHARD_ROWS
from milkrun.scale.work import Played, draw


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
    """Draws instances into the folder `out`: `data-000042.npz` with the instance fields of `shard_rows` of them, and
    `manifest.json`. Returns the folder. The same call continues one that was stopped.

    `on="local"` draws in this process, without Ray. The other arguments are those of `evaluate`.
    """
    spec = world_spec(world_id)
    if on not in ("ray", "local"):
        raise ConfigError(f"on={on!r}: must be 'ray' or 'local'")
    instances = check_count("instances", instances, 1)
    shards = read_shards(instances, instances, shard_rows)
    asked = Asked.read(address, retries, cpus_per_shard, threads, progress)
    played = Played(spec, read_config(spec, preset, config), check_seed(seed), asked.threads)
    key = {
        "kind": "generate",
        "world": spec.id,
        "config": played.config.as_json(),
        "seed": played.seed,
        "instances": instances,
        "shard_rows": shards.shard_rows,
    }
    kept = Kept(out, key, STEM)

    def fits(k: int, arrays: Arrays) -> bool:
        return bool(arrays) and all(values.shape[:1] == (shards[k].rows,) for values in arrays.values())

    run(
        Work(
            f"{spec.name} instances",
            len(shards),
            lambda k: (draw, (played, shards[k])),
            fits,
            lambda *_: None,
            lambda k: shards[k].rows,
            "instances",
        ),
        asked,
        kept,
        ray_needed=on == "ray",
    )
    return kept.folder


def instances(folder: str | os.PathLike[str]) -> Iterator[Arrays]:
    """The shards of a dataset in order, each a dict of fields with the instance first, as `World.reset(instance=...)`,
    `solve` and the tasks take it. A dataset that is not whole, or not as its manifest says, is refused."""
    yield from shards_in(Path(name_of(folder)))
