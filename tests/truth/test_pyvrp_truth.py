"""PyVRP against published optima and plain enumeration: it reaches both and beats neither.

The files are not part of the repository: they are read from the folder MILKRUN_DATA, or `shared/data` beside it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from milkrun.routing.instances import read
from milkrun.solvers import nearest, pyvrp, rollout
from tests.solvers.backends import Case, every_plan
from tests.solvers.plays import drawn

DATA = Path(os.environ.get("MILKRUN_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data") / "routing"

pytest.importorskip("pyvrp", reason="needs the extra 'solvers'")
pytestmark = pytest.mark.truth

CUSTOMERS = 5


@pytest.mark.skipif(not DATA.is_dir(), reason="no instance files: set MILKRUN_DATA to the folder that has routing/")
@pytest.mark.parametrize(("name", "optimum"), [("A-n32-k5", 784), ("P-n16-k8", 450), ("E-n13-k4", 247)])
def test_published_optima(name, optimum):
    """CVRPLIB: found within seconds, to the last digit, with the file's own rounding."""
    instance = read(DATA / "cvrplib" / f"{name}.vrp")
    case = Case("CVRP", {key: np.asarray(value)[None] for key, value in instance.arrays().items()}, **instance.config)
    assert case.solve(pyvrp, time_limit=8.0)[1] == optimum


def tiny(name, variant, count):
    """Instances of 5 customers: plain, with mandatory ones that surely fit, or with trips bounded."""
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
    """6 instances each: every plan priced by the checker, the cheapest is PyVRP's. Length is cheap enough to matter
    little, so that customers compete for the truck."""
    weight = {"VRPP": 40.0, "CVRPP": 20.0}.get(name, 0.4)
    case = Case(name, tiny(name, variant, 6), trips=trips, length_weight=weight)
    plans = every_plan(CUSTOMERS, trips == "multi")
    for b in range(len(case)):
        best = case.cost(plans, b).min()
        assert case.solve(pyvrp, b)[1] == pytest.approx(best, abs=1e-5 * max(1.0, abs(best))), f"instance {b}"


@pytest.mark.parametrize("name", ["VRPP", "CVRPP", "WCVRP", "CWCVRP"])
def test_defaults_bite(name):
    """Routing spec 12.6 on 10 instances of 20 customers: a quarter to two thirds are skipped, and the answer beats
    both the empty plan and those that serve everybody (whom one truck may not hold)."""
    case = Case(name, drawn(name, 20, 10, seed=31))
    skipped = []
    for b in range(len(case)):
        actions, cost, _ = case.solve(pyvrp, b, time_limit=0.4)
        served = [a for a in actions if a]
        skipped.append(1 - len(served) / 20)
        assert cost <= case.cost([[0]], b)[0]
        if served and len(served) < 20:
            assert cost < case.cost([visit_all(case, b)], b)[0]
    assert 0.25 <= np.mean(skipped) <= 0.65


def visit_all(case, b):
    """Everybody, by the same solver: as if each of them had to be."""
    everyone = np.arange(21)[None] > 0
    required = np.repeat(everyone, len(case), axis=0)
    return pyvrp.solve_one(replace(case.problem, required=required), b, 0.3, 0)[0]


def test_mean_of_cvrp_20_is_the_published_one():
    """6.13 against 7.97 of the nearest allowed customer (routing spec 12.5, Kool et al. 2019), on 20 instances: their
    ratio, which hardly depends on the instance, within 3 of its standard errors."""
    case = Case("CVRP", drawn("CVRP", 20, 20, seed=41), autoreset="disabled")
    costs = np.array([case.solve(pyvrp, b, time_limit=0.4)[1] for b in range(len(case))])
    rollout(case.world, nearest)
    others = -case.world.objective
    ratio = costs.mean() / others.mean()
    error = np.std(costs - ratio * others, ddof=1) / np.sqrt(len(costs)) / others.mean()
    assert error < 0.02
    assert abs(ratio - 6.13 / 7.97) < 3 * error
