"""What `milkrun run` adds for truck and drones: mean figures, a Gantt chart, the log, and a film if time goes in steps.

Which of it a world has is asked of its fields, so the commands name no world.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import Rows, read_rows
from milkrun.core.world import World
from milkrun.replay.watch import Watched

Figures = dict[str, np.ndarray]

OF_STEPS = ("served", "on_time", "lateness", "energy", "truck_distance", "drone_distance", "sorties", "makespan")
OF_OPERATIONS = {"makespan": "clock", "truck_drive": "truck_drive", "truck_wait": "truck_wait",
                 "drone_fly": "drone_fly", "drone_wait": "drone_wait", "operations": "num_ops",
                 "by_drone": "by_drone"}  # fmt: skip
"""The figures of a TSP with drone and the fields that hold them."""


class Tally(Watched):
    """A world that sums up figures of every episode as it ends. Not for autoreset "same_step", where they are gone."""

    def __init__(self, world: World, figures: Callable[[World], Figures]) -> None:
        super().__init__(world, self._count)
        self._figures = figures
        self._sums: dict[str, float] = {}
        self._episodes = 0

    def means(self) -> dict[str, float]:
        """Over the episodes that have ended."""
        return {name: total / self._episodes for name, total in self._sums.items()}

    def _count(self, rows: Rows) -> None:
        stepped = np.arange(self.world.num_envs) if rows is None else read_rows(rows, self.world.num_envs)
        ended = stepped[(self.world.terminated | self.world.truncated)[stepped]]
        if len(ended):
            self._episodes += len(ended)
            for name, values in self._figures(self.world).items():
                self._sums[name] = self._sums.get(name, 0.0) + float(values[ended].sum())


def figures_of(world: World) -> Callable[[World], Figures] | None:
    """What to sum up in a delivery world; None for any other."""
    if "drone_pos" in world.fields:
        from milkrun.delivery import kpis

        def of_steps(world: World) -> Figures:
            told = kpis(world)
            return {name: told[name] for name in OF_STEPS}

        return of_steps
    if "ops" in world.fields:
        return lambda world: {name: getattr(world, field) for name, field in OF_OPERATIONS.items()}
    return None


def recorded(world: World, film_of: int | None = None) -> Any:
    """The world, or if time goes in steps a recorder of it; `film_of` so many steps it is filmed as well."""
    if "drone_pos" not in world.fields:
        return world
    from milkrun.delivery import Recorder
    from milkrun.replay.animation import Film, stride

    return Recorder(world if film_of is None else Film(world, every=stride(film_of)))


def write_episode(shown: Any, stem: Path, title: str) -> dict[str, str]:
    """Writes chart and log, and the film if there is one; the names of the files by what they are."""
    from milkrun.replay.figures import save
    from milkrun.replay.gantt import chart_of_events, chart_of_log, figure_of_chart

    of_steps = "drone_pos" in shown.fields
    files = {kind: stem.with_name(f"{stem.name}_{ending}")
             for kind, ending in (("gantt", "gantt.png"), ("log", "log.csv"), ("film", "film.gif"))}  # fmt: skip
    save(figure_of_chart(chart_of_log(shown) if of_steps else chart_of_events(shown.events(0)), title), files["gantt"])
    if not of_steps:
        write_events(shown, files["log"])
        del files["film"]
    else:
        shown.to_csv(files["log"])
        shown.world.save(files["film"])
    return {kind: file.name for kind, file in files.items()}


def write_events(world: Any, path: Path) -> None:
    """The bars of truck and drone, a line each, under their names."""
    import csv

    from milkrun.delivery.tspd_log import Event

    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Event._fields)
        writer.writerows(world.events(0))
