"""`milkrun solve` of a dial-a-ride file: routes in the numbers of the file, their figures, map and timetable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import as_it_is, console, out_folder, table, timed, write_json
from milkrun.core.files import file_name

if TYPE_CHECKING:
    from milkrun.core.world import World
    from milkrun.routing.instances import DARPInstance


def solve_darp(
    instance: DARPInstance,
    file: str,
    method: str,
    time_limit: float,
    iterations: int | None,
    best: float | None,
    seed: int,
    out: Path,
    page: bool = False,
) -> None:
    """Solves, prints and writes; the cost is the checker's and, where its mask is complete, the world's."""
    from milkrun.cli.replay import watched_by, write_driven
    from milkrun.core.errors import ConfigError
    from milkrun.replay.darp import draw_darp
    from milkrun.routing.tasks import DARPProblem
    from milkrun.solvers import solve

    folder = out_folder(out)
    with timed(f"{file} by {method}") as taken:
        found = solve("DARP", instance, method=method, time_limit=time_limit, seed=seed, iterations=iterations)
    actions, n = found.actions[0].tolist(), instance.num_requests
    played = play(instance, actions, float(found.cost[0]), partial(watched_by, method) if page else as_it_is)
    if page and played is None:
        raise ConfigError(f"{file} has too many seats for the world's mask: the plan is valid, but cannot be driven")
    routes = DARPProblem.actions_to_routes(actions)
    # Vehicles that stay at the end of the plan have no route yet.
    routes += [[] for _ in range(instance.num_agents - len(routes))]
    report = DARPProblem.check(instance, routes)
    served = n - report.unserved
    gap = None if best is None else 100 * (report.distance - best) / best
    named = [in_file(route, n) for route in routes]
    longest = max((t for times in report.ride_times for t in times.values()), default=0.0)
    stem = file_name(f"{instance.name}_{method}")
    picture, written = folder / f"{stem}.png", folder / f"{stem}.json"
    draw_darp(instance, routes, picture, f"{instance.name}, {method}")
    figures = {
        "file": file,
        "kind": "DARP",
        "n": n,
        "method": method,
        "distance": report.distance,
        "served": served,
        "cost": report.cost,
        "best_known": best,
        "gap_percent": gap,
        "optimal": bool(found.optimal[0]),
        "routes": named,
        "longest_ride": longest,
        **taken.figures(),
        "seed": seed,
    }
    write_json(written, figures)

    title = f"{instance.name}, DARP, {n} requests, {instance.num_agents} vehicles"
    shown = table(title, "", "value", right=("value",))
    taken.show(shown, method)
    shown.add_row("distance", f"{report.distance:.2f}" + (" (optimal)" if found.optimal[0] else ""))
    shown.add_row("served", f"{served} of {n}")
    if best is not None and gap is not None:
        shown.add_row("best known", f"{best:g}")
        # + 0.0: a gap that rounds to -0.0 is shown as 0.00, not as -0.00.
        shown.add_row("gap", f"{round(gap, 2) + 0.0:.2f} %" + ("" if served == n else ", but not all are served"))
    shown.add_row("longest ride", f"{longest:.2f}")
    shown.add_row("valid", "yes, by checker and world" if played else "yes, by the checker")
    console().print(shown)
    for k, route in enumerate(named):
        typer.echo(f"vehicle {k + 1}: {' '.join(map(str, route)) or 'stays'}")
    typer.echo(f"{picture}  the routes and the timetable")
    typer.echo(f"{written}  all figures")
    if page:
        write_driven(played, folder / f"{stem}_replay.html", f"{instance.name}, {method}: {report.distance:.2f}", file)


def in_file(route: list[int], n: int) -> list[int]:
    """Nodes as Cordeau's files number them: i is a pickup and n+i its dropoff."""
    return [(node + 1) // 2 if node % 2 else n + node // 2 for node in route]


def play(instance: DARPInstance, actions: list[int], cost: float, watch: Callable[[World], Any] = as_it_is) -> Any:
    """The world that has driven the actions, as `watch` has seen it. None: with so many seats its mask is narrower than
    the rules."""
    from milkrun.core.errors import MilkrunError
    from milkrun.routing.darp.world import DARP

    world = DARP.from_instances([instance], autoreset="disabled", illegal="raise")
    if not world.mask_is_complete[0]:
        return None
    world = watch(world)
    for node in actions:
        if not world.terminated[0]:
            world.step([node])
    if not world.terminated[0] or abs(world.objective[0] + cost) > 1e-6 * max(1.0, cost):
        raise MilkrunError(f"{instance.name}: cost {cost:.10g} to the checker, {-world.objective[0]:.10g} to the world")
    return world
