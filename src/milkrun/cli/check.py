"""`milkrun check`: the public checker on a registered world."""

from __future__ import annotations

import typer

from milkrun.cli.output import ID, PRESET, SEED, SETTINGS, read_settings


def check(
    id: str = ID,
    num_envs: int = typer.Option(16, "--num-envs", min=1, help="Rows to check with."),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
) -> None:
    """Check a world with `milkrun.check_world`.

    Masks, bounds, rewards, independence of rows, reproducible resets. Exit code 1 on any finding.

    \b
    Examples:
      milkrun check milkrun/CVRP-v0
      milkrun check CVRP-v0 --set num_loc=5 --set max_length=3
    """
    import milkrun
    from milkrun.core.registry import world_spec

    spec = world_spec(id)
    world = milkrun.make(spec.id, num_envs, preset=preset, config=read_settings(settings), seed=seed)
    findings = milkrun.check_world(world)
    for finding in findings:
        typer.echo(f"finding: {finding}")
    typer.echo(f"{spec.id}: {f'{len(findings)} findings' if findings else 'no findings'}")
    raise typer.Exit(1 if findings else 0)
