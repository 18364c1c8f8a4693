"""Results of the baselines of drone tracking lie within fixed bands in every scene."""

import pytest

from milkrun.solvers import evaluate, random_policy
from milkrun.solvers.tracking import Blob, servo, stay
from milkrun.tracking import Tracking, TrackingConfig, TrackingVelocity

SCENES = ("citystreet", "downtown", "lake", "village", "desert", "farmland")
LEAST = {"citystreet": 0.96, "downtown": 0.88}
"""TSR of `servo` in scenes with buildings; in others 0.97, with CR 340."""


def figures(policy, episodes, **options):
    """Mean TSR and CR."""
    config = TrackingConfig(**{"ground_cell": 2.0, **options})
    cls = TrackingVelocity if config.action_mode == "velocity" else Tracking
    world = cls(min(episodes, 125), config, seed=0, autoreset="disabled")
    kpis = evaluate(world, policy, episodes, 0).kpis
    return kpis["TSR"].mean(), kpis["CR"].mean()


@pytest.mark.parametrize("episodes", [125, pytest.param(500, marks=pytest.mark.long)])
@pytest.mark.parametrize("scene", SCENES)
def test_servo_follows_and_chance_does_not(scene, episodes):
    """`servo`, which knows the target's position, keeps it; `stay` and random flight see it a tenth to a half of the
    time."""
    tsr, cr = figures(servo, episodes, scene=scene)
    assert tsr >= LEAST.get(scene, 0.97)
    assert cr >= 340 or scene in LEAST
    for policy in (stay, random_policy(0)):
        assert 0.10 <= figures(policy, episodes, scene=scene)[0] <= 0.55


def test_order_on_the_straight_road():
    """A red car by day: `servo` knows its position, `blob` sees the colour, `stay` does nothing."""
    options = {"curriculum": "straight_mono", "size": 42}
    known, seen, still = (figures(policy, 40, **options) for policy in (servo, Blob(), stay))
    assert known[0] >= 0.99 and seen[0] >= 0.90
    assert known[1] > seen[1] > still[1]


def test_servo_flies_by_velocity_too():
    """The same law with continuous commands."""
    assert figures(servo, 64, action_mode="velocity")[0] >= 0.95
