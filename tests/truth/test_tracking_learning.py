"""PPO of Stable-Baselines3 learns from pixels to keep a car in the picture."""

import pytest

from milkrun.solvers import evaluate, random_policy
from milkrun.solvers.tracking import stay
from milkrun.tracking import Tracking, TrackingConfig
from tests.truth.tracking_learner import EASY, evaluate_model, learn

pytestmark = [pytest.mark.truth, pytest.mark.usefixtures("torch_alone")]


def interval(result):
    """95 % interval of the mean TSR."""
    mean, error = result.kpi("TSR")
    return mean - 1.96 * error, mean + 1.96 * error


@pytest.mark.slow
def test_a_car_on_a_straight_road_is_followed():
    """16,384 steps of pictures of 24 x 24: the car is in the window half of the time or more. The intervals of `stay`
    and random flight (0.20 and 0.18) lie below."""
    world = Tracking(64, TrackingConfig.build(**EASY), seed=1000, autoreset="disabled")
    chance = [interval(evaluate(world, policy, 64, 1000)) for policy in (stay, random_policy(0))]
    low, _ = interval(evaluate_model(learn(16_384, **EASY), **EASY))
    assert low > 0.5
    assert low > max(high for _, high in chance) + 0.1


@pytest.mark.long
def test_it_is_followed_nearly_always():
    """200,000 steps: in the window nine tenths of the time or more (`blob`, which knows the colour: 0.998)."""
    low, _ = interval(evaluate_model(learn(200_000, **EASY), **EASY))
    assert low > 0.9
