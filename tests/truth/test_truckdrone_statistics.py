"""Means of policies match those of an independent scalar model of the same rules, 4,096 episodes.

The mean of greedy under the published rules, 114.16 and 8.4 steps, is our own. The table has 113.92 and 10.8 steps, but
the recorded greedy episodes, which `test_truckdrone_greedy` replays, follow the definition used here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import milkrun
from milkrun.solvers import evaluate, random_policy
from milkrun.solvers.delivery import Lookahead, greedy, parked

pytestmark = pytest.mark.truth


def world(rows: int = 1024, **options: Any) -> Any:
    return milkrun.make("milkrun/TruckDrone-v0", rows, seed=1, autoreset="disabled", **options)


class Anything:
    """Uniform over all actions, allowed or not."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(9)

    def __call__(self, w: Any) -> np.ndarray:
        return np.stack([self.rng.integers(0, n, w.num_envs) for n in w.action.nvec(w.sizes)], axis=1)


@pytest.mark.parametrize(
    ("preset", "policy", "mean", "within", "steps"),
    [
        ("published", "random", 112.15, 0.10, 28.5),
        ("published", "greedy", 114.16, 0.03, 8.4),
        ("published", "anything", 43.5, 4.5, 139.7),
        ("default", "random", -52.4, 1.3, 198.9),
        ("default", "anything", -71.27, 1.3, 200.0),
        ("default", "greedy", 34.4, 0.5, 89.2),
        ("default", "parked", -38.18, 1.3, 197.5),
    ],
)
def test_policies_score_what_the_independent_model_scored(
    preset: str, policy: str, mean: float, within: float, steps: float
):
    """Returns within the tolerance of the table, steps within one (unmasked play of the published rules: five)."""
    play = {"random": random_policy(3), "greedy": greedy, "parked": parked, "anything": Anything()}[policy]
    result = evaluate(world(preset=preset), play, 4096, seed=11)
    assert abs(result.mean - mean) <= within
    assert abs(result.lengths.mean() - steps) <= (5.0 if (preset, policy) == ("published", "anything") else 1.0)


@pytest.mark.parametrize("episodes", [64, pytest.param(256, marks=pytest.mark.long)])
def test_lookahead_is_never_below_greedy_and_nearly_always_above(episodes: int):
    """42.0 +- 0.5 on instances of the default, above greedy on 98 % of them, by more than 1 on 90 %."""
    look = evaluate(world(episodes), Lookahead(), episodes, seed=7)
    base = evaluate(world(episodes), greedy, episodes, seed=7)
    gain = look.returns - base.returns
    assert gain.min() >= -1e-9
    assert abs(look.mean - 42.0) <= 0.5
    assert (gain > 1e-9).mean() >= 0.98 and (gain > 1.0).mean() >= 0.9


@pytest.mark.parametrize(
    ("policy", "served", "lateness", "on_time", "energy"),
    [("random", 2.75, 106.0, 0.17, 7.50), ("parked", 3.12, 10.9, 0.43, 9.18), ("greedy", 5.99, 44.8, 0.66, 4.17)],
)
def test_episodes_look_as_those_of_the_independent_model(
    policy: str, served: float, lateness: float, on_time: float, energy: float
):
    """Customers served, steps late, share of all customers on time, batteries used: within four standard errors, and
    half a unit of the table's last digit."""
    play = {"random": random_policy(3), "greedy": greedy, "parked": parked}[policy]
    result = evaluate(world(512), play, 1024, seed=12)
    for name, want, digit, scale in (
        ("served", served, 0.01, 1),
        ("lateness", lateness, 0.1, 1),
        ("on_time", on_time, 0.01, 6),
        ("energy", energy, 0.01, 1),
    ):
        mean, error = result.kpi(name)
        assert abs(mean / scale - want) <= 4 * error / scale + digit / 2, (name, mean / scale, want)
