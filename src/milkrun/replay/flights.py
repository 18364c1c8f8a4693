"""Where truck and drones of a delivery world went: the whole episode as a map.

Of the world of steps the log of a `Recorder` is drawn, of the TSP with drone the plan that the row itself keeps. The
colours are those of the world's own picture and of the Gantt chart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from milkrun.core.canvas import CUSTOMER, DEPOT, GRID, INK, LATE, PALETTE, PAPER, SERVED, Colour
from milkrun.delivery.truckdrone.log import Recorder
from milkrun.delivery.tspd.log import paths
from milkrun.replay.figures import in_a_row, rgb, square_window
from milkrun.replay.labels import label_places

SIDE = 5.6  # inches of one map
SMALL = 7.0  # points of numbers
WAYS: dict[str, tuple[Colour, float, Any]] = {
    "drive": (INK, 2.2, "-"), "fly_out": (PALETTE[0], 1.3, "-"), "return": (PALETTE[3], 1.3, (0, (3, 1.5))),
}  # fmt: skip
"""Colour, width and line of the truck's way, and of a drone's way out and back."""


def figure_of_flights(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure | None:
    """Episodes side by side, each (log or TSPD world, row, heading), with one legend; None of a world of steps that
    nobody watched."""
    if not all(isinstance(world, Recorder) or "drone_pos" not in world.fields for world, _, _ in pictures):
        return None
    of_steps = isinstance(pictures[0][0], Recorder)
    figure = in_a_row(pictures, title, paint_log if of_steps else paint_plan, SIDE, 1.2)
    roads = of_steps and pictures[0][0].sizes["R"] > 0
    _legend(figure, of_steps, roads, columns=8 + roads if len(pictures) > 1 else 4)
    return figure


def paint_log(axes: Axes, log: Recorder, row: int) -> str:
    """Every way of an episode; customers by whether the parcel came in time."""
    events = log.events()
    events = events[events["row"] == row]
    events = events[events["episode"] == events["episode"].max(initial=-1)]
    for kind, (colour, width, style) in WAYS.items():
        e = events[events["kind"] == kind]
        legs = np.stack([e["x0"], e["y0"], e["x1"], e["y1"]], axis=1).reshape(-1, 2, 2)
        axes.add_collection(LineCollection(_joined(legs), colors=[rgb(colour)], linewidths=width, linestyles=style,
                                           alpha=0.8, zorder=2))  # fmt: skip
    q = log.instance_row[row]
    nodes, places = log.route_nodes[q], log.customer_pos[q]
    if log.sizes["R"]:
        i, j = np.nonzero(np.triu(log.road[q], 1))
        roads = np.stack([nodes[i], nodes[j]], axis=1)
        axes.add_collection(LineCollection(list(roads), colors=[rgb(GRID)], linewidths=6, zorder=0.5))
    _dots(axes, nodes, "s", 90, GRID, CUSTOMER, zorder=1)
    for n, (x, y) in enumerate(nodes.tolist()):
        axes.text(x, y, str(n), fontsize=SMALL, color=rgb(INK), ha="center", va="center_baseline", zorder=3,
                  path_effects=[withStroke(linewidth=1.5, foreground=rgb(PAPER))])  # fmt: skip
    arrival = log.arrival_step[row]
    for c, (x, y) in enumerate(places.tolist()):
        came, late = arrival[c] >= 0, arrival[c] > log.tw_end[q, c]
        face = (LATE if late else SERVED) if came else PAPER
        _dots(axes, places[c : c + 1], "o", 110, face, INK, zorder=4)
        axes.text(x, y, str(c), fontsize=SMALL, fontweight="bold", color=rgb(PAPER if came else INK), ha="center",
                  va="center_baseline", zorder=5)  # fmt: skip
    _dots(axes, log.truck_pos[row : row + 1], "s", 60, INK, PAPER, zorder=6)
    axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    served, in_time = int((arrival >= 0).sum()), int(((arrival >= 0) & (arrival <= log.tw_end[q])).sum())
    return (f"return {log.objective[row]:.3f}, {log.i[row]} steps, {served} of {len(places)} served, "
            f"{in_time} in time")  # fmt: skip


def paint_plan(axes: Axes, world: Any, row: int) -> str:
    """The truck's tour and the drone's flights; nodes in the colour of who served them."""
    q = world.instance_row[row]
    nodes = world.locs[q, : world.n_nodes[q]].astype(float)
    way, flights, _ = paths(world, row)
    legs = []
    for kind, stops in [("drive", leg) for leg in pairwise(way)] + [
        (kind, leg) for flight in flights for kind, leg in zip(("fly_out", "return"), pairwise(flight), strict=False)
    ]:
        colour, width, style = WAYS[kind]
        a, b = nodes[list(stops)]
        legs.append(np.array([a, b]))
        axes.plot(*legs[-1].T, color=rgb(colour), linewidth=width, linestyle=style, zorder=1)
        if (a != b).any():
            head = {"arrowstyle": "-|>", "color": rgb(colour), "lw": 0.8, "mutation_scale": 11}
            axes.annotate("", xy=a + 0.57 * (b - a), xytext=a + 0.5 * (b - a), zorder=2, arrowprops=head)
    flown = {flight[1] for flight in flights}
    for j in range(1, len(nodes)):
        inside, edge = (PALETTE[0] if j in flown else INK, PAPER) if world.covered[row, j] else (PAPER, CUSTOMER)
        _dots(axes, nodes[j : j + 1], "o", 34, inside, edge, zorder=3)
    _dots(axes, nodes[:1], "s", 70, DEPOT, PAPER, zorder=4)
    square_window(axes, nodes)
    unit = (axes.get_xlim()[1] - axes.get_xlim()[0]) / (70 * SIDE)
    names = [str(j) for j in range(1, len(nodes))]
    for (x, y), name in zip(label_places(nodes, names, SMALL + 1, unit, legs), names, strict=True):
        axes.text(x, y, name, fontsize=SMALL + 1, color=rgb(INK), ha="center", va="center_baseline", zorder=5,
                  path_effects=[withStroke(linewidth=2, foreground=rgb(PAPER))])  # fmt: skip
    return (f"makespan {world.clock[row]:.3f}, {world.num_ops[row]} operations, {len(flown)} of {len(nodes) - 1} nodes "
            "by drone")  # fmt: skip


def _dots(axes: Axes, places: np.ndarray, shape: str, size: float, inside: Colour, edge: Colour, zorder: int) -> None:
    x, y = places.T
    axes.scatter(x, y, s=size, marker=shape, color=rgb(inside), edgecolors=rgb(edge), lw=0.8, zorder=zorder)


def _joined(legs: np.ndarray) -> list[np.ndarray]:
    """Legs that go on where the one before ended become one line: its dashes do not begin anew each step."""
    lines: list[list[np.ndarray]] = []
    for a, b in legs:
        at = next((line for line in lines[::-1] if (line[-1] == a).all()), None)
        if at is None:
            lines.append([a, b])
        else:
            at.append(b)
    return [np.array(line) for line in lines]


def _legend(figure: Figure, of_steps: bool, roads: bool, columns: int) -> None:
    def dot(marker: str, colour: Any, edge: Any = INK, size: float = 7) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, mfc=rgb(colour), mec=rgb(edge), markersize=size)

    words = {"drive": "truck", "fly_out": "drone, way out", "return": "drone, way back"}
    entries: list[tuple[Any, str]] = [
        (Line2D([], [], color=rgb(colour), linewidth=width, linestyle=style), words[kind])
        for kind, (colour, width, style) in WAYS.items()
    ]
    if roads:
        entries.append((Line2D([], [], color=rgb(GRID), linewidth=6), "road"))
    if of_steps:
        entries += [
            (dot("o", SERVED), "customer served in time"), (dot("o", LATE), "served late"),
            (dot("o", PAPER), "not served"), (dot("s", GRID, CUSTOMER), "node of the truck"),
            (dot("s", INK, PAPER), "truck at the end"),
        ]  # fmt: skip
    else:
        entries += [
            (dot("s", DEPOT, PAPER), "depot"), (dot("o", INK, PAPER), "served by truck"),
            (dot("o", PALETTE[0], PAPER), "served by drone"),
        ]  # fmt: skip
    handles, names = zip(*entries, strict=True)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False,
                  handlelength=2.2, columnspacing=1.4)  # fmt: skip
