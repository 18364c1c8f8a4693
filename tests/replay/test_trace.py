"""The replay of a recorded episode gives forced returns and the levels of every morning."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.replay.days import days_of
from milkrun.replay.trace import days_driven, morning_levels
from milkrun.solvers import greedy, rollout

CORNERS = [[[0, 0], [3, 0], [3, 4], [0, 4]]]


def stochastic(recourse):
    """Expected .5, .5, .3, really .5, .7, .3, on a truck of 1: the second stop fails."""
    world = milkrun.make("milkrun/SCWCVRP-v0", num_loc=3, recourse=recourse, length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": CORNERS,
            "expected0": [[0, 0.5, 0.5, 0.3]],
            "real_waste": [[0, 0.5, 0.7, 0.3]],
            "capacity": [1.0],
            "max_waste": [1.0],
        }
    )
    return world


@pytest.mark.parametrize(
    ("recourse", "actions", "path"),
    [
        ("return", [1, 2, 2, 3, 0], [1, 2, 0, 2, 3, 0]),
        ("round_trip", [1, 2, 3, 0], [1, 2, 0, 2, 3, 0]),
    ],
)
def test_forced_returns_are_driven_without_an_action(recourse, actions, path):
    """Home and, with a round trip, back."""
    world = stochastic(recourse)
    for action in actions:
        world.step([action])
    assert days_driven(world, 0) == [path]
    legs = np.diff(np.array(CORNERS[0], float)[[0, *path]], axis=0)
    assert np.hypot(*legs.T).sum() == pytest.approx(float(world.tour_length[0]))


def test_levels_of_every_morning_and_the_end():
    """.5, 1, .3; bins 1 and 2 are emptied, .3, .2, .2 come overnight; a day off, then .3, .3, .6."""
    world = milkrun.make("milkrun/SDWCVRP-v0", num_loc=3, horizon=2, length_weight=0.1, autoreset="disabled")
    world.reset(
        instance={
            "locs": CORNERS,
            "initial_waste": [[0, 0.5, 1.0, 0.3]],
            "capacity": [1.6],
            "max_waste": [1.0],
            "daily_fill": [[[0, 0.3, 0.2, 0.2], [0, 0.3, 0.3, 0.6]]],
            "fill_mean": np.zeros((1, 4)),
            "fill_std": np.zeros((1, 4)),
        }
    )
    for action in (1, 2, 0, 0, 0):
        world.step([action])
    assert days_driven(world, 0) == [[1, 2, 0, 0], [0]]
    mornings = [[0.5, 1, 0.3], [0.3, 0.2, 0.5], [0.6, 0.5, 1]]
    np.testing.assert_allclose(morning_levels(world, 0)[:, 1:], mornings, atol=1e-6)


def test_days_sum_to_the_return():
    """Profit by day, from the checker, compared with the world's reward."""
    world = milkrun.make("milkrun/SDWCVRP-v0", num_envs=6, seed=4, num_loc=10, horizon=3, autoreset="disabled")
    world.reset()
    rollout(world, greedy)
    days = days_of(world)
    np.testing.assert_allclose(days.profit.sum(1), world.objective, atol=1e-3)
    assert (days.waste_unit, days.length_unit) == ("bins", "length")
    np.testing.assert_allclose(days.waste.sum(1), world.collected, rtol=1e-5)
