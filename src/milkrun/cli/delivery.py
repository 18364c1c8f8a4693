"""What `milkrun run` adds for truck and drones: headlines, a Gantt chart, the log, and a film if time goes in steps.

Which of it a world has is asked of its fields, so the commands name no world.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milkrun.core.world import World

HEADLINES = (
    "served", "on_time", "lateness", "energy", "truck_distance", "drone_distance", "truck_drive", "drone_fly",
    "sorties", "operations", "by_drone", "makespan",
)  # fmt: skip
"""The figures that `milkrun run` prints, where a world has them; its JSON has all."""


def recorded(world: World, film_of: int | None = None) -> Any:
    """The world, or if time goes in steps a recorder of it; `film_of` so many steps it is filmed as well."""
    if "drone_pos" not in world.fields:
        return world
    from milkrun.delivery import Recorder
    from milkrun.replay.animation import Film, stride

    return Recorder(world if film_of is None else Film(world, every=stride(film_of)))


def write_episode(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes chart and log, and the film if there is one; the names of the files by what they are."""
    from milkrun.core.files import write_csv
    from milkrun.delivery.tspd.log import Event
    from milkrun.replay.figures import save
    from milkrun.replay.gantt import chart_of_log, figure_of_chart

    of_steps = "drone_pos" in shown.fields
    files = {kind: stem.with_name(f"{stem.name}_{ending}")
             for kind, ending in (("gantt", "gantt.png"), ("log", "log.csv"), ("film", "film.gif"))}  # fmt: skip
    chart = chart_of_log(shown) if of_steps else shown.chart(0, {"clock": None})
    save(figure_of_chart(chart, title), files["gantt"])
    if not of_steps:
        write_csv(files["log"], Event._fields, shown.events(0))
        del files["film"]
    else:
        shown.to_csv(files["log"])
        shown.world.save(files["film"])
    return {kind: file.name for kind, file in files.items()}
