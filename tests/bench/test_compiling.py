"""The benchmark of first use, on one of the smallest worlds."""

from __future__ import annotations

import pytest

from bench.compiling import PARTS, first_use


@pytest.mark.long
def test_the_first_use_is_measured_part_by_part():
    """Each part takes processor time; TSP observes nothing on demand."""
    spent = first_use("milkrun/TSP-v0")
    assert set(spent) == set(PARTS) - {"observe"} and min(spent.values()) > 0
