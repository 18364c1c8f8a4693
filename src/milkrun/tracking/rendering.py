"""Pictures outside of play: of any boxes from any pose (`render`), and of a row at any size (`shot`).

Both fill a world of one row and observe it, so they run the same code as observations. With the image they return the
number of the face and the depth of each pixel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milkrun.core.errors import BadInstance, shown
from milkrun.core.fields import Role
from milkrun.tracking import tables
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.world import REACH, TOWN_REACH, Tracking

Array = NDArray[Any]
Shot = tuple[Array, Array, Array]
"""Image uint8 (channels, size, size); of each sample (size * supersample a side) the face, int16, 8 * box + face, faces
+x -x +y -y +z -z, -1 sky, -2 ground; and the depth along the camera's axis, float32, inf for sky."""

SKY, GROUND = -1, -2
SIZES = 16, 512
EXTENT = 120.0
"""Half the side of the ground of `render`, m."""
CELLS = 24, 960
GREY = 160
LIGHTS = np.array([(0, 1e6), (0, 1), (-1, 1), (-1, 1), (-1, 1), (0, 1e6), (0, 1e6), (0, 1)])
"""Bounds of `light`: gain, ambient, sun xyz, fog beta, noise sigma, share of flakes."""


def render(
    pos: ArrayLike,
    yaw: float,
    pitch: float,
    roll: float,
    boxes: Mapping[str, ArrayLike] | None,
    ground: ArrayLike | None,
    light: str | Mapping[str, ArrayLike] = "day",
    size: int = 84,
    noise: bool = False,
) -> Shot:
    """The picture of a camera at `pos`, turned left by `yaw`, down by `pitch`, and about its axis by `roll`.

    `boxes`: arrays by name: `pos` and `half` (n, 3); if wanted `yaw` (n,), `rgb` uint8 (n, 3), or (n, 2, 3) for walls
    and top, `kind` (n,): 1 has windows, see `box_kind`. `ground`: uint8 (G, G) as the field of the same name, y first,
    24..960 cells a side, which cover 240 m; None: material 0 everywhere. `light`: a weather, or a mapping with
    `weather` (its number) and optional overrides of the fields `light` (8,), `sky` (3,), `palette` (16, 3).
    """
    size = _whole("size", size, *SIZES)
    cells = np.zeros((480, 480), np.uint8) if ground is None else _ground(ground)
    given = _boxes({} if boxes is None else boxes)
    lit = _light(light)
    n = len(given["box_pos"])
    config = TrackingConfig(
        size=size,
        noise=bool(noise),
        max_boxes=max(n, 1),
        max_vehicles=1,
        half_extent=EXTENT,
        ground_cell=2 * EXTENT / len(cells),
    )
    world = Tracking(1, config, seed=0, threads=1)
    for name, array in given.items():
        getattr(world, name)[0, :n] = array
    for name, array in lit.items():
        getattr(world, name)[0] = array
    world.n_box[0], world.ground[0] = n, cells
    world.pos[0] = _numbers("pos", pos, (3,), REACH)
    for name, angle in (("yaw", yaw), ("pitch", pitch), ("roll", roll)):
        getattr(world, name)[0] = _numbers(name, angle, ())
    return take_picture(world)


def shot(world: Tracking, row: int = 0, size: int | None = None, supersample: int = 1) -> Shot:
    """The picture of a row at another size; 2 for `supersample` takes the mean of 2 x 2 samples a pixel."""
    return take_picture(
        single_row(world, row, size=world.config.size if size is None else size, supersample=supersample)
    )


def weather(name: str, scene: str = "citystreet") -> dict[str, Array]:
    """The fields of a weather at the middle of its law, not random: light, sky, palette, weather_id."""
    if name not in tables.WEATHERS:
        raise BadInstance(f"light: {shown(name)}: must be of {', '.join(tables.WEATHERS)}, or a mapping")
    law = tables.WEATHER_LAWS[tables.WEATHERS.index(name)]
    sight = (law[tables.SIGHT_LOW] + law[tables.SIGHT_HIGH]) / 2
    light = [
        law[tables.GAIN],
        law[tables.AMBIENT],
        *tables.SUN,
        3.912 / sight if sight else 0.0,
        law[tables.NOISE],
        law[tables.FLAKE_LAW],
    ]
    albedo = tables.MATERIALS.copy()
    albedo[tables.BASE] = tables.BASES[tables.SCENES.index(scene)]
    snow = np.full((16, 1), law[tables.SNOW_GROUND])
    snow[[tables.ASPHALT, tables.DIRT, tables.MARKING]] = law[tables.SNOW_ROAD]
    palette = np.floor(albedo + snow * (255 - albedo) + 0.5).astype(np.uint8)
    return {
        "light": np.array(light),
        "sky": law[tables.SKY : tables.SKY + 3].astype(np.uint8),
        "palette": palette,
        "weather_id": np.int8(tables.WEATHERS.index(name)),
    }


# -- the world of one row -------------------------------------------------------------------------------------------


_alone: WeakKeyDictionary[Tracking, dict[str, Tracking]] = WeakKeyDictionary()
"""Cache of worlds of one row by world and options, since making one takes longer than a picture."""


