"""Solves one file for `milkrun solve`: routing, dial-a-ride (DARP), or the TSP with a drone (TSP-D).

Each family has a function that returns a `SolvedFile`; `solve.py` prints it and writes the common files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milkrun.cli.output import Timing, out_folder, timed, unwatched
from milkrun.core.errors import ConfigError, FormatError, MilkrunError
from milkrun.core.files import file_name

if TYPE_CHECKING:
    from milkrun.core.world import World
    from milkrun.delivery.instances import Operation, TSPDInstance
    from milkrun.routing.instances import DARPInstance

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LONE_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?[ \t]*(\n|$)", re.IGNORECASE)
SOLOMON = re.compile(r"^[^\S\n]*VEHICLE[^\S\n]*$", re.IGNORECASE | re.MULTILINE)  # its files may be named by a number


@dataclass(frozen=True)
class SolveOptions:
    """The options of the command for one file."""

    method: str | None
    time_limit: float
    iterations: int | None
    best: float | None
    seed: int
    folder: Path
    page: bool


@dataclass
class SolvedFile:
    """The solution of a file and what the command reports of it."""

    file: str
    name: str
    kind: str
    n: int
    size: str
    """`n` and what it counts, in words"""
    method: str
    measure: str
    """what the collection of the file compares: cost, distance or makespan"""
    value: float
    """of `measure`; the gap is between this and the best known value"""
    value_format: str
    cost: float
    optimal: bool
    best: float | None
    timing: Timing
    world: Any
    """the world that has played the solution; recorded if there is to be a page; None if it cannot play the file"""
    rows: list[tuple[str, str]]
    """more rows of the table"""
    figures: dict[str, Any]
    """more entries of the JSON file"""
    files: dict[str, Path]
    """written files by what they hold"""
    lines: list[str] = field(default_factory=list)
    """the solution in the numbers of the file, for families without a table of their own"""
    valid: str = "yes, by checker and world"
    error: str | None = None
    """the broken rule, if the checker found one"""
    gap_note: str = ""

    @property
    def gap(self) -> float | None:
        return gap_percent(self.value, self.best)


def gap_percent(value: float, best: float | None) -> float | None:
    return None if not best else 100 * (value - best) / best


def gap_text(gap: float) -> str:
    # + 0.0: a gap that rounds to -0.0 is shown as 0.00, not as -0.00.
    return f"{round(gap, 2) + 0.0:.2f} %"


def default_method(instance: Any) -> str:
    """The default method of a routing instance, in its world."""
    from milkrun.core.registry import world_spec

    return "pyvrp" if "time_windows" in instance.fields or _lacks(world_spec(instance.world_id).load(), "ls") else "ls"


def in_solving_world(instance: Any, method: str | None) -> Any:
    """The instance in the first world of its kind that has the method; without one, that has any.

    Raises if no world has methods. An unknown method is left to `solve`, which names those of the world.
    """
    from milkrun.core.registry import world_spec

    solving = [world for world in instance.worlds if world_spec(world).load().solvers]
    if not solving:
        raise ConfigError(f"{instance.name}: no method solves {instance.kind} files yet")
    if instance.fleet == "enforce":  # only the first world has limited fleets
        return instance
    chosen = (world for world in solving if method is None or not _lacks(world_spec(world).load(), method))
    return instance.for_world(next(chosen, solving[0]))


def _lacks(world: Any, method: str) -> bool:
    return method not in world.solvers and method not in world.policies


def solve_routing(file: Path, instance: Any, options: SolveOptions) -> SolvedFile:
    """Solves a TSPLIB, CVRPLIB or Solomon file; writes the solution in the format of its collection and a picture."""
    from milkrun.cli.replay import watched_by
    from milkrun.replay.figures import figure_of, save
    from milkrun.routing.instances import replay, solution_of, write_solution
    from milkrun.solvers import solve

    instance = in_solving_world(instance, options.method)
    method = options.method or default_method(instance)
    places = instance.locs
    if options.page and places is None:
        raise ConfigError(f"{file.name} has distances but no coordinates: a page cannot show it")
    out_folder(options.folder)
    with timed(f"{file.name} by {method}") as timing:
        found = solve(
            instance.world_id,
            instance,
            method=method,
            time_limit=options.time_limit,
            seed=options.seed,
            iterations=options.iterations,
        )
    is_tour = instance.is_tour
    actions = found.actions[0].tolist()
    plan = solution_of(instance, actions)
    routes = [list(route) for route in plan.routes]
    cost, valid, reason = replay(instance, plan)
    stem = options.folder / file_name(f"{instance.name}_{method}")
    files = {"the solution": stem.with_name(f"{stem.name}.tour" if is_tour else f"{stem.name}.sol")}
    write_solution(files["the solution"], routes, cost)
    world: Any = instance.in_published_units().world(autoreset="disabled")
    if places is not None:
        world.locs[0, : len(places)] = places  # instances that are played by their matrix have coordinates too
    world = watched_by(method, world) if options.page else world
    for node in actions:
        if not world.terminated[0]:
            world.step([node])
    while not (world.terminated[0] or world.truncated[0]):
        world.step([0])
    if places is not None:
        files["the picture"] = stem.with_name(f"{stem.name}.png")
        save(figure_of(world, 0, f"{instance.name}, {method}: {cost:g}"), files["the picture"])
    return SolvedFile(
        file=file.name,
        name=instance.name,
        kind=instance.kind,
        n=instance.n,
        size=f"{instance.kind}, {instance.n} {'nodes' if is_tour else 'customers'}",
        method=method,
        measure="cost",
        value=cost,
        value_format="g",
        cost=cost,
        optimal=bool(found.optimal[0]),
        best=options.best or instance.best,
        timing=timing,
        world=world,
        rows=[] if is_tour else [("routes", f"{sum(map(bool, routes))}")],
        figures={"routes": [[node + 1 for node in route] for route in routes] if is_tour else routes},
        files=files,
        valid="yes, by checker and world" if valid else f"no: {reason}",
        error=None if valid else reason,
    )


def solve_darp(file: Path, instance: DARPInstance, options: SolveOptions) -> SolvedFile:
    """Solves a Cordeau file; draws the routes and the timetable. Routes are in the numbers of the file."""
    from milkrun.cli.replay import watched_by
    from milkrun.replay.darp import draw_darp
    from milkrun.routing.tasks import DARPProblem
    from milkrun.solvers import solve

    method = options.method or "improve"
    out_folder(options.folder)
    with timed(f"{file.name} by {method}") as timing:
        found = solve(
            "DARP",
            instance,
            method=method,
            time_limit=options.time_limit,
            seed=options.seed,
            iterations=options.iterations,
        )
    actions, n, cost = found.actions[0].tolist(), instance.num_requests, float(found.cost[0])
    world = play_darp(instance, actions, cost, partial(watched_by, method) if options.page else unwatched)
    if options.page and world is None:
        raise ConfigError(f"{file.name} has too many seats for the world's mask: a page cannot show its solution")
    routes = DARPProblem.actions_to_routes(actions)
    # Vehicles that stay at the depot have no route yet.
    routes += [[] for _ in range(instance.num_agents - len(routes))]
    report = DARPProblem.check(instance, routes)
    served = n - report.unserved
    named = [in_file(route, n) for route in routes]
    longest = max((t for times in report.ride_times for t in times.values()), default=0.0)
    picture = options.folder / file_name(f"{instance.name}_{method}.png")
    draw_darp(instance, routes, picture, f"{instance.name}, {method}")
    return SolvedFile(
        file=file.name,
        name=instance.name,
        kind="DARP",
        n=n,
        size=f"DARP, {n} requests, {instance.num_agents} vehicles",
        method=method,
        measure="distance",
        value=report.distance,
        value_format=".2f",
        cost=report.cost,
        optimal=bool(found.optimal[0]),
        best=options.best,
        timing=timing,
        world=world,
        rows=[("served", f"{served} of {n}"), ("longest ride", f"{longest:.2f}")],
        figures={"distance": report.distance, "served": served, "routes": named, "longest_ride": longest},
        files={"the routes and the timetable": picture},
        lines=[f"vehicle {k}: {' '.join(map(str, route)) or 'stays'}" for k, route in enumerate(named, start=1)],
        valid="yes, by checker and world" if world is not None else "yes, by the checker",
        gap_note="" if served == n else ", but not all are served",
    )


def in_file(route: list[int], n: int) -> list[int]:
    """Nodes in the numbers of Cordeau's files: i is a pickup and n+i its dropoff."""
    return [(node + 1) // 2 if node % 2 else n + node // 2 for node in route]


def play_darp(
    instance: DARPInstance, actions: list[int], cost: float, watch: Callable[[World], Any] = unwatched
) -> Any:
    """Plays the actions in the world, which must find the same cost. Returns the watched world.

    None if the instance has so many seats that the world's mask is narrower than the rules.
    """
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


def is_tspd_file(file: Path) -> bool:
    """Whether the file begins with a comment, a directive or a number alone on its line."""
    try:
        # Latin-1 reads any bytes, so no file is refused here for its encoding. The mark of UTF-8 at the start reads as
        # these three letters.
        text = file.read_bytes().decode("latin-1").removeprefix("\xef\xbb\xbf").replace("\r", "\n").lstrip()
    except OSError:  # reported by the reader of the file
        return False
    if text.startswith(("/*", "#")):
        return True
    closed = text.rfind("*/") + 2  # after it each "/*" would be searched to the end of the file
    plain = COMMENT.sub("", text[:closed]) + text[closed:]
    return LONE_NUMBER.match(plain) is not None and SOLOMON.search(text) is None


def read_tspd(file: Path) -> TSPDInstance:
    """Reads an instance. A file of operations gets an error of its own."""
    from milkrun.delivery.instances import load_tspd, load_tspd_solution

    try:
        return load_tspd(file)
    except FormatError as e:
        try:
            load_tspd_solution(file)
        except FormatError:
            raise e from None
        raise FormatError(f"{file}: this is a plan; what can be solved are instances") from None


def solve_tspd(file: Path, options: SolveOptions) -> SolvedFile:
    """Solves a TSP-D file; writes the operations, the map and a Gantt chart."""
    from milkrun.cli.replay import watched_by
    from milkrun.core.registry import world_spec
    from milkrun.delivery.instances import Solution, write_tspd_solution
    from milkrun.delivery.tasks import price_operations
    from milkrun.replay.figures import figure_of, save
    from milkrun.replay.gantt import figure_of_chart
    from milkrun.solvers.solve import check_method
    from milkrun.solvers.tspd.plans import truck_only
    from milkrun.solvers.tspd.rows import default_method, plan_by

    instance = read_tspd(file)
    method = check_method(world_spec("milkrun/TSPD-v0"), options.method or default_method(instance))
    out_folder(options.folder)
    with timed(f"{file.name} by {method}") as timing:
        found = plan_by(instance, method)
    operations, makespan = found.operations, found.cost
    world = play_tspd(instance, operations, makespan, partial(watched_by, method) if options.page else unwatched)
    alone = truck_only(instance).cost
    saving = 1.0 - makespan / alone if alone > 0 else 0.0
    costs = price_operations(instance, operations).cost.tolist()
    stem = file_name(f"{instance.name}_{method}")
    heading = f"{instance.name}, {method}"
    endings = {"the plan": ".txt", "the map": ".png", "the Gantt chart": "_gantt.png"}
    files = {words: options.folder / f"{stem}{ending}" for words, ending in endings.items()}
    write_tspd_solution(Solution(operations, tuple(costs), makespan), files["the plan"])
    save(figure_of(world, 0, heading), files["the map"])
    chart = figure_of_chart(world.chart(0, {"clock": None}), f"{heading}, makespan {makespan:.2f}")
    save(chart, files["the Gantt chart"])
    priced = list(zip(operations, costs, strict=True))
    return SolvedFile(
        file=file.name,
        name=instance.name,
        kind="TSPD",
        n=instance.num_nodes,
        size=f"TSP-D, {instance.num_nodes} nodes",
        method=method,
        measure="makespan",
        value=makespan,
        value_format=".6f",
        cost=makespan,
        optimal=method == "exact",
        best=options.best,
        timing=timing,
        world=world,
        rows=[
            ("truck only", f"{alone:.6f}"),
            ("saving", f"{100 * saving:.2f} %"),
            ("operations", f"{len(operations)}"),
        ],
        figures={
            "makespan": makespan,
            "truck_only": alone,
            "saving": saving,
            "operations": [operation._asdict() | {"cost": cost} for operation, cost in priced],
            "kpis": world.kpis(0),
        },
        files=files,
        lines=[
            f"operation {k}: {in_words(operation)}, cost {cost:.6f}"
            for k, (operation, cost) in enumerate(priced, start=1)
        ],
    )


def play_tspd(
    instance: TSPDInstance,
    operations: Sequence[Operation],
    makespan: float,
    watch: Callable[[World], Any] = unwatched,
) -> Any:
    """Plays the operations in the world; checker and world must find the makespan of the solver. Returns the watched
    world."""
    from milkrun.delivery.tasks import tspd_cost
    from milkrun.delivery.tspd.log import actions_of
    from milkrun.delivery.tspd.world import TSPD

    world = watch(TSPD.from_instances([instance], autoreset="disabled", illegal="raise"))
    for operation in operations:
        for action in actions_of(operation, instance.num_nodes):
            world.step([action])
    found = {"solver": makespan, "checker": tspd_cost(instance, operations), "world": float(world.clock[0])}
    if not world.terminated[0] or max(found.values()) - min(found.values()) > 1e-9 * max(1.0, makespan):
        values = ", ".join(f"{value:.10g} to the {source}" for source, value in found.items())
        raise MilkrunError(f"{instance.name}: the makespan is {values}")
    return world


def in_words(operation: Operation) -> str:
    """An operation in words: the stops of the truck and of the drone."""
    start, end, internal = operation.start, operation.end, operation.internal
    waits = start == end and not internal
    truck = f"truck waits at {start}" if waits else f"truck {' '.join(map(str, (start, *internal, end)))}"
    return truck if operation.fly < 0 else f"{truck}, drone {start} {operation.fly} {end}"
