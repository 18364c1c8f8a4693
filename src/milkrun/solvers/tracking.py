"""Baselines for drone tracking: `servo`, which knows the target's place, `blob`, which detects its colour, and `stay`.

Each is a policy, `actions = policy(world)`, with the same control law: the target should be where the centre of the
image meets the ground, and the larger of the two errors is corrected.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from milkrun.core.errors import ConfigError
from milkrun.solvers.policies import require_fields
from milkrun.tracking.config import FULL_SPEED

DEAD_BAND = 0.16
"""Error in m that is tolerated: half of a step at full speed."""
LEAD = 0.02
"""Lead of the target in s: the delay of the drone."""
FORWARD, BACKWARD, LEFT, RIGHT, STOP = 0, 1, 2, 3, 6
HASTE = 10.0
"""Gain of the velocity law: share of an error corrected in a second."""
PATIENCE = 25
"""Steps for which `blob` repeats its last move without a visible target."""
HUE, DARK, FEWEST = 0.985, 40.0, 2
"""Of `blob`: least cosine between the colours of pixel and target, least length of a pixel's colour, and least number
of such pixels."""


def servo(world: Any) -> np.ndarray:
    """Follows the target by its known place and speed: an upper baseline for camera policies."""
    _meant("servo", world)
    speed = world.rel[:, 3:5]
    return _steer(world, world.rel[:, :2] + LEAD * speed, speed)


def stay(world: Any) -> np.ndarray:
    """Stays in place; without the action stop it alternates forward and backward."""
    _meant("stay", world)
    if world.action.kind == "box":
        return np.zeros((world.num_envs, 4), np.float32)
    return _stop(world)


class Blob:
    """Follows the centre of all pixels with the target's colour.

    It knows only that colour, the pitch of the camera and the height. Without a visible target it repeats its last move
    for some steps, then it stays.
    """

    def __init__(self) -> None:
        self._memory: weakref.WeakKeyDictionary[Any, tuple[np.ndarray, np.ndarray]] = weakref.WeakKeyDictionary()

    def __call__(self, world: Any) -> np.ndarray:
        _meant("blob", world)
        if world.sizes["C"] != 3:
            raise ConfigError("'blob' detects a colour, but the images of this world are grey: use channels=3")
        seen, at = self._find(world)
        still = stay(world)
        if world not in self._memory:
            self._memory[world] = still.copy(), np.full(world.num_envs, PATIENCE)
        last, blind = self._memory[world]
        # a new episode has no last move: it stays until the target is visible
        blind[world.agent_step == 0] = PATIENCE
        blind[:] = np.where(seen, 0, blind + 1)
        moves = _steer(world, at, np.zeros_like(at))
        keep = blind <= PATIENCE
        rule = (slice(None), *[None] * (moves.ndim - 1))
        moves = np.where(seen[rule], moves, np.where(keep[rule], last, still)).astype(moves.dtype)
        self._memory[world] = moves, blind
        return moves

    @staticmethod
    def _find(world: Any) -> tuple[np.ndarray, np.ndarray]:
        """Flags of rows that see their target, and its place on the ground in the drone's frame."""
        shown = world.observe()
        image = shown["frames"][:, -1] if world.sizes["H"] else shown["image"]
        colour = world.veh_rgb[:, 0].astype(np.float32)
        colour /= np.maximum(np.linalg.norm(colour, axis=1, keepdims=True), 1.0)
        pixels = image.astype(np.float32)
        bright = np.sqrt((pixels**2).sum(1))
        # The cosine test without a division. DARK excludes nearly black pixels, whose colour is undefined.
        alike = np.einsum("bcij,bc->bij", pixels, colour) >= HUE * np.maximum(bright, DARK)
        count = alike.sum((1, 2))
        size = world.sizes["S"]
        offset = (2 * np.arange(size) + 1) / size - 1
        share = np.maximum(count, 1)
        u = (alike.sum(1) * offset).sum(1) / share * world.tan_h  # to the right
        v = -(alike.sum(2) * offset).sum(1) / share * world.tan_v  # upwards
        cos, sin = np.cos(world.pitch), np.sin(world.pitch)
        # a ray at or above the horizon never meets the ground; it counts as meeting it far away
        far = world.pos[:, 2] / np.maximum(sin - v * cos, 1e-6)
        return count >= FEWEST, np.stack([far * (cos + v * sin), -far * u], 1)


blob = Blob


def _meant(name: str, world: Any) -> None:
    require_fields(name, world, "drone tracking", "rel", "pitch", "agent_step")


def _stop(world: Any) -> np.ndarray:
    if world.sizes["A"] > STOP:
        return np.full(world.num_envs, STOP)
    return np.where(world.agent_step % 2 == 0, FORWARD, BACKWARD)


def _steer(world: Any, at: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """The move that brings the target, at `at` with `speed` in the drone's frame, to the aim point."""
    error = at.copy()
    error[:, 0] -= world.pos[:, 2] / np.tan(np.maximum(world.pitch, 1e-6))
    if world.action.kind == "box":
        flown = world.cmd[:, :2] + speed + HASTE * error
        return np.concatenate([np.clip(flown / FULL_SPEED[:2], -1, 1), np.zeros_like(error)], 1).astype(np.float32)
    x, y = error.T
    along = np.where(x > 0, FORWARD, BACKWARD)
    across = np.where(y > 0, LEFT, RIGHT)
    moves = np.where(np.abs(x) >= np.abs(y), along, across)
    return np.where(np.abs(error).max(1) < DEAD_BAND, _stop(world), moves)


__all__ = ["Blob", "blob", "servo", "stay"]
