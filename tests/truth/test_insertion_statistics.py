"""Mean tours of the compiled constructions on our instances, against the table of Kool, van Hoof, Welling (2019).

Routing spec 12.5: within 1 % of the printed means, which are over 10,000 instances of the same law.
"""

from __future__ import annotations

import pytest

from milkrun.routing.generators import get_generator
from milkrun.solvers import solve

INSTANCES = 10_000
NEAREST = {20: 4.50, 50: 7.00, 100: 9.68}
INSERTIONS = {
    "nearest": {20: 4.33, 50: 6.78, 100: 9.46},
    "random": {20: 4.00, 50: 6.13, 100: 8.52},
    "farthest": {20: 3.93, 50: 6.01, 100: 8.35},
}

pytestmark = [pytest.mark.truth, pytest.mark.slow]


def mean_cost(n, method, **options):
    instances = get_generator("tsp", num_loc=n).generate(INSTANCES, seed=1234)
    return solve("TSP", instances, method, **options).cost.mean()


@pytest.mark.parametrize("n", NEAREST)
def test_nearest_neighbour(n):
    """Within 1 %."""
    assert mean_cost(n, "nearest") == pytest.approx(NEAREST[n], rel=0.01)


@pytest.mark.parametrize("n", NEAREST)
@pytest.mark.parametrize("rule", INSERTIONS)
def test_insertion(rule, n):
    """Within 1 %."""
    assert mean_cost(n, "insertion", rule=rule) == pytest.approx(INSERTIONS[rule][n], rel=0.01)
