"""The compiled heuristics: local optima are local optima, and none beats the exact answer."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.routing.generators import get_generator
from milkrun.routing.tasks import TSP
from milkrun.solvers import evaluate, nearest, solve

rng = np.random.default_rng(5)
ASYMMETRIC = rng.uniform(1, 9, (4, 30, 30)).astype(np.float32) * (1 - np.eye(30, dtype=np.float32))


def matrices():
    locs = get_generator("tsp", num_loc=30).generate(4, seed=2)["locs"].astype(np.float64)
    euclid = np.sqrt(((locs[:, :, None] - locs[:, None]) ** 2).sum(-1)).astype(np.float32)
    return [euclid, ASYMMETRIC]


@pytest.mark.parametrize("method", ["2opt", "oropt", "ls"])
def test_no_improving_move_is_left(method):
    """All reversals (2-opt) and all moves of up to three nodes (or-opt) of tours of 30 nodes, both kinds of matrix."""
    for dist in matrices():
        found = solve("TSP", {"dist": dist}, method)
        for b, tour in enumerate(np.roll(found.actions, 1, axis=1).tolist()):
            near = []
            if method in ("2opt", "ls"):
                near += [tour[:i] + tour[i:j][::-1] + tour[j:] for i in range(1, 30) for j in range(i + 2, 31)]
            if method in ("oropt", "ls"):
                for i in range(1, 30):
                    for j in range(i + 1, min(i + 4, 31)):
                        rest, part = tour[:i] + tour[j:], tour[i:j]
                        near += [rest[:p] + s + rest[p:] for p in range(1, len(rest) + 1) if p != i
                                 for s in (part, part[::-1])]  # fmt: skip
            costs, _, _ = TSP.get_costs({"dist": dist[b : b + 1]}, np.array(near))
            assert costs.min() >= found.cost[b] - 1e-6


@pytest.mark.parametrize("name", ["TSP", "CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_no_heuristic_beats_the_exact_answer(name):
    """20 instances of 6 customers, every compiled method."""
    instances = get_generator(name.lower(), num_loc=6).generate(20, seed=8)
    optimum = solve(name, instances, "exact")
    assert optimum.optimal.all()
    for method in ("nearest", "insertion", "2opt", "oropt", "ls"):
        assert (solve(name, instances, method).cost >= optimum.cost - 1e-5).all()


def test_nearest_is_what_the_policy_of_that_name_drives():
    """200 instances of the CVRP, one by one."""
    instances = get_generator("cvrp", num_loc=20).generate(200, seed=4)
    result = evaluate(milkrun.make("milkrun/CVRP-v0", num_envs=200, num_loc=20), nearest, 200, seed=4)
    np.testing.assert_allclose(solve("CVRP", instances, "nearest").cost, -result.returns, rtol=1e-5)


def test_savings_by_hand():
    """Customers 2 and 3 save 5 + 4 - 3 = 6 when joined, 1 and 2 save 4: with room for two, {2, 3} and {1}: 18."""
    square = {"locs": np.array([[[0, 0], [3, 0], [3, 4], [0, 4]]], np.float32)}
    demand = {"demand_units": np.array([[0, 5, 5, 5]], np.int32), "capacity": np.array([10], np.int32)}
    assert solve("CVRP", {**square, **demand}, "savings").cost.tolist() == [18.0]
