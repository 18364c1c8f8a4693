"""Defaults for a world that defines no scene: one of its declared fields, names of actions, reasons of masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.fields import Role
from milkrun.render.scene import Scene, colours, resolve_texts, texts_of_actions


def scene_of_picture(world: Any, row: int) -> Scene:
    """The scene of a world that defines `render` only."""
    scene = Scene((0, 0), (1, 1))
    scene.image("picture", world.render(row))
    return _with_figures(scene, world, row)


def scene_of_fields(world: Any, row: int) -> Scene:
    """A scene of the declared fields.

    The first instance field of dims (X, 2) becomes points. A scalar state field that indexes X becomes a vehicle on
    them, and the first bool state field (X,) their colour. Numbers become figures.
    """
    present = [f for f in world.fields.values() if f.per_row and 0 not in f.shape(world.sizes)]
    states = [f for f in present if f.role is Role.STATE]
    places = next((f for f in present if f.role is Role.INSTANCE and len(f.dims) == 2 and f.dims[1] == 2), None)
    if places is None:
        return _with_figures(Scene((0, 0), (1, 1)), world, row)
    xy, axis = getattr(world, places.name)[world.instance_row[row]].astype(float), places.dims[0]
    finite = np.isfinite(xy).all(axis=1)
    xy = np.where(finite[:, None], xy, 0.0)
    scene = Scene(xy.min(0), xy.max(0))
    flags = next((f for f in states if f.dtype == np.bool_ and f.dims == (axis,)), None)
    colour = None if flags is None else colours(np.where(getattr(world, flags.name)[row], "served", "waiting"))
    chosen = world.action.kind == "discrete" and world.action.n == axis and world._mask is not None
    scene.points(
        places.name,
        xy,
        colour=colour,
        text=[f"{places.name} {k}" for k in range(len(xy))],
        action=np.arange(len(xy)) if chosen else None,
    )
    for f in states:
        if f.dims == () and f.index is not None and f.index == axis:
            scene.vehicle(f.name, xy[int(getattr(world, f.name)[row])])
    if flags is not None:
        scene.legend(flags.name.replace("_", " "), "served")
    return _with_figures(scene, world, row)


def _with_figures(scene: Scene, world: Any, row: int) -> Scene:
    """Add the scalar numbers of the row that agents observe."""
    for f in world.fields.values():
        plain = f.role is Role.STATE and f.dims == () and f.index is None and f.dtype != np.bool_
        if plain and f.name not in ("i", "objective") and not f.hidden:
            scene.figure(f.name.replace("_", " "), getattr(world, f.name)[row])
    return scene


def name_by_scene(world: Any, agent: int, action: int) -> str:
    """The text of the point or body in the scene of row 0 that this action leads to."""
    scene = world.scene(0)
    resolve_texts(scene)
    first = sum(world.action.nvec(world.sizes)[:agent])
    return texts_of_actions(scene).get(first + action, f"action {action}")


def why_masked(world: Any, row: int, index: int) -> str:
    """The reason that `why_illegal` gives for an action of the flat mask.

    With several agents, the other agents take their lowest allowed action.
    """
    if world.action.kind == "discrete":
        return str(world.why_illegal(row, index))
    joint, first = [], 0
    for n in world.action.nvec(world.sizes):
        lowest = int(world.action_mask[row, first : first + n].argmax())
        joint.append(index - first if first <= index < first + n else lowest)
        first += n
    return str(world.why_illegal(row, joint))
