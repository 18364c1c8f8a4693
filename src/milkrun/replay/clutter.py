"""Episodes of picking from clutter: a picture of the pile before every attempt, a film of the ticks, the events as a
table, and sheets of scenes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.clutter.picture import draw_scene, draw_types
from milkrun.clutter.stages import IDLE, LIFT, RESULTS, SETTLE, SUCCESS
from milkrun.core.arguments import Rows
from milkrun.core.canvas import INK, LATE, PAPER, Canvas
from milkrun.core.watch import Watched
from milkrun.replay.animation import Film, stride
from milkrun.replay.figures import in_a_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, HEAD, COLUMNS = 300, 26, 4  # pixels of a scene, of the line above it, scenes in a line
WIDE = 9.0  # inches of a sheet in a figure
OTHERWISE = 8  # of the ticks in which only the cup moves so many make one picture


class Picks(Watched):
    """A world of one row that keeps a picture of its pile before every attempt, the target marked."""

    figure = "milkrun.replay.clutter:figure_of_picks"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.targets: list[int] = []
        self.scenes: list[np.ndarray] = []
        self.losses: list[list[int]] = []  # by each attempt

    def step(self, actions: Any, rows: Rows = None) -> None:
        if self.world.env_stage[0] == IDLE:
            self.targets.append(int(np.asarray(actions).reshape(-1)[0]))
            self.scenes.append(draw_scene(self.world, 0, CELL, self.targets[-1]))
            self.losses.append([])
        before = self.world.lost[0].copy()
        super().step(actions, rows)
        self.losses[-1] += np.flatnonzero(self.world.lost[0] & ~before).tolist()

    def sheet(self) -> np.ndarray:
        """The attempts one after the other, what came of each above it, and what is left in the end."""
        heads = []
        for k, event in enumerate(self.world.events(0)):
            lost = self.losses[k]
            taken = "takes" if event["result"] == RESULTS[SUCCESS] else f"{event['result']}:"
            heads.append((f"{k + 1} {taken} {event['target']}{_loses(lost)}", bool(lost) or taken != "takes"))
        heads += [(f"{k + 1} {self.targets[k]}: cut off", True) for k in range(len(heads), len(self.targets))]
        left = int((~(self.world.grasped[0] | self.world.lost[0])).sum())
        gone = int(self.world.lost[0].sum())
        said = f"in the end {left} left{f', {gone} lost' if gone else ''}"
        end = ("all out" if self.world.success[0] else said), not self.world.success[0]
        sheet = sheet_of([*self.scenes, draw_scene(self.world, 0, CELL)], [*heads, end])
        legend = Canvas(sheet.shape[1], HEAD)
        draw_types(self.world, legend, np.array([6, HEAD // 2]))
        return np.concatenate([legend.pixels, sheet])


def _loses(objects: Sequence[int]) -> str:
    """Which ones, as far as a cell has room for their numbers."""
    if not objects:
        return ""
    return f", loses {' '.join(map(str, objects))}" if len(objects) < 4 else f", {len(objects)} lost"


def sheet_of(scenes: Sequence[np.ndarray], heads: Sequence[tuple[str, bool]], columns: int = COLUMNS) -> np.ndarray:
    """Scenes line by line, each under its words; True writes them in red."""
    lines = -(-len(scenes) // columns)
    sheet = Canvas(columns * CELL, lines * (CELL + HEAD))
    for k, (scene, (words, alarm)) in enumerate(zip(scenes, heads, strict=True)):
        x, y = k % columns * CELL, k // columns * (CELL + HEAD)
        sheet.text((x + 6, y + 7), words, LATE if alarm else INK, size=2, anchor="nw", px=True)
        sheet.pixels[y + HEAD : y + HEAD + CELL, x : x + CELL] = scene
    return sheet.pixels


def sheet_of_worlds(worlds: dict[str, Any], scenes: int = COLUMNS) -> np.ndarray:
    """The first rows of several worlds as they stand, a line each, under their names."""
    pictures, heads = [], []
    for name, world in worlds.items():
        for b in range(scenes):
            pictures.append(draw_scene(world, b, CELL))
            heads.append((f"{name} {b}", False))
    return sheet_of(pictures, heads, scenes)


def figure_of_picks(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """Episodes that `Picks` has watched, side by side."""
    sheets = [world.sheet() for world, _, _ in pictures]
    high = max(len(sheet) for sheet in sheets)

    def paint(axes: Axes, world: Any, row: int) -> str:
        sheet = sheets[next(k for k, (shown, _, _) in enumerate(pictures) if shown is world)]
        axes.imshow(np.pad(sheet, ((0, high - len(sheet)), (0, 0), (0, 0)), constant_values=PAPER[0]))
        picks, out = int(world.records[row]), int(world.grasped[row].sum())
        moved = float(world.disturbance[row])
        return (f"return {world.objective[row]:.3f}: {out} of {world.sizes['N']} out in {picks} attempts, "
                f"{int(world.lost[row].sum())} lost, others moved {1000 * moved:.0f} mm a pick")  # fmt: skip

    return in_a_row(pictures, title, paint, side=WIDE, height=high / sheets[0].shape[1] + 0.1)


class TickFilm(Film):
    """Every tick in which objects are lifted or settle, few of those in which only the cup moves."""

    def see(self, rows: Rows) -> None:
        ticks, stage = int(self.world.i[self.row]), self.world.env_stage[self.row]
        moving = stage in (LIFT, SETTLE) or not self.world.at_rest[self.row]
        if ticks % (self.every if moving else self.every * OTHERWISE) == 0 or stage == IDLE:
            self.keep()


def film_of(world: Any, targets: Sequence[int]) -> Film:
    """Plays these attempts in the row of a world whose steps are ticks, freshly reset, and films them."""
    film = TickFilm(world, every=stride(30 * len(targets)))
    left = list(targets)
    while not (world.terminated[0] or world.truncated[0]) and (left or world.env_stage[0] != IDLE):
        film.step(np.array([left.pop(0) if world.env_stage[0] == IDLE else 0]))
    return film


def write_events(world: Any, path: Path, row: int = 0) -> None:
    """The attempts of a row as CSV, a line each; `moved_3` is how far object 3 went, m."""
    names = [name for name in world.config.box_objects for _ in range(world.config.num_objects_per_type)]
    plain = ("attempt", "target", "type", "result", "blocked", "lost", "ticks", "load")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*plain, *(f"moved_{i}" for i in range(len(names)))])
        for event in world.events(row):
            kind = names[event["target"]] if event["target"] >= 0 else ""
            event = {**event, "type": kind, "load": f"{event['load']:.4f}"}
            writer.writerow([*(event[name] for name in plain), *(f"{way:.6f}" for way in event["displacement"])])
