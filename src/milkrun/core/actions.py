"""The declaration of a world's actions.

    action = discrete("N")                                   # one agent, one of N; the mask is (N,)
    action = agents(truck=(1, "T"), drone=("D", "K"))        # groups of agents; masks stand one after another
    action = box(4)                                          # one agent, numbers in [-1, 1]

A world's actions arrive as one array with the row first: (B,), (B, agents) or (B, numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from milkrun.core.errors import ShapeError

Size = str | int
PLAIN = frozenset((int, float, np.int64, np.int32, np.float32, np.float64))


def _value(size: Size, sizes: dict[str, int]) -> int:
    return sizes[size] if isinstance(size, str) else size


@dataclass(frozen=True)
class Discrete:
    """One agent that picks one of n."""

    n: Size
    kind = "discrete"
    dtype = np.dtype(np.int64)

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        return ()

    def nvec(self, sizes: dict[str, int]) -> list[int]:
        return [_value(self.n, sizes)]


@dataclass(frozen=True)
class Agents:
    """Groups of agents, each of which picks one of its own n. Order: groups as declared, then index."""

    groups: tuple[tuple[str, Size, Size], ...]  # name, how many, actions each
    kind = "multi"
    dtype = np.dtype(np.int64)

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        return (sum(_value(count, sizes) for _, count, _ in self.groups),)

    def nvec(self, sizes: dict[str, int]) -> list[int]:
        return [_value(n, sizes) for _, count, n in self.groups for _ in range(_value(count, sizes))]

    def names(self, sizes: dict[str, int]) -> dict[str, list[str]]:
        return {g: [f"{g}_{k}" for k in range(_value(count, sizes))] for g, count, _ in self.groups}


@dataclass(frozen=True)
class Box:
    """One agent whose action is n numbers in [-1, 1]."""

    n: Size
    kind = "box"
    dtype = np.dtype(np.float32)

    def shape(self, sizes: dict[str, int]) -> tuple[int, ...]:
        return (_value(self.n, sizes),)

    def nvec(self, sizes: dict[str, int]) -> list[int]:
        return []


Action = Discrete | Agents | Box


def discrete(n: Size) -> Discrete:
    return Discrete(n)


def agents(**groups: tuple[Size, Size]) -> Agents:
    return Agents(tuple((name, count, n) for name, (count, n) in groups.items()))


def box(n: Size) -> Box:
    return Box(n)


def action_array(name: str, given: Any) -> np.ndarray:
    """`np.asarray` of an action, or of a list of them. A bool among integers is refused, which numpy would convert to
    one; the caller validates dtype and shape."""
    if type(given) is np.ndarray:
        return given
    try:
        array = np.asarray(given)
    except Exception as e:
        raise ShapeError(f"{name}: not an array: {e}") from None
    if array.dtype.kind in "iu" and _has_bool(given):
        raise ShapeError(f"{name}: a bool among integers: an action is the number of a choice")
    return array


def _has_bool(given: Any) -> bool:
    if not isinstance(given, Sequence):
        return isinstance(given, (bool, np.bool_)) or str(getattr(given, "dtype", "")).endswith("bool")
    kinds = set(map(type, given))
    return not kinds <= PLAIN and any(map(_has_bool, given))
