"""Episodes of picking from clutter: sheets of pictures, films of ticks, tables of events, photos.

Photos need MuJoCo's renderer and OpenGL; nothing else here does.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from milkrun.clutter.options import BASE, RIM
from milkrun.clutter.stages import IDLE, LIFT, RESULTS, SETTLE, SUCCESS
from milkrun.core.arguments import Rows, check_count, read_rows
from milkrun.core.errors import ConfigError, RenderError, shown
from milkrun.core.files import write_csv
from milkrun.render.canvas import CUSTOMER, GRID, INK, LATE, PAPER, Canvas, coloured
from milkrun.render.hooks import StepHooks
from milkrun.render.painter import LINE, paint_legend, paint_marks
from milkrun.replay.animation import Film, stride
from milkrun.replay.figures import in_a_row, rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, HEAD, COLUMNS = 300, 26, 4  # pixels of a scene, pixels of the line above it, scenes per line
WIDE = 9.0  # inches of a sheet in a figure
DISTANCE, MOST_PIXELS = 2.8, 4096  # of a photo: camera distance in halves of the tray's side; longest side
CUP_TICKS = 8  # ticks per picture while only the cup moves


class Picks(StepHooks):
    """Wrapper of a world of one row that stores a picture before every attempt, with the target marked."""

    figure = "milkrun.replay.clutter:figure_of_picks"

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.targets: list[int] = []
        self.scenes: list[np.ndarray] = []
        self.losses: list[list[int]] = []  # of each attempt

    def step(self, actions: Any, rows: Rows = None) -> None:
        if self.world.env_stage[0] == IDLE:
            self.targets.append(int(np.asarray(actions).reshape(-1)[0]))
            self.scenes.append(draw_scene(self.world, 0, CELL, self.targets[-1]))
            self.losses.append([])
        before = self.world.lost[0].copy()
        super().step(actions, rows)
        self.losses[-1] += np.flatnonzero(self.world.lost[0] & ~before).tolist()

    def sheet(self) -> np.ndarray:
        """A sheet of all attempts with their results above, and of the end."""
        heads = []
        for k, event in enumerate(self.world.events(0)):
            lost = self.losses[k]
            taken = "takes" if event["result"] == RESULTS[SUCCESS] else f"{event['result']}:"
            heads.append((f"{k + 1} {taken} {event['target']}{_loses(lost)}", bool(lost) or taken != "takes"))
        heads += [(f"{k + 1} {self.targets[k]}: cut off", True) for k in range(len(heads), len(self.targets))]
        left = int((~(self.world.grasped[0] | self.world.lost[0])).sum())
        gone = int(self.world.lost[0].sum())
        rest = f"the end: {left} left{f', {gone} lost' if gone else ''}"
        end = ("all out" if self.world.success[0] else rest), not self.world.success[0]
        sheet = sheet_of([*self.scenes, draw_scene(self.world, 0, CELL)], [*heads, end])
        entries = self.world.scene(0).legends[
            : len(self.world.config.box_objects) + 2
        ]  # the entries that apply to a sheet
        legend = Canvas(sheet.shape[1], HEAD * len(entries))
        lines = paint_legend(legend, entries, size=2)
        return np.concatenate([legend.pixels[-HEAD - 2 * LINE * (lines - 1) :], sheet])


def draw_scene(world: Any, row: int, size: int, target: int = -1) -> np.ndarray:
    """A square picture of the tray, `size` pixels a side."""
    canvas, scene = Canvas(size, size), world.scene(row)
    canvas.fit(scene.low[:2], scene.high[:2], margin=0.01)
    scene.marks["objects"].attributes["target"] = target
    paint_marks(canvas, scene)
    return canvas.pixels


def _loses(objects: Sequence[int]) -> str:
    """The lost objects, or their count if the numbers do not fit."""
    if not objects:
        return ""
    return f", loses {' '.join(map(str, objects))}" if len(objects) < 4 else f", {len(objects)} lost"


def sheet_of(scenes: Sequence[np.ndarray], heads: Sequence[tuple[str, bool]], columns: int = COLUMNS) -> np.ndarray:
    """Scenes line by line, each under its heading (text, in red)."""
    lines = -(-len(scenes) // columns)
    sheet = Canvas(columns * CELL, lines * (CELL + HEAD))
    for k, (scene, (words, alarm)) in enumerate(zip(scenes, heads, strict=True)):
        x, y = k % columns * CELL, k // columns * (CELL + HEAD)
        size = 2 if 6 + 12 * len(words) <= CELL else 1
        sheet.text((x + 6, y + 7), words, LATE if alarm else INK, size, anchor="nw", px=True)
        sheet.pixels[y + HEAD : y + HEAD + CELL, x : x + CELL] = scene
    return sheet.pixels


def sheet_of_worlds(worlds: dict[str, Any], scenes: int = COLUMNS) -> np.ndarray:
    """The first rows of several worlds, a line per world, under their names."""
    pictures = [draw_scene(world, b, CELL) for world in worlds.values() for b in range(scenes)]
    return sheet_of(pictures, [(f"{name} {b}", False) for name in worlds for b in range(scenes)], scenes)


def figure_of_picks(pictures: Sequence[tuple[Any, int, str]], title: str = "") -> Figure:
    """Episodes recorded by `Picks`, side by side."""
    sheets = {id(world): world.sheet() for world, _, _ in pictures}
    high, wide, _ = max(sheet.shape for sheet in sheets.values())

    def paint(axes: Axes, world: Any, row: int) -> str:
        sheet = sheets[id(world)]
        axes.imshow(np.pad(sheet, ((0, high - len(sheet)), (0, 0), (0, 0)), constant_values=PAPER[0]))
        picks, out = int(world.records[row]), int(world.grasped[row].sum())
        moved = float(world.disturbance[row])
        return (
            f"return {world.objective[row]:.3f}: {out} of {world.sizes['N']} out in {picks} attempts, "
            f"{int(world.lost[row].sum())} lost, others moved {1000 * moved:.0f} mm a pick"
        )

    return in_a_row(pictures, title, paint, side=WIDE, height=high / wide + 0.1)


class TickFilm(Film):
    """A film of the ticks in which objects move, and of some in which only the cup moves."""

    def after_step(self, rows: Rows) -> None:
        ticks, stage = int(self.world.i[self.row]), self.world.env_stage[self.row]
        moving = stage in (LIFT, SETTLE) or not self.world.at_rest[self.row]
        if ticks % (self.every if moving else self.every * CUP_TICKS) == 0 or stage == IDLE:
            self.keep()


def film_of(world: Any, targets: Sequence[int]) -> Film:
    """Play these attempts in a world of one row whose steps are ticks, just reset, and film them."""
    film = TickFilm(world, every=stride(30 * len(targets)))
    left = list(targets)
    while not (world.terminated[0] or world.truncated[0]) and (left or world.env_stage[0] != IDLE):
        film.step(np.array([left.pop(0) if world.env_stage[0] == IDLE else 0]))
    return film


def write_events(world: Any, path: Path) -> None:
    """Write the attempts of row 0 as CSV, one per line; `moved_3` is the displacement of object 3 in m."""
    names = [name for name in world.config.box_objects for _ in range(world.config.num_objects_per_type)]
    plain = ("attempt", "target", "type", "result", "blocked", "lost", "ticks", "load")
    lines = []
    for event in world.events(0):
        kind = names[event["target"]] if event["target"] >= 0 else ""
        event = {**event, "type": kind, "load": f"{event['load']:.4f}"}
        lines.append([*(event[name] for name in plain), *(f"{way:.6f}" for way in event["displacement"])])
    write_csv(path, [*plain, *(f"moved_{i}" for i in range(len(names)))], lines)


def photo(world: Any, row: int = 0, size: tuple[int, int] = (480, 640)) -> np.ndarray:
    """The tray of a row from above at an angle, by MuJoCo's renderer: uint8 (height, width, 3), types in the colours
    of the top view, the cup red while it holds.

    Needs OpenGL. Without a screen, set the environment variable MUJOCO_GL before Python starts.
    """
    import mujoco

    b = int(read_rows([row], world.num_envs)[0])
    world.refuse_unready(np.array([b]))
    if not isinstance(size, Sequence) or len(size) != 2:
        raise ConfigError(f"size={shown(size)}: must be (height, width)")
    height, width = (check_count(f"size[{k}]", pixels, 1, MOST_PIXELS) for k, pixels in enumerate(size))
    model = _staged(world, b, height, width)
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, world.physics[b].copy(), mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat = 0.0, 0.0, BASE + world.config.wall / 2
    camera.distance = DISTANCE * (world.config.side / 2 + RIM) + world.config.wall
    camera.azimuth = 90.0
    camera.elevation = -62.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # glfw repeats the error as a warning
            renderer = mujoco.Renderer(model, height, width)
    except (mujoco.FatalError, ImportError, AttributeError, OSError, RuntimeError) as e:
        why = next(iter(str(e).splitlines()), type(e).__name__)
        raise RenderError(
            f"MuJoCo's renderer found no OpenGL ({why}): install libegl1 or libosmesa6 and start Python with "
            "MUJOCO_GL=egl or MUJOCO_GL=osmesa in the environment; world.render(row) needs neither"
        ) from e
    with renderer:
        renderer.update_scene(data, camera)
        picture: np.ndarray = renderer.render()
    return picture


def _staged(world: Any, b: int, height: int, width: int) -> Any:
    """The model of a row with colours and light; objects out of play are invisible."""
    import mujoco

    spec = mujoco.MjSpec.from_string(world.model_xml)
    spec.visual.global_.offheight = height
    spec.visual.global_.offwidth = width
    spec.visual.headlight.ambient = [0.35] * 3
    spec.visual.headlight.diffuse = [0.25] * 3
    spec.visual.headlight.specular = [0.0] * 3
    spec.visual.map.shadowscale = 1.0
    spec.worldbody.add_light(pos=[-0.4, 0.3, 1.5], dir=[0.4, -0.3, -1.5], diffuse=[0.6] * 3, specular=[0.0] * 3)
    for geom in spec.geoms:
        geom.rgba = [*rgb(GRID), 1.0] if geom.name else [*rgb(CUSTOMER), 0.35]  # transparent walls
    gone = world.grasped[b] | world.lost[b]
    for i, code in enumerate(world.scene(b).marks["objects"].attributes["colour"].tolist()):
        spec.geom(f"g{i}").rgba = [*rgb(coloured(code)), 0.0 if gone[i] else 1.0]
    tip = spec.site("cs")
    tip.size = [0.01] * 3
    tip.rgba = [*rgb(LATE if world.is_suction_active[b] else INK), 1.0]
    return spec.compile()
