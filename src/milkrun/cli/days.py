"""What `milkrun run` adds for worlds of many days: a table of the days, and a figure of the median episode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.details import Details
from milkrun.cli.output import console, table
from milkrun.core.world import World
from milkrun.solvers import Factory, rollout


def of_rows(
    make: Callable[..., World], factory: Factory, seed: int, rows: int, shown: World, stem: Path
) -> dict[str, Any]:
    """The days of a waste simulation: means of the rows and a figure of one row. Nothing without a record of them."""
    from milkrun.replay.days import days_of, figure_of_days
    from milkrun.replay.figures import save

    if not shown.config.record:
        return {}
    world = make(rows)
    world.reset()
    rollout(world, factory(seed))
    days = days_of(world)
    figure = stem.with_name(f"{stem.name}_days.png")
    save(figure_of_days(shown, 0, "The median episode, day by day"), figure)
    names = ("overflows", "failures", "waste", "length", "profit")
    means = {name: getattr(days, name).mean(0).tolist() for name in names}
    units = {"waste": days.waste_unit, "length": days.length_unit, "profit": days.profit_unit}
    return {"days": means, "units": units, "days_picture": figure.name, "days_rows": rows}


def show(summary: dict[str, Any], folder: Path) -> None:
    """Prints the days, and where their figure is."""
    if "days" in summary:
        console().print("", days_table(summary))
        typer.echo(f"{folder / summary['days_picture']}  routes and levels of the median episode, day by day")


def days_table(summary: dict[str, Any]) -> Any:
    """What each day brought, on average over the rows; the last line is the whole horizon."""
    days, units = summary["days"], summary["units"]
    waste, length, profit = units["waste"], units["length"], units["profit"]
    columns = ("overflows", "failures", waste, length, f"{waste}/{length}", profit)
    shown = table(f"Day by day, mean of {summary['days_rows']:,} rows", "day", *columns, right=columns)

    def line(label: str, pick: Any) -> None:
        got, way = pick(days["waste"]), pick(days["length"])
        ratio = f"{got / way:.2f}" if way > 0 else "-"
        shown.add_row(
            label,
            f"{pick(days['overflows']):.2f}",
            f"{pick(days['failures']):.2f}",
            f"{got:,.2f}",
            f"{way:,.2f}",
            ratio,
            f"{pick(days['profit']):,.2f}",
        )

    for t in range(len(days["waste"])):
        line(str(t + 1), lambda values, t=t: values[t])
    line("all", sum)
    return shown


DETAILS = Details(of_rows=of_rows, show=show)
