"""`milkrun eval`: compares several policies on the same instances."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import (
    ADDRESS,
    ID,
    KEEP,
    ON,
    PRESET,
    ROWS,
    SEED,
    SETTINGS,
    console,
    on_ray,
    out_folder,
    read_settings,
    table,
    write_json,
)


def eval_(
    id: str = ID,
    policies: str | None = typer.Option(
        None,
        "--policies",
        "--policy",
        metavar="A,B,...",
        show_default=False,
        help="Policies of the world, or methods of `milkrun solve` (default: all policies).",
    ),
    instances: int | None = typer.Option(
        None,
        "--instances",
        "--episodes",
        min=2,
        show_default="1,000, fewer of slow worlds",
        help="Episodes of each policy, on the same instances.",
    ),
    num_envs: int | None = ROWS,
    time_limit: float | None = typer.Option(
        None, "--time-limit", min=0.01, show_default="1", help="Seconds per instance for pyvrp, ortools and improve."
    ),
    seed: int = SEED,
    preset: str | None = PRESET,
    settings: list[str] = SETTINGS,
    out: Path | None = typer.Option(
        None, "--out", help="Folder for the figures as JSON (with --page: out).", show_default=False
    ),
    page: bool = typer.Option(
        False,
        "--page",
        help="Write a page that plays the instance where the policies differ "
        "most, and the median one, for the best three policies.",
    ),
    on: str | None = ON,
    address: str | None = ADDRESS,
    keep: Path | None = KEEP,
) -> None:
    """Compare policies on the same instances.

    Prints the mean return of each policy with its 95 % interval, and the mean gap to the best return of any of them on
    the same instance: paired, so the difficulty of the instances cancels out. Methods of `milkrun solve` are in the
    same table; pyvrp, ortools and improve search each instance for `--time-limit` seconds.

    \b
    Examples:
      milkrun eval CVRP-v0 --policies random,nearest --instances 2000
      milkrun eval WCVRP-v0 --preset n50 --page
      milkrun eval CVRP-v0 --policies nearest,savings,pyvrp --instances 50 --time-limit 0.5
      milkrun eval CVRP-v0 --policy nearest --episodes 1000000 --on ray --keep runs/nearest
    """
    from milkrun.cli.replay import recorded, world_stem, write
    from milkrun.core.errors import ConfigError
    from milkrun.core.registry import world_spec
    from milkrun.replay.record_policies import MOST
    from milkrun.solvers import policies_for
    from milkrun.solvers.named import choose_player
    from milkrun.solvers.policies import split_names

    spec = world_spec(id)
    options = read_settings(settings)
    names = list(policies_for(spec.id)) if policies is None else split_names(policies)
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise ConfigError(f"the policy {twice[0]!r} is named twice")
    remote = on_ray(on, address=address, keep=keep)
    if time_limit is not None and (remote or page):
        other = "--on ray" if remote else "--page"
        raise ConfigError(f"--time-limit is of methods played here for the table alone: it does not go with {other}")
    if not remote or page:  # a page plays policies in this process
        factories = {name: choose_player(spec.id, name, time_limit or 1.0)[1] for name in names}
    folder = None if out is None and not page else out_folder(out or Path("out"))
    at_once = spec.load().demo_rows  # few for worlds whose step is a simulation
    instances = instances or min(1000, 4 * at_once)
    if on == "ray":
        results, seconds = compare_on_ray(
            spec.id, names, instances, num_envs, seed, preset, options, address=address, keep=keep
        )
    else:
        num_envs = min(num_envs or min(512, at_once), instances)
        results, seconds = compare(spec.id, factories, instances, num_envs, seed, preset, options)
    rows = figures_of(results, seconds)
    right = ("mean return", "95 % interval", "gap to best", "best on", "mean steps", "seconds")
    shown = table(f"{spec.id}, {instances:,} instances, seed {seed}", "policy", *right, right=right)
    for row in rows:
        shown.add_row(
            row["policy"],
            f"{row['mean']:.4f}",
            f"{row['interval_low']:.4f} to {row['interval_high']:.4f}",
            f"{row['gap']:.4f} +- {row['gap_error']:.4f}",
            f"{100 * row['best_share']:.1f} %",
            f"{row['mean_length']:.1f}",
            f"{row['seconds']:.2f}",
        )
    console().print(shown)
    for name, result in results.items():
        if result.reservations:
            typer.echo(f"{name}: {result.reservations}.")
    typer.echo("gap to best: mean of (best return among these policies on the instance - this one's), +- 95 %.")
    if folder is not None:
        path = folder / f"{world_stem(spec.id)}_eval.json"
        write_json(path, {"world": spec.id, "instances": instances, "seed": seed, "preset": preset, "policies": rows})
        typer.echo(f"{path}  all figures")
        if page:
            best = [row["policy"] for row in rows[:MOST]]
            groups = [
                recorded(spec.id, ",".join(best), [row], episode, seed, preset, options)[0]
                for row, episode in instances_for_page([results[name] for name in best])
            ]
            typer.echo(
                f"{write(groups, folder / f'{world_stem(spec.id)}_eval_replay.html')}  the page: where they "
                "differ most, and the median"
            )


def _show_status(status: Any, name: str, compiling: bool) -> None:
    status.update(f"{name}, compiling" if compiling else name)


def compare(
    id: str, factories: dict[str, Any], instances: int, num_envs: int, seed: int, preset: str | None, settings: Any
) -> tuple[dict[str, Any], dict[str, float]]:
    """The result and the seconds of each policy."""
    import milkrun
    from milkrun.core.clock import Clock, listening
    from milkrun.solvers.evaluate import evaluate

    results, seconds = {}, {}
    with console(stderr=True).status("") as status:
        for name, factory in factories.items():
            status.update(name)
            world = milkrun.make(id, num_envs, preset=preset, config=settings, seed=seed, autoreset="disabled")
            with listening(partial(_show_status, status, name)):
                clock = Clock()
                results[name] = evaluate(world, factory(seed), instances, seed)
            seconds[name] = clock.seconds
    return results, seconds


def compare_on_ray(
    id: str,
    names: list[str],
    instances: int,
    num_envs: int | None,
    seed: int,
    preset: str | None,
    settings: Any,
    *,
    address: str | None,
    keep: Path | None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """The result and the seconds of each policy on Ray: one connection for all of them, a kept folder for each."""
    import time

    from milkrun import scale
    from milkrun.scale.cluster import connected

    results, seconds = {}, {}
    with connected(address):
        for name in names:
            start = time.perf_counter()
            folder = None if keep is None else keep / name if len(names) > 1 else keep
            results[name] = scale.evaluate(
                id, name, instances, num_envs, seed, preset=preset, config=settings, keep=folder
            )
            seconds[name] = time.perf_counter() - start
    return results, seconds


def figures_of(results: dict[str, Any], seconds: dict[str, float]) -> list[dict[str, Any]]:
    """The figures of each policy, best mean first."""
    import numpy as np

    from milkrun.solvers.evaluate import Z95

    best = np.max([result.returns for result in results.values()], axis=0)
    rows = []
    for name, result in results.items():
        gaps = best - result.returns
        rows.append(
            {
                "policy": name,
                **result.summary(),
                "gap": float(gaps.mean()),
                "gap_error": float(Z95 * gaps.std(ddof=1) / np.sqrt(result.episodes)),
                "best_share": float((gaps <= 1e-9 * np.maximum(1, np.abs(best))).mean()),
                "seconds": seconds[name],
            }
        )
    return sorted(rows, key=lambda row: -row["mean"])


def instances_for_page(results: list[Any]) -> list[tuple[int, int]]:
    """(row, episode) of the instance with the largest difference of returns, and of the median one in this ranking.

    Of a single policy, the best and the median instance."""
    import numpy as np

    returns = np.array([result.returns for result in results])
    apart = returns.max(0) - returns.min(0) if len(results) > 1 else returns[0]
    # Stable: of equal instances the first is shown, on every machine.
    order = np.argsort(-apart, kind="stable")
    return list(dict.fromkeys(results[0].where(int(k)) for k in (order[0], order[len(order) // 2])))
