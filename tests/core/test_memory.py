"""Batches too large for any machine's memory are refused in a sentence, before any memory is allocated."""

from __future__ import annotations

import pytest

import milkrun
from milkrun.core.errors import ConfigError

MANY = 10**9
SAID = r"\d+ rows of [\d,]+ bytes need [\d,]+ GB, and this machine has \d+ GB"


@pytest.mark.parametrize(
    ("world_id", "rows", "options"),
    [
        ("milkrun/CVRP-v0", MANY, {}),
        ("milkrun/TSPKopt-v0", 4096, {"num_loc": 10_000}),
        ("milkrun/TSP-v0", 4096, {"num_loc": 10_000, "metric": "matrix"}),
        ("milkrun/Tracking-v0", MANY, {}),
    ],
)
def test_a_world_of_too_many_rows_is_refused(world_id, rows, options):
    """Many rows, or rows of 100 and 400 MB."""
    with pytest.raises(ConfigError, match=SAID):
        milkrun.make(world_id, rows, **options)


def test_bytes_of_a_row_are_those_of_its_arrays():
    """Every array of a world of 10 rows, of which each row has its own instance."""
    world = milkrun.make("milkrun/CVRP-v0", 10, num_loc=7)
    fields = [f.name for f in world.fields.values() if f.per_row]
    assert world._row_bytes * 10 == sum(getattr(world, name).nbytes for name in fields)
