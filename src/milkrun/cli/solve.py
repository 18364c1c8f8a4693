"""`milkrun solve`: solves an instance file; prints and writes solution, cost, gap to the best known and a picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import ADDRESS, KEEP, ON, SEED, console, on_ray, table, text, write_json

if TYPE_CHECKING:
    from milkrun.cli.solve_families import SolvedFile, SolveOptions


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
        help="Iterations of pyvrp and improve, solutions of ortools, instead of seconds: any machine gives the same.",
    ),
    best: float | None = typer.Option(
        None, "--best", min=1e-9, help="The best known cost, for the gap.", show_default=False
    ),
    seed: int = SEED,
    out: Path = typer.Option(Path("out"), "--out", help="Folder of the solution, the picture and the figures."),
    on: str | None = ON,
    address: str | None = ADDRESS,
    keep: Path | None = KEEP,
    page: bool = typer.Option(False, "--page", help="Write a page that plays the solution of one file."),
) -> None:
    """Solve an instance of the literature.

    Prints the cost in the file's own measure, validated by the independent checker and by the world, and the gap to the
    best known cost: of `--best`, of the file, or of the solution next to it. Writes a picture, the figures as JSON,
    and the solution in the format of its collection. Of a dial-a-ride file the routes are printed, of a TSP-D file
    (truck and drone) the operations, in the numbers of the file. Of a folder all instance files are solved, one line
    each, and the costs are written as JSON.

    \b
    Examples:
      milkrun solve A-n32-k5.vrp --method pyvrp --time-limit 5 --page
      milkrun solve berlin52.tsp --method 2opt
      milkrun solve R101.txt --method pyvrp
      milkrun solve a2-16.txt --best 294.25
      milkrun solve uniform-1-n5.txt
      milkrun solve instances/ --method pyvrp --time-limit 60 --on ray --keep runs/x
    """
    from milkrun.cli.solve_families import SolveOptions, is_tspd_file, solve_darp, solve_routing, solve_tspd
    from milkrun.cli.solve_folder import solve_folder
    from milkrun.core.errors import ConfigError
    from milkrun.routing.instances import DARPInstance, read

    _refuse_world(file)
    options = SolveOptions(method, time_limit, iterations, best, seed, out, page)
    if on_ray(on, address=address, keep=keep) or file.is_dir():
        if page or best is not None:
            raise ConfigError(f"--{'page' if page else 'best'} is of one file, solved on this machine")
        solve_folder(file, options, on == "ray", address, keep)
        return
    is_tspd = is_tspd_file(file)
    instance: Any = None if is_tspd else read(file)
    if is_tspd:
        solved = solve_tspd(file, options)
    elif isinstance(instance, DARPInstance):
        solved = solve_darp(file, instance, options)
    else:
        solved = solve_routing(file, instance, options)
    _report(solved, options)
    raise typer.Exit(0 if solved.error is None else 1)


def _report(solved: SolvedFile, options: SolveOptions) -> None:
    """Writes the figures, prints table, solution and files, and writes the page if there is to be one."""
    from milkrun.cli.replay import write_driven
    from milkrun.cli.solve_families import gap_text
    from milkrun.core.files import file_name

    stem = file_name(f"{solved.name}_{solved.method}")
    figures = {
        "file": solved.file,
        "kind": solved.kind,
        "n": solved.n,
        "method": solved.method,
        "cost": solved.cost,
        "valid": solved.error is None,
        "best_known": solved.best,
        "gap_percent": solved.gap,
        "optimal": solved.optimal,
        **solved.figures,
        **solved.timing.figures(),
        "seed": options.seed,
    }
    files = {**solved.files, "all figures": options.folder / f"{stem}.json"}
    write_json(files["all figures"], figures)

    value = f"{solved.value:{solved.value_format}}"
    shown = table(f"{solved.name}, {solved.size}", "", "value", right=("value",))
    solved.timing.show(shown, solved.method)
    shown.add_row(solved.measure, value + (" (optimal)" if solved.optimal else ""))
    if solved.best is not None and solved.gap is not None:
        shown.add_row("best known", f"{solved.best:g}")
        shown.add_row("gap", gap_text(solved.gap) + solved.gap_note)
    for label, words in solved.rows:
        shown.add_row(label, words)
    shown.add_row("valid", text(solved.valid))
    console().print(shown)
    for line in solved.lines:
        typer.echo(line)
    for words, path in files.items():
        typer.echo(f"{path}  {words}")
    if options.page:
        title = f"{solved.name}, {solved.method}: {value}"
        write_driven(solved.world, options.folder / f"{stem}_replay.html", title, solved.file)


def _refuse_world(file: Path) -> None:
    """Raises if the argument names a world instead of a file."""
    from milkrun.core.errors import ConfigError
    from milkrun.core.registry import id_of, list_worlds

    name = str(file)
    if not file.exists() and (re.search(r"-v\d+$", name) or id_of(name) in list_worlds()):
        raise ConfigError(
            f"milkrun solve takes files, and there is no file {name!r}; of a world, "
            f"`milkrun replay {name} --policies METHOD` drives what a method finds, and solve() of "
            "milkrun.solvers solves its instances in Python"
        )
