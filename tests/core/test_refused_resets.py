"""A reset that a law refuses leaves the world as it was: arrays, streams, given instances and readiness."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.core.instances import instances_of


class MoodyLaw:
    """Uniform places until `refuses` is set; then invalid places."""

    refuses = False

    def __call__(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.full((n, 2), np.nan) if self.refuses else rng.random((n, 2))


def moody_world(**options):
    law = MoodyLaw()
    return law, milkrun.make("milkrun/TSP-v0", 3, seed=4, num_loc=5, loc_distribution=law, **options)


def assert_same(world, before):
    for name, array in world.state_dict().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("how", [{}, {"seed": 9}, {"seed": [1, 2, 3]}, {"rows": [1]}, {"rows": [0, 2], "seed": 8}])
def test_a_refused_reset_changes_nothing(how):
    """Every array and stream stays, and the next accepted reset draws what it would have drawn."""
    law, world = moody_world()
    untroubled = moody_world()[1]
    for each in (world, untroubled):
        each.reset()
        each.step([2, 3, 4])
    before = world.state_dict()
    law.refuses = True
    with pytest.raises(ConfigError, match="loc_distribution"):
        world.reset(**how)
    assert_same(world, before)
    assert world.seed == 4
    law.refuses = False
    for each in (world, untroubled):
        each.step([1, 1, 1])
        each.reset(**how)
    assert_same(world, untroubled.state_dict())


@pytest.mark.parametrize("shared", [True, False])
def test_given_instances_outlive_a_refused_reset(shared):
    """A full reset drops given instances for drawn ones; where the law refuses, the rows still play the given ones."""
    law, world = moody_world()
    places = np.random.default_rng(1).random((1 if shared else 3, 5, 2))
    owner = {"instance_row": [0, 0, 0]} if shared else {}
    world.reset(instance={"locs": places, "n_nodes": [5] * len(places), **owner})
    world.step([2, 3, 4])
    before, count = world.state_dict(), world.num_instances
    law.refuses = True
    with pytest.raises(ConfigError, match="loc_distribution"):
        world.reset()
    assert world.num_instances == count == len(places)
    assert_same(world, before)
    world.step([1, 1, 1])
    gone = np.linalg.norm(places[-1, 4] - places[-1, 1])
    assert world.reward[2] == pytest.approx(-gone, rel=1e-5)  # by the instance of row 2
    law.refuses = False
    world.reset()
    assert world.num_instances == 3 and not world.given.any()


def test_a_world_whose_first_reset_is_refused_still_needs_one():
    """Nothing can be stepped before a reset that drew instances."""
    law, world = moody_world()
    law.refuses = True
    with pytest.raises(ConfigError):
        world.reset()
    with pytest.raises(ResetNeeded):
        world.step([1, 1, 1])
    law.refuses = False
    world.reset()
    world.step([1, 1, 1])
    assert world.i.tolist() == [1, 1, 1] and world.stream[:, 2].tolist() == [0, 0, 0]


def test_a_failed_law_of_the_library_is_undone_too():
    """Dial-a-ride whose duration leaves no room for a drawn request: the instances given before are played on."""
    options = dict(num_requests=2, num_agents=1)
    near = milkrun.make("milkrun/DARP-v0", 2, seed=3, side=1e-3, **options)
    near.reset()
    world = milkrun.make("milkrun/DARP-v0", 2, seed=3, side=1e6, service=0.0, max_duration=60.0, **options)
    given = instances_of(near)
    given["max_route_duration"], given["service_time"] = np.full(2, 60.0), 0 * given["service_time"]
    world.reset(instance=given)
    before = world.state_dict()
    with pytest.raises(ConfigError, match="the law found no request"):
        world.reset()
    assert_same(world, before)
