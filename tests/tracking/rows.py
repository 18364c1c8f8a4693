"""Small tracking worlds played row by row: each row's actions depend only on its key and step."""

from __future__ import annotations

from typing import Any

import numpy as np

from milkrun.core.fields import Role
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.world import Tracking

SMALL = {
    "size": 16,
    "ground_cell": 10.0,
    "max_sim_steps": 48,
    "max_vehicles": 6,
    "scene": ("citystreet", "village"),
    "weather": ("day", "night", "snow"),
}
STACKED = {"frame_stack": 3, "channels": 1, "other_state": True, "cloud": True, "lidar_points": 16}
VELOCITY = {"action_mode": "velocity", "reward": "D-VAT", "critic": True, "reward_params": True, "wind_sigma": 4.0}
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "stacked": STACKED, "velocity": VELOCITY}
"""Options by name, for the tests of rows."""
ROLES = (Role.STATE, Role.VIEW, Role.MASK, Role.INSTANCE)


def made(
    rows: int,
    kind: str = "plain",
    *,
    seed: int = 7,
    autoreset: str = "disabled",
    threads: int | None = None,
    first_row: int = 0,
    debug: bool = False,
    **options: Any,
) -> Any:
    """A world before its first reset; its episodes last 12 agent steps at most."""
    config = TrackingConfig.build(**{**SMALL, **KINDS[kind], **options})
    return Tracking.variant(config)(
        rows, config, seed=seed, autoreset=autoreset, threads=threads, first_row=first_row, debug=debug
    )


def ready(rows: int, kind: str = "plain", **given: Any) -> Any:
    """A world after its reset."""
    world = made(rows, kind, **given)
    world.reset()
    return world


def actions(world: Any, rows: Any) -> np.ndarray:
    """Actions of these rows, by their keys and agent steps; every ninth is invalid and flies as stop."""
    chosen = []
    for b in rows:
        draw = np.random.default_rng([*world.stream[b].tolist(), int(world.agent_step[b])])
        none = draw.random() < 1 / 9
        if world.action.kind == "box":
            chosen.append(np.full(4, 2.0) if none else draw.uniform(-1, 1, 4))
        else:
            chosen.append(99 if none else draw.integers(world.num_actions))
    return np.array(chosen, np.float32 if world.action.kind == "box" else np.int64)


def live(world: Any) -> np.ndarray:
    return np.flatnonzero(~(world.terminated | world.truncated))


def play(world: Any, turns: int) -> None:
    """Steps the live rows `turns` times."""
    for _ in range(turns):
        if len(going := live(world)):
            world.step(actions(world, going), rows=going)


def bits(world: Any, row: int) -> dict[str, bytes]:
    """State, views and town of a row as bytes, after `observe`."""
    found = {}
    for name, f in world.fields.items():
        if f.role in ROLES:
            found[name] = getattr(world, name)[world.instance_row[row] if f.role is Role.INSTANCE else row].tobytes()
    return found


def whole(world: Any) -> list[dict[str, bytes]]:
    """The same for every row, observed now."""
    world.observe()
    return [bits(world, b) for b in range(world.num_envs)]


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """The names of fields whose bytes differ."""
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]
