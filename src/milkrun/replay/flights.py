"""Maps of whole episodes of delivery worlds: paths of truck and drones over the scene of the end.

TruckDrone needs the log of a `Recorder`; for TSPD the scene holds all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from milkrun.delivery.truckdrone.log import Recorder
from milkrun.render.canvas import INK, PALETTE
from milkrun.render.scene import colours
from milkrun.replay.figures import in_a_row, paint_scene, rgb, scene_legend

SIDE = 5.6  # inches of one map
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "drive": ("truck", {"color": rgb(INK), "linewidth": 2.2, "linestyle": "-"}),
    "fly_out": ("drone, outbound", {"color": rgb(PALETTE[0]), "linewidth": 1.3, "linestyle": "-"}),
    "return": ("drone, return", {"color": rgb(PALETTE[3]), "linewidth": 1.3, "linestyle": (0, (3, 1.5))}),
}
LEGEND = ("late", "served", "node of the truck")
"""Entries of the scene's legend that the map of a whole episode keeps."""


def figure_of_flights(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure | None:
    """Episodes side by side, each (log or TSPD world, row, heading), with one legend.

    None for a TruckDrone world without a `Recorder`.
    """
    if not all(isinstance(world, Recorder) or "drone_pos" not in world.fields for world, _, _ in pictures):
        return None
    has_log = isinstance(pictures[0][0], Recorder)
    figure = in_a_row(pictures, title, paint_log if has_log else paint_tour, SIDE, 1.2)
    entries = scene_legend(pictures[0][0].scene(pictures[0][1]))
    if has_log:
        ways = [(Line2D([], [], **line), words) for words, line in WAYS.values()]
        entries = [*ways, *(entry for entry in entries if entry[1] in LEGEND)]
    handles, names = zip(*entries, strict=True)
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=8 if len(pictures) > 1 else 4,
        fontsize=8,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.4,
    )
    return figure


def paint_log(axes: Axes, log: Recorder, row: int) -> str:
    """All paths of an episode over the scene of its end."""
    events = log.events()
    events = events[events["row"] == row]
    events = events[events["episode"] == events["episode"].max(initial=-1)]
    for kind, (_, line) in WAYS.items():
        e = events[events["kind"] == kind]
        legs = np.stack([e["x0"], e["y0"], e["x1"], e["y1"]], axis=1).reshape(-1, 2, 2)
        axes.add_collection(LineCollection(_joined(legs), **line, alpha=0.8, zorder=2))
    scene, arrival, q = log.scene(row), log.arrival_step[row], log.instance_row[row]
    in_time = (arrival >= 0) & (arrival <= log.tw_end[q])
    came = np.where(in_time, "served", np.where(arrival >= 0, "late", "waiting"))
    scene.marks["customers"].attributes["colour"] = colours(came)
    paint_scene(axes, scene, "inside")
    return (
        f"return {log.objective[row]:.3f}, {log.i[row]} steps, {int((arrival >= 0).sum())} of {len(arrival)} "
        f"served, {int(in_time.sum())} in time"
    )


def paint_tour(axes: Axes, world: Any, row: int) -> str:
    """The truck's tour and the drone's flights; nodes have the colour of the vehicle that served them."""
    paint_scene(axes, world.scene(row), "beside")
    nodes = int(world.n_nodes[world.instance_row[row]]) - 1
    return (
        f"makespan {world.clock[row]:.3f}, {world.num_ops[row]} operations, {int(world.by_drone[row])} of {nodes} "
        "nodes by drone"
    )


def _joined(legs: np.ndarray) -> list[np.ndarray]:
    """Join legs that continue each other into one line, so that its dashes run on."""
    lines: list[list[np.ndarray]] = []
    for a, b in legs:
        at = next((line for line in lines[::-1] if (line[-1] == a).all()), None)
        if at is None:
            lines.append([a, b])
        else:
            at.append(b)
    return [np.array(line) for line in lines]
