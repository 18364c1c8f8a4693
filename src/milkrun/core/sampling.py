"""Uniform draws among allowed actions, compiled over the batch.

A draw depends on (seed, the row's stream key, turn) alone, so a slice of a batch samples the same actions as the whole.
The turn is a number that the caller gives, or the number of steps of the row's episode.
"""

from __future__ import annotations

import numpy as np

from milkrun.core.kernels import eight_flags, kernel, lowest_bit
from milkrun.core.memory import Memory
from milkrun.core.rng import Stream, integers, uniform

SAMPLING = 60_000  # purposes from here on belong to these streams, apart from any world's
LOW, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
ONES, HIGH, TOP = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(56)
# 22 bits of turns above twice 20: with AT_STEP at most 2**62 + 2**40, which an int64 holds.
FIELD = 1 << 20  # turn, first and width of a segment are packed into one number
TURNS = 1 << 22
AT_STEP = TURNS  # as the turn: the steps that the row's episode has counted
PURPOSES = 4096
CHANCES = 4095  # the purpose of the first number of `chance`; the others lie below it
AGENTS = 4080  # purposes below this one are those of agents, by the place of their mask


@kernel
def random_allowed(w, b, seed, packed):
    """An allowed action of the agent whose mask is the segment [first, first + width) of the row's mask; width 0 is the
    whole mask, which may exceed the packed field."""
    first, width = packed // FIELD % FIELD, packed % FIELD
    if width == 0:
        width = w.action_mask.shape[1]
    return pick(w, b, first, width, row_key(w, b, seed, first % AGENTS, first // AGENTS), turn_of(w, b, packed))


@kernel
def random_step(w, b, seed, i):
    """The action of a random policy at the i-th step of an episode, for `World.play_out`."""
    return pick(w, b, 0, w.action_mask.shape[1], row_key(w, b, seed, 0, 0), i)


@kernel
def random_number(w, b, seed, packed):
    """Number `first` of a box action, in [-1, 1)."""
    return 2.0 * random_chance(w, b, seed, packed) - 1.0


@kernel
def random_chance(w, b, seed, packed):
    """The draw of purpose `first`, in [0, 1)."""
    purpose = packed // FIELD % FIELD
    return uniform(row_key(w, b, seed, purpose % PURPOSES, purpose // PURPOSES), turn_of(w, b, packed))


@kernel
def turn_of(w, b, packed):
    turn = packed // (FIELD * FIELD)
    return w.i[b] if turn == AT_STEP else turn


@kernel
def row_key(w, b, seed, purpose, lap):
    """The stream of a row; the caller's seed is scrambled, so that it never cancels the world's seed. Each lap has 4096
    purposes."""
    # The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    z = np.uint64(seed) + np.uint64(lap + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    key = z ^ (z >> np.uint64(31)) ^ np.uint64(w.stream[b, 0])
    row, episode = np.uint64(w.stream[b, 1]), np.uint64(w.stream[b, 2])
    # SAMPLING + 4095 is below 2**16, which is all the room that a purpose has in `rng.block`.
    return Stream(key & LOW, key >> WORD, row & LOW, episode & LOW, np.uint64(SAMPLING + purpose))


@kernel
def pick(w, b, first, width, s, index):
    """The k-th allowed action of the segment [first, first + width) of a row's mask, k uniform.

    Eight flags are counted at a time: a byte of `word * ONES` counts the flags up to its own.
    """
    last = first + width
    # At least 1: for a mask without a flag `integers` would divide by 0. The result is 0 then.
    k = integers(s, index, 0, max(count(w, b, first, last), 1))
    j = first
    while j + 8 <= last:
        # A flag is a byte of 0 or 1, so no byte of the product is above 8 and none carries into the next.
        upto = eight_flags(w.action_mask, b, j) * ONES
        inside = np.int64(upto >> TOP)
        if k < inside:
            # 128 + count - (k + 1) lies in 120..135: no byte borrows from its neighbour, and a high bit stays where
            # the count is above k. The lowest such byte is that of the flag wanted.
            reached = ((upto | HIGH) - np.uint64(k + 1) * ONES) & HIGH  # the high bit of bytes that count over k
            return j - first + (lowest_bit(reached) >> 3)
        k -= inside
        j += 8
    while j < last:
        k -= w.action_mask[b, j]
        if k < 0:
            return j - first
        j += 1
    return 0


@kernel(inline=True)
def count(w, b, lo, hi):
    """Allowed actions in [lo, hi)."""
    total = 0
    j = lo
    while j + 8 <= hi:
        total += np.int64((eight_flags(w.action_mask, b, j) * ONES) >> TOP)
        j += 8
    while j < hi:
        total += w.action_mask[b, j]
        j += 1
    return total


def sample(world: Memory, seed: int, turn: int | None) -> np.ndarray:
    """One allowed action a row (a row of actions for several agents; numbers in [-1, 1] for a box)."""
    if world.action.kind == "box":
        (width,) = world.action.shape(world.sizes)
        parts = [world.map_rows(random_number, np.float32, seed, _pack(turn, k, 0)) for k in range(width)]
        return np.stack(parts, axis=1)
    if world.action.kind == "discrete":
        return world.map_rows(random_allowed, np.int64, seed, _pack(turn, 0, 0))
    widths = world.action.nvec(world.sizes)
    firsts = np.cumsum([0, *widths[:-1]]).tolist()
    parts = [world.map_rows(random_allowed, np.int64, seed, _pack(turn, f, n)) for f, n in zip(firsts, widths)]
    return np.stack(parts, axis=1)


def chance(world: Memory, seed: int, turn: int | None, number: int) -> np.ndarray:
    """(B,) one more draw in [0, 1) a row, independent of the one that chose its action; `number` counts them."""
    return world.map_rows(random_chance, np.float64, seed, _pack(turn, CHANCES - number, 0))


def _pack(turn: int | None, first: int, width: int) -> int:
    return ((AT_STEP if turn is None else turn % TURNS) * FIELD + first) * FIELD + width
