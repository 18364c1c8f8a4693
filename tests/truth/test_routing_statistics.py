"""Mean costs of simple policies on 10,000 instances of our generators match published and known values.

A wrong instance law, mask, reward or policy leads to a wrong mean. Values: nearest neighbour and random from published
tables (Kool, van Hoof, Welling 2019: 4.50, 7.00, 9.68 for the TSP on their 10,000 instances); the mean distance of two
uniform points in the unit square is (2 + sqrt 2 + 5 asinh 1) / 15 = 0.521405.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import milkrun
from milkrun.routing.generators import get_generator
from milkrun.solvers.evaluate import evaluate
from milkrun.solvers.policies import nearest, random_policy

INSTANCES = 10_000
MEAN_LEG = (2 + math.sqrt(2) + 5 * math.asinh(1)) / 15

pytestmark = [pytest.mark.truth, pytest.mark.slow]


def mean_cost(world_id, policy, **options):
    """The mean over one complete episode on each of 10,000 instances."""
    result = evaluate(milkrun.make(world_id, num_envs=INSTANCES, **options), policy, INSTANCES, seed=1234)
    assert not result.truncated.any()
    return -result.mean


@pytest.mark.parametrize(("n", "cost"), [(20, 4.49), (50, 6.98), (100, 9.69)])
@pytest.mark.parametrize("start", ["depot", "free"])
def test_tsp_nearest_neighbour(start, n, cost):
    """Within 0.5 %."""
    assert mean_cost("milkrun/TSP-v0", nearest, num_loc=n, start=start) == pytest.approx(cost, rel=0.005)


@pytest.mark.parametrize("n", [20, 50, 100])
def test_tsp_random_tour(n):
    """n legs between uniform points, within 0.5 %."""
    assert mean_cost("milkrun/TSP-v0", random_policy(1), num_loc=n) == pytest.approx(MEAN_LEG * n, rel=0.005)


@pytest.mark.parametrize(("n", "cost"), [(20, 7.97), (50, 14.01), (100, 20.89)])
def test_cvrp_nearest_neighbour(n, cost):
    """The nearest customer that fits, home if none does; within 1 %."""
    assert mean_cost("milkrun/CVRP-v0", nearest, num_loc=n) == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("n", "cost"), [(20, 13.28), (50, 30.67), (100, 58.83)])
def test_cvrp_random_allowed(n, cost):
    """Uniform among the allowed nodes, the depot one of them; within 1 %."""
    assert mean_cost("milkrun/CVRP-v0", random_policy(1), num_loc=n) == pytest.approx(cost, rel=0.01)


@pytest.mark.parametrize(("n", "capacity"), [(20, 30), (50, 40), (100, 50)])
def test_cvrp_instances_follow_the_published_law(n, capacity):
    """Demands U{1..9}, places uniform in the unit square, all independent; Kool's capacities."""
    made = get_generator("cvrp", num_loc=n).generate(INSTANCES, seed=99)
    demand = made["demand_units"]
    assert demand.shape == (INSTANCES, n)
    assert (demand.min(), demand.max()) == (1, 9)
    assert stats.chisquare(np.bincount(demand.ravel())[1:]).pvalue > 1e-4
    assert (made["capacity"] == capacity).all()
    nodes = np.stack([made["depot"], made["locs"][:, 0], made["locs"][:, -1]])
    for places in nodes:
        squares, _, _ = np.histogram2d(*places.T, bins=20, range=[[0, 1], [0, 1]])
        assert squares.sum() == INSTANCES and stats.chisquare(squares.ravel()).pvalue > 1e-4
        assert all(stats.kstest(axis, "uniform").pvalue > 1e-4 for axis in places.T)
    related = np.corrcoef(np.concatenate([*nodes.transpose(0, 2, 1), demand.T[:2]])) - np.eye(8)
    assert abs(related).max() < 5 / math.sqrt(INSTANCES)
