"""Pictures for people: a row's camera picture with the town from above, and a sheet of all scenes and weathers.

The town from above is the row's scene. It adds an outline of the target, and the window on the ground that the reward
depends on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.render.canvas import PAPER, Canvas
from milkrun.render.scene import Scene, colours
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.rendering import SIZES, shot, single_row, take_picture
from milkrun.tracking.world import Tracking

Array = NDArray[Any]
SIDE = 512
BOX_COLOURS = {0: "muted", 1: "muted", 2: 8, 3: 9, 4: "grid", 5: "grid", 6: 7, 7: 4, 8: "muted"}
"""Colours of boxes in a scene, by `box_kind`."""
BURIED = 50.0  # m below the ground, for vehicles that have left the town
STEEPEST = 1.5  # rad, the largest pitch of a start
SHADE = 0.62  # brightness of ground in a shadow


def render(world: Any, row: int, path: Array | None = None) -> Array:
    """The camera's picture, and at its right the view from above, uint8 (512, 1024, 3).

    `path` (n, 2): earlier places of the drone, drawn as a line.
    """
    above = Canvas(SIDE, SIDE)
    world.draw(row, above)
    if path is not None and len(path) > 1:
        above.polyline(path, PAPER, 2)
    both = Canvas(2 * SIDE, SIDE)
    both.pixels[:, :SIDE] = enlarged(to_rgb(shot(world, row, SIDE // 2, 2)[0]), 2)
    if is_hidden(world, row):
        both.caption("the target is hidden")
    both.pixels[:, SIDE:] = above.pixels
    both.pixels[:, SIDE - 1 : SIDE + 1] = PAPER
    return both.pixels


def scene(world: Any, row: int) -> Scene:
    """The town as boxes, its traffic and the drone in space, and the camera's picture."""
    q, n = world.instance_row[row], max(1, int(world.n_veh[row]))
    boxes, reach, (x, y, z) = int(world.n_box[q]), world.config.half_extent, world.pos[row].tolist()
    s = Scene((-reach, -reach, 0), (reach, reach, max(60.0, z + 1)))
    s.ground(lambda: ground(world, row))
    s.bodies(
        "town",
        "box",
        2 * world.box_half[q, :boxes],
        world.box_pos[q, :boxes],
        _turned(world.box_yaw[q, :boxes]),
        colour=colours([BOX_COLOURS[kind] for kind in world.box_kind[q, :boxes].tolist()]),
        transparent=True,
    )
    size, pose = tables.KIND_SIZES[world.veh_kind[row, :n]][:, :3], world.veh_pose[row, :n]
    height = np.where(world.veh_on[row, :n], size[:, 2] / 2, -BURIED)
    unseen = is_hidden(world, row)
    s.bodies(
        "traffic",
        "box",
        size,
        np.c_[pose[:, :2], height],
        _turned(pose[:, 2]),
        target=0,
        colour=colours(["late", *[5] * (n - 1)]),
        faint=[unseen, *[False] * (n - 1)],
        text=lambda: [f"{tables.KINDS[k]}{'' if v else ', the target'}" for v, k in enumerate(world.veh_kind[row, :n])],
    )
    s.bodies("drone", "box", [(2.0, 2.0, 0.6)], [(x, y, z)], _turned(world.yaw[row : row + 1]), colour="open")
    c, sn = math.cos(world.yaw[row]), math.sin(world.yaw[row])
    s.camera((x - 14 * c, y - 14 * sn, z + 18), (x + 6 * c, y + 6 * sn, z - 8), follow="drone")
    s.image("camera", to_rgb(shot(world, row)[0]))
    s.gauge("target near the middle", world.r_c[row], 1.0)
    s.gauge("target hidden", unseen, 1.0)
    s.figure("CR", world.CR[row])
    s.figure("height", z)
    _annotate(world, row, s)
    return s


def _annotate(world: Any, row: int, s: Scene) -> None:
    """Adds the window of the reward, a caption and a legend."""
    corners, town = view_window(world, row), tables.SCENES[world.scene_id[world.instance_row[row]]]
    for k in range(4):
        s.line(f"view, side {k}", corners[k - 1], corners[k], colour="open")
    s.line("view", world.pos[row, :2], corners.mean(0), colour="open")
    s.caption(
        f"step {int(world.agent_step[row])}/{world.config.max_agent_steps}  r_c {world.r_c[row]:.3f}  "
        f"CR {world.CR[row]:.1f}  TSR {world.TSR[row]:.3f}  {town}, {tables.WEATHERS[world.weather_id[row]]}"
        f"{'  HIDDEN' if is_hidden(world, row) else ''}"
    )
    for words, colour in (
        ("target, pale: hidden", "late"),
        ("traffic", 5),
        ("drone and its window", "open"),
        ("building", "muted"),
        ("tree", 9),
    ):
        s.legend(words, colour, "square")


