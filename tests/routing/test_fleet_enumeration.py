"""On small random instances the checkers of VRP, PDP and PCTSP accept exactly the plans that the references finish."""

from __future__ import annotations

import numpy as np
import pytest

from milkrun.routing.tasks import PDP
from tests.reference import pdp
from tests.reference.fleet import finished_rows
from tests.routing.fleet_cases import (
    PAIR_RULES,
    PAIRED,
    RULE_SETS,
    RULES,
    SPLIT,
    agree,
    mixed,
    paired_plans,
    pctsp_agrees,
    pdp_agrees,
    split_agrees,
    vrp_agrees,
)

SIZES = (1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4)


@pytest.mark.parametrize("name", RULE_SETS)
def test_vrp_plans_of_a_rule_set(name):
    """Up to four customers and two depots."""
    rng = np.random.default_rng(1)
    assert sum(vrp_agrees(rng, n, RULE_SETS[name]) for n in SIZES) >= len(SIZES)


def test_vrp_plans_of_mixed_rules():
    """Any rules together."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        vrp_agrees(rng, int(rng.integers(2, 4)), mixed(rng, RULES))


@pytest.mark.parametrize("name", SPLIT)
def test_split_plans(name):
    """Customers that need several visits."""
    rng = np.random.default_rng(3)
    assert sum(split_agrees(rng, n, SPLIT[name], visits=4) for n in (1, 2, 2, 3, 3)) >= 5


@pytest.mark.parametrize("name", PAIRED)
def test_pdp_plans_of_a_rule_set(name):
    """One or two pairs; every order of all nodes is tried."""
    rng = np.random.default_rng(4)
    assert sum(pdp_agrees(rng, pairs, PAIRED[name]) for pairs in (1, 2, 2, 2, 2, 2)) >= 6


def test_pdp_plans_of_three_pairs():
    """Any rules together; the orders in which each pickup comes first."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        pdp_agrees(rng, 3, mixed(rng, PAIR_RULES))


def test_pdp_plans_that_need_the_search():
    """In 4 of 58 plans no delivery can be put into the order of those aboard, but another order is in time."""
    fields = {
        "locs": [(3, 0), (3, 2), (3, 2), (1, 0), (2, 4), (0, 2), (2, 0)],
        "num_depots": 1,
        "time_windows": [(0, 99)] * 4 + [(2, 15), (3, 11), (2, 11)],
        "vehicles": 3,
        "unserved_cost": 0.0,
    }
    assert agree(PDP, fields, pdp.PDP(**fields), paired_plans(3, 1, 1), limited=False) == 58
    assert len(list(finished_rows(pdp.PDP(**fields, search_limit=0)))) == 54


def test_pctsp_plans():
    """Tours of up to five customers, with expected and with real prizes."""
    rng = np.random.default_rng(6)
    assert sum(pctsp_agrees(rng, n) for n in (1, 2, 3, 4, 5, 5)) >= 6
