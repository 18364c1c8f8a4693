"""A dial-a-ride plan in one figure: on the left where the vehicles drive, on the right when, as a chart.

Requests are numbered from 1 in both, as in Cordeau's files.
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
class Plan:
    """What one part of a figure shows."""

    instance: DARPInstance
    routes: Routes
    report: DARPReport
    chart: Chart
    heading: str

    @property
    def facts(self) -> str:
        """Distance, requests served and the longest ride, as the checker has them."""
        total = self.instance.num_requests
        rides = [ride for by_request in self.report.ride_times for ride in by_request.values()]
        longest = f", longest ride {max(rides):.1f}" if rides else ""
        return f"distance {self.report.distance:.2f}, {total - self.report.unserved} of {total} served{longest}"

    @property
    def scene(self) -> Scene:
        """Routes with a colour a vehicle; a request that nobody served is hollow."""
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
    """Writes a PNG of routes of nodes, the depot left out; route k is vehicle k's and may be empty."""
    save(figure_of_plans([plan_of(instance, routes, title or instance.name, rule, speed)]), Path(path))


def plan_of(
    instance: DARPInstance, routes: Routes, heading: str = "", rule: str = "classic", speed: float | None = None
) -> Plan:
    """Routes with their times."""
    routes = [[int(node) for node in route] for route in routes]
    return Plan(instance, routes, *timetable(instance, routes, rule, speed), heading)


def plan_of_row(world: Any, row: int, heading: str = "") -> Plan:
    """What a row of a dial-a-ride world has driven so far; needs record=True."""
    return plan_of(*routes_of_row(world, row), heading, world.config.rule, world.config.speed)


def figure_of_rows(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure | None:
    """Episodes one below the other, each (world, row, heading); None where one is not over or was not recorded."""
    if not all(world.config.record and world.terminated[row] for world, row, _ in pictures):
        return None
    return figure_of_plans([plan_of_row(*picture) for picture in pictures], title)


def paint_plan(axes: Axes, plan: Plan) -> str:
    paint_scene(axes, plan.scene, "beside")
    return plan.facts


def figure_of_plans(plans: Sequence[Plan], title: str = "") -> Figure:
    """Plans one below the other, with one legend."""
    requests = max(plan.instance.num_requests for plan in plans)
    side = min(8.0, 5.4 + 0.05 * max(0, requests - 24))  # inches of a map
    heights = [max(side + 0.5, height_of(plan.chart) + 0.8) for plan in plans]
    figure = empty_figure(side + CHART, sum(heights) + 0.7, title)
    grid = figure.add_gridspec(len(plans), 2, width_ratios=[side, CHART], height_ratios=heights)
    for k, plan in enumerate(plans):
        fill(figure.add_subplot(grid[k, 0]), plan.heading, paint_plan, plan)
        paint_chart(figure.add_subplot(grid[k, 1]), plan.chart)
    unserved = any(plan.report.unserved for plan in plans)
    chart_legend(figure, [plan.chart for plan in plans], scene_legend(plans[0].scene)[: 3 if unserved else 2])
    return figure
