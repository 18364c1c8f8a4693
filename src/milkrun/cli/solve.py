"""`milkrun solve`: an instance file and a method; a solution, its cost, the gap to the best known, a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import ADDRESS, KEEP, ON, SEED, console, on_ray, out_folder, table, text, timed, write_json


def solve(
    file: Path = typer.Argument(
        ...,
        metavar="FILE",
        help="TSPLIB, CVRPLIB, Solomon, Cordeau or TSP-D file, or a folder of files (no TSP-D).",
        show_default=False,
    ),
    method: str | None = typer.Option(
        None,
        "--method",
        show_default=False,
        help="nearest, insertion, savings, 2opt, oropt, ls (default), pyvrp, ortools or exact; of dial-a-ride files "
        "insertion, improve (default), ortools or exact; of TSP-D files exact (default up to 12 nodes), partition "
        "(default beyond) or truck_only.",
    ),
    time_limit: float = typer.Option(10.0, "--time-limit", min=0.01, help="Seconds for pyvrp, ortools and improve."),
    iterations: int | None = typer.Option(
        None,
        "--iterations",
        min=1,
        show_default=False,
        help="Iterations of pyvrp and improve, solutions of ortools, instead of seconds: any machine answers alike.",
    ),
    best: float | None = typer.Option(
        None, "--best", min=1e-9, help="The best known cost, for the gap.", show_default=False
    ),
    seed: int = SEED,
    out: Path = typer.Option(Path("out"), "--out", help="Folder of the solution, the picture and the figures."),
    on: str | None = ON,
    address: str | None = ADDRESS,
    keep: Path | None = KEEP,
    page: bool = typer.Option(False, "--page", help="Write a page that drives the solution, of one file."),
) -> None:
    """Solve an instance of the literature.

    Prints the cost in the file's own measure, judged by the independent checker and replayed through the world, and the
    gap to the best known where `--best`, the file or the solution beside it tells one. Writes the solution in the
    format of its collection, a picture and the figures; of a dial-a-ride file the routes are printed and stand in the
    figures, in the numbers of the file. Of a TSP-D file (truck and drone) the operations are printed, and a Gantt chart
    is written too. Of a folder all instance files are solved, one line each, and the costs are written as JSON.

    \b
    Examples:
      milkrun solve A-n32-k5.vrp --method pyvrp --time-limit 5 --page
      milkrun solve berlin52.tsp --method 2opt
      milkrun solve R101.txt --method pyvrp
      milkrun solve a2-16.txt --best 294.25
      milkrun solve uniform-1-n5.txt
      milkrun solve instances/ --method pyvrp --time-limit 60 --on ray --keep runs/x
    """
    from milkrun.cli.operations import looks_like, solve_operations
    from milkrun.cli.replay import watched_by, write_driven
    from milkrun.cli.solve_many import solve_many, split
    from milkrun.core.errors import ConfigError
    from milkrun.core.files import file_name
    from milkrun.core.registry import list_worlds
    from milkrun.replay.figures import figure_of, save
    from milkrun.routing.instances import DARPInstance, read, replay, write_solution
    from milkrun.solvers import solve as solve_instances

    refuse_world(file)
    if on_ray(on, address=address, keep=keep) or file.is_dir():
        if page or best is not None:
            raise ConfigError(f"--{'page' if page else 'best'} is of one file, solved on this machine")
        solve_many(file, method, time_limit, iterations, seed, out, on == "ray", address, keep)
        return
    if looks_like(file):
        solve_operations(file, method, best, out, page)
        return
    instance = read(file)
    if isinstance(instance, DARPInstance):
        from milkrun.cli.darp import solve_darp

        solve_darp(instance, file.name, method or "improve", time_limit, iterations, best, seed, out, page)
        return
    if instance.world_id not in list_worlds():
        raise ConfigError(f"{file.name}: {instance.kind} files are read and written, but no world plays them yet")
    method, best = method or ("pyvrp" if "time_windows" in instance.fields else "ls"), best or instance.best
    places = instance.locs
    if page and places is None:
        raise ConfigError(f"{file.name} has distances and no places: there is nothing to see on a page")
    folder = out_folder(out)
    with timed(f"{file.name} by {method}") as taken:
        found = solve_instances(
            instance.world_id, instance, method=method, time_limit=time_limit, seed=seed, iterations=iterations
        )
    routes = split(found.actions[0].tolist(), closed=instance.kind in ("TSP", "ATSP"))
    cost, valid, reason = replay(instance, routes)
    gap = None if not best else 100 * (cost - best) / best
    stem = file_name(f"{instance.name}_{method}")
    is_tour = instance.kind in ("TSP", "ATSP")
    written = folder / (f"{stem}.tour" if is_tour else f"{stem}.sol")
    write_solution(written, routes, cost)
    world: Any = instance.in_published_units().world(autoreset="disabled")
    if places is not None:
        world.locs[0, : len(places)] = places  # a file that is played by its matrix has places too
    world = watched_by(method, world) if page else world
    for node in found.actions[0].tolist():
        if not world.terminated[0]:
            world.step([node])
    while not (world.terminated[0] or world.truncated[0]):
        world.step([0])
    picture = folder / f"{stem}.png"
    if places is not None:
        save(figure_of(world, 0, f"{instance.name}, {method}: {cost:g}"), picture)
    figures = {
        "file": file.name,
        "kind": instance.kind,
        "n": instance.n,
        "method": method,
        "cost": cost,
        "valid": valid,
        "best_known": best,
        "gap_percent": gap,
        "optimal": bool(found.optimal[0]),
        "routes": len(routes),
        **taken.figures(),
        "seed": seed,
    }
    write_json(folder / f"{stem}.json", figures)

    who = "nodes" if is_tour else "customers"
    shown = table(f"{instance.name}, {instance.kind}, {instance.n} {who}", "", "value", right=("value",))
    taken.show(shown, method)
    shown.add_row("cost", f"{cost:g}" + (" (optimal)" if found.optimal[0] else ""))
    if gap is not None:
        shown.add_row("best known", f"{best:g}")
        shown.add_row("gap", f"{gap:.2f} %")
    if not is_tour:
        shown.add_row("routes", f"{len(routes)}")
    shown.add_row("valid", "yes, by checker and world" if valid else text(f"no: {reason}"))
    console().print(shown)
    typer.echo(f"{written}  the solution")
    if places is not None:
        typer.echo(f"{picture}  the picture")
    if page:
        write_driven(world, folder / f"{stem}_replay.html", f"{instance.name}, {method}: {cost:g}", file.name)
    raise typer.Exit(0 if valid else 1)


def refuse_world(file: Path) -> None:
    """Raises where a world is named instead of a file."""
    from milkrun.core.errors import ConfigError
    from milkrun.core.registry import id_of, list_worlds

    name = str(file)
    if not file.exists() and (re.search(r"-v\d+$", name) or id_of(name) in list_worlds()):
        raise ConfigError(
            f"milkrun solve takes files, and there is no file {name!r}; of a world, "
            f"`milkrun replay {name} --policies METHOD` drives what a method finds, and solve() of "
            "milkrun.solvers solves its instances in Python"
        )
