"""The scene of a row: the tray with its objects, the cup, the attempts and the lost objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.clutter.options import BASE, RIM
from milkrun.clutter.stages import IDLE, STAGES, SUCCESS
from milkrun.render.scene import Scene, colours


def scene(world: Any, row: int) -> Scene:
    """Objects out of play stand beside the tray, without a number; a carried object hangs on the cup."""
    side, wall, held = world.config.side, world.config.wall, int(world.current_suction_object[row])
    outer, away, types = side / 2 + RIM, (side + RIM) / 2, _types(world)
    s = Scene((-outer, -outer, 0), (outer, outer, 0.5))
    walls = [(x * away, y * away, BASE + wall / 2) for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    s.bodies(
        "tray",
        "box",
        [(2 * outer, 2 * outer, BASE), *[(RIM, 2 * outer, wall)] * 2, *[(side, RIM, wall)] * 2],
        [(0, 0, BASE / 2), *walls],
        colour=colours(["grid", *["muted"] * 4]),
        transparent=True,
    )
    pose, gone = world.obj_pose[row].copy(), world.grasped[row] | world.lost[row]
    if held >= 0 and world.grasped[row, held]:
        pose[held, :3], gone[held] = world.cup_pos[row] - [0, 0, world.half[held, 2]], False
    s.bodies(
        "objects",
        ["cylinder" if can else "box" for can in world.is_can],
        2 * world.half,
        pose[:, :3],
        pose[:, 3:],
        colour=colours(types),
        faint=world.blocked[row] & ~gone,
        target=int(world.env_target[row]),
        action=np.arange(len(pose)) if world.action.kind == "discrete" else None,
        label=["" if out else str(i) for i, out in enumerate(gone)],
        text=lambda: [f"object {i}, {_names(world)[k]}" for i, k in enumerate(types)],
    )
    s.bodies(
        "cup",
        "cylinder",
        [(0.03, 0.03, 0.06)],
        [world.cup_pos[row] + [0, 0, 0.03]],
        colour="late" if world.is_suction_active[row] else "ink",
        text=[f"suction cup: {STAGES[world.env_stage[row]]}"],
    )
    s.camera((0, -3 * side, 2 * side), (0, 0, 0.85 * side))  # includes the raised cup
    s.figure("out", world.grasped[row].sum())
    s.figure("lost", world.lost[row].sum())
    s.figure("attempts", world.step_count[row])
    s.caption(_caption(world, row))
    _add_log(world, row, s, types)
    return s


def _add_log(world: Any, row: int, s: Scene, types: list[int]) -> None:
    """Add the attempts in order, then the lost objects, and the legend."""
    for n in range(int(world.records[row])):
        i, out = int(world.log_target[row, n]), world.log_result[row, n] == SUCCESS
        s.tally(str(i) if i >= 0 else "?", types[i] if i >= 0 else "muted", "disc" if out else "ring")
    for i in np.flatnonzero(world.lost[row]).tolist():
        s.tally(str(i), "late", "square")
    for k, name in enumerate(_names(world)):
        s.legend(name, k, "square")
    for words, colour, shape in (
        ("to be picked: outlined", "late", "ring"),
        ("blocked: pale", "grid", "square"),
        ("suction cup, red: suction on", "ink", "disc"),
    ):
        s.legend(words, colour, shape)
    for words, colour, shape in (
        ("tried, in order: out", "muted", "disc"),
        ("not out", "muted", "ring"),
        ("lost", "late", "square"),
    ):
        s.legend(words, colour, shape, tally=True)


def _caption(world: Any, row: int) -> str:
    out, lost, busy = int(world.grasped[row].sum()), int(world.lost[row].sum()), world.env_stage[row] != IDLE
    return (
        f"attempt {int(world.step_count[row]) + busy}/{world.sizes['T']}  out {out}/{world.sizes['N']}  lost {lost}"
        f"{f'  {STAGES[world.env_stage[row]]}' if busy else ''}"
    )


def _names(world: Any) -> list[str]:
    return [name.lstrip("0123456789_").replace("_", " ") for name in world.config.box_objects]


def _types(world: Any) -> list[int]:
    """The index of each object's type, which is its colour."""
    return [i // world.config.num_objects_per_type for i in range(world.sizes["N"])]
