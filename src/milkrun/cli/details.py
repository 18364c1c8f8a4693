"""What `milkrun run` adds for some worlds: more figures, logs, films, days.

A world class names its `Details` by the attribute `run_details`; the commands `run` and `demo` know no world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from milkrun.cli.output import console, table
from milkrun.core.world import World
from milkrun.solvers import Factory, rollout


@dataclass(frozen=True)
class Details:
    """The additions of a world; each of them is optional."""

    headlines: tuple[str, ...] = ()
    """reported figures that are printed; the JSON file has all of them"""
    files: Mapping[str, str] = field(default_factory=dict)
    """descriptions of the files that `write_episode` writes, by their kind"""
    recorded: Callable[..., Any] | None = None
    """recorded(world, film_of=None or steps): wraps the world for `write_episode`"""
    write_episode: Callable[..., dict[str, str]] | None = None
    """write_episode(recorded world, prefix of the files, title, again): writes files and returns their names by kind.
    `again(options)` makes the same world with other options, at the start of its episode"""
    of_rows: Callable[..., dict[str, Any]] | None = None
    """of_rows(make, policy factory, seed, rows, world of the median episode, prefix of the files): more entries of the
    summary"""
    show: Callable[..., None] | None = None
    """show(summary, folder): prints the entries of `of_rows`"""


# Waste collection over several days: a table of the days, and a figure of the median episode.


def days_of_rows(
    make: Callable[..., World], factory: Factory, seed: int, rows: int, shown: World, stem: Path
) -> dict[str, Any]:
    """The days of a waste simulation: means of the rows and a figure of one row. Empty if days are not recorded."""
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


def show_days(summary: dict[str, Any], folder: Path) -> None:
    """Prints the table of the days and the path of their figure."""
    if "days" in summary:
        console().print("", days_table(summary))
        typer.echo(f"{folder / summary['days_picture']}  routes and levels of the median episode, day by day")


def days_table(summary: dict[str, Any]) -> Any:
    """A line for each day, means over the rows; the last line is the whole horizon."""
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


DAYS = Details(of_rows=days_of_rows, show=show_days)


# Truck and drones: a Gantt chart, a log, and a film if time goes in steps.

DELIVERY_FIGURES = (
    "served",
    "on_time",
    "lateness",
    "energy",
    "truck_distance",
    "drone_distance",
    "truck_drive",
    "drone_fly",
    "sorties",
    "operations",
    "by_drone",
    "makespan",
)
DELIVERY_FILES = {
    "gantt": "Gantt chart of the median episode",
    "log": "the log of the median episode",
    "film": "a film of the median episode",
}


def recorded_delivery(world: World, film_of: int | None = None) -> Any:
    """Records a world with time steps; also films it if `film_of` is its number of steps."""
    from milkrun.delivery import Recorder
    from milkrun.replay.animation import Film, stride

    return Recorder(world if film_of is None else Film(world, every=stride(film_of)))


def write_delivery_steps(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes chart, log and film of a recorded episode."""
    from milkrun.replay.figures import save
    from milkrun.replay.gantt import chart_of_log, figure_of_chart

    files = {
        kind: stem.with_name(f"{stem.name}_{ending}")
        for kind, ending in (("gantt", "gantt.png"), ("log", "log.csv"), ("film", "film.gif"))
    }
    save(figure_of_chart(chart_of_log(shown), title), files["gantt"])
    shown.to_csv(files["log"])
    shown.world.save(files["film"])
    return {kind: file.name for kind, file in files.items()}


def write_delivery_plan(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes chart and log of a finished episode."""
    from milkrun.core.files import write_csv
    from milkrun.delivery.tspd.log import Event
    from milkrun.replay.figures import save
    from milkrun.replay.gantt import figure_of_chart

    files = {"gantt": stem.with_name(f"{stem.name}_gantt.png"), "log": stem.with_name(f"{stem.name}_log.csv")}
    save(figure_of_chart(shown.chart(0, {"clock": None}), title), files["gantt"])
    write_csv(files["log"], Event._fields, shown.events(0))
    return {kind: file.name for kind, file in files.items()}


DELIVERY_STEPS = Details(DELIVERY_FIGURES, DELIVERY_FILES, recorded_delivery, write_delivery_steps)
DELIVERY_PLAN = Details(DELIVERY_FIGURES, DELIVERY_FILES, write_episode=write_delivery_plan)


# Picking from clutter: the events, and a film of the median episode.

CLUTTER_FIGURES = (
    "success_rate",
    "percent_cleared",
    "grasp_success",
    "disturbance",
    "blocked_share",
    "lost_share",
    "picks_per_hour",
)


def recorded_picks(world: World, film_of: int | None = None) -> Any:
    """Records the attempts if an action is an attempt. A cup that the policy moves itself is not recorded."""
    if world.action.kind != "discrete":
        return world
    from milkrun.replay.clutter import Picks

    return Picks(world)


def write_picks(shown: Any, stem: Path, title: str, again: Callable[..., World]) -> dict[str, str]:
    """Writes the events, and a film: it repeats the attempts with a step per tick, which gives the same bits."""
    from milkrun.replay.clutter import film_of, write_events

    files = {"log": stem.with_name(f"{stem.name}_log.csv")}
    write_events(shown, files["log"])
    if shown.action.kind == "discrete":
        files["film"] = stem.with_name(f"{stem.name}_film.gif")
        film_of(again({"step_mode": "tick"}), shown.targets).save(files["film"])
    return {kind: file.name for kind, file in files.items()}


CLUTTER_FILES = {"log": "the log of the median episode", "film": "a film of the median episode"}
CLUTTER = Details(CLUTTER_FIGURES, CLUTTER_FILES, recorded_picks, write_picks)


# Drone tracking: a film of the median episode, and a sheet of scenes.

TRACKING_FIGURES = ("CR", "TSR", "crash", "lost", "time", "target_gone")
FRAMES = 125
"""Most pictures of a film: photographs are large."""


def recorded_flight(world: World, film_of: int | None = None) -> Any:
    """Films the world if `film_of` is its number of steps."""
    if film_of is None:
        return world
    from milkrun.replay.tracking import FlightFilm

    return FlightFilm(world, every=max(1, -(-film_of // FRAMES)))


def write_flight(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes the film, and a sheet of every scene in every weather."""
    from milkrun.render.canvas import Canvas
    from milkrun.tracking.picture import contact_sheet

    files = {"film": stem.with_name(f"{stem.name}_film.gif"), "scenes": stem.with_name(f"{stem.name}_scenes.png")}
    shown.save(files["film"])
    pixels = contact_sheet()
    sheet = Canvas(pixels.shape[1], pixels.shape[0])
    sheet.pixels[:] = pixels
    sheet.to_png(files["scenes"])
    return {kind: file.name for kind, file in files.items()}


TRACKING_FILES = {"film": "a film of the median episode", "scenes": "every scene in every weather"}
TRACKING = Details(TRACKING_FIGURES, TRACKING_FILES, recorded_flight, write_flight)
