"""The rolling horizon plans every morning, and beats the nearest customer."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError
from milkrun.solvers import RollingHorizon, evaluate, nearest, policies_for
from milkrun.solvers.rolling import chance_full


@pytest.mark.parametrize("name", ["SCWCVRP", "SDWCVRP"])
def test_it_beats_nearest_and_is_never_illegal(name):
    """30 episodes of 15 bins; the name 'rolling' finds it."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=30, num_loc=15, illegal="raise")
    policy = policies_for(f"milkrun/{name}-v0")["rolling"](0)
    assert evaluate(world, policy, 30, seed=3).mean > evaluate(world, nearest, 30, seed=3).mean


def test_the_probability_of_a_full_bin_is_that_of_the_gamma():
    """Compared with scipy, shapes 1 to 10; 0 or 1 without capacity left, or without variance."""
    stats = pytest.importorskip("scipy.stats")
    room = np.linspace(0.01, 0.6, 40)
    for shape, scale in ((1.0, 0.08), (3.0, 0.06), (10.0, 0.02)):
        chance = chance_full(room, shape * scale, np.sqrt(shape) * scale)
        assert np.abs(chance - stats.gamma.sf(room, shape, scale=scale)).max() < 0.01
    assert chance_full(np.array([0.0, 0.1, 0.3]), 0.2, 0.0).tolist() == [1.0, 1.0, 0.0]


def test_unknown_routers_and_rules_are_refused():
    """The message has the known ones."""
    with pytest.raises(ConfigError, match="savings"):
        RollingHorizon(router="magic")
    with pytest.raises(ConfigError, match="lookahead"):
        RollingHorizon(rule="magic")


@pytest.mark.parametrize("name", ["SCWCVRP", "SDWCVRP"])
def test_repeated_calls_return_the_same_actions(name):
    """The plan advances when a row is stepped, not when the policy is called; rows may be stepped one by one."""
    world = milkrun.make(f"milkrun/{name}-v0", num_envs=6, num_loc=8, seed=3, autoreset="disabled")
    for some in (False, True):
        world.reset(seed=3)
        policy = RollingHorizon(router="insertion")
        for turn in range(40):
            actions = policy(world)
            assert (policy(world) == actions).all()
            live = np.flatnonzero(~(world.terminated | world.truncated))
            live = live[turn % 2 :: 2] if some else live
            world.step(actions[live], rows=live)
    whole = RollingHorizon(router="insertion")
    assert evaluate(world, whole, 6, seed=3).returns.tolist() == evaluate(world, Twice(), 6, seed=3).returns.tolist()


class Twice:
    """The same policy, called twice at each step."""

    def __init__(self):
        self.policy = RollingHorizon(router="insertion")

    def __call__(self, world):
        self.policy(world)
        return self.policy(world)
