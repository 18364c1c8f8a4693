"""`milkrun solve` of a folder, or on a cluster: every instance file, one line each."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import console, out_folder, table, text, write_json
from milkrun.cli.solve_families import (
    SolveOptions,
    default_method,
    gap_percent,
    gap_text,
    in_solving_world,
    is_tspd_file,
)
from milkrun.core.errors import ConfigError, FormatError

ENDINGS = (".vrp", ".tsp", ".atsp", ".txt")


def instance_files(path: Path) -> list[Path]:
    """The instance files of a folder, or the file itself."""
    files = sorted(f for f in path.iterdir() if f.suffix.lower() in ENDINGS) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path} has no instance file ({', '.join(ENDINGS)})")
    return files


def solve_folder(path: Path, options: SolveOptions, on_ray: bool, address: str | None, keep: Path | None) -> None:
    """Solves the files of a folder, grouped by world and method; prints one table and writes one JSON file."""
    files = instance_files(path)
    groups: dict[tuple[str, str | None], list[tuple[Path, Any]]] = {}
    for file in files:
        world, method, instance = _read(file, options.method)
        groups.setdefault((world, options.method or method), []).append((file, instance))
    folder = out_folder(options.folder)
    lines: list[dict[str, Any]] = []
    with ExitStack() as stack:
        if on_ray:
            from milkrun.scale.cluster import connected

            stack.enter_context(connected(address))
        for (world, method), members in groups.items():
            # A folder keeps one job: the files of one world, by one method.
            store = None if keep is None else keep / world.rpartition("/")[2] if len(groups) > 1 else keep
            solved = _solve_group(world, method, [instance for _, instance in members], options, on_ray, store)
            for (file, instance), (cost, optimal) in zip(members, solved, strict=True):
                best = getattr(instance, "best", None)
                lines.append(
                    {
                        "file": file.name,
                        "world": world,
                        "cost": cost,
                        "best_known": best,
                        "gap_percent": gap_percent(cost, best),
                        "optimal": optimal,
                    }
                )
    right = ("cost", "best known", "gap")
    shown = table(f"{path.name}, {len(files)} file{'s' * (len(files) > 1)}", "file", "world", *right, right=right)
    for line in lines:
        gap, best, proven = line["gap_percent"], line["best_known"], " (optimal)" if line["optimal"] else ""
        shown.add_row(
            text(line["file"]),
            line["world"],
            f"{line['cost']:g}{proven}",
            "-" if best is None else f"{best:g}",
            "-" if gap is None else gap_text(gap),
        )
    console().print(shown)
    written = folder / f"{path.resolve().name}_solved.json"
    write_json(written, {"method": options.method, "seed": options.seed, "files": lines})
    typer.echo(f"{written}  all figures")


def _read(file: Path, method: str | None) -> tuple[str, str | None, Any]:
    """The world of a file, its default method and its instance."""
    from milkrun.routing.instances import DARPInstance, read

    if is_tspd_file(file):
        raise FormatError(f"{file.name}: TSP-D files are solved one at a time, here: milkrun solve {file.name}")
    instance = read(file)
    if isinstance(instance, DARPInstance):
        return "milkrun/DARP-v0", None, instance
    instance = in_solving_world(instance, method)
    return instance.world_id, default_method(instance), instance


def _solve_group(
    world: str, method: str | None, instances: list[Any], options: SolveOptions, on_ray: bool, store: Path | None
) -> list[tuple[float, bool]]:
    """The cost of each instance in the file's own measure, and whether it is optimal."""
    keywords: dict[str, Any] = {
        "method": method,
        "time_limit": options.time_limit,
        "seed": options.seed,
        "iterations": options.iterations,
    }
    if on_ray:
        from milkrun import scale

        found = scale.solve(world, instances, keep=store, **keywords)
        each = list(zip(found.actions.tolist(), found.cost.tolist(), found.optimal.tolist(), strict=True))
    else:
        from milkrun.solvers import solve

        alone = [solve(world, instance, **keywords) for instance in instances]
        each = [(one.actions[0].tolist(), float(one.cost[0]), bool(one.optimal[0])) for one in alone]
    return [
        (_published_cost(instance, actions, cost), optimal)
        for instance, (actions, cost, optimal) in zip(instances, each, strict=True)
    ]


def _published_cost(instance: Any, actions: list[int], cost: float) -> float:
    """The cost as the collection of the file states it. A solver's own may omit prizes, or count in tenths."""
    from milkrun.routing.instances import DARPInstance, replay, solution_of

    if isinstance(instance, DARPInstance):
        return cost
    return replay(instance, solution_of(instance, actions))[0]
