"""The camera of the tracking world, ray by ray: object, depth and colour of each pixel.

Double arithmetic and slab tests of whole boxes. It clips and projects no polygon and shares no code with the renderer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from milkrun.core import rng

SKY, GROUND = -1, -2
NIGHT, SNOW = 1, 3  # weather_id: 0 day, 1 night, 2 foggy, 3 snow
BUILDING = 1  # box_kind of walls with windows
ASPHALT, MARKING, DIRT = 1, 2, 7
SHADES = np.array([0.94, 0.98, 1.02, 1.06])
LAMP_GAIN = 0.55
FRONT_LIGHT, REAR_LIGHT, LIT_WINDOW = (255.0, 250.0, 220.0), (190.0, 20.0, 20.0), (255.0, 214.0, 140.0)
GLASS = (45.0, 55.0, 65.0)
WHITE = 255.0
NORMALS = np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)], dtype=float)

CHASSIS = 0.25  # bottom of a vehicle's body
# length, width, body height, cabin height, cabin share of the length
KINDS = (
    (4.6, 1.8, 0.65, 0.55, 0.5),  # sedan
    (3.4, 1.5, 0.75, 0.5, 0.5),  # compact
    (4.6, 1.9, 0.85, 0.65, 0.55),  # suv
    (5.9, 2.0, 1.0, 1.35, 0.75),  # van
    (12.0, 2.5, 1.5, 1.4, 0.95),  # bus
    (8.0, 2.5, 1.1, 2.1, 0.7),  # truck
    (2.1, 0.7, 0.6, 0.6, 0.3),  # motorcycle
    (0.5, 0.5, 0.75, 0.8, 0.9),  # pedestrian
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Camera:
    """Position and orientation of the camera, and the numbers of the config that a picture depends on."""

    pos: tuple[float, float, float]
    yaw: float
    pitch: float  # downwards
    roll: float = 0.0  # about the optical axis; positive raises the left side
    size: int = 84
    hfov: float = 0.785398
    camera_px: tuple[int, int] = (320, 240)
    near: float = 0.01
    half_extent: float = 120.0
    ground_cell: float = 0.5
    details: bool = True
    palette_blended: bool = False  # whether `palette` already includes snow
    lamp_dimmed: bool = True  # whether a lamp's light is its gain times the ambient share, or the gain alone

    def axes(self) -> np.ndarray:
        """Forward, right and up of the picture as rows: Rz(yaw) Ry(pitch) Rx(roll) of forward, left, up."""
        cy, sy, cp, sp = math.cos(self.yaw), math.sin(self.yaw), math.cos(self.pitch), math.sin(self.pitch)
        cr, sr = math.cos(self.roll), math.sin(self.roll)
        forward = np.array([cy * cp, sy * cp, -sp])
        left = np.array([-sy, cy, 0.0])
        up = np.array([cy * sp, sy * sp, cp])
        return np.array([forward, -(cr * left + sr * up), cr * up - sr * left])

    def tangents(self) -> tuple[float, float]:
        """Tangents of half the angle of view, across and upwards."""
        across = math.tan(self.hfov / 2)
        return across, across * self.camera_px[1] / self.camera_px[0]


class Frame(NamedTuple):
    """A picture: rows first, row 0 far, column 0 left."""

    ids: np.ndarray  # -1 sky, -2 ground, else 8 * box + face
    depth: np.ndarray  # along the optical axis; inf for the sky
    colour: np.ndarray  # (S, S, 3) float, with fog, before noise and rounding
    image: np.ndarray  # (3, S, S) uint8 of it
    edge: np.ndarray  # a neighbour pixel (of eight) has another face, ground cell, window or set of car polygons
    cell: np.ndarray  # number of the ground cell, row * G + column; -1 outside of the map and off the ground
    window: np.ndarray  # 0 none, 1 dark, 2 lit
    cars: np.ndarray  # bit v: the ground point lies in the polygon of vehicle v


class Boxes(NamedTuple):
    """Static and vehicle boxes in one list."""

    number: np.ndarray
    centre: np.ndarray
    half: np.ndarray
    yaw: np.ndarray
    rgb: np.ndarray  # (n, 6, 3), a colour a face
    kind: np.ndarray  # box_kind, 0 for vehicles
    vehicle: np.ndarray  # -1 for static boxes
    cabin: np.ndarray


def camera_of(state: Row, **numbers: Any) -> Camera:
    """The camera of a row's drone."""
    return Camera(tuple(float(x) for x in state["pos"]), float(state["yaw"]), float(state["pitch"]), **numbers)


