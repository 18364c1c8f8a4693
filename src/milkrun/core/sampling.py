"""Uniform draws among allowed actions, compiled over the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import integers, stream

if TYPE_CHECKING:
    from milkrun.core.world import World

SAMPLING = 60_000  # the purpose of these streams, apart from any world's


@kernel
def random_allowed(w, b, seed, turn):
    """An allowed action of a single agent; the draw depends on (seed, the row's key, turn) alone."""
    s = stream(seed ^ w.stream[b, 0], w.stream[b, 1], w.stream[b, 2], SAMPLING)
    return pick(w, b, 0, w.action_mask.shape[1], s, turn)


@kernel
def pick(w, b, first, width, s, index):
    """The k-th allowed action of the segment [first, first + width) of a row's mask, k uniform."""
    allowed = 0
    for j in range(first, first + width):
        allowed += w.action_mask[b, j]
    k = integers(s, index, 0, max(allowed, 1))
    for j in range(first, first + width):
        k -= w.action_mask[b, j]
        if k < 0:
            return j - first
    return 0


def sample(world: World, seed: int, turn: int) -> np.ndarray:
    """One allowed action a row (a row of actions for several agents; numbers in [-1, 1] for a box)."""
    if world.action.kind == "discrete":
        return world.map_rows(random_allowed, np.int64, seed, turn)
    rng = np.random.Generator(np.random.Philox(key=[seed, turn]))
    if world.action.kind == "box":
        return rng.uniform(-1, 1, (world.num_envs, *world.action.shape(world.sizes))).astype(np.float32)
    widths = world.action.nvec(world.sizes)
    ends = np.cumsum(widths)
    noise = rng.random(world.action_mask.shape)
    masked = np.where(world.action_mask, noise, -1.0)
    return np.stack([masked[:, e - n : e].argmax(1) for n, e in zip(widths, ends, strict=True)], axis=1)
