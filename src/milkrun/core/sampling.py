"""Uniform draws among allowed actions, compiled over the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milkrun.core.kernels import kernel
from milkrun.core.rng import Stream, integers

if TYPE_CHECKING:
    from milkrun.core.world import World

SAMPLING = 60_000  # the purpose of these streams, apart from any world's
SPAN = 16
LOW, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


@kernel
def random_allowed(w, b, seed, turn):
    """An allowed action of a single agent; the draw depends on (seed, the row's key, turn) alone."""
    key = np.uint64(seed) ^ np.uint64(w.stream[b, 0])
    row, episode = np.uint64(w.stream[b, 1]), np.uint64(w.stream[b, 2])
    s = Stream(key & LOW, key >> WORD, row & LOW, episode & LOW, np.uint64(SAMPLING))
    return pick(w, b, 0, w.action_mask.shape[1], s, turn)


@kernel
def pick(w, b, first, width, s, index):
    """The k-th allowed action of the segment [first, first + width) of a row's mask, k uniform."""
    k = integers(s, index, 0, max(count(w, b, first, first + width), 1))
    j, last = first, first + width
    while j + SPAN <= last:  # whole spans are counted at once, then one span is searched
        inside = count(w, b, j, j + SPAN)
        if k < inside:
            break
        k -= inside
        j += SPAN
    while j < last:
        k -= w.action_mask[b, j]
        if k < 0:
            return j - first
        j += 1
    return 0


@kernel
def count(w, b, lo, hi):
    """Allowed actions in [lo, hi)."""
    total = np.int32(0)
    for j in range(lo, hi):
        total += np.int32(w.action_mask[b, j])
    return total


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
