"""OR-Tools behind `solve`."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.routing.generators import get_generator
from milkrun.solvers import solve

pytest.importorskip("ortools", reason="needs the extra 'solvers'")


@pytest.mark.parametrize("name", ["TSP", "CVRP"])
def test_it_finds_the_optimum_of_tiny_instances(name):
    """Three of 7 nodes or customers."""
    instances = get_generator(name.lower(), num_loc=7).generate(3, seed=1)
    exact = solve(name, instances, "exact").cost
    np.testing.assert_allclose(solve(name, instances, "ortools", time_limit=0.2).cost, exact, atol=1e-5)
