"""Shards: the rows and the episodes of each part of an evaluation.

Shard k is the rows [k * shard_rows, (k + 1) * shard_rows) of the whole. Its bounds do not depend on the number of
workers, and rows are pure functions of (seed, row, episode): hence the same result from any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from milkrun.core.arguments import check_count

SHARD_ROWS = 1024


@dataclass(frozen=True)
class Shard:
    """`rows` rows of the whole from `first` on, and the number of episodes that they play together."""

    index: int
    first: int
    rows: int
    episodes: int


class Shards(Sequence[Shard]):
    """The shards of an evaluation of `episodes` in `rows`. Number k is episode k // rows of row k % rows, as in
    `milkrun.solvers.evaluate`. Shards without an episode are left out."""

    def __init__(self, rows: int, episodes: int, shard_rows: int = SHARD_ROWS) -> None:
        self.rows = check_count("rows", rows, 1)
        self.episodes = check_count("episodes", episodes, 1)
        self.shard_rows = check_count("shard_rows", shard_rows, 1)

    def __len__(self) -> int:
        return -(-min(self.rows, self.episodes) // self.shard_rows)

    def __getitem__(self, k: int) -> Shard:  # type: ignore[override]
        if not 0 <= k < len(self):
            raise IndexError(k)
        first = k * self.shard_rows
        rows = min(self.shard_rows, self.rows - first)
        each, more = divmod(self.episodes, self.rows)  # the first `more` rows play one more
        return Shard(k, first, rows, each * rows + min(max(more - first, 0), rows))

    def numbers(self, k: int) -> NDArray[np.int64]:
        """The numbers of the shard's episodes in the whole, in the order in which the shard plays them."""
        shard = self[k]
        # A shard goes over its rows episode by episode, as the whole does over all: number = episode * rows + row.
        own = np.arange(shard.episodes)
        return own // shard.rows * self.rows + shard.first + own % shard.rows
