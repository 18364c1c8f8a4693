"""Small trays for tests: few objects, few scenes, and piles arranged by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="needs milkrun[clutter]")

from milkrun.clutter import Clutter, ClutterConfig, register_object_type
from milkrun.clutter.catalogue import CATALOGUE

SUGAR, MUSTARD, PUDDING = "004_sugar_box", "006_mustard_bottle", "008_pudding_box"
SOUP, TUNA = "005_tomato_soup_can", "007_tuna_fish_can"
CANS = {"box_objects": (SOUP, SUGAR, TUNA)}
HALF = math.sqrt(0.5)
UPRIGHT = (1.0, 0.0, 0.0, 0.0)  # third extent up
FLAT = (HALF, 0.0, HALF, 0.0)  # first extent up, third along x, second along y
FLOOR = 0.02  # m, where objects lie


def config(**options: Any) -> ClutterConfig:
    """By default three boxes and a bank of four scenes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # episodes too short to clear the tray are intended
        return ClutterConfig(**{"num_objects_per_type": 1, "bank_size": 4, "max_episode_steps_discrete": 6} | options)


def made(
    rows: int,
    *,
    seed: int = 3,
    threads: int = 1,
    autoreset: str = "disabled",
    debug: bool = False,
    illegal: str = "noop",
    first_row: int = 0,
    **options: Any,
) -> Any:
    """A world of such a tray before its first reset."""
    c = config(**options)
    return Clutter.variant(c)(
        rows, c, seed=seed, threads=threads, autoreset=autoreset, debug=debug, illegal=illegal, first_row=first_row
    )


def tray(rows: int, **given: Any) -> Any:
    """A world of such a tray after its first reset."""
    world = made(rows, **given)
    world.reset()
    return world


def on_floor(kind: str, x: float = 0.0, y: float = 0.0, q: tuple[float, ...] = FLAT, over: float = 0.0) -> list[float]:
    """The pose of an object that just touches the tray, or hangs over it."""
    size = CATALOGUE[kind].size
    return [x, y, FLOOR + {UPRIGHT: size[2], FLAT: size[0]}[q] / 2 + over, *q]


def laid(*poses: list[float], **options: Any) -> Any:
    """A world of one row with these poses, equally many of each type."""
    types = options.setdefault("box_objects", (SUGAR,))
    world = made(1, **{"num_objects_per_type": len(poses) // len(types), "bank_size": 1} | options)
    world.reset(instance={"init_pose": np.array([poses])})
    return world


def heavy(kind: str, mass: float) -> str:
    """The name of a copy of this type with another mass."""
    name, (shape, size, _) = f"{kind}-{mass}", CATALOGUE[kind]
    register_object_type(name, shape, size if shape == "box" else size[1:], mass)
    return name


def play(world: Any, turns: int, seed: int = 0, start: int = 0) -> None:
    """Plays random allowed actions in the live rows."""
    for turn in range(start, start + turns):
        live = np.flatnonzero(~world.done)
        if not len(live):
            return
        world.step(world.sample_actions(seed, turn)[live], rows=live)


def bits(world: Any, row: int, fields: Any = None) -> dict[str, bytes]:
    """Every field of a row except the keys, as bytes."""
    found = {}
    for name, f in world.fields.items():
        role = f.role.name
        if role in ("SCRATCH", "CONSTANT", "KEY") or (fields is not None and name not in fields):
            continue
        array = getattr(world, name)
        found[name] = array[world.instance_row[row] if role == "INSTANCE" else row].tobytes()
    return found


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """The names of fields whose bytes differ."""
    return [name for name in one if one[name] != other[name]]
