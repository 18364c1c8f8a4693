"""A dial-a-ride plan in one figure: on the left where the vehicles drive, on the right when, as a Gantt chart.

The chart has a band for each vehicle, its own time on top and a bar for each request below. Requests are numbered from
1 in both, as in Cordeau's files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke

from milkrun.core.canvas import CUSTOMER, DEPOT, GRID, INK, LATE, PALETTE, PAPER
from milkrun.core.old_names import renamed
from milkrun.replay.figures import DPI, rgb, save, square_window
from milkrun.replay.labels import label_places
from milkrun.routing.darp.task.checker import DARPReport
from milkrun.routing.darp.timetable import Aboard, Shift, lanes, routes_of_row, timetable
from milkrun.routing.instances.darp import DARPInstance

Routes = Sequence[Sequence[int]]

CHART = 9.0  # inches across
ROW = 0.19  # inches of one row of the chart
ROWS_APART = 32  # requests up to which each has a row of its own; more share rows
BAND = 0.6  # rows between two vehicles
SMALL = 6.5  # points of the numbers of requests
HATCH = "////"

__getattr__ = renamed(__name__, {"draw_rides": "draw_darp"})


@dataclass(frozen=True)
class Plan:
    """What one part of a figure shows."""

    instance: DARPInstance
    routes: Routes
    report: DARPReport
    shifts: list[Shift]
    heading: str

    @property
    def side(self) -> float:
        """Inches of the map."""
        return min(8.0, 5.4 + 0.05 * max(0, self.instance.num_requests - 24))

    @property
    def facts(self) -> str:
        """Distance, requests served and the longest ride, as the checker has them."""
        total = self.instance.num_requests
        rides = [ride for by_request in self.report.ride_times for ride in by_request.values()]
        longest = f", longest ride {max(rides):.1f}" if rides else ""
        return f"distance {self.report.distance:.2f}, {total - self.report.unserved} of {total} served{longest}"


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


def figure_of_plans(plans: Sequence[Plan], title: str = "") -> Figure:
    """Plans one below the other, with one legend."""
    charts = [_rows_of(plan) for plan in plans]
    side = max(plan.side for plan in plans)
    heights = [max(side + 0.5, ROW * (rows + 2) + 0.8) for _, rows in charts]
    figure = Figure(figsize=(side + CHART, sum(heights) + 0.5), dpi=DPI, facecolor=rgb(PAPER), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", color=rgb(INK))
    grid = figure.add_gridspec(len(plans), 2, width_ratios=[side, CHART], height_ratios=heights)
    for k, (plan, (placed, rows)) in enumerate(zip(plans, charts, strict=True)):
        paint_map(figure.add_subplot(grid[k, 0]), plan)
        paint_chart(figure.add_subplot(grid[k, 1]), plan, placed, rows)
    _legend(figure, plans)
    return figure


def paint_map(axes: Axes, plan: Plan) -> None:
    """Routes with a colour a vehicle; a request that nobody served is grey."""
    nodes = plan.instance.locs.astype(float)
    axes.set_aspect("equal", anchor="N")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(rgb(GRID))
    colours = [rgb(CUSTOMER)] * len(nodes)
    driven = []
    for k, route in enumerate(plan.routes):
        walk = [0, *route, 0] if len(plan.report.schedule[k] or ()) != len(route) + 1 else [0, *route]
        if route:
            axes.plot(*nodes[walk].T, color=colour_of(k), linewidth=1.1, alpha=0.6, zorder=1)
            driven += [nodes[list(leg)] for leg in pairwise(walk)]
        for node in route:
            colours[node] = colour_of(k)
    x, y = nodes.T
    for first, marker in ((1, "^"), (2, "v")):
        picked = slice(first, None, 2)
        inside = colours[picked] if first == 1 else [rgb(PAPER)]
        axes.scatter(x[picked], y[picked], s=26, marker=marker, facecolors=inside, edgecolors=colours[picked],
                     linewidths=1.1, zorder=2)  # fmt: skip
    axes.scatter(x[:1], y[:1], s=70, marker="s", color=rgb(DEPOT), edgecolors=rgb(PAPER), lw=0.8, zorder=3)
    square_window(axes, nodes)
    axes.set_title("\n".join(filter(None, (plan.heading, plan.facts))), fontsize=9.5, color=rgb(INK))
    unit = (axes.get_xlim()[1] - axes.get_xlim()[0]) / (70 * plan.side)  # of the plane to a point of the page
    names = [str((j + 1) // 2) for j in range(1, len(nodes))]
    for (a, b), name, colour in zip(label_places(nodes, names, SMALL, unit, driven), names, colours[1:], strict=True):
        axes.text(a, b, name, fontsize=SMALL, color=colour, ha="center", va="center_baseline", zorder=4,
                  path_effects=[withStroke(linewidth=1.8, foreground=rgb(PAPER))])  # fmt: skip


def paint_chart(axes: Axes, plan: Plan, placed: list[list[float]], rows: float) -> None:
    """A band for each vehicle: its day in the first row, its requests in those below."""
    low, high = _day(plan)
    axes.set(xlim=(low, high), ylim=(rows, -0.2))
    axes.set_xlabel("time", fontsize=8, color=rgb(INK))
    axes.grid(axis="x", color=rgb(GRID), linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(labelsize=8, colors=rgb(INK))
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(rgb(CUSTOMER))
    for shift, ys in zip(plan.shifts, placed, strict=True):
        colour = colour_of(shift.vehicle)
        axes.axhspan(ys[0] - 0.15, max(ys) + 1.05, color=colour, alpha=0.05, linewidth=0)
        _paint_vehicle(axes, shift, ys[0] + 0.5, plan)
        for rider, y in zip(shift.riders, ys[1:], strict=True):
            _paint_rider(axes, rider, y + 0.5, colour, (low, high))
    axes.set_yticks([ys[0] + 0.5 for ys in placed], [f"vehicle {s.vehicle + 1}" for s in plan.shifts], fontsize=8)
    for label, shift in zip(axes.get_yticklabels(), plan.shifts, strict=True):
        label.set_color(colour_of(shift.vehicle))
        label.set_fontweight("bold")


def colour_of(vehicle: int) -> tuple[float, float, float]:
    return rgb(PALETTE[vehicle % len(PALETTE)])


def _rows_of(plan: Plan) -> tuple[list[list[float]], float]:
    """For each vehicle the upper ends of its own row and of its riders' rows, and where the last row ends."""
    low, high = _day(plan)
    share = sum(len(shift.riders) for shift in plan.shifts) > ROWS_APART
    placed, top = [], 0.0
    for shift in plan.shifts:
        by_time = np.argsort([rider.pickup[0] for rider in shift.riders], kind="stable").argsort().tolist()
        lane = lanes(shift.riders, 0.035 * (high - low)) if share else by_time
        placed.append([top, *(top + 1 + n for n in lane)])
        top += 2 + max(lane, default=-1) + BAND
    return placed, top - BAND + 0.3


