"""Dial-a-ride routes in one figure: the map on the left, the timetable of the vehicles as a chart on the right.

Requests are numbered from 1, as in Cordeau's files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from milkrun.render.scene import Chart, Scene
from milkrun.replay.figures import empty_figure, fill, paint_scene, save, scene_legend
from milkrun.replay.gantt import chart_legend, height_of, paint_chart
from milkrun.routing.darp.task.checker import DARPReport
from milkrun.routing.darp.timetable import routes_of_row, timetable
from milkrun.routing.instances.darp import DARPInstance

Routes = Sequence[Sequence[int]]

CHART = 9.0  # inches across


@dataclass(frozen=True)
class Timetable:
    """Routes of an instance with their times, as one part of a figure shows them."""

    instance: DARPInstance
    routes: Routes
    report: DARPReport
    chart: Chart
    heading: str

    @property
    def facts(self) -> str:
        """Distance, requests served and the longest ride, by the checker."""
        total = self.instance.num_requests
        rides = [ride for by_request in self.report.ride_times for ride in by_request.values()]
        longest = f", longest ride {max(rides):.1f}" if rides else ""
        return f"distance {self.report.distance:.2f}, {total - self.report.unserved} of {total} served{longest}"

    @property
    def scene(self) -> Scene:
        """Routes with a colour per vehicle; a request that was not served is hollow."""
        nodes = self.instance.locs.astype(float)
        s, n = Scene(nodes.min(0), nodes.max(0)), len(nodes)
        s.points(
            "stops",
            nodes,
            shape=["square"] + ["disc"] * (n - 1),
            size=np.where(np.arange(n) % 2 == 1, 0.4, 0.1),
            label=[str((j + 1) // 2) for j in range(n)],
        )
        for k, route in enumerate(self.routes):
            home = [0] if len(self.report.schedule[k] or ()) != len(route) + 1 else []
            s.route(f"vehicle {k + 1}", "stops", [0, *route, *home] if route else [], cut=0, colour=k)
        for words, colour, shape in (
            ("depot", "ink", "square"),
            ("pickup (large), dropoff", 0, "disc"),
            ("not served", "waiting", "disc"),
        ):
            s.legend(words, colour, shape)
        return s


def draw_darp(
    instance: DARPInstance,
    routes: Routes,
    path: str | os.PathLike[str],
    title: str | None = None,
    *,
    rule: str = "classic",
    speed: float | None = None,
) -> None:
    """Write a PNG of routes, one per vehicle: lists of nodes without the depot, possibly empty."""
    save(figure_of_timetables([timetable_of(instance, routes, title or instance.name, rule, speed)]), Path(path))


def timetable_of(
    instance: DARPInstance, routes: Routes, heading: str = "", rule: str = "classic", speed: float | None = None
) -> Timetable:
    """The timetable of routes."""
    routes = [[int(node) for node in route] for route in routes]
    return Timetable(instance, routes, *timetable(instance, routes, rule, speed), heading)


def timetable_of_row(world: Any, row: int, heading: str = "") -> Timetable:
    """The timetable of the routes driven so far in a row of a dial-a-ride world; needs record=True."""
    return timetable_of(*routes_of_row(world, row), heading, world.config.rule, world.config.speed)


def figure_of_rows(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure | None:
    """Episodes one below the other, each (world, row, heading); None if one is unfinished or not recorded."""
    if not all(world.config.record and world.terminated[row] for world, row, _ in pictures):
        return None
    return figure_of_timetables([timetable_of_row(*picture) for picture in pictures], title)


def paint_routes(axes: Axes, table: Timetable) -> str:
    paint_scene(axes, table.scene, "beside")
    return table.facts


def figure_of_timetables(timetables: Sequence[Timetable], title: str = "") -> Figure:
    """Timetables one below the other, with one legend."""
    requests = max(table.instance.num_requests for table in timetables)
    side = min(8.0, 5.4 + 0.05 * max(0, requests - 24))  # inches of a map
    heights = [max(side + 0.5, height_of(table.chart) + 0.8) for table in timetables]
    figure = empty_figure(side + CHART, sum(heights) + 0.7, title)
    grid = figure.add_gridspec(len(timetables), 2, width_ratios=[side, CHART], height_ratios=heights)
    for k, table in enumerate(timetables):
        fill(figure.add_subplot(grid[k, 0]), table.heading, paint_routes, table)
        paint_chart(figure.add_subplot(grid[k, 1]), table.chart)
    unserved = any(table.report.unserved for table in timetables)
    chart_legend(
        figure, [table.chart for table in timetables], scene_legend(timetables[0].scene)[: 3 if unserved else 2]
    )
    return figure