def single_row(world: Tracking, row: int, **options: Any) -> Any:
    """A world of one row with a copy of `row` and other picture options; the next call with these options reuses it."""
    (row,) = world._rows([row])
    _whole("size", options.get("size", world.config.size), *SIZES)
    made = _alone.setdefault(world, {})
    if (how := repr(sorted(options.items()))) not in made:
        config = world.config.replace(frame_stack=0, other_state=False, cloud=False, **options)
        made[how] = type(world)(1, config, seed=0, threads=1, debug=world.debug)
    one: Any = made[how]
    one._all_stale = True  # its fields are written from here
    for f in world.fields.values():
        if f.role in (Role.INSTANCE, Role.STATE) or f.name == "stream":
            mine, theirs = getattr(one, f.name), getattr(world, f.name)
            # `past` is empty here, since frame_stack is 0.
            if mine.shape[1:] == theirs.shape[1:]:
                mine[0] = theirs[world.instance_row[row] if f.role is Role.INSTANCE else row]
    return one


def take_picture(one: Any) -> Shot:
    """The picture of a world of one row."""
    one.observe()
    ids, near = one.ids[0].copy(), one.depth_inv[0]
    ids[ids < GROUND] = GROUND  # shaded or lit by a car
    with np.errstate(divide="ignore"):
        return one.image[0].copy(), ids, np.float32(1) / near


# -- validation -----------------------------------------------------------------------------------------------------


def _refuse(field: str, value: Any, rule: str, row: int | None = None) -> None:
    raise BadInstance(f"{'' if row is None else f'row {row}: '}{field} = {shown(value)}: {rule}")


def _whole(field: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        _refuse(field, value, f"must be a whole number, {low}..{high}")
    return int(value)


def _numbers(field: str, value: ArrayLike, shape: tuple[int, ...], most: float = sys.float_info.max) -> Array:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        array = np.full((0,), math.nan)
    if array.shape != shape:
        _refuse(field, value, f"must be numbers of shape {shape}")
    bad = np.argwhere(~(abs(array) <= most))
    if len(bad):
        row = int(bad[0][0]) if field.startswith("boxes") else None
        wrong = float(array[tuple(bad[0])])
        _refuse(field, wrong, f"must be within +-{most:g}" if math.isfinite(wrong) else "must be finite", row)
    return array


def _ground(ground: ArrayLike) -> Array:
    cells = np.asarray(ground)
    if cells.dtype != np.uint8:
        raise BadInstance(f"ground: dtype {cells.dtype}: must be uint8")
    if cells.ndim != 2 or len(set(cells.shape)) != 1 or not CELLS[0] <= len(cells) <= CELLS[1]:
        raise BadInstance(f"ground: shape {cells.shape}: must be square, {CELLS[0]}..{CELLS[1]} cells a side")
    return cells


def _boxes(boxes: Mapping[str, ArrayLike]) -> dict[str, Array]:
    unknown = sorted(set(boxes) - {"pos", "half", "yaw", "rgb", "kind"})
    if unknown or ("pos" in boxes) != ("half" in boxes) or (boxes and "pos" not in boxes):
        _refuse("boxes", list(boxes), "must have pos and half; yaw, rgb and kind may be left out")
    n = len(np.atleast_1d(np.asarray(boxes["pos"], object))) if boxes else 0
    if n > 2000:
        _refuse("boxes", n, "there may be 2000 of them")
    pos, half = (_numbers(f"boxes[{k!r}]", boxes.get(k, np.zeros((0, 3))), (n, 3), TOWN_REACH) for k in ("pos", "half"))
    bad = np.argwhere(half <= 0)
    if len(bad):
        _refuse("boxes['half']", float(half[tuple(bad[0])]), "must be above 0", int(bad[0][0]))
    yaw = _numbers("boxes['yaw']", boxes.get("yaw", np.zeros(n)), (n,), TOWN_REACH)
    kind = np.asarray(boxes.get("kind", np.full(n, tables.OTHER)))
    if kind.shape != (n,) or kind.dtype.kind not in "iu" or not ((kind >= 0) & (kind <= tables.OTHER)).all():
        _refuse("boxes['kind']", boxes["kind"], f"must be {n} whole numbers, 0..{tables.OTHER}")
    rgb = np.asarray(boxes.get("rgb", np.full((n, 3), GREY, np.uint8)))
    if rgb.dtype != np.uint8 or rgb.shape not in ((n, 3), (n, 2, 3)):
        _refuse("boxes['rgb']", f"{rgb.dtype} {rgb.shape}", f"must be uint8 of shape {(n, 3)} or {(n, 2, 3)}")
    return {
        "box_pos": pos,
        "box_half": half,
        "box_yaw": yaw,
        "box_cs": np.stack([np.cos(yaw), np.sin(yaw)], 1),
        "box_rgb": rgb if rgb.ndim == 3 else np.repeat(rgb[:, None], 2, axis=1),
        "box_kind": kind,
    }


def _light(light: str | Mapping[str, ArrayLike]) -> dict[str, Array]:
    if isinstance(light, str):
        return weather(light)
    unknown = sorted(set(light) - {"weather", "light", "sky", "palette"})
    if unknown:
        _refuse("light", unknown, "known are weather, light, sky, palette")
    number = light.get("weather", 0)
    name = number if isinstance(number, str) else tables.WEATHERS[_whole("light['weather']", number, 0, 3)]
    fields = weather(name)
    if "light" in light:
        fields["light"] = given = _numbers("light['light']", light["light"], (8,))
        for k in np.flatnonzero((given < LIGHTS[:, 0]) | (given > LIGHTS[:, 1])):
            _refuse(f"light['light'][{k}]", float(given[k]), f"must be in {LIGHTS[k, 0]:g}..{LIGHTS[k, 1]:g}")
    for field, shape in (("sky", (3,)), ("palette", (16, 3))):
        if field in light:
            colour = np.asarray(light[field])
            if colour.dtype != np.uint8 or colour.shape != shape:
                _refuse(f"light[{field!r}]", f"{colour.dtype} {colour.shape}", f"must be uint8 of shape {shape}")
            fields[field] = colour
    return fields
