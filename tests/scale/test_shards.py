"""Shards cover every episode once, and a shard's episodes are those of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import ConfigError
from milkrun.scale.shards import Shards


@pytest.mark.parametrize(
    "rows, episodes, shard_rows",
    [
        (70, 150, 16),
        (70, 50, 16),
        (5, 5, 5),
        (1, 9, 4),
        (100, 1, 10),
        (64, 64 * 3, 16),
        (10, 25, 1),
        (7, 6, 3),
    ],
)
def test_every_number_is_in_one_shard_and_of_its_rows(rows, episodes, shard_rows):
    """Number k is episode k // rows of row k % rows; within a shard the same with its own rows."""
    shards = Shards(rows, episodes, shard_rows)
    numbers = [shards.numbers(k) for k in range(len(shards))]
    assert sorted(np.concatenate(numbers).tolist()) == list(range(episodes))
    for shard, of in zip(shards, numbers, strict=True):
        assert 0 < shard.episodes == len(of)
        own = np.arange(shard.episodes)
        assert (of % rows == shard.first + own % shard.rows).all() and (of // rows == own // shard.rows).all()
        assert shard.first + shard.rows == min(rows, (shard.index + 1) * shard_rows)


def test_ten_rows_in_shards_of_four():
    """Rows 0-3, 4-7, 8-9; of 23 episodes the first three rows play three, the others two."""
    assert [(s.first, s.rows, s.episodes) for s in Shards(10, 23, 4)] == [(0, 4, 11), (4, 4, 8), (8, 2, 4)]


@pytest.mark.parametrize(
    "changes", [{"rows": 0}, {"rows": -1}, {"rows": 1.5}, {"episodes": 0}, {"episodes": "many"}, {"shard_rows": 0}]
)
def test_shards_of_nothing_are_refused(changes):
    """The error names the invalid number."""
    with pytest.raises(ConfigError, match=f"{next(iter(changes))}=.*: must be an integer >= 1"):
        Shards(**{"rows": 10, "episodes": 23, "shard_rows": 4, **changes})
