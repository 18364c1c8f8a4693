"""`milkrun solve` of a TSP-D file: the plan in the numbers of the file, its figures, map and Gantt chart."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from milkrun.cli.output import as_it_is, console, out_folder, table, timed, write_json
from milkrun.core.files import file_name
from milkrun.core.registry import world_spec

if TYPE_CHECKING:
    from milkrun.core.world import World
    from milkrun.delivery.instances import Operation, TSPDInstance
    from milkrun.solvers.tspd.plans import TSPDPlan

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LONE_NUMBER = re.compile(r"\s*[+-]?[\d.]+(e[+-]?\d+)?[ \t]*(\n|$)", re.IGNORECASE)
SOLOMON = re.compile(r"^[^\S\n]*VEHICLE[^\S\n]*$", re.IGNORECASE | re.MULTILINE)  # its files may be named by a number


def looks_like(file: Path) -> bool:
    """Whether the file begins with a comment, a directive or a number that has its line for itself."""
    try:
        # Latin-1 reads any bytes, so no file is refused here for its encoding. The mark of UTF-8 at the start reads as
        # these three letters.
        text = file.read_bytes().decode("latin-1").removeprefix("\xef\xbb\xbf").replace("\r", "\n").lstrip()
    except OSError:  # whoever reads it will say so
        return False
    if text.startswith(("/*", "#")):
        return True
    closed = text.rfind("*/") + 2  # behind it each "/*" would be searched to the end of the file
    plain = COMMENT.sub("", text[:closed]) + text[closed:]
    return LONE_NUMBER.match(plain) is not None and SOLOMON.search(text) is None


def read(file: Path) -> TSPDInstance:
    """The instance in the file; a file that holds a plan is refused as such."""
    from milkrun.core.errors import FormatError
    from milkrun.delivery.instances import load_tspd, load_tspd_solution

    try:
        return load_tspd(file)
    except FormatError as e:
        try:
            load_tspd_solution(file)
        except FormatError:
            raise e from None
        raise FormatError(f"{file}: this is a plan; what can be solved are instances") from None


def solve_operations(file: Path, method: str | None, best: float | None, out: Path, page: bool = False) -> None:
    """Solves, prints and writes; the makespan is the checker's and the world's."""
    from milkrun.cli.replay import watched_by, write_driven
    from milkrun.delivery.instances import Solution, write_tspd_solution
    from milkrun.delivery.tasks import price_operations
    from milkrun.replay.figures import figure_of, save
    from milkrun.replay.gantt import figure_of_chart
    from milkrun.solvers.solve import check_method
    from milkrun.solvers.tspd.plans import truck_only
    from milkrun.solvers.tspd.rows import default_method, plan_by

    instance = read(file)
    method = check_method(world_spec("milkrun/TSPD-v0"), method or default_method(instance))
    folder = out_folder(out)
    with timed(f"{file.name} by {method}") as taken:
        plan = plan_by(instance, method)
    world = play(instance, plan, partial(watched_by, method) if page else as_it_is)
    alone = truck_only(instance).cost
    saving = 1.0 - plan.cost / alone if alone > 0 else 0.0
    gap = None if best is None else 100 * (plan.cost - best) / best
    costs = price_operations(instance, plan.operations).cost.tolist()
    stem, optimal = file_name(f"{instance.name}_{method}"), method == "exact"
    heading = f"{instance.name}, {method}"
    endings = {"the plan": ".txt", "the map": ".png", "the Gantt chart": "_gantt.png", "all figures": ".json"}
    files = {words: folder / f"{stem}{ending}" for words, ending in endings.items()}
    write_tspd_solution(Solution(plan.operations, tuple(costs), plan.cost), files["the plan"])
    save(figure_of(world, 0, heading), files["the map"])
    chart = figure_of_chart(world.chart(0, {"clock": None}), f"{heading}, makespan {plan.cost:.2f}")
    save(chart, files["the Gantt chart"])
    figures = {
        "file": file.name,
        "kind": "TSPD",
        "n": instance.num_nodes,
        "method": method,
        "makespan": plan.cost,
        "truck_only": alone,
        "saving": saving,
        "best_known": best,
        "gap_percent": gap,
        "optimal": optimal,
        "operations": [op._asdict() | {"cost": cost} for op, cost in zip(plan.operations, costs, strict=True)],
        "kpis": world.kpis(0),
        **taken.figures(),
    }
    write_json(files["all figures"], figures)

    shown = table(f"{instance.name}, TSP-D, {instance.num_nodes} nodes", "", "value", right=("value",))
    taken.show(shown, method)
    shown.add_row("makespan", f"{plan.cost:.6f}" + (" (optimal)" if optimal else ""))
    shown.add_row("truck only", f"{alone:.6f}")
    shown.add_row("saving", f"{100 * saving:.2f} %")
    if best is not None and gap is not None:
        shown.add_row("best known", f"{best:g}")
        # + 0.0: a gap that rounds to -0.0 is shown as 0.00, not as -0.00.
        shown.add_row("gap", f"{round(gap, 2) + 0.0:.2f} %")
    shown.add_row("operations", f"{len(plan.operations)}")
    shown.add_row("valid", "yes, by checker and world")
    console().print(shown)
    for k, (op, cost) in enumerate(zip(plan.operations, costs, strict=True), start=1):
        typer.echo(f"operation {k}: {in_words(op)}, cost {cost:.6f}")
    for words, written in files.items():
        typer.echo(f"{written}  {words}")
    if page:
        write_driven(world, folder / f"{stem}_replay.html", f"{heading}: {plan.cost:.2f}", file.name)


def play(instance: TSPDInstance, plan: TSPDPlan, watch: Callable[[World], Any] = as_it_is) -> Any:
    """A world of one row that has played the plan, as `watch` has seen it; checker and world must find the makespan of
    the solver."""
    from milkrun.core.errors import MilkrunError
    from milkrun.delivery.tasks import tspd_cost
    from milkrun.delivery.tspd.log import actions_of
    from milkrun.delivery.tspd.world import TSPD

    world = watch(TSPD.from_instances([instance], autoreset="disabled", illegal="raise"))
    for operation in plan.operations:
        for action in actions_of(operation, instance.num_nodes):
            world.step([action])
    found = {"solver": plan.cost, "checker": tspd_cost(instance, plan.operations), "world": float(world.clock[0])}
    if not world.terminated[0] or max(found.values()) - min(found.values()) > 1e-9 * max(1.0, plan.cost):
        said = ", ".join(f"{makespan:.10g} to the {who}" for who, makespan in found.items())
        raise MilkrunError(f"{instance.name}: the makespan is {said}")
    return world


def in_words(op: Operation) -> str:
    """An operation in words: who goes where."""
    stays = op.start == op.end and not op.internal
    truck = f"truck waits at {op.start}" if stays else f"truck {' '.join(map(str, (op.start, *op.internal, op.end)))}"
    return truck if op.fly < 0 else f"{truck}, drone {op.start} {op.fly} {op.end}"
