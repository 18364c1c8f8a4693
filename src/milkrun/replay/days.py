"""Many days of waste collection in one figure: the routes and results of each day, and the levels of all bins.

Results come from the independent checker's replay of the recorded days, not from the world's own counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from milkrun.core.instances import instances_of
from milkrun.core.references import refer
from milkrun.render.canvas import CUSTOMER, DEPOT, INK, PALETTE
from milkrun.render.painter import trips_of
from milkrun.replay.figures import empty_figure, leave_inside, rgb, square_window
from milkrun.replay.trace import days_driven, morning_levels
from milkrun.routing.maps import BIN_M3, EUR_PER_KG, EUR_PER_KM, KG_PER_M3

COLUMNS = 7  # days side by side


@dataclass(frozen=True)
class Days:
    """Amounts by row and day, (B, T).

    On a map with a single waste stream: waste in kg, length in km, profit in EUR. Otherwise waste in bins, length in
    the world's unit, profit in the objective's unit.
    """

    overflows: NDArray[np.float64]
    failures: NDArray[np.float64]
    waste: NDArray[np.float64]
    length: NDArray[np.float64]
    lost: NDArray[np.float64]
    profit: NDArray[np.float64]
    waste_unit: str
    length_unit: str
    profit_unit: str


def days_of(world: Any) -> Days:
    """The days of finished rows of an SDWCVRP world that recorded them."""
    c, data, solution = world.config, instances_of(world), world.solution().astype(np.int64)
    _, parts, _ = refer(world, "task").get_costs(data, solution, world.task_weights(c), **world.task_options(c))
    parts = {key: np.asarray(value, np.float64) for key, value in parts.items()}
    bins = parts["waste"] / world.max_waste[world.instance_row].astype(np.float64)[:, None]
    if c.map_name is None or c.stream not in KG_PER_M3:
        profit = (
            c.waste_weight * parts["waste"]
            - c.beta * parts["length"]
            - c.overflow_price * parts["overflows"]
            - c.failure_weight * parts["failures"]
            - c.lost_weight * parts["lost"]
        )
        units = ("bins", "km" if c.metric == "haversine" else "length", "profit")
        return Days(parts["overflows"], parts["failures"], bins, parts["length"], parts["lost"], profit, *units)
    volume = c.map.volume_m3
    kg = bins * (BIN_M3 if volume is None else float(volume[1:].mean())) * KG_PER_M3[c.stream]
    by_road = c.metric == "haversine" or (c.metric == "matrix" and c.map.dist is not None)
    km = parts["length"] * (1.0 if by_road else c.map.km_per_unit)
    return Days(
        parts["overflows"],
        parts["failures"],
        kg,
        km,
        parts["lost"],
        EUR_PER_KG[c.stream] * kg - EUR_PER_KM * km,
        "kg",
        "km",
        "EUR",
    )


def figure_of_days(world: Any, row: int, title: str = "") -> Figure:
    """Routes of each day over the levels of its morning; below them the levels of all bins over time."""
    paths, q = days_driven(world, row), world.instance_row[row]
    days = len(paths)
    mornings = morning_levels(world, row)[:, 1 : world.n_nodes[q]] / world.max_waste[q]
    nodes = world.locs[q, : world.n_nodes[q]].astype(float)
    columns = min(COLUMNS, days)
    rows = -(-days // columns)
    figure = empty_figure(2.3 * columns, 2.6 * rows + 3.4, title)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[*([2.3] * rows), 3.0])
    for day, path in enumerate(paths):
        axes = figure.add_subplot(grid[day // columns, day % columns])
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[])
        for k, trip in enumerate(trips_of(path, cut=0)):
            axes.plot(*nodes[trip].T, color=rgb(PALETTE[k % len(PALETTE)]), linewidth=1.2, zorder=1)
        x, y = nodes.T
        axes.scatter(
            x[1:],
            y[1:],
            s=14,
            c=mornings[day],
            cmap="YlOrRd",
            vmin=0,
            vmax=1,
            edgecolors=rgb(CUSTOMER),
            linewidths=0.4,
            zorder=2,
        )
        axes.scatter(x[:1], y[:1], s=34, marker="s", color=rgb(DEPOT), zorder=3)
        square_window(axes, nodes)
        leave_inside(axes)
        axes.set_title(f"day {day + 1}", fontsize=9, color=rgb(INK))
    _paint_levels(figure, figure.add_subplot(grid[-1, :]), mornings)
    return figure


def _paint_levels(figure: Figure, axes: Axes, mornings: NDArray[np.float64]) -> None:
    order = np.argsort(-mornings.mean(0), kind="stable")
    image = axes.imshow(mornings[:, order].T, aspect="auto", cmap="YlOrRd", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks(range(len(mornings)), [*(f"{d + 1}" for d in range(len(mornings) - 1)), "end"], fontsize=8)
    axes.set(xlabel="morning of day", ylabel="bins, the fullest on top", yticks=[])
    figure.colorbar(image, ax=axes, label="level, share of a bin", pad=0.01)
