"""PyVRP behind `solve`: exact on tiny instances, never worse than our heuristics, windows kept."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.routing.generators import get_generator
from milkrun.solvers import solve

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")


@pytest.mark.parametrize("name", ["CVRP", "VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_it_finds_the_optimum_of_tiny_instances(name):
    """Five of 6 customers, by enumeration."""
    instances = get_generator(name.lower(), num_loc=6).generate(5, seed=1)
    exact = solve(name, instances, "exact").cost
    np.testing.assert_allclose(solve(name, instances, "pyvrp", iterations=300).cost, exact, atol=1e-4)


@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_it_equals_or_beats_our_heuristics(name):
    """Six instances of 20 customers, both cores."""
    instances = get_generator(name.lower(), num_loc=20).generate(6, seed=1)
    found = solve(name, instances, "pyvrp", iterations=1500, time_limit=10, workers=2).cost
    for method in ("nearest", "insertion", "2opt", "oropt", "ls"):
        assert (found <= solve(name, instances, method).cost + 1e-3).all()


def test_it_keeps_windows():
    """Three instances of 5 customers with windows, against enumeration."""
    instances = get_generator("vrpp", num_loc=5, time_windows=True).generate(3, seed=2)
    exact = solve("VRPP", instances, "exact").cost
    np.testing.assert_allclose(solve("VRPP", instances, "pyvrp", iterations=200).cost, exact, atol=1e-3)
