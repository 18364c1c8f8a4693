"""Figures of episodes, drawn with matplotlib and without pyplot, so no display and no global state is touched.

A world class may name a figure of its own (`figure`), as those of this library do; every other world shows what its
`render(row)` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.core.canvas import CUSTOMER, DEPOT, GRID, INK, PALETTE, PAPER, Colour
from milkrun.core.errors import missing_extra
from milkrun.core.fields import Role
from milkrun.core.references import resolve
from milkrun.core.world import World
from milkrun.replay.retrace import retrace
from milkrun.routing.collect import Collect
from milkrun.routing.scwcvrp import Recourse

try:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
except ImportError as e:
    raise missing_extra("matplotlib", "cli") from e

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDE = 4.8  # inches of one picture
DPI = 150
LEGEND_UP_TO = 12  # trips


def figure_of(world: World, row: int = 0, heading: str = "") -> Figure:
    """The episode that stands in a row of the world."""
    return side_by_side([(world, row, heading)])


def side_by_side(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """Several episodes, each (world, row, heading), in one figure, drawn as their class says by `figure`.

    In the place of a truck-and-drones world the `Recorder` that watched it shows the ways of the whole episode.
    """
    said = {getattr(world, "figure", "") for world, _, _ in pictures}
    if len(said) == 1 and (reference := said.pop()):
        drawn: Figure | None = resolve(reference, f"{type(pictures[0][0]).__name__}.figure")(pictures, title)
        if drawn is not None:
            return drawn
    return in_a_row(pictures, title, paint_pixels)


def figure_of_tours(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """Of worlds in which a vehicle drives from node to node."""
    return in_a_row(pictures, title, paint_tour)


def in_a_row(
    pictures: Sequence[tuple[Any, int, str]], title: str, paint: Callable[[Axes, Any, int], str], side: float = SIDE,
    height: float = 1.3, upright: bool = False,
) -> Figure:  # fmt: skip
    """Pictures side by side, or one below the other, `side` inches wide and so many times as high; `paint` fills one
    and returns what stands above it."""
    lines, columns = (len(pictures), 1) if upright else (1, len(pictures))
    size = side * columns, side * height * lines
    figure = Figure(figsize=size, dpi=DPI, facecolor=rgb(PAPER), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold", color=rgb(INK))
    grid = figure.subplots(lines, columns, squeeze=False).flat
    for axes, (world, row, heading) in zip(grid, pictures, strict=True):
        axes.set_aspect("equal", anchor="N")
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_color(rgb(GRID))
        facts = paint(axes, world, row)
        axes.set_title("\n".join(filter(None, (heading, facts))), fontsize=9.5, color=rgb(INK))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG without empty borders; the same figure gives the same bytes."""
    figure.savefig(path, bbox_inches="tight", pad_inches=0.12, metadata={"Software": None})


def paint_pixels(axes: Axes, world: World, row: int) -> str:
    """The world's own picture."""
    axes.imshow(world.render(row))
    return f"return {world.objective[row]:.3f}, {world.i[row]} steps"


