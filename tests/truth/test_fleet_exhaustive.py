"""300 random instances for each rule set: the checkers of VRP, PDP and PCTSP accept exactly what the references finish.

The instances have up to four customers or three pairs and up to two depots. No mask of a live row is empty.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.routing.fleet_cases import (
    PAIR_RULES,
    PAIRED,
    RULE_SETS,
    RULES,
    SPLIT,
    mixed,
    pctsp_agrees,
    pdp_agrees,
    split_agrees,
    vrp_agrees,
)

pytestmark = pytest.mark.long

INSTANCES = 300


@pytest.mark.parametrize("name", RULE_SETS)
def test_vrp_plans_of_a_rule_set(name):
    """Sets of plans and all costs are equal."""
    rng = np.random.default_rng(11)
    for _ in range(INSTANCES):
        vrp_agrees(rng, int(rng.integers(1, 5)), RULE_SETS[name])


def test_vrp_plans_of_mixed_rules():
    """Each rule with probability one half."""
    rng = np.random.default_rng(12)
    for _ in range(10 * INSTANCES):
        vrp_agrees(rng, int(rng.integers(2, 5)), mixed(rng, RULES))


@pytest.mark.parametrize("name", SPLIT)
def test_split_plans(name):
    """Customers that need several visits."""
    rng = np.random.default_rng(13)
    for _ in range(INSTANCES):
        split_agrees(rng, int(rng.integers(1, 4)), SPLIT[name], visits=4 if "depots" in SPLIT[name] else 5)


@pytest.mark.parametrize("name", PAIRED)
def test_pdp_plans_of_a_rule_set(name):
    """Up to three pairs; of one or two, every order of all nodes is tried."""
    rng = np.random.default_rng(14)
    for _ in range(INSTANCES):
        pdp_agrees(rng, int(rng.integers(1, 4)), PAIRED[name])


def test_pdp_plans_of_mixed_rules():
    """Each rule with probability one half."""
    rng = np.random.default_rng(15)
    for _ in range(3 * INSTANCES):
        pdp_agrees(rng, int(rng.integers(1, 4)), mixed(rng, PAIR_RULES))


def test_pctsp_plans():
    """With expected and with real prizes."""
    rng = np.random.default_rng(16)
    for _ in range(INSTANCES):
        pctsp_agrees(rng, int(rng.integers(1, 6)))
