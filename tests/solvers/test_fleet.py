"""PyVRP on VRP-v0: plans by hand, and models whose amounts differ by many orders of magnitude."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import BadSolution, ConfigError
from milkrun.solvers import solve

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")

RNG = np.random.default_rng(0)
SEVEN = {
    "locs": RNG.random((1, 8, 2)),
    "linehaul": np.array([[0, 3, 4, 5, 6, 1, 2, 3]]),
    "capacity": np.array([[10]]),
}


def cost(instance, **options):
    return solve("VRP", instance, "pyvrp", iterations=300, **options).cost[0]


def test_a_depot_without_vehicles_sends_none():
    """Depots at (0, 0) without vehicles, (10, 0) and (0, 10), which is next to all customers."""
    one = {
        "locs": np.array([[[0, 0], [10, 0], [0, 10], [0, 11], [0, 12], [1, 10.0]]]),
        "linehaul": np.array([[0, 0, 0, 1, 1, 1]]),
        "capacity": np.array([[10, 10, 10]]),
        "vehicles": np.array([[0, 9, 9]]),
    }
    found = solve("VRP", one, "pyvrp", iterations=300)
    assert found.cost[0] == pytest.approx(1 + 1 + 5**0.5 + 1) and found.actions[0, 0] == 2


@pytest.mark.parametrize(
    "prices",
    [
        {"distance_cost": 0.5},
        {"distance_cost": 1e-9},
        {"distance_cost": 1e9},
        {"fixed_cost": 1e3},
        {"fixed_cost": 1e6},
    ],
)
def test_prices_of_any_size(prices):
    """Three vehicles, at the price of each, and the shortest routes of three vehicles."""
    (name, price), length = *prices.items(), cost(SEVEN)
    expected = price * length if name == "distance_cost" else 3 * price + length
    assert cost({**SEVEN, name: np.array([[price]])}) == pytest.approx(expected, rel=1e-5)


def test_one_far_customer_does_not_coarsen_the_rest():
    """With a customer 1e6 away the others are still ordered by their true distances."""
    near = SEVEN["locs"].copy()
    near[0, 1] = 1e6
    far = cost({**SEVEN, "locs": near})
    assert far <= solve("VRP", {**SEVEN, "locs": near}, "nearest").cost[0]


def test_a_fleet_that_does_not_suffice_is_said():
    """One vehicle of 10 units for 24; the longest route is no objective of PyVRP."""
    with pytest.raises(BadSolution, match="no plan that serves all customers"):
        cost({**SEVEN, "vehicles": np.array([[1]])})
    with pytest.raises(ConfigError, match="does not support objective='max'"):
        cost(SEVEN, objective="max")
