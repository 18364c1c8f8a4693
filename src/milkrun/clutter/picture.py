"""The picture of a row: the tray from straight above, each pixel what lies highest there, in the colours of the types.

Higher things cast a shadow on lower ones; blocked objects are paler; the target has a red outline, the cup is a ring.
Below stand the attempts in their order (filled: out, hollow: dropped), then what is lost, then which colour is what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from milkrun.clutter.options import BASE, RIM
from milkrun.clutter.stages import IDLE, ILLEGAL, STAGES, SUCCESS
from milkrun.core.canvas import CUSTOMER, GRID, INK, LATE, PALETTE, PAPER, Canvas, Colour
from milkrun.core.scene import Scene, colours

FLOOR: Colour = (247, 248, 250)
SHADES = 8  # steps between a level face and a steep one: few colours, so that films keep them
PALE = 0.6  # share of paper in the colour of a blocked object
SHADOW, SLOPE, DARK = 7, 0.003, 0.72  # pixels it reaches, m of height a pixel of it takes, what it leaves of the light
CREASE = 0.65  # what a line between two faces leaves
CARRIED = 13.0  # radius of what the cup carries, pixels
SHOWN = 20  # attempts in the line below, the last ones: all of every preset
Array = NDArray[Any]


def draw(world: Any, row: int, canvas: Canvas) -> None:
    side = world.config.side
    outer = side / 2 + RIM
    canvas.fit((-outer, -outer - 0.24 * side), (outer, outer + 0.04 * side), margin=0.04)
    draw_tray(world, row, canvas, int(world.env_target[row]))
    _draw_cup(world, row, canvas, outer)
    _draw_attempts(world, row, canvas, outer, side)
    draw_types(world, canvas, canvas.to_px((-outer, -outer - 0.21 * side)))
    out, lost, n = int(world.grasped[row].sum()), int(world.lost[row].sum()), world.sizes["N"]
    busy = bool(world.env_stage[row] != IDLE)
    stage = f"  {STAGES[world.env_stage[row]]}" if busy else ""
    canvas.caption(f"attempt {int(world.step_count[row]) + busy}/{world.sizes['T']}  out {out}/{n}  lost {lost}{stage}")


def scene(world: Any, row: int) -> Scene:
    """The tray with its objects in space; what is out of play stands beside it, what the cup carries hangs on it."""
    side, n = world.config.side, world.sizes["N"]
    outer, wall, held = side / 2 + RIM, world.config.wall, int(world.current_suction_object[row])
    s = Scene((-outer, -outer, 0), (outer, outer, 0.5))
    away = (side + RIM) / 2
    walls = [(x * away, y * away, BASE + wall / 2) for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    s.bodies("tray", "box", [(2 * outer, 2 * outer, BASE), *[(RIM, 2 * outer, wall)] * 2, *[(side, RIM, wall)] * 2],
             [(0, 0, BASE / 2), *walls], colour="grid", transparent=True)  # fmt: skip
    pose = world.obj_pose[row].copy()
    if held >= 0 and world.grasped[row, held]:
        pose[held, :3] = world.cup_pos[row] - [0, 0, world.half[held, 2]]
    kinds = [name.lstrip("0123456789_").replace("_", " ") for name in world.config.box_objects]
    names = [kinds[i // world.config.num_objects_per_type] for i in range(n)]
    shapes = ["cylinder" if can else "box" for can in world.is_can]
    s.bodies("objects", shapes, 2 * world.half, pose[:, :3], pose[:, 3:],
             colour=colours([i // world.config.num_objects_per_type for i in range(n)]),
             target=int(world.env_target[row]), action=np.arange(n) if world.action.kind == "discrete" else None,
             text=lambda: [f"object {i}, {name}" for i, name in enumerate(names)])  # fmt: skip
    s.bodies("cup", "cylinder", [(0.03, 0.03, 0.06)], [world.cup_pos[row] + [0, 0, 0.03]], colour="ink")
    s.camera((0, -3 * side, 2 * side), (0, 0, 0.85 * side))  # the raised cup is in sight too
    s.figure("out", world.grasped[row].sum())
    s.figure("lost", world.lost[row].sum())
    s.figure("attempts", world.step_count[row])
    for k, name in enumerate(kinds):
        s.legend(name, k, "square")
    s.legend("suction cup", "ink")
    s.legend("outlined: what is to be picked", "ink", "ring")
    return s


def draw_scene(world: Any, row: int, size: int, target: int = -1) -> Array:
    """The tray alone, as a picture of so many pixels a side."""
    canvas = Canvas(size, size)
    outer = world.config.side / 2 + RIM
    canvas.fit((-outer, -outer), (outer, outer), margin=0.01)
    draw_tray(world, row, canvas, target)
    return canvas.pixels


def draw_tray(world: Any, row: int, canvas: Canvas, target: int) -> None:
    """Tray and objects, seen from above in the window of the canvas; the target outlined."""
    half, outer = world.config.side / 2, world.config.side / 2 + RIM
    canvas.rect((-outer, -outer), (outer, outer), GRID)
    canvas.rect((-half, -half), (half, half), FLOOR)
    playing = np.flatnonzero(~(world.grasped[row] | world.lost[row])).tolist()
    seen = _look_down(world, row, playing, canvas)
    _paint(world, row, seen, canvas)
    for i, spot in seen.spots.items():
        shown = seen.who[spot] == i
        if i == target:
            _outline(canvas.pixels[spot], shown)
        _number(canvas, shown, spot, i, INK if world.blocked[row, i] else PAPER)


def type_colour(world: Any, i: int) -> Colour:
    return PALETTE[(i // world.config.num_objects_per_type) % len(PALETTE)]


# -- what is seen from above ------------------------------------------------------------------------------------------


class _Seen:
    """Of each pixel: which object (-1 none), how high, which face, how level that is in steps of SHADES; and the boxes
    of pixels in which each object lies."""

    def __init__(self, height: int, width: int) -> None:
        self.who = np.full((height, width), -1)
        self.z = np.full((height, width), BASE)
        self.face = np.zeros((height, width), np.int64)
        self.level = np.full((height, width), SHADES)
        self.spots: dict[int, tuple[slice, slice]] = {}


def _look_down(world: Any, row: int, objects: list[int], canvas: Canvas) -> _Seen:
    """A ray straight down through each pixel, object by object: what it meets first stays."""
    seen = _Seen(canvas.height, canvas.width)
    (x0, y0), (x1, y1) = canvas.to_px([(0.0, 0.0), (1.0, 1.0)])
    xs, ys = (np.arange(canvas.width) + 0.5 - x0) / (x1 - x0), (np.arange(canvas.height) + 0.5 - y0) / (y1 - y0)
    for i in objects:
        pose, half = world.obj_pose[row, i], world.half[i]
        rotation = _matrix(pose[3:])
        wide, deep, _ = abs(rotation) @ half
        cols, rows = np.flatnonzero(abs(xs - pose[0]) <= wide), np.flatnonzero(abs(ys - pose[1]) <= deep)
        if not len(cols) or not len(rows):
            continue
        spot = seen.spots[i] = slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1)
        meet = _meet_can if world.is_can[i] else _meet_box
        up, face, level = meet(rotation, half, xs[spot[1]][None, :] - pose[0], ys[spot[0]][:, None] - pose[1])
        z = pose[2] + up
        first = z > seen.z[spot]  # nan, where it is missed, is not
        seen.who[spot][first] = i
        for array, value in ((seen.z, z), (seen.face, face), (seen.level, np.rint(level * SHADES))):
            array[spot][first] = value[first]
    return seen


def _meet_box(rotation: Array, half: Array, dx: Array, dy: Array) -> tuple[Array, Array, Array]:
    """How far above its centre rays down meet a box (nan: not at all), on which face, how level that is."""
    enter, leave = [], []
    for k in range(3):
        down = -_no_zero(rotation[2, k])
        at = rotation[0, k] * dx + rotation[1, k] * dy
        ends = (-half[k] - at) / down, (half[k] - at) / down
        enter.append(np.minimum(*ends))
        leave.append(np.maximum(*ends))
    face = np.argmax(enter, axis=0)
    first, last = np.max(enter, axis=0), np.min(leave, axis=0)
    return np.where(first <= last, -first, np.nan), face, abs(rotation[2])[face]


def _meet_can(rotation: Array, half: Array, dx: Array, dy: Array) -> tuple[Array, Array, Array]:
    """The same of a cylinder: face 0 is the cap, 1 the mantle."""
    x, y, z = (rotation[0, k] * dx + rotation[1, k] * dy for k in range(3))
    ax, ay, az = -rotation[2]  # the way down, as the can is turned
    az = _no_zero(az)
    caps = (-half[2] - z) / az, (half[2] - z) / az
    flat = max(ax * ax + ay * ay, 1e-12)
    b, c = (x * ax + y * ay) / flat, (x * x + y * y - half[0] ** 2) / flat
    root = np.sqrt(np.where(b * b >= c, b * b - c, np.nan))
    cap, mantle = np.minimum(*caps), -b - root
    first, last = np.maximum(cap, mantle), np.minimum(np.maximum(*caps), -b + root)
    lean = -(ax * (x + first * ax) + ay * (y + first * ay)) / half[0]
    face = (mantle > cap).astype(np.int64)
    return np.where(first <= last, -first, np.nan), face, np.where(face, np.clip(lean, 0, 1), abs(az))


def _no_zero(x: float) -> float:
    return x if abs(x) > 1e-9 else 1e-9


def _matrix(q: Array) -> Array:
    w, x, y, z = q / np.linalg.norm(q)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


# -- paint ------------------------------------------------------------------------------------------------------------


def _paint(world: Any, row: int, seen: _Seen, canvas: Canvas) -> None:
    """Colours by type, darker on steep faces and in shadows; lines around objects and, fainter, between faces."""
    colours = np.array([type_colour(world, i) for i in range(world.sizes["N"])], np.float64)
    shades = 0.6 + 0.4 * np.arange(SHADES + 1) / SHADES
    table = colours[:, None] * shades[:, None]
    blocked = world.blocked[row]
    table[blocked] = PALE * np.array(PAPER) + (1 - PALE) * table[blocked]
    # plain, in a shadow, between two faces, both
    table = np.stack([table, DARK * table, CREASE * table, DARK * CREASE * table], axis=2) + 0.5
    met, dark = seen.who >= 0, _shaded(seen.z)
    between = _borders(4 * seen.who + seen.face)
    painted = canvas.pixels
    painted[dark] = DARK * painted[dark] + 0.5
    which = dark[met] + 2 * between[met]
    painted[met] = table.astype(np.uint8)[seen.who[met], seen.level[met], which]
    painted[_borders(seen.who)] = INK


def _shaded(z: Array) -> Array:
    """Where something towards the upper left is so much higher that it keeps the light off."""
    dark = np.zeros(z.shape, bool)
    for k in range(1, SHADOW + 1):
        dark[k:, k:] |= z[:-k, :-k] - z[k:, k:] > SLOPE * k
    return dark


def _borders(key: Array) -> Array:
    """Pixels whose right or lower neighbour is another thing."""
    found = np.zeros(key.shape, bool)
    found[:, :-1] |= key[:, :-1] != key[:, 1:]
    found[:-1] |= key[:-1] != key[1:]
    return found


def _outline(pixels: Array, shown: Array) -> None:
    """Red, and white inside of it: on a red or orange object too it is seen."""
    left = shown
    for colour in (LATE, LATE, LATE, PAPER):
        inner = _eroded(left)
        pixels[left & ~inner] = colour
        left = inner


def _eroded(mask: Array) -> Array:
    """Without its outermost pixels."""
    inner = mask.copy()
    inner[1:] &= mask[:-1]
    inner[:-1] &= mask[1:]
    inner[:, 1:] &= mask[:, :-1]
    inner[:, :-1] &= mask[:, 1:]
    return inner


def _number(canvas: Canvas, shown: Array, spot: tuple[slice, slice], i: int, colour: Colour) -> None:
    """The number of an object, where most of it is seen around."""
    left, depth = np.pad(shown, 1), 0
    while (smaller := _eroded(left)).any():
        left, depth = smaller, depth + 1
    if depth >= 2:
        places = np.argwhere(left)[:, ::-1]
        at = places[abs(places - places.mean(0)).sum(1).argmin()] + [spot[1].start - 0.5, spot[0].start - 0.5]
        canvas.text(at, str(i), colour, size=2 if depth >= 9 else 1, px=True)


def _draw_cup(world: Any, row: int, canvas: Canvas, outer: float) -> None:
    """A ring at the tip; on its way to and from the drop it is held at the edge. What it carries hangs below it."""
    if world.env_stage[row] == IDLE and not world.is_suction_active[row]:
        return
    edge = outer - CARRIED * _metres_a_pixel(canvas)  # nearer to it the caption would cut off what is carried
    at = np.clip(world.cup_pos[row, :2], -edge, edge)
    carried = int(world.current_suction_object[row])
    if carried >= 0 and world.grasped[row, carried]:
        _draw_disc(canvas, at, CARRIED, type_colour(world, carried))
        canvas.text(at, str(carried), PAPER, size=2)
        return
    _draw_disc(canvas, at, 8, LATE if world.is_suction_active[row] else INK)
    _draw_disc(canvas, at, 5, PAPER)


def _draw_disc(canvas: Canvas, at: Array, radius: float, colour: Colour) -> None:
    """A disc without blends at its edge: over all that it passes they would make thousands of colours of a film."""
    x, y = canvas.to_px(at).tolist()
    left, top = max(0, int(x - radius)), max(0, int(y - radius))
    spot = canvas.pixels[top : int(y + radius) + 1, left : int(x + radius) + 1]
    rows, cols = np.ogrid[: spot.shape[0], : spot.shape[1]]
    spot[np.hypot(cols + left + 0.5 - x, rows + top + 0.5 - y) <= radius] = colour


def _draw_attempts(world: Any, row: int, canvas: Canvas, outer: float, side: float) -> None:
    """The attempts in their order, then what is lost."""
    count = int(world.records[row])
    first = max(0, count - SHOWN)
    y, step = -outer - 0.07 * side, 2 * outer / SHOWN
    radius = 0.43 * step / _metres_a_pixel(canvas)  # that they do not touch
    for k in range(first, count):
        result = int(world.log_result[row, k])
        at = (-outer + (k - first + 0.5) * step, y)
        _mark(world, canvas, at, radius, int(world.log_target[row, k]), result)
    if not count and world.env_stage[row] == IDLE:
        canvas.text((-outer, y), "no attempt yet", CUSTOMER, anchor="w")
    lost = np.flatnonzero(world.lost[row]).tolist()
    if lost:
        said = f"lost {', '.join(map(str, lost))}"
        canvas.text((-outer, -outer - 0.14 * side), said, LATE, size=2, anchor="w")


def _mark(world: Any, canvas: Canvas, at: Any, radius: float, i: int, result: int) -> None:
    """An attempt: the object's number in its colour; hollow, the number red, where it did not come out."""
    colour = CUSTOMER if i < 0 or result == ILLEGAL else type_colour(world, i)
    if result == SUCCESS:
        canvas.disc(at, radius, colour)
        canvas.text(at, str(i), PAPER)
        return
    canvas.disc(at, radius, PAPER, outline=colour)
    canvas.text(at, "?" if i < 0 else str(i), LATE)


def _metres_a_pixel(canvas: Canvas) -> float:
    (x0, _), (x1, _) = canvas.to_px([(0.0, 0.0), (1.0, 1.0)])
    return 1 / float(x1 - x0)


def draw_types(world: Any, canvas: Canvas, at: Array, size: int = 1) -> int:
    """Which colour is which type, in signs of this size, in lines of which the first begins at these pixels; pale is
    blocked. Returns the number of lines."""
    names = [(name.partition("_")[2] or name).replace("_", " ") for name in world.config.box_objects]
    left, y = (int(place) for place in at)
    x, lines = left, 1
    for k, name in enumerate([*names, "pale: blocked"]):
        square = 12 if k < len(names) else 0
        if x > left and x + size * (square + 6 * len(name)) > canvas.width:
            x, y, lines = left, y + 11 * size, lines + 1
        if square:
            colour = type_colour(world, k * world.config.num_objects_per_type)
            canvas.pixels[max(0, y - 4 * size) : y + 4 * size, x : x + 8 * size] = colour
        canvas.text((x + size * square, y), name, INK, size, "w", px=True)
        x += size * (square + 6 * len(name) + 10)
    return lines