def project(camera: Camera, point: Any) -> tuple[float, float, float]:
    """Column, row and view depth of a point; pixel j covers columns j to j + 1."""
    z, x, y = camera.axes() @ (np.asarray(point, dtype=float) - np.asarray(camera.pos, dtype=float))
    across, upwards = camera.tangents()
    return (x / (z * across) + 1) / 2 * camera.size, (1 - y / (z * upwards)) / 2 * camera.size, float(z)


def rays(camera: Camera, margin: int = 0) -> np.ndarray:
    """A direction for every pixel, of length 1 along the optical axis; `margin` pixels more on every side."""
    index = np.arange(-margin, camera.size + margin)
    across, upwards = camera.tangents()
    x = ((2 * index + 1) / camera.size - 1) * across
    y = (1 - (2 * index + 1) / camera.size) * upwards
    forward, right, up = camera.axes()
    return forward + x[None, :, None] * right + y[:, None, None] * up


def all_boxes(town: Row, state: Row) -> Boxes:
    """Every box of a row: static ones, then body and cabin of every active vehicle."""
    n, slots = int(town["n_box"]), len(town["box_pos"])
    found = []
    for k in range(n):
        walls, top = np.asarray(town["box_rgb"][k], dtype=float)
        rgb = [walls] * 4 + [top, walls]
        found.append((k, town["box_pos"][k], town["box_half"][k], town["box_yaw"][k], rgb, town["box_kind"][k], -1, 0))
    for v in range(int(state["n_veh"])):
        if not state["veh_on"][v]:
            continue
        length, width, body, cabin, share = KINDS[int(state["veh_kind"][v])]
        x, y, heading = (float(a) for a in state["veh_pose"][v])
        paint = np.asarray(state["veh_rgb"][v], dtype=float)
        glass = np.array(GLASS)
        centre, half = (x, y, CHASSIS + body / 2), (length / 2, width / 2, body / 2)
        found.append((slots + 2 * v, centre, half, heading, [paint] * 6, 0, v, 0))
        centre = (x, y, CHASSIS + body + cabin / 2)
        half = (share * length / 2, 0.9 * width / 2, cabin / 2)
        found.append((slots + 2 * v + 1, centre, half, heading, [glass] * 4 + [paint, glass], 0, v, 1))
    columns = list(zip(*found)) if found else [[]] * 8
    number, centre, half, yaw, rgb, kind, vehicle, in_cabin = (np.array(column) for column in columns)
    return Boxes(
        number.astype(int),
        centre.astype(float).reshape(-1, 3),
        half.astype(float).reshape(-1, 3),
        yaw.astype(float),
        rgb.astype(float).reshape(-1, 6, 3),
        kind.astype(int),
        vehicle.astype(int),
        in_cabin.astype(bool),
    )


def turned_back(yaw: Any, vector: np.ndarray) -> np.ndarray:
    """World coordinates of vectors in axes turned by yaw."""
    c, s = np.cos(yaw), np.sin(yaw)
    x, y = vector[..., 0], vector[..., 1]
    return np.stack([c * x + s * y, c * y - s * x, vector[..., 2]], axis=-1)


def out_of_view(camera: Camera, boxes: Boxes, margin: float) -> np.ndarray:
    """Boxes that no ray can hit: all eight corners lie beyond one side of the view or in front of the near plane."""
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)
    corners = boxes.centre[:, None] + turned_back(-boxes.yaw[:, None], signs * boxes.half[:, None])
    z, x, y = np.moveaxis((corners - np.array(camera.pos)) @ camera.axes().T, -1, 0)
    across, upwards = (margin * tangent for tangent in camera.tangents())
    beyond = [x > across * z, x < -across * z, y > upwards * z, y < -upwards * z, z < camera.near]
    return np.any([side.all(axis=1) for side in beyond], axis=0)


