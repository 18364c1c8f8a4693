"""The exact solvers agree with each other, with numbers by hand, and with the checkers."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.core.errors import BadInstance, ShapeError
from milkrun.routing.tasks import CVRP, TSP
from milkrun.routing.tasks.distances import distance_matrix
from milkrun.solvers.exact import brute_force_cvrp, brute_force_tsp, exact_cvrp, held_karp
from tests.published import published_file

RECTANGLE = distance_matrix([[0, 0], [3, 0], [3, 4], [0, 4]])


@pytest.mark.parametrize("solve", [held_karp, brute_force_tsp])
def test_rectangle_tsp_is_14(solve):
    """The best tour of the 3 x 4 rectangle is its perimeter."""
    cost, tour = solve(RECTANGLE)
    assert cost == 14.0
    assert tour.tolist() in ([0, 1, 2, 3], [0, 3, 2, 1])


@pytest.mark.parametrize("solve", [exact_cvrp, brute_force_cvrp])
@pytest.mark.parametrize(
    ("capacity", "max_length", "best"),
    [
        (10, np.inf, 18.0),  # 0 1 0 is 6, 0 2 3 0 is 5 + 3 + 4
        (15, np.inf, 14.0),  # one trip around
        (5, np.inf, 24.0),  # 6 + 10 + 8
        (15, 12.0, 18.0),  # 14 is too long, 12 is not
        (15, 11.9, 24.0),  # any two customers together take 12
    ],
)
def test_rectangle_cvrp(solve, capacity, max_length, best):
    """Demand 5, 5, 5 on the rectangle, by hand."""
    cost, actions = solve(RECTANGLE, [0, 5, 5, 5], capacity, max_length)
    assert cost == best
    dataset = {"dist": RECTANGLE[None], "demand_units": np.array([[0, 5, 5, 5]]), "capacity": np.array([capacity])}
    assert CVRP.get_costs(dataset, actions[None], max_length=max_length)[0].item() == best
    assert actions[-1] == 0


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("symmetric", [True, False])
def test_held_karp_equals_enumeration(n, symmetric):
    """Same optimum as all (n - 1)! tours, and the tour has the stated cost."""
    rng = np.random.default_rng(n)
    for _ in range(20 if n < 9 else 4):
        d = distance_matrix(rng.random((n, 2))) if symmetric else rng.random((n, n)) * (1 - np.eye(n))
        cost, tour = held_karp(d)
        assert cost == pytest.approx(brute_force_tsp(d)[0], rel=1e-12)
        if n > 1:
            assert TSP.get_costs({"dist": d[None]}, tour[None])[0].item() == pytest.approx(cost, rel=1e-12)


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("max_length", [np.inf, 2.9])
def test_exact_cvrp_equals_enumeration(n, max_length):
    """Same optimum as every order with every choice of returns, also asymmetric, and the plan has its cost."""
    rng = np.random.default_rng(n)
    for k in range(8):
        d = distance_matrix(rng.random((n + 1, 2))) if k % 2 else rng.random((n + 1, n + 1)) * (1 - np.eye(n + 1))
        demand = np.r_[0, rng.integers(1, 10, n)]
        cost, actions = exact_cvrp(d, demand, 15, max_length)
        assert cost == pytest.approx(brute_force_cvrp(d, demand, 15, max_length)[0], rel=1e-12)
        dataset = {"dist": d[None], "demand_units": demand[None], "capacity": np.array([15])}
        paid, _, _ = CVRP.get_costs(dataset, actions[None], max_length=max_length)
        assert paid.item() == pytest.approx(cost, rel=1e-12)


def test_17_nodes_on_a_circle():
    """The best tour of points on a circle is the circle: 17 chords of the unit circle, 34 sin(pi / 17)."""
    angle = np.random.default_rng(0).permutation(17) * (2 * np.pi / 17)
    cost, _ = held_karp(distance_matrix(np.stack([np.cos(angle), np.sin(angle)], axis=1)))
    assert cost == pytest.approx(34 * np.sin(np.pi / 17), rel=1e-12)


def test_12_customers_in_4_stars():
    """Four clusters of three on the axes, one vehicle load each: there and back, and twice 0.1 along each cluster."""
    arm = np.array([[1.0, 0], [1.1, 0], [1.2, 0]])
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    locs = np.concatenate([np.zeros((1, 2)), arm, arm @ turn, -arm, -arm @ turn])
    cost, actions = exact_cvrp(distance_matrix(locs), np.r_[0, np.ones(12)], 3)
    assert cost == pytest.approx(4 * 2.4, rel=1e-12)
    assert (actions == 0).sum() == 4


def test_finds_the_published_optimum_of_e_n13_k4():
    """12 customers, the lower triangle of the matrix row by row, capacity 6000: 247."""
    _, rest = published_file("routing/cvrplib/E-n13-k4.vrp").read_text().split("EDGE_WEIGHT_SECTION")
    triangle, rest = rest.split("DEMAND_SECTION")
    d = np.zeros((13, 13))
    d[np.tril_indices(13, -1)] = [float(x) for x in triangle.split()]
    demand = [float(x) for x in rest.split()[1:26:2]]
    assert exact_cvrp(d + d.T, demand, 6000)[0] == 247.0


def test_unsolvable_problems_are_refused():
    """Too many nodes, no feasible plan, a demand without its depot."""
    with pytest.raises(ShapeError, match="at most 17 nodes"):
        held_karp(np.zeros((18, 18)))
    for solve in (exact_cvrp, brute_force_cvrp):
        with pytest.raises(BadInstance, match="no plan serves every customer"):
            solve(RECTANGLE, [0, 5, 5, 5], 4)
        with pytest.raises(BadInstance, match="no plan serves every customer"):
            solve(RECTANGLE, [0, 5, 5, 5], 10, 9.5)
        with pytest.raises(ShapeError, match="the depot first"):
            solve(RECTANGLE, [5, 5, 5], 10)
