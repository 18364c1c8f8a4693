"""PyVRP reaches published optima, published means and enumerated optima, and is never better."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.routing.instances import read
from milkrun.solvers import pyvrp, solve
from tests.published import published_file
from tests.solvers.backends import Case, every_plan
from tests.solvers.plays import drawn

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")
pytestmark = pytest.mark.truth

CUSTOMERS = 5


@pytest.mark.parametrize(("name", "optimum"), [("A-n32-k5", 784), ("P-n16-k8", 450), ("E-n13-k4", 247)])
def test_published_optima(name, optimum):
    """CVRPLIB: found within the iterations, to the last digit, with the file's rounding."""
    instance = read(published_file(f"routing/cvrplib/{name}.vrp"))
    case = Case("CVRP", {key: np.asarray(value)[None] for key, value in instance.arrays().items()}, **instance.config)
    assert case.solve(pyvrp, iterations=2000)[1] == optimum


def tiny(name, variant, count):
    """Instances of 5 customers: plain, with mandatory ones that always fit, or with limited trips."""
    made, rng = drawn(name, CUSTOMERS, count, seed=21), np.random.default_rng(9)
    made["must_go"] = np.zeros((count, CUSTOMERS), bool)
    if variant == "mandatory":
        made["must_go"][np.arange(count), rng.integers(CUSTOMERS, size=count)] = True
    if variant == "bounded":
        made["max_length"] = rng.uniform(0.8, 2.2, count).astype(np.float32)
    return made


@pytest.mark.parametrize("trips", ["single", "multi"])
@pytest.mark.parametrize("variant", ["plain", "mandatory", "bounded"])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_it_equals_enumeration(name, variant, trips):
    """6 instances each: PyVRP finds the cheapest of all plans by the checker's cost. Length has a low weight, so that
    customers compete for the truck."""
    weight = {"VRPP": 40.0, "CVRPP": 20.0}.get(name, 0.4)
    case = Case(name, tiny(name, variant, 6), trips=trips, length_weight=weight)
    plans = every_plan(CUSTOMERS, trips == "multi")
    for b in range(len(case)):
        best = case.cost(plans, b).min()
        assert case.solve(pyvrp, b)[1] == pytest.approx(best, abs=1e-5 * max(1.0, abs(best))), f"instance {b}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VRPP", "CVRPP"])
def test_it_equals_enumeration_with_windows(name):
    """100 instances of 5 customers each, windows and service times by the law of our generator."""
    instances = drawn(name, CUSTOMERS, 100, seed=21, time_windows=True)
    options = {"length_weight": {"VRPP": 40.0, "CVRPP": 20.0}[name]}
    best = solve(name, instances, "exact", **options)
    found = solve(name, instances, "pyvrp", iterations=200, **options)
    np.testing.assert_allclose(found.cost, best.cost, rtol=1e-4, atol=1e-4)
    windows = {"time_windows", "service_time", "speed"}
    free = solve(name, {k: v for k, v in instances.items() if k not in windows}, "exact", **options)
    assert (free.cost < best.cost - 1e-3).mean() > 0.2


@pytest.mark.long
def test_x_n101_k25_within_half_a_percent():
    """CVRPLIB: 27591 is the optimum; 5000 iterations."""
    found = solve("CVRP", read(published_file("routing/cvrplib/X-n101-k25.vrp")), "pyvrp", iterations=5000)
    assert 27591 <= found.cost[0] <= 1.005 * 27591


def test_ftv33_by_ortools():
    """TSPLIB: 34 cities, asymmetric distances, optimum 1286."""
    pytest.importorskip("ortools", reason="needs the extra 'solvers'")
    instance = read(published_file("routing/atsp/ftv33.atsp"))
    assert solve("TSP", instance, "ortools", iterations=3000).cost.tolist() == [1286.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n", "count", "iterations", "printed", "within"),
    [
        ("TSP", 20, 200, 50, 3.83, 0.02),
        pytest.param("TSP", 50, 200, 100, 5.70, 0.02, marks=pytest.mark.long),
        pytest.param("CVRP", 20, 200, 200, 6.13, 0.025, marks=pytest.mark.long),
        pytest.param("TSP", 100, 200, 300, 7.77, 0.02, marks=pytest.mark.long),
        pytest.param("CVRP", 50, 100, 400, 10.37, 0.025, marks=pytest.mark.long),
        pytest.param("CVRP", 100, 50, 3000, 15.56, 0.025, marks=pytest.mark.long),
    ],
)
def test_means_are_the_published_ones(name, n, count, iterations, printed, within):
    """Near-optimal means of Kool et al. 2019 on instances of our generator."""
    instances = drawn(name, n, count, seed=41)
    found = solve(name, instances, "pyvrp", iterations=iterations, workers=2)
    assert found.cost.mean() == pytest.approx(printed, rel=within)
