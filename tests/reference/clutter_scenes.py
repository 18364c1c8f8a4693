"""Scenes for tests of the clutter world: objects laid by hand, and piles that were dropped into the tray."""

from __future__ import annotations

import math
from typing import Any

import mujoco
import numpy as np

from .clutter import ClutterRow
from .clutter_physics import CATALOGUE, TRAY_TOP, Kind, full_extents, model_xml

HALF = math.sqrt(0.5)
UP = (1.0, 0.0, 0.0, 0.0)  # as the catalogue has it: third extent upright
FLAT = (HALF, 0.0, HALF, 0.0)  # first extent upright, third along x, second along y
Pose = tuple[float, ...]


def on_tray(kind: str | Kind, x: float = 0.0, y: float = 0.0, q: Pose = FLAT, above: float = 0.0) -> Pose:
    """The pose of an object that just touches the tray, or floats this far above it."""
    extents = full_extents(CATALOGUE[kind] if isinstance(kind, str) else kind)
    height = {UP: extents[2], FLAT: extents[0]}[q]
    return (x, y, TRAY_TOP + height / 2 + above, *q)


def laid(types: tuple[str, ...], *poses: Pose, kinds: dict[str, Kind] | None = None, **options: Any) -> ClutterRow:
    """A row with one object for each pose, as many of each type."""
    each = len(poses) // len(types)
    row = ClutterRow({"box_objects": types, "num_objects_per_type": each} | options, kinds)
    row.reset(np.array(poses))
    return row


def dropped_pile(row: ClutterRow, seed: int) -> np.ndarray:
    """Poses (N,7) of this row's objects after they fell into its tray two by two: a pile at rest or nearly so."""
    draw = np.random.default_rng(seed)
    model = mujoco.MjModel.from_xml_string(model_xml(row.o | {"tray_wall": 0.8}, row.kinds))
    data, first = mujoco.MjData(model), draw.uniform(0, 2 * math.pi)
    for rank, i in enumerate(draw.permutation(row.N)):
        layer, spot = divmod(rank, 2)
        angle, radius = first + 2.399 * layer + math.pi * spot, 0.2 * row.side
        q = draw.normal(size=4)
        place = radius * math.cos(angle), radius * math.sin(angle), 0.14 + 0.10 * layer
        data.qpos[7 * i : 7 * i + 7] = [*place, *(q / np.linalg.norm(q))]
    for _ in range(600):
        mujoco.mj_step(model, data)
    return np.array(data.qpos).reshape(row.N, 7)
