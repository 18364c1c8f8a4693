"""What the bench tells of the first use of a world, on one of the smallest."""

from __future__ import annotations

import pytest

from bench.compiling import PARTS, first_use


@pytest.mark.long
def test_statements_do_not_depend_on_the_machine():
    """Two processes translate the same statements, some thousands; TSP has nothing to look at."""
    one, two = (first_use("milkrun/TSP-v0", plain=False) for _ in range(2))
    assert one["statements"] == two["statements"] > 1000
    assert one.keys() >= set(PARTS) - {"observe"} and "observe" not in one
