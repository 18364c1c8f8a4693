"""`milkrun solve` of a folder, or on a cluster: every instance file, one line each."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import console, out_folder, table, text, write_json
from milkrun.core.errors import ConfigError, FormatError
from milkrun.core.registry import list_worlds

ENDINGS = (".vrp", ".tsp", ".atsp", ".txt")


def solve_many(
    path: Path,
    method: str | None,
    time_limit: float,
    iterations: int | None,
    seed: int,
    out: Path,
    on_ray: bool,
    address: str | None,
    keep: Path | None,
) -> None:
    """Solves the files, those of one world together."""
    files = sorted(f for f in path.iterdir() if f.suffix.lower() in ENDINGS) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{path} has no instance file ({', '.join(ENDINGS)})")
    folder = out_folder(out)
    groups: dict[tuple[str, str | None], list[tuple[Path, Any]]] = {}
    for file in files:
        world, instance = _read(file)
        by = method or ("pyvrp" if "time_windows" in getattr(instance, "fields", ()) else None)
        groups.setdefault((world, by), []).append((file, instance))
    lines: list[dict[str, Any]] = []
    with ExitStack() as stack:
        if on_ray:
            from milkrun.scale.cluster import connected

            stack.enter_context(connected(address))
        for (world, by), members in groups.items():
            instances = [instance for _, instance in members]
            options = {"method": by, "time_limit": time_limit, "seed": seed, "iterations": iterations}
            # A folder keeps one piece of work: the files of one world, by one method.
            inner = None if keep is None else keep / world.rpartition("/")[2] if len(groups) > 1 else keep
            for (file, instance), (cost, optimal) in zip(members, _answers(world, instances, options, on_ray, inner)):
                best = getattr(instance, "best", None)
                gap = None if not best else 100 * (cost - best) / best
                lines.append(
                    {
                        "file": file.name,
                        "world": world,
                        "cost": cost,
                        "best_known": best,
                        "gap_percent": gap,
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
            "-" if gap is None else f"{gap:.2f} %",
        )
    console().print(shown)
    written = folder / f"{path.resolve().name}_solved.json"
    write_json(written, {"method": method, "seed": seed, "files": lines})
    typer.echo(f"{written}  all figures")


def _read(file: Path) -> tuple[str, Any]:
    """A file's world and instance."""
    from milkrun.cli.operations import looks_like
    from milkrun.routing.instances import DARPInstance, read

    if looks_like(file):
        raise FormatError(f"{file.name}: TSP-D files are solved one at a time, here: milkrun solve {file.name}")
    instance = read(file)
    if isinstance(instance, DARPInstance):
        return "milkrun/DARP-v0", instance
    if instance.world_id not in list_worlds():
        raise ConfigError(f"{file.name}: {instance.kind} files are read and written, but no world plays them yet")
    return instance.world_id, instance


def _answers(
    world: str, instances: list[Any], options: dict[str, Any], on_ray: bool, keep: Path | None
) -> list[tuple[float, bool]]:
    """Cost, in the file's own measure, and whether it is optimal, of each."""
    if on_ray:
        from milkrun import scale

        found = scale.solve(world, instances, keep=keep, **options)
        each = list(zip(found.actions.tolist(), found.cost.tolist(), found.optimal.tolist(), strict=True))
    else:
        from milkrun.solvers import solve

        alone = [solve(world, instance, **options) for instance in instances]
        each = [(one.actions[0].tolist(), float(one.cost[0]), bool(one.optimal[0])) for one in alone]
    return [
        (_measured(instance, actions, cost), optimal)
        for instance, (actions, cost, optimal) in zip(instances, each, strict=True)
    ]


def _measured(instance: Any, actions: list[int], cost: float) -> float:
    """What the collection of a file prints as the cost. A solver's own may leave prizes out, or count in tenths."""
    from milkrun.routing.instances import DARPInstance, replay

    if isinstance(instance, DARPInstance):
        return cost
    return replay(instance, split(actions, closed=instance.kind in ("TSP", "ATSP")))[0]


def split(actions: list[int], closed: bool) -> list[list[int]]:
    """The routes of a plan: the customers between zeros; a tour without a depot is one route from node 0."""
    if closed:
        return [[0, *(node for node in actions if node != 0)]]
    routes: list[list[int]] = [[]]
    for node in actions:
        if node == 0:
            routes.append([])
        else:
            routes[-1].append(node)
    return [route for route in routes if route]