def paint_tour(axes: Axes, world: Any, row: int) -> str:
    """Nodes as large as their demand, prize or waste, a colour a trip, the depot a square; hollow nodes were not
    visited, a ring marks mandatory ones."""
    q = world.instance_row[row]
    nodes = world.locs[q, : world.n_nodes[q]].astype(float)
    trips = _trips(world, row)
    colours = [rgb(PALETTE[k % len(PALETTE)]) for k in range(len(trips))]
    for trip, colour in zip(trips, colours, strict=True):
        for a, b in pairwise(trip):
            home = world.depot_apart and 0 in (a, b)  # many legs meet at the depot: fainter, or they hide the rest
            width, alpha = (1.0, 0.45) if home else (1.6, 1.0)
            axes.plot(*nodes[[a, b]].T, color=colour, linewidth=width, alpha=alpha, zorder=1)

    customers = np.arange(int(world.depot_apart), len(nodes))
    served = world.visited[row, : len(nodes)].copy()
    for trip in trips:
        served[trip] = True  # a night clears `visited`
    inside = np.array([rgb(CUSTOMER if v else PAPER) for v in served])
    for trip, colour in zip(trips, colours, strict=True):
        inside[trip] = colour
    edges = [rgb(PAPER if v else CUSTOMER) for v in served[customers]]
    x, y = nodes.T
    axes.scatter(x[customers], y[customers], s=_sizes(world, row)[customers], c=inside[customers], edgecolors=edges,
                 linewidths=0.8, zorder=2)
    if "must_go" in world.fields:
        must = np.flatnonzero(world.must_go_of(row)[: len(nodes)])
        axes.scatter(x[must], y[must], s=_sizes(world, row)[must] + 60, facecolors="none", edgecolors=rgb(INK),
                     linewidths=0.9, zorder=2)
    if world.depot_apart or world.config.start == "depot":
        axes.scatter(x[:1], y[:1], s=70, marker="s", color=rgb(DEPOT), edgecolors=rgb(PAPER), lw=0.8, zorder=3)
    square_window(axes, nodes)

    length = f"length {world.tour_length[row]:.3f}"
    if not world.depot_apart:
        return f"{length}, {len(nodes)} nodes"
    if isinstance(world, Collect):
        return f"return {world.objective[row]:.3f}, {length}, {int((served[1:]).sum())} of {len(nodes) - 1} served"
    if "demand_units" in world.fields and 0 < len(trips) <= LEGEND_UP_TO:
        loads = [int(world.demand_units[q, trip].sum()) for trip in trips]
        _legend_of_loads(axes, loads, int(world.capacity[q]), colours)
    return f"{length}, {len(nodes) - 1} customers" + (f", {len(trips)} trips" if world.config.record else "")


def square_window(axes: Axes, nodes: np.ndarray) -> None:
    """All nodes with a margin, in a square, so that pictures side by side have one size."""
    low, high = nodes.min(0), nodes.max(0)
    half = 0.56 * max((high - low).max(), 1e-9)
    centre = (low + high) / 2
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))


def _legend_of_loads(axes: Axes, loads: list[int], capacity: int, colours: list[Any]) -> None:
    columns = min(6, len(loads))
    order = [k for c in range(columns) for k in range(c, len(loads), columns)]  # matplotlib fills columns first
    axes.legend(
        [Line2D([], [], color=colours[k], linewidth=1.6) for k in order], [str(loads[k]) for k in order],
        title=f"load of each trip (capacity {capacity})", loc="upper center", bbox_to_anchor=(0.5, -0.01),
        ncols=columns, fontsize=8, title_fontsize=8, frameon=False, handlelength=1.2, columnspacing=1.2,
    )  # fmt: skip


def _trips(world: Any, row: int) -> list[list[int]]:
    """The nodes of each trip, the depot at both ends; a TSP tour is one trip, closed when it has ended."""
    if not world.depot_apart:
        taken = world.tour[row, : world.tour_len[row]].tolist()
        if world.config.start == "free":
            return [taken + taken[:1] if world.terminated[row] else taken]
        return [[0, *taken]]
    return trips_of(driven(world, row))


def driven(world: Any, row: int) -> list[int]:
    """The nodes of a row's path after the depot, forced returns included; of many days the last one played."""
    if isinstance(world, Recourse) and world.config.record:
        return retrace(world, row).days[-1]
    return world.path(row)[1:]


def trips_of(path: Sequence[int]) -> list[list[int]]:
    """Cuts a path at the depot; a trip that never came home stays open."""
    trips: list[list[int]] = []
    for j in path:
        if not trips or trips[-1][-1] == 0:
            if j == 0:
                continue
            trips.append([0])
        trips[-1].append(j)
    return trips


def _sizes(world: Any, row: int) -> np.ndarray:
    """Marker areas: in proportion to the demand, prize or waste where there is one."""
    q = world.instance_row[row]
    count = world.n_nodes[q]
    for name in ("demand_units", "prize", "waste", "real_waste"):
        if name in world.fields:
            amounts = getattr(world, name)[q if world.fields[name].role is Role.INSTANCE else row, :count]
            return 12.0 + 90.0 * amounts / max(float(amounts.max()), 1e-9)
    return np.full(count, 26.0)


def rgb(colour: Colour) -> tuple[float, float, float]:
    return (colour[0] / 255, colour[1] / 255, colour[2] / 255)
