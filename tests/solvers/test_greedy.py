"""The greedy policy of the profit and waste worlds: choices by hand, and comparison with the nearest customer."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.solvers import evaluate, greedy, nearest, policies_for, random_policy, rollout

WORLDS = ("VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
PLACES = [[0, 0], [1, 0], [2, 0], [0, 5]]
PRIZES = [0, 3, 5, 2]


def played(name, fields, **config):
    """The actions of greedy in one episode of one instance, without padding, and its return."""
    nodes = len(fields["locs"])
    options = {"length_weight": 1.0, **config}
    world = milkrun.make(f"milkrun/{name}-v0", num_loc=nodes - 1, autoreset="disabled", illegal="raise", **options)
    world.reset(instance={key: np.asarray(value)[None] for key, value in typed(fields).items()})
    rollout(world, greedy)
    return np.trim_zeros(world.solution()[0].ravel(), "b").tolist(), float(world.objective[0])


def typed(fields):
    arrays = {key: np.asarray(value) for key, value in fields.items()}
    return {key: a if a.dtype == bool else a.astype(np.float32) for key, a in arrays.items()}


def bins(**fields):
    """A bin 3 to the right and one 1 to the left."""
    return {"locs": [[0, 0], [3, 0], [-1, 0]], "capacity": 1.0, **fields}


def test_the_best_of_gain_less_detour():
    """Out to 2 for 5 - 2, though 1 is nearer; 1 lies on the way home; 3 costs over 9 and gains 2."""
    assert played("VRPP", {"locs": PLACES, "prize": PRIZES}) == ([2, 1], 4.0)


def test_mandatory_customers_come_first():
    """3 is the worst of all; from there 2 gains 5 - 2.39 and 1 gains 3 - 1.10."""
    actions, _ = played("VRPP", {"locs": PLACES, "prize": PRIZES, "must_go": [False, False, False, True]})
    assert actions == [3, 2, 1]


def test_the_better_of_two_mandatory_customers():
    """Both lose: 2 - 5 at customer 3, 0 - 2 at customer 2."""
    fields = {"locs": [[0, 0], [0, 5], [0, -2]], "prize": [0, 2, 0], "must_go": [False, True, True]}
    assert played("VRPP", fields)[0] == [2, 1]


def test_without_profitable_customers_it_stays_at_the_depot():
    """The empty tour is legal."""
    assert played("VRPP", {"locs": PLACES, "prize": PRIZES}, length_weight=9.0) == ([], 0.0)


def test_a_weight_that_does_not_fit_is_skipped():
    """After the 5 of customer 2 the 3 of customer 1 exceed the truck's 6."""
    fields = {"locs": PLACES, "prize": PRIZES, "weight": PRIZES, "capacity": 6.0}
    assert played("CVRPP", fields) == ([2], 1.0)


@pytest.mark.parametrize(("price", "best"), [(10.0, [1]), (0.0, [])])
def test_a_full_bin_is_worth_its_overflow(price, best):
    """1 + 10 - 3 for the full bin compared with 0.9 - 1 for the other; without the price neither pays."""
    assert played("WCVRP", bins(waste=[0, 1, 0.9]), overflow_weight=price)[0] == best


def test_an_empty_truck_leaves_again():
    """Two full bins, a truck of one: the nearer gains more."""
    assert played("CWCVRP", bins(waste=[0, 1, 1]))[0] == [2, 0, 1]


def test_it_uses_the_expected_level():
    """It chooses the bin expected to be full, not the one that is full."""
    fields = bins(expected0=[0, 1, 0.5], real_waste=[0, 0.5, 1])
    actions, _ = played("SCWCVRP", fields)
    assert actions == [1]


@pytest.mark.parametrize(("fill", "best"), [(0.6, [1]), (0.3, [])])
def test_a_bin_that_overflows_at_night_is_worth_its_overflow(fill, best):
    """Half full, with a certain fill of 0.6: 0.5 + 10 - 3. With a fill of 0.3 it can wait."""
    fields = bins(initial_waste=[0, 0.5, 0], fill_mean=[0, fill, 0], fill_std=[0, 0, 0], daily_fill=[[0, fill, 0]])
    assert played("SDWCVRP", fields, horizon=1)[0] == best


@pytest.mark.parametrize("name", WORLDS)
def test_it_beats_the_nearest_customer(name):
    """200 instances of 20 customers, the same for both: better by more than 4 standard errors of the difference."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=200, num_loc=20, illegal="raise")
    gap = evaluate(world, greedy, 200, seed=2).returns - evaluate(world, nearest, 200, seed=2).returns
    assert gap.mean() > 4 * gap.std(ddof=1) / np.sqrt(200)


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_the_first_policy_after_random(name):
    """The nearest customer is still available."""
    offered = policies_for(f"milkrun/{name}-v0")
    assert list(offered)[:3] == ["random", "greedy", "nearest"]
    assert offered["random"] is random_policy and offered["greedy"](0) is greedy
