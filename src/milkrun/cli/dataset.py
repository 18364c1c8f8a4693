"""`milkrun dataset`: draws instances of a world into files, in this process or on a cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from milkrun.cli.output import ADDRESS, ID, ON, PRESET, SEED, SETTINGS, on_ray, read_settings


def dataset(
    id: str = ID,
    instances: int = typer.Option(..., "--instances", min=1, help="Number of instances.", show_default=False),
    out: Path = typer.Option(..., "--out", help="Folder of the files and their manifest.", show_default=False),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
    shard_rows: int = typer.Option(
        1024, "--shard-rows", min=1, help="Instances per file; the instances do not depend on it."
    ),
    on: str | None = ON,
    address: str | None = ADDRESS,
) -> None:
    """Draw instances of a world into files.

    Writes data-000000.npz, data-000001.npz, ... with the instance fields of the world, and manifest.json with the
    parameters and checksums. The same command continues after an interrupt or a kill.

    \b
    Examples:
      milkrun dataset CVRP-v0 --instances 10000 --out data/cvrp20
      milkrun dataset CVRP-v0 --preset n50 --instances 1000000 --out data/cvrp50 --on ray
    """
    from milkrun import scale

    where = "ray" if on_ray(on, address=address) else "local"
    folder = scale.generate(
        id,
        instances,
        out,
        seed,
        preset=preset,
        config=read_settings(settings),
        on=where,
        address=address,
        shard_rows=shard_rows,
    )
    files = -(-instances // shard_rows)
    typer.echo(f"{folder}  {instances:,} instances in {files:,} file{'s' * (files > 1)}")