def _day(plan: Plan) -> tuple[float, float]:
    """What the axis of time shows."""
    ends = [t for shift in plan.shifts for rider in shift.riders for t in rider.extent]
    ends += [t for shift in plan.shifts for t in (shift.departure, shift.back) if t is not None]
    low, high = (min(ends), max(ends)) if ends else (0.0, plan.instance.time_windows[0])
    return low - 0.035 * (high - low), high + 0.015 * (high - low)


def _paint_vehicle(axes: Axes, shift: Shift, y: float, plan: Plan) -> None:
    colour = colour_of(shift.vehicle)
    if shift.departure is None or shift.back is None:
        word = "no schedule keeps its times" if plan.routes[shift.vehicle] else "stays at the depot"
        axes.text(axes.get_xlim()[0] * 0.99 + axes.get_xlim()[1] * 0.01, y, word, fontsize=7.5, va="center",
                  color=rgb(LATE if plan.routes[shift.vehicle] else CUSTOMER))  # fmt: skip
        return
    axes.hlines(y, shift.departure, shift.back, color=colour, linewidth=1.0, zorder=2)
    for start, end in shift.waits:
        axes.add_patch(Rectangle((start, y - 0.28), end - start, 0.56, facecolor=rgb(PAPER), edgecolor=colour,
                                 hatch=HATCH, linewidth=0.5, zorder=3))  # fmt: skip
    for start, end in shift.services:
        axes.add_patch(Rectangle((start, y - 0.28), end - start, 0.56, facecolor=colour, linewidth=0, zorder=4))
        axes.vlines(start, y - 0.28, y + 0.28, color=colour, linewidth=1.2, zorder=4)
    axes.vlines([shift.departure, shift.back], y - 0.38, y + 0.38, color=rgb(INK), linewidth=1.4, zorder=5)


