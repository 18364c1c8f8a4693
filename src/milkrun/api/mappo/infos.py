"""Lazy infos of rows and agents.

on-policy expects a dict an agent and row. Most are never read, and making thousands of them takes longer than the
step. So a step copies only the few arrays that the infos are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from milkrun.api._binding import value_of

RowInfo = list[dict[str, Any]]


class Infos(Sequence[RowInfo]):
    """`infos[b][a]` is the info of agent a in row b, cached; as an array it is (B, A) of dicts.

    shared: arrays with a row axis, the same for all agents except `illegal`, which may be (B, agents). ended: the rows
    that ended, whose infos `ends` makes.
    """

    def __init__(
        self,
        rows: int,
        agents: int,
        shared: dict[str, np.ndarray],
        ended: np.ndarray,
        ends: Callable[[], list[RowInfo]] | None,
    ) -> None:
        self._rows = rows
        self._agents = agents
        self._shared = shared
        self._ends = ends
        self._ended = ended
        self._made: dict[int, RowInfo] = {}
        self._last: dict[int, RowInfo] | None = None

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, row: int) -> RowInfo: ...
    @overload
    def __getitem__(self, row: slice) -> list[RowInfo]: ...
    def __getitem__(self, row: int | slice) -> RowInfo | list[RowInfo]:
        if isinstance(row, slice):
            return [self[b] for b in range(*row.indices(self._rows))]
        b = range(self._rows)[row]
        if b not in self._made:
            self._made[b] = self._make(b)
        return self._made[b]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return repr(list(self))

    def _make(self, b: int) -> RowInfo:
        if self._ends is not None:
            if self._last is None:
                self._last = dict(zip(self._ended.tolist(), self._ends()))
            if b in self._last:
                return self._last[b]
        infos: RowInfo = [{"bad_transition": False} for _ in range(self._agents)]
        for name, array in self._shared.items():
            apart = name == "illegal" and array.ndim == 2
            for a, info in enumerate(infos):
                info[name] = array.item(b, a) if apart else value_of(array, b)
        return infos