def first_hits(camera: Camera, boxes: Boxes, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth, box (position in the list, or SKY or GROUND) and face of the nearest hit of every ray."""
    origin = np.array(camera.pos, dtype=float)
    down = direction[..., 2]
    with np.errstate(divide="ignore"):
        depth = np.where((down < 0) & (origin[2] > 0), -origin[2] / down, np.inf)
    which = np.where(depth < np.inf, GROUND, SKY)
    face = np.zeros(depth.shape, dtype=int)
    margin = 1 + 4 / camera.size  # the culling view is slightly wider than the rays, which have a margin of one pixel
    for k in np.flatnonzero(~out_of_view(camera, boxes, margin)):
        start = turned_back(boxes.yaw[k], origin - boxes.centre[k])
        way = turned_back(boxes.yaw[k], direction)
        way = np.where(way == 0.0, 1e-300, way)  # a ray parallel to a slab is always inside or always outside
        with np.errstate(over="ignore"):
            middle, width = -start / way, boxes.half[k] / np.abs(way)
        entries = middle - width
        enter, leave = entries.max(axis=-1), (middle + width).min(axis=-1)
        # The slab entered last is the front face. A ray enters a box once, so a box with its front face before the near
        # plane, or behind the camera, is not visible.
        hit = (enter <= leave) & (enter >= camera.near) & (enter < depth)
        axis = entries.argmax(axis=-1)
        outward = np.take_along_axis(way, axis[..., None], axis=-1)[..., 0] > 0
        depth = np.where(hit, enter, depth)
        which = np.where(hit, k, which)
        face = np.where(hit, 2 * axis + outward, face)
    return depth, which, face


def in_car_shadow(kind: int, pose: Any, sun: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether ground points lie in a vehicle's rectangle swept along its shadow: a slab test in the plane."""
    length, width, body, cabin, _ = KINDS[kind]
    height = CHASSIS + body + cabin
    c, s = math.cos(pose[2]), math.sin(pose[2])
    px, py = c * (x - pose[0]) + s * (y - pose[1]), c * (y - pose[1]) - s * (x - pose[0])
    gx, gy = height * sun[0] / sun[2], height * sun[1] / sun[2]
    first, last = np.zeros(x.shape), np.ones(x.shape)
    for p, g, half in ((px, c * gx + s * gy, length / 2), (py, c * gy - s * gx, width / 2)):
        g = g if g != 0.0 else 1e-300
        middle, wide = -p / g, half / abs(g)
        first, last = np.maximum(first, middle - wide), np.minimum(last, middle + wide)
    return first <= last


def in_headlights(kind: int, pose: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether ground points lie 0.3 to 9 m before a vehicle, in a strip that widens by 1.6 m on either side."""
    length, width = KINDS[kind][:2]
    c, s = math.cos(pose[2]), math.sin(pose[2])
    ahead = c * (x - pose[0]) + s * (y - pose[1]) - length / 2
    aside = np.abs(c * (y - pose[1]) - s * (x - pose[0]))
    return (ahead >= 0.3) & (ahead <= 9.0) & (aside <= width / 2 + 1.6 * (ahead - 0.3) / 8.7)


def window_grid(a: np.ndarray, h: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether there is a window at position a along the wall and height h, and its column and storey."""
    across, storeys = a / 2.6 + 64, h / 3
    column, storey = np.floor(across), np.floor(storeys)
    u, v = across - column, storeys - storey
    there = (0.25 < u) & (u < 0.75) & (0.30 < v) & (v < 0.78) & (3 * storey + 2.4 < top)
    return there, column.astype(np.int64), storey.astype(np.int64)


def window_lit(column: np.ndarray, storey: np.ndarray, box: np.ndarray, face: np.ndarray) -> np.ndarray:
    """Whether the window is lit."""
    mixed = column * 73856093 ^ storey * 19349663 ^ (box * 83492791 + face * 2654435)
    return (mixed >> 7) & 7 < 2


def snowed(albedo: np.ndarray, share: Any) -> np.ndarray:
    """Albedo blended to white."""
    return albedo + (WHITE - albedo) * share


class _Light(NamedTuple):
    gain: float
    ambient: float
    sun: np.ndarray
    beta: float
    sky: np.ndarray
    night: bool
    snow: bool

    def level(self, cosine: np.ndarray) -> np.ndarray:
        return self.gain * (self.ambient + (1 - self.ambient) * np.maximum(0.0, cosine))

    def lamp(self, camera: Camera) -> float:
        """Light under a lamp: another gain, and no sun term."""
        return LAMP_GAIN * (self.ambient if camera.lamp_dimmed else 1.0)


def _light(state: Row) -> _Light:
    light, weather = np.asarray(state["light"], dtype=float), int(state["weather_id"])
    sky = np.asarray(state["sky"], dtype=float)
    return _Light(light[0], light[1], light[2:5], light[5], sky, weather == NIGHT, weather == SNOW)


def _cells(town: Row, camera: Camera, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number (-1 outside) and code (0 outside) of the ground cells under points."""
    ground = np.asarray(town["ground"])
    side = len(ground)
    i = np.floor((y + camera.half_extent) / camera.ground_cell).astype(int)
    j = np.floor((x + camera.half_extent) / camera.ground_cell).astype(int)
    inside = (0 <= i) & (i < side) & (0 <= j) & (j < side)
    number = np.where(inside, i * side + j, -1)
    return number, np.where(inside, ground.ravel()[number], 0).astype(int)


def _ground_colour(
    town: Row, state: Row, camera: Camera, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Colour before fog, cell and car polygons of ground points."""
    light = _light(state)
    number, code = _cells(town, camera, x, y)
    material, shadow, lamp = code & 15, (code & 64) > 0, (code & 128) > 0
    cars = np.zeros(x.shape, dtype=np.uint64)
    for v in range(int(state["n_veh"])) if camera.details else ():
        if state["veh_on"][v]:
            kind, pose = int(state["veh_kind"][v]), [float(a) for a in state["veh_pose"][v]]
            inside = in_headlights(kind, pose, x, y) if light.night else in_car_shadow(kind, pose, light.sun, x, y)
            cars |= np.where(inside, np.uint64(1 << v), np.uint64(0))
    if light.night:
        lamp = lamp | (cars > 0)
    else:
        shadow = shadow | (cars > 0)
    albedo = np.asarray(state["palette"], dtype=float)[material]
    if light.snow and not camera.palette_blended:
        thin = (material == ASPHALT) | (material == MARKING) | (material == DIRT)
        albedo = snowed(albedo, np.where(thin, 0.35, 0.7)[:, None])
    level = light.level(np.where(shadow, 0.0, light.sun[2]))
    if light.night:
        level = np.where(lamp, light.lamp(camera), level)
    return albedo * (level * SHADES[(code >> 4) & 3])[:, None], number, cars


def _box_colour(
    town: Row, state: Row, camera: Camera, boxes: Boxes, which: np.ndarray, face: np.ndarray, point: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Colour before fog of points of faces, their windows (0 none, 1 dark, 2 lit) and a number a window pane."""
    light = _light(state)
    albedo = boxes.rgb[which, face]
    vehicle = boxes.vehicle[which]
    if light.snow:  # it lies on static boxes only
        albedo = snowed(albedo, np.where((face == 4) & (vehicle < 0), 0.6, 0.0)[:, None])
    level = light.level(turned_back(-boxes.yaw[which], NORMALS[face]) @ light.sun)
    if light.night:
        lit_car = np.zeros(len(state["veh_pose"]) + 1, dtype=bool)  # the last entry is read for static boxes
        for v in range(int(state["n_veh"])):
            x, y = np.array(state["veh_pose"][v][:2], dtype=float)[:, None]
            lit_car[v] = _cells(town, camera, x, y)[1][0] & 128
        level = np.where(lit_car[vehicle], light.lamp(camera), level)
    colour = albedo * level[:, None]
    window, pane = np.zeros(face.shape, dtype=int), np.zeros(face.shape, dtype=np.int64)
    if camera.details:
        h = point[:, 2]
        wall = (vehicle < 0) & (face < 4)
        colour = colour * np.where(wall, 0.72 + 0.28 * np.minimum(1.0, h / 1.5), 1.0)[:, None]
        local = turned_back(boxes.yaw[which], point - boxes.centre[which])
        a = np.where(face < 2, local[:, 1], local[:, 0])
        there, column, storey = window_grid(a, h, boxes.centre[which, 2] + boxes.half[which, 2])
        house = wall & (boxes.kind[which] == BUILDING)
        there &= house
        lit = there & window_lit(column, storey, boxes.number[which], face) & light.night
        window, pane = there.astype(int) + lit, np.where(house, column * 4096 + storey, 0)
        colour = np.where(there[:, None], colour * (0.45, 0.45, 0.50), colour)
        colour = np.where(lit[:, None], LIT_WINDOW, colour)
    if light.night:
        body = (vehicle >= 0) & ~boxes.cabin[which]
        colour = np.where((body & (face == 0))[:, None], FRONT_LIGHT, colour)
        colour = np.where((body & (face == 1))[:, None], REAR_LIGHT, colour)
    return colour, window, pane


def edges(*keys: np.ndarray) -> np.ndarray:
    """Pixels that differ from one of their eight neighbours in any key; keys have a margin of one pixel."""
    n = len(keys[0]) - 2
    found = np.zeros((n, n), dtype=bool)
    for key in keys:
        for i in range(3):
            for j in range(3):
                found |= key[i : i + n, j : j + n] != key[1:-1, 1:-1]
    return found


def cast(town: Row, state: Row, camera: Camera) -> Frame:
    """The picture of a row, without flakes and noise. `town` and `state` are its fields by name."""
    direction = rays(camera, margin=1)
    boxes = all_boxes(town, state)
    depth, which, face = first_hits(camera, boxes, direction)
    n = len(depth)
    colour = np.tile(np.asarray(state["sky"], dtype=float), (n, n, 1))
    cell, window, pane = np.full((n, n), -1), np.zeros((n, n), dtype=int), np.zeros((n, n), dtype=np.int64)
    cars = np.zeros((n, n), dtype=np.uint64)
    ids = which.copy()
    light = _light(state)

    def fogged(clear: np.ndarray, z: np.ndarray) -> np.ndarray:
        f = np.exp(-light.beta * z)[:, None]
        return clear * f + light.sky * (1 - f)

    on = which == GROUND
    x, y = (camera.pos[k] + depth[on] * direction[on][:, k] for k in (0, 1))
    clear, cell[on], cars[on] = _ground_colour(town, state, camera, x, y)
    colour[on] = fogged(clear, depth[on])
    on = which >= 0
    if on.any():
        ids[on] = 8 * boxes.number[which[on]] + face[on]
        point = np.array(camera.pos) + depth[on][:, None] * direction[on]
        clear, window[on], pane[on] = _box_colour(town, state, camera, boxes, which[on], face[on], point)
        colour[on] = fogged(clear, depth[on])

    edge = edges(ids, cell, window, pane, cars)
    ids, depth, colour, cell, window, cars = (x[1:-1, 1:-1] for x in (ids, depth, colour, cell, window, cars))
    return Frame(ids, depth, colour, finished(colour), edge, cell, window, cars)


def supersampled(town: Row, state: Row, camera: Camera, times: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Colour and edges of a picture whose pixels are means of times x times samples."""
    n = camera.size
    fine = cast(town, state, replace(camera, size=times * n))
    blocks = fine.colour.reshape(n, times, n, times, 3)
    return blocks.mean(axis=(1, 3)), fine.edge.reshape(n, times, n, times).any(axis=(1, 3))


def grey(colour: np.ndarray) -> np.ndarray:
    """(S, S, 3) to (S, S, 1)."""
    return (colour @ np.array([0.299, 0.587, 0.114]))[..., None]


def flakes(size: int, density: float, agent_step: int, key: tuple[int, int, int], purpose: int) -> np.ndarray:
    """Pixels that are a snow flake in this frame; key is (seed, row, episode), purpose the number of `flakes`."""
    n, stream = math.floor(density * size * size + 0.5), rng.stream(*key, purpose)
    mask = np.zeros(size * size, dtype=bool)
    for k in range(n):
        mask[rng.integers(stream, agent_step * n + k, 0, size * size)] = True
    return mask.reshape(size, size)


def noise(size: int, sigma: float, agent_step: int, key: tuple[int, int, int], purpose: int) -> np.ndarray:
    """The noise added to all channels of a pixel; purpose is the number of `frame`."""
    stream, blocks = rng.stream(*key, purpose), -(-size // 16)
    quantiles = np.array([rng.normal_quantile((k + 0.5) / 256) for k in range(256)])
    found = np.zeros((size, 16 * blocks))
    for i in range(size):
        for part in range(blocks):
            words = rng.block(stream, (agent_step * size + i) * blocks + part, 0)
            word_bytes = b"".join(int(word).to_bytes(4, "little") for word in words)
            found[i, 16 * part : 16 * part + 16] = quantiles[list(word_bytes)]
    return sigma * found[:, :size]


def finished(colour: np.ndarray, flake: np.ndarray | None = None, added: np.ndarray | None = None) -> np.ndarray:
    """(S, S, C) floats to (C, S, S) bytes: flakes, then noise, then rounding half up."""
    if flake is not None:
        colour = np.where(flake[..., None], WHITE, colour)
    if added is not None:
        colour = colour + added[..., None]
    return np.clip(np.floor(colour + 0.5), 0, 255).astype(np.uint8).transpose(2, 0, 1)
