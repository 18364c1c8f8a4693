"""`milkrun run`: plays one policy in one world; prints a summary and draws a picture."""

from __future__ import annotations

from pathlib import Path

import typer

from milkrun.cli.output import ID, PRESET, ROWS, SEED, SETTINGS, console, out_folder, read_settings, table, write_json


def run(
    id: str = ID,
    num_envs: int | None = ROWS,
    policy: str | None = typer.Option(
        None, "--policy", help="A policy of the world, or a method of `milkrun solve` (default: its first heuristic)."
    ),
    episodes: int | None = typer.Option(None, "--episodes", min=1, help="Episodes in all (default: one a row)."),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
    debug: bool = typer.Option(False, "--debug", help="Interpret the kernels and check every array access: slow."),
    out: Path = typer.Option(Path("out"), "--out", help="Folder of the picture and the summary."),
    page: bool = typer.Option(False, "--page", help="Write a page that plays the best and the median episode."),
) -> None:
    """Play episodes of a world with a built-in policy.

    Prints a summary, writes it as JSON and draws the best and the median episode. Some worlds add files of the median
    episode: waste collection a table and a figure of the days; truck and drones a Gantt chart, a log and, with time
    steps, a film; clutter its events and a film; tracking a film, and a sheet of all scenes in all weathers.

    \b
    Examples:
      milkrun run milkrun/TSP-v0
      milkrun run CVRP-v0 --policy random --num-envs 1024 --episodes 4096 --seed 7 --page
      milkrun run CVRP-v0 --preset n50 --set metric=manhattan --set capacity=40 --out out/cvrp50
      milkrun run TruckDrone-v0 --policy lookahead --num-envs 64
      milkrun run Clutter-v0 --num-envs 16 --preset small_scene
      milkrun run Tracking-v0 --set scene=downtown --set weather=night
      milkrun run SDWCVRP-v0 --policy greedy --set map_name=synthetic-town --set stream=glass --set num_loc=50
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from milkrun.cli.play import details_of, file_stem, play
    from milkrun.cli.replay import recorded, write
    from milkrun.core.registry import world_spec

    spec = world_spec(id)
    details = details_of(spec.load())
    options = read_settings(settings)
    folder = out_folder(out)
    num_envs = num_envs or min(512, spec.load().demo_rows)
    total = num_envs if episodes is None else episodes
    err = console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as bar:
        task = bar.add_task(spec.id, total=total)
        summary = play(
            spec.id,
            policy,
            folder,
            num_envs=num_envs,
            episodes=total,
            seed=seed,
            preset=preset,
            settings=options,
            debug=debug or None,
            progress=lambda ended: bar.advance(task, ended),
        )
    stem = file_stem(spec, summary["policy"])
    write_json(folder / f"{stem}.json", summary)

    shown = table(f"{spec.id}, policy {summary['policy']}, seed {seed}", "", "value", right=("value",))
    shown.add_row("episodes", f"{total:,} in {num_envs:,} rows")
    if total > 1:
        low, high = summary["interval_low"], summary["interval_high"]
        shown.add_row("mean return", f"{summary['mean']:.4f} (95 %: {low:.4f} to {high:.4f})")
        shown.add_row("standard deviation", f"{summary['std']:.4f}")
    shown.add_row("best, median", f"{summary['best']['return']:.4f}, {summary['median']['return']:.4f}")
    shown.add_row("mean length", f"{summary['mean_length']:.2f} steps")
    if summary["truncated"]:
        shown.add_row("truncated", f"{summary['truncated']:,} episodes, {100 * summary['truncated'] / total:.1f} %")
    if summary["illegal"]:
        shown.add_row("illegal", f"{summary['illegal']:,} steps, {100 * summary['illegal'] / summary['steps']:.1f} %")
    kpis = summary.get("kpis", {})
    for name, (mean, _) in ((name, kpis[name]) for name in details.headlines if name in kpis):
        shown.add_row(f"mean {name.replace('_', ' ')}", f"{mean:.3f}")
    shown.add_row("speed", f"{summary['steps_per_second']:,.0f} steps/s, policy included")
    console().print(shown)
    if details.show:
        details.show(summary, folder)
    typer.echo(f"{folder / summary['picture']}  the best and the median episode")
    for kind, name in summary.get("files", {}).items():
        typer.echo(f"{folder / name}  {details.files.get(kind, kind)}")
    typer.echo(f"{folder / stem}.json  all figures")
    if page:
        chosen = {(summary[label]["row"], summary[label]["episode"]) for label in ("best", "median")}
        groups = [
            recorded(spec.id, summary["policy"], [row], episode, seed, preset, options)[0]
            for row, episode in sorted(chosen)
        ]
        typer.echo(f"{write(groups, folder / f'{stem}_replay.html')}  the page of both")