def _paint_rider(axes: Axes, rider: Aboard, y: float, colour: Any, day: tuple[float, float]) -> None:
    start, end = rider.pickup[1], rider.until if rider.dropoff is None else rider.dropoff[0]
    if math.isfinite(rider.latest):
        axes.hlines(y, end, rider.latest, color=colour, alpha=0.45, linewidth=1.0, linestyle=(0, (1, 1.2)), zorder=2)
    axes.add_patch(Rectangle((start, y - 0.2), end - start, 0.4, facecolor=colour, alpha=0.4, linewidth=0, zorder=2))
    for service in filter(None, (rider.pickup, rider.dropoff)):
        axes.add_patch(Rectangle((service[0], y - 0.2), service[1] - service[0], 0.4, facecolor=colour, linewidth=0,
                                 zorder=3))  # fmt: skip
        axes.vlines(service[0], y - 0.2, y + 0.2, color=colour, linewidth=1.6, zorder=3)
    if rider.dropoff is None:
        axes.plot([end], [y], marker="x", color=rgb(LATE), markersize=5, zorder=4)
    met = rider.pickup[0], start if rider.dropoff is None else end
    for (opens, closes), at, side in zip(rider.windows, met, (-0.34, 0.34), strict=True):
        ends = [t for t in (opens, closes) if math.isfinite(t)]
        if ends:
            ink = rgb(INK if len(ends) == 2 else CUSTOMER)  # what is open to one side is drawn to the stop, fainter
            axes.hlines(y + side, ends[0], [*ends, at][1], color=ink, linewidth=0.7, zorder=3)
            axes.vlines(ends, y + side - 0.1, y + side + 0.1, color=rgb(INK), linewidth=0.7, zorder=3)
    axes.text(rider.extent[0] - 0.006 * (day[1] - day[0]), y, str(rider.request + 1), fontsize=SMALL, color=colour,
              ha="right", va="center_baseline")  # fmt: skip


class _Bracket(HandlerBase):
    """A window in the legend."""

    def create_artists(self, legend: Any, orig_handle: Any, xdescent: float, ydescent: float, width: float,
                       height: float, fontsize: float, trans: Any) -> list[Any]:  # fmt: skip
        x0, x1, y = -xdescent, width - xdescent, height / 2 - ydescent
        lines = [([x0, x1], [y, y]), ([x0, x0], [y - 2, y + 2]), ([x1, x1], [y - 2, y + 2])]
        return [Line2D(*line, color=rgb(INK), linewidth=0.7, transform=trans) for line in lines]


def _legend(figure: Figure, plans: Sequence[Plan]) -> None:
    grey, ink = rgb(CUSTOMER), rgb(INK)

    def dot(marker: str, inside: Any, edge: Any) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, mfc=inside, mec=edge, markersize=5.5)

    shifts = [shift for plan in plans for shift in plan.shifts]
    riders = [rider for shift in shifts for rider in shift.riders]
    bound = "window" if any(math.isfinite(w[0]) for rider in riders for w in rider.windows) else "deadline"
    window, dotted = Line2D([], []), (0, (1, 1.2))
    waiting = Patch(facecolor=rgb(PAPER), edgecolor=ink, hatch=HATCH, linewidth=0.5)
    entries: list[tuple[Any, str, bool]] = [
        (dot("s", ink, ink), "depot", True),
        (dot("^", ink, ink), "pickup", True),
        (dot("v", rgb(PAPER), ink), "dropoff", True),
        (dot("^", grey, grey), "not served", any(plan.report.unserved for plan in plans)),
        (Patch(facecolor=ink), "service", any(end > start for shift in shifts for start, end in shift.services)),
        (Patch(facecolor=ink, alpha=0.4), "ride", bool(riders)),
        (dot("x", rgb(LATE), rgb(LATE)), "never set down", any(rider.dropoff is None for rider in riders)),
        (Line2D([], [], color=ink, alpha=0.6, linewidth=1.0, linestyle=dotted), "ride limit",
         any(math.isfinite(rider.latest) for rider in riders)),
        (window, f"{bound}: pickup above, dropoff below", bool(riders)),
        (waiting, "vehicle waits", any(shift.waits for shift in shifts)),
    ]  # fmt: skip
    handles, names = zip(*((handle, name) for handle, name, there in entries if there), strict=True)
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8, frameon=False,
                  handlelength=1.8, columnspacing=1.4, handler_map={window: _Bracket()})  # fmt: skip
