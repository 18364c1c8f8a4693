"""Vertical rays onto a pile: visible objects, which objects cover which, and possible grip points.

Double arithmetic on boxes and cylinders, one ray at a time; the rays of the physics engine are not used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .clutter_physics import Matrix, Vector, plus, turned, turned_back

START = 1.0  # height from which rays are cast
TIE = 1e-12  # square metres: samples with a smaller difference are equally near; the first one wins


class Solid(NamedTuple):
    """A box with half extents, or a cylinder around its third axis with (radius, radius, half height)."""

    shape: str
    centre: Vector
    turn: Matrix
    half: Vector

    def reach_up(self) -> float:
        """Half the height of the axis-aligned box."""
        up = self.turn[2]
        if self.shape == "box":
            return abs(up[0]) * self.half[0] + abs(up[1]) * self.half[1] + abs(up[2]) * self.half[2]
        return abs(up[2]) * self.half[2] + self.half[0] * math.sqrt(max(0.0, 1 - up[2] * up[2]))

    def top(self) -> float:
        return self.centre[2] + self.reach_up()

    def bottom(self) -> float:
        return self.centre[2] - self.reach_up()


class Sample(NamedTuple):
    """A point of an object's upper surface: in its frame, as offset from its centre in world axes, and its normal's
    z."""

    local: Vector
    offset: Vector
    nz: float

    def aside(self) -> float:
        """Square of the horizontal distance to the centre."""
        return self.offset[0] * self.offset[0] + self.offset[1] * self.offset[1]


class Face(NamedTuple):
    weight: float  # projected area
    nz: float  # z of its normal, of a mantle at its highest line
    samples: list[Sample]


def faces(solid: Solid, g: int) -> list[Face]:
    """The three sampled faces of an object. The third one of a cylinder has weight 0 and no points."""
    u = [(2 * i + 1) / g - 1 for i in range(g)]
    return _box_faces(solid, u) if solid.shape == "box" else _cylinder_faces(solid, u)


def _box_faces(solid: Solid, u: Sequence[float]) -> list[Face]:
    found = []
    for axis in range(3):
        first, second = (k for k in range(3) if k != axis)
        up = solid.turn[2][axis]
        nz, side = abs(up), 1.0 if up >= 0 else -1.0
        samples = []
        for a in u:
            for b in u:
                point = [0.0, 0.0, 0.0]
                point[axis] = side * solid.half[axis]
                point[first] = a * solid.half[first]
                point[second] = b * solid.half[second]
                local = (point[0], point[1], point[2])
                samples.append(Sample(local, turned(solid.turn, local), nz))
        found.append(Face(4 * solid.half[first] * solid.half[second] * nz, nz, samples))
    return found


def _cylinder_faces(solid: Solid, u: Sequence[float]) -> list[Face]:
    g, (r, _, h) = len(u), solid.half
    a = (solid.turn[0][2], solid.turn[1][2], solid.turn[2][2])
    side = 1.0 if a[2] >= 0 else -1.0
    cap = []
    for i in range(g):
        for j in range(g):
            radius, angle = r * math.sqrt((i + 0.5) / g), 2 * math.pi * (j + 0.5) / g
            local = (radius * math.cos(angle), radius * math.sin(angle), side * h)
            cap.append(Sample(local, turned(solid.turn, local), abs(a[2])))
    slope = math.sqrt(max(0.0, 1 - a[2] * a[2]))
    flat = math.sqrt(a[0] * a[0] + a[1] * a[1])
    e = (-a[1] / flat, a[0] / flat, 0.0) if flat > 0 else (1.0, 0.0, 0.0)
    n = (a[1] * e[2] - a[2] * e[1], a[2] * e[0] - a[0] * e[2], a[0] * e[1] - a[1] * e[0])  # a x e, so n_z >= 0
    mantle = []
    for across in u:
        rise = math.sqrt(1 - across * across)
        for along in u:
            x, y, z = (along * h * a[k] + r * (across * e[k] + rise * n[k]) for k in range(3))
            mantle.append(Sample(turned_back(solid.turn, (x, y, z)), (x, y, z), rise * n[2]))
    return [
        Face(math.pi * r * r * abs(a[2]), abs(a[2]), cap),
        Face(2 * r * (2 * h) * slope, n[2], mantle),
        Face(0.0, 0.0, []),
    ]


def depth(solid: Solid, x: float, y: float) -> float | None:
    """Length of a ray down from (x, y, START) to the solid; None if it misses."""
    c = solid.centre
    o = turned_back(solid.turn, (x - c[0], y - c[1], START - c[2]))
    up = solid.turn[2]
    d = (-up[0], -up[1], -up[2])
    near, far = -math.inf, math.inf
    for k in range(3) if solid.shape == "box" else (2,):
        if d[k] == 0.0:
            if abs(o[k]) > solid.half[k]:
                return None
            continue
        enter, leave = sorted(((-solid.half[k] - o[k]) / d[k], (solid.half[k] - o[k]) / d[k]))
        near, far = max(near, enter), min(far, leave)
    if solid.shape == "cylinder":
        a, b = d[0] * d[0] + d[1] * d[1], o[0] * d[0] + o[1] * d[1]
        c2 = o[0] * o[0] + o[1] * o[1] - solid.half[0] * solid.half[0]
        if a == 0.0:
            if c2 > 0:
                return None
        else:
            under = b * b - a * c2
            if under < 0:
                return None
            root = math.sqrt(under)
            near, far = max(near, (-b - root) / a), min(far, (-b + root) / a)
    if near > far or far < 0:
        return None
    return near if near >= 0 else far


def first_hit(x: float, y: float, solids: Sequence[Solid | None], fixed: Sequence[Solid]) -> tuple[int, float]:
    """The first hit under (x, y): object (-1: tray, wall or floor) and height."""
    best, hit_object = START, -1  # every ray hits the floor, z = 0
    for j, solid in enumerate([*solids, *fixed]):
        if solid is None or _far(solid, x, y):
            continue
        t = depth(solid, x, y)
        if t is not None and t < best:
            best, hit_object = t, j if j < len(solids) else -1
    return hit_object, START - best


def _far(solid: Solid, x: float, y: float) -> bool:
    """The ray misses a sphere around the solid."""
    h, dx, dy = solid.half, x - solid.centre[0], y - solid.centre[1]
    return dx * dx + dy * dy > 1.0001 * (h[0] * h[0] + h[1] * h[1] + h[2] * h[2])


class Sight(NamedTuple):
    """Visibility of one object; `grip` is None if no visible point is level enough."""

    hit: list[int]
    cover: list[float]
    area: float
    grip: Sample | None
    top: float


def exposure_of(i: int, solids: Sequence[Solid | None], fixed: Sequence[Solid], g: int, max_tilt_cos: float) -> Sight:
    """The exposure of object i; an object out of play has no solid and is not visible."""
    solid, n = solids[i], len(solids)
    if solid is None:
        return Sight([-1] * (3 * g * g), [0.0] * n, 0.0, None, 0.0)
    hit: list[int] = []
    shares, total, grip = [0.0] * n, 0.0, None
    for face in faces(solid, g):
        total += face.weight
        for sample in face.samples:
            x, y, _ = plus(solid.centre, sample.offset)
            hit_object, _ = first_hit(x, y, solids, fixed)
            hit.append(hit_object)
            if hit_object >= 0:
                shares[hit_object] += face.weight / (g * g)
            if hit_object == i and sample.nz >= max_tilt_cos and (grip is None or sample.aside() < grip.aside() - TIE):
                grip = sample
    hit += [-1] * (3 * g * g - len(hit))
    cover = [share / total for share in shares]
    return Sight(hit, cover, cover[i] * total, grip, solid.top())


def top_sample(solid: Solid, g: int) -> Sample:
    """The sample nearest the centre on the most upward face, visible or not."""
    best = max(faces(solid, g), key=lambda face: face.nz)
    nearest = best.samples[0]
    for sample in best.samples:
        if sample.aside() < nearest.aside() - TIE:
            nearest = sample
    return nearest
