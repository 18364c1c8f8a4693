"""Insertion heuristics on 10,000 instances reach the means of Kool, van Hoof, Welling 2019 (table 1)."""

from __future__ import annotations

import pytest

from milkrun.routing.generators import get_generator
from milkrun.solvers import solve

pytestmark = [pytest.mark.truth, pytest.mark.slow]
PRINTED = {"nearest": (4.33, 6.78, 9.46), "random": (4.00, 6.13, 8.52), "farthest": (3.93, 6.01, 8.35)}


@pytest.mark.parametrize("rule", PRINTED)
@pytest.mark.parametrize(("column", "n"), [(0, 20), (1, 50), (2, 100)])
def test_insertion(rule, column, n):
    """Within 1 %."""
    instances = get_generator("tsp", num_loc=n).generate(10_000, seed=1234)
    mean = solve("TSP", instances, "insertion", rule=rule, workers=2).cost.mean()
    assert mean == pytest.approx(PRINTED[rule][column], rel=0.01)
