"""Where names stand on a map so that they hide little: not each other, no marker, and lines only if they must."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MARKER = 4.0  # points from the centre of a marker to its side
WIDTH, HEIGHT = 0.34, 0.5  # half sides of a sign, in its size
TURNS = np.arange(12) * (math.pi / 6)
AWAY = (1.0, 1.6, 2.3)


def label_places(nodes: Floats, names: Sequence[str], size: float, unit: float, legs: Sequence[Floats] = ()) -> Floats:
    """The centres of the names of all nodes but the first, each beside its node where least is in the way.

    `size` of the signs in points, `unit` of the plane to a point, `legs` as pairs of ends (2, 2). Names are placed one
    after the other, and none is moved again.
    """
    dots = [a + (b - a) * np.arange(0, 1, 3 * unit / max(math.dist(a, b), unit))[:, None] for a, b in legs]
    lines = np.concatenate([np.zeros((0, 2)), *dots])
    boxes = np.concatenate([nodes, np.full_like(nodes, MARKER * unit)], axis=1)  # centre and half sides
    for node, name in zip(nodes[1:], names, strict=True):
        half = np.array([WIDTH * len(name), HEIGHT]) * size * unit
        step = np.stack([np.cos(TURNS), np.sin(TURNS)], axis=1) * (half + (MARKER + 0.5) * unit)
        tried = np.concatenate([node + far * step for far in AWAY])
        near = lines[(abs(lines - node) < AWAY[-1] * abs(step).max(axis=0) + half).all(axis=1)]
        over = (boxes[:, 2:] + half - abs(boxes[:, :2] - tried[:, None])).min(axis=2)
        crossed = (abs(near - tried[:, None]) < half).all(axis=2).sum(axis=1)
        blocked = np.maximum(over, 0).sum(axis=1) + (0.3 * crossed + np.repeat(AWAY, len(TURNS)) - 1.0) * unit
        boxes = np.concatenate([boxes, [[*tried[blocked.argmin()], *half]]])
    return boxes[len(nodes) :, :2]