def is_hidden(world: Any, row: int) -> bool:
    """Whether a static box hides the target, which the reward ignores unless `occlusion` is "zero"."""
    if world.visible[row]:
        return False
    # A target out of the picture is not visible, but not hidden either.
    (ahead, aside), height = world.rel[row, :2].tolist(), float(world.pos[row, 2])
    sine, cosine = math.sin(world.pitch[row]), math.cos(world.pitch[row])
    depth, up = cosine * ahead + sine * height, sine * ahead - cosine * height
    return depth > 0 and abs(aside) <= world.config.tan_h * depth and abs(up) <= world.config.tan_v * depth


def ground(world: Any, row: int) -> Array:
    """The cells of the ground by daylight, uint8 (G, G, 3), y first."""
    cell = np.arange(256)
    light = (0.94 + 0.04 * (cell >> 4 & 3)) * np.where(cell & tables.SHADOW_BIT, SHADE, 1.0)
    # Light may exceed 1 and jitter brightens the palette, so white marks would exceed 255.
    table = np.minimum(light[:, None] * world.palette[row, cell & 15], 255).astype(np.uint8)
    return table[world.ground[world.instance_row[row]]]


def _turned(yaw: Array) -> Array:
    """Quaternions of turns about the vertical."""
    none = np.zeros(len(yaw))
    return np.stack([np.cos(yaw / 2), none, none, np.sin(yaw / 2)], axis=1)


def view_window(world: Any, row: int) -> Array:
    """The corners of the window on the ground, where the rays through its corners in the picture meet it."""
    c, yaw, pitch = world.config, world.yaw[row], world.pitch[row]
    corners = []
    for right, up in ((-1, 1), (1, 1), (1, -1), (-1, -1)):
        u, v = right * c.tan_h * c.view_range, up * c.tan_v * c.view_range
        down = math.sin(pitch) - v * math.cos(pitch)
        depth = world.pos[row, 2] / max(down, 1e-6)
        ahead, aside = depth * (math.cos(pitch) + v * math.sin(pitch)), depth * u
        corners.append((ahead * math.cos(yaw) + aside * math.sin(yaw), ahead * math.sin(yaw) - aside * math.cos(yaw)))
    return world.pos[row, :2] + np.array(corners)


def contact_sheet(size: int = 84, seed: int = 106, gap: int = 4) -> Array:
    """Every scene (down) in every weather (across), uint8 RGB.

    Each has the agent's picture at the start, enlarged three times, and at its right the same moment from behind.
    """
    side = 3 * size
    columns, rows = len(tables.WEATHERS), len(tables.SCENES)
    sheet = np.full((rows * (side + gap) + gap, columns * (2 * side + gap) + gap, 3), 255, np.uint8)
    for i, scene in enumerate(tables.SCENES):
        for j, weather in enumerate(tables.WEATHERS):
            world = _start(TrackingConfig(size=size, scene=scene, weather=weather), seed)
            top, left = gap + i * (side + gap), gap + j * (2 * side + gap)
            sheet[top : top + side, left : left + side] = enlarged(to_rgb(world.observe()["image"][0]), 3)
            wide = from_behind(world, 0, side) if side <= SIZES[1] else enlarged(from_behind(world, 0, size), 3)
            sheet[top : top + side, left + side : left + 2 * side] = wide
    return sheet


def from_behind(world: Any, row: int, size: int, height: float = 45.0, pitch: float = 0.75) -> Array:
    """A wider picture with the target in its middle; `size` is 16 to 512."""
    # The configuration refuses a start pitch whose picture reaches the horizon. This picture is square and may be
    # wider, so the steepest start is declared; no episode starts here.
    one = single_row(world, row, size=size, supersample=2, camera_px=(1, 1), start_pitch=(STEEPEST, STEEPEST))
    x, y, _ = world.veh_pose[row, 0]
    back, yaw = height / math.tan(pitch), world.yaw[row]
    one.pos[0] = x - back * math.cos(yaw), y - back * math.sin(yaw), height
    one.pitch[0] = pitch
    return to_rgb(take_picture(one)[0])


def _start(config: TrackingConfig, seed: int) -> Any:
    world = Tracking(1, config, seed=seed, threads=1)
    world.reset()
    return world


def to_rgb(image: Array) -> Array:
    """An image of the world (channel first, RGB or grey) as RGB, channel last."""
    return np.repeat(image, 3 // len(image), axis=0).transpose(1, 2, 0)


def enlarged(pixels: Array, times: int) -> Array:
    """Enlarges each pixel to a square of `times` pixels a side."""
    return pixels.repeat(times, axis=0).repeat(times, axis=1)
