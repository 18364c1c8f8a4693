"""PCTSP-v0 beside its scalar reference, its checker, and the means of the literature's laws."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.instances import instances_of
from milkrun.routing.generators import PCTSPGenerator
from milkrun.routing.tasks import PCTSP as Task
from tests.reference.pctsp import PCTSP as Reference

RECTANGLE = [(0, 0), (3, 0), (3, 4), (0, 4)]


def given(prize, penalty, **more):
    """One row on the rectangle."""
    world = milkrun.make("milkrun/PCTSP-v0", 1, num_loc=3, autoreset="disabled", stochastic="real_prize" in more)
    one = {"locs": RECTANGLE, "prize": prize, "penalty": penalty, "prize_required": 1.0, **more}
    world.reset(instance={name: np.array([value], np.float32) for name, value in one.items()})
    return world


def test_the_depot_opens_with_the_required_prize():
    """Prizes 1, .4, .6 with 1 required: after customers 2 and 3, not after one of them. The tour of 1 alone costs
    6 and the penalties 1 and 5."""
    world = given([0, 1, 0.4, 0.6], [0, 2, 1, 5])
    world.step([2])
    assert world.action_mask[0].tolist() == [False, True, False, True]
    assert world.why_illegal(0, 0) == "collected 0.4 of the 1 required"
    world.step([3])
    assert world.action_mask[0].tolist() == [True, True, False, False]
    world = given([0, 1, 0.4, 0.6], [0, 2, 1, 5])
    world.step([1])
    world.step([0])
    assert world.terminated[0] and world.objective[0] == -12


def test_a_visit_reveals_the_real_prize():
    """Of customer 1 the expected prize is 1 and the real one .1; all visited opens the depot below the requirement."""
    world = given([0, 1, 1, 1], [0, 1, 1, 1], real_prize=[0, 0.1, 0.2, 0.3])
    world.step([1])
    assert world.known_prize[0].tolist() == pytest.approx([0, 0.1, 1, 1]) and not world.action_mask[0, 0]
    world.step([2])
    world.step([3])
    assert world.collected[0] == pytest.approx(0.6) and world.action_mask[0].tolist() == [True, False, False, False]


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("n", [1, 3, 12])
def test_it_equals_the_reference_and_the_checker(n, stochastic):
    """16 rows of random play: masks and rewards at each step, then the cost by the checker."""
    world = milkrun.make(
        "milkrun/PCTSP-v0", 16, num_loc=n, stochastic=stochastic, prize_required=0.7, seed=4, autoreset="disabled"
    )
    world.reset()
    data = instances_of(world)
    models = []
    for b in range(16):
        real = {"real_prize": data["real_prize"][b]} if stochastic else {}
        one = data["locs"][b], data["prize"][b], data["penalty"][b]
        models.append(Reference(*one, prize_required=float(data["prize_required"][b]), **real))
    while not world.done.all():
        live = np.flatnonzero(~world.done)
        actions = world.sample_actions(2)[live]
        for b in live.tolist():
            assert set(np.flatnonzero(world.action_mask[b]).tolist()) == models[b].mask()
        world.step(actions, rows=live)
        for b, action in zip(live.tolist(), actions.tolist(), strict=True):
            assert world.reward[b] == pytest.approx(models[b].step(action), abs=1e-5)
    cost = Task.get_costs({name: data[name] for name in data if name != "n_nodes"}, world.solution())[0]
    assert cost == pytest.approx(-world.objective, abs=1e-4)


def test_means_of_the_law():
    """Prizes below 4 / n, penalties below 3 K / n with K = 2 at 20 customers; real prizes have the expected mean."""
    drawn = PCTSPGenerator(num_loc=20, stochastic=True).generate(20_000, seed=1)
    assert drawn["prize"].mean() == pytest.approx(2 / 20, rel=0.005) and drawn["prize"].max() < 0.2
    assert drawn["penalty"].mean() == pytest.approx(3 / 20, rel=0.005) and drawn["penalty"].max() < 0.3
    assert (drawn["real_prize"] / drawn["prize"]).mean() == pytest.approx(1.0, abs=0.005)


def test_enumeration_of_four_customers():
    """The best return of all masked sequences is the best plan by the checker."""
    from itertools import permutations

    world = milkrun.make("milkrun/PCTSP-v0", 1, num_loc=4, seed=6, autoreset="disabled")
    for _ in range(3):
        world.reset()
        plans = [(*order, 0) for m in range(5) for order in permutations(range(1, 5), m)]
        padded = np.array([[*plan, *[0] * (5 - len(plan))] for plan in plans])
        data = {name: array for name, array in instances_of(world).items() if name != "n_nodes"}
        best = Task.get_costs(data, padded, on_violation="inf")[0].min()
        found, open_states = np.inf, [world.state_dict()]
        while open_states:
            here = open_states.pop()
            for action in np.flatnonzero(here["action_mask"][0]):
                world.load_state_dict(here)
                world.step([action])
                if world.terminated[0]:
                    found = min(found, -world.objective[0])
                else:
                    open_states.append(world.state_dict())
        assert found == pytest.approx(best, abs=1e-5)
