"""With the default weights and capacities good plans skip customers."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.solvers import solve
from tests.solvers.plays import drawn

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")
pytestmark = [pytest.mark.truth, pytest.mark.slow]

INSTANCES = 10
OVERFLOW = 10.0  # the default price of a full bin that is not emptied


def by_pyvrp(name, instances):
    """Limited by iterations, so equal on every machine."""
    return solve(name, instances, "pyvrp", iterations=500)


def stays_at_home(name, instances):
    """The cost of the empty plan: nothing, or the overflow of every full bin."""
    full = instances["waste"] >= 1 if "waste" in instances else np.zeros((INSTANCES, 1))
    return OVERFLOW * full.sum(axis=1)


@pytest.mark.parametrize("n", [20, *(pytest.param(n, marks=pytest.mark.long) for n in (50, 100))])
@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_a_quarter_to_two_thirds_are_skipped(name, n):
    """On average over 10 instances. Each plan beats the plan that visits as many as the trucks hold, and without
    mandatory customers also the empty plan."""
    instances = drawn(name, n, INSTANCES, seed=31)
    found = by_pyvrp(name, instances)
    served = (found.actions > 0).sum(axis=1)
    assert 0.25 <= 1 - served.mean() / n <= 0.65

    everyone = by_pyvrp(name, {**instances, "must_go": np.ones((INSTANCES, n), bool)})
    assert (found.cost < everyone.cost)[served < n].all()
    assert found.cost.mean() < everyone.cost.mean()
    empty = stays_at_home(name, instances)
    free = ~instances.get("must_go", np.zeros((INSTANCES, n), bool)).any(axis=1)
    assert (found.cost <= empty)[free].all()
    assert found.cost.mean() < empty.mean()
