"""What `milkrun run` adds for truck and drones: headlines, a Gantt chart, the log, and a film if time goes in steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milkrun.cli.details import Details
from milkrun.core.world import World

HEADLINES = (
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
FILES = {
    "gantt": "Gantt chart of the median episode",
    "log": "the log of the median episode",
    "film": "a film of the median episode",
}


def recorded(world: World, film_of: int | None = None) -> Any:
    """Of a world whose time goes in steps a recorder; `film_of` so many steps it is filmed as well."""
    from milkrun.delivery import Recorder
    from milkrun.replay.animation import Film, stride

    return Recorder(world if film_of is None else Film(world, every=stride(film_of)))


def write_steps(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes chart, log and film of what was recorded; the names of the files by what they are."""
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


def write_plan(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes chart and log of a finished plan; the names of the files by what they are."""
    from milkrun.core.files import write_csv
    from milkrun.delivery.tspd.log import Event
    from milkrun.replay.figures import save
    from milkrun.replay.gantt import figure_of_chart

    files = {"gantt": stem.with_name(f"{stem.name}_gantt.png"), "log": stem.with_name(f"{stem.name}_log.csv")}
    save(figure_of_chart(shown.chart(0, {"clock": None}), title), files["gantt"])
    write_csv(files["log"], Event._fields, shown.events(0))
    return {kind: file.name for kind, file in files.items()}


STEPS = Details(HEADLINES, FILES, recorded, write_steps)
PLAN = Details(HEADLINES, FILES, write_episode=write_plan)
