"""The greedy policy of the profit and waste worlds chooses by hand-made numbers, and beats going to the nearest."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.solvers import evaluate, greedy, nearest, policies_for, random_policy, rollout

WORLDS = ("VRPP", "CVRPP", "WCVRP", "CWCVRP", "SCWCVRP", "SDWCVRP")
PLACES = [[0, 0], [1, 0], [2, 0], [0, 5]]
PRIZES = [0, 3, 5, 2]


def played(name, fields, **config):
    """The actions of greedy in one episode of one instance, without what pads them, and its return."""
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
    """Out to 2 for 5 - 2, though 1 is nearer; 1 lies on the way home; 3 costs over 9 and brings 2."""
    assert played("VRPP", {"locs": PLACES, "prize": PRIZES}) == ([2, 1], 4.0)


def test_mandatory_customers_come_first():
    """3 is the worst of all; from there 2 brings 5 - 2.39 and 1 brings 3 - 1.10."""
    actions, _ = played("VRPP", {"locs": PLACES, "prize": PRIZES, "must_go": [False, False, False, True]})
    assert actions == [3, 2, 1]


def test_the_better_of_two_mandatory_customers():
    """Both lose: 2 - 5 at customer 3, 0 - 2 at customer 2, though that has the higher number of the two."""
    fields = {"locs": [[0, 0], [0, 5], [0, -2]], "prize": [0, 2, 0], "must_go": [False, True, True]}
    assert played("VRPP", fields)[0] == [2, 1]


def test_where_nothing_pays_it_stays_at_home():
    """The empty tour is a tour."""
    assert played("VRPP", {"locs": PLACES, "prize": PRIZES}, length_weight=9.0) == ([], 0.0)


def test_a_weight_that_does_not_fit_is_passed_by():
    """After the 5 of customer 2 the 3 of customer 1 are over the 6 that the truck holds."""
    fields = {"locs": PLACES, "prize": PRIZES, "weight": PRIZES, "capacity": 6.0}
    assert played("CVRPP", fields) == ([2], 1.0)


@pytest.mark.parametrize(("price", "best"), [(10.0, [1]), (0.0, [])])
def test_a_full_bin_is_worth_its_overflow(price, best):
    """1 + 10 - 3 of the full bin against 0.9 - 1 of the other; without the price neither pays."""
    assert played("WCVRP", bins(waste=[0, 1, 0.9]), overflow_weight=price)[0] == best


def test_an_empty_truck_leaves_again():
    """Two full bins, a truck of one: the nearer pays more."""
    assert played("CWCVRP", bins(waste=[0, 1, 1]))[0] == [2, 0, 1]


def test_it_goes_by_what_is_expected():
    """The bin that should be full, not the one that is."""
    fields = bins(expected0=[0, 1, 0.5], real_waste=[0, 0.5, 1])
    actions, _ = played("SCWCVRP", fields)
    assert actions == [1]


@pytest.mark.parametrize(("fill", "best"), [(0.6, [1]), (0.3, [])])
def test_a_bin_that_the_night_fills_is_worth_its_overflow(fill, best):
    """Half full, and 0.6 come for sure: 0.5 + 10 - 3. With 0.3 to come it can wait."""
    fields = bins(initial_waste=[0, 0.5, 0], fill_mean=[0, fill, 0], fill_std=[0, 0, 0], daily_fill=[[0, fill, 0]])
    assert played("SDWCVRP", fields, horizon=1)[0] == best


@pytest.mark.parametrize("name", WORLDS)
def test_it_beats_the_nearest_customer(name):
    """200 instances of 20 customers, on each the same: better by more than 4 standard errors of the difference."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=200, num_loc=20, illegal="raise")
    gap = evaluate(world, greedy, 200, seed=2).returns - evaluate(world, nearest, 200, seed=2).returns
    assert gap.mean() > 4 * gap.std(ddof=1) / np.sqrt(200)


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_the_first_to_beat_after_random(name):
    """And the nearest customer is still offered."""
    offered = policies_for(f"milkrun/{name}-v0")
    assert list(offered)[:3] == ["random", "greedy", "nearest"]
    assert offered["random"] is random_policy and offered["greedy"](0) is greedy
