"""Policies of picking from clutter: their choices on piles laid by hand, and the oracle's lookahead."""

from __future__ import annotations

import math

import numpy as np
import pytest

import milkrun
from milkrun.clutter import Clutter
from milkrun.clutter.stages import IDLE
from milkrun.core.errors import ConfigError
from milkrun.solvers import clutter as policies
from milkrun.solvers import evaluate, policies_for
from milkrun.solvers.clutter import Oracle, exposed, highest, lowest, oracle

ID = "milkrun/Clutter-v0"
FLAT = (math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0)  # the thin side of a pudding box, 35 mm, upright
THREE = {"box_objects": ("008_pudding_box",), "num_objects_per_type": 3, "bank_size": 1}
# Two lie on the floor, 1 lies across 0 and leaves a third of it visible.
PILE = [(-0.055, -0.04, 0.0375, *FLAT), (-0.055, 0.0, 0.0725, *FLAT), (0.05, 0.0, 0.0375, *FLAT)]


@pytest.fixture
def pile():
    """Two rows of that pile."""
    world = Clutter(2, Clutter.Config(**THREE), autoreset="disabled", illegal="raise")
    world.reset(instance={"init_pose": np.tile(np.array(PILE), (2, 1, 1))})
    return world


def small(rows, **options):
    config = Clutter.Config.preset("small_scene").replace(split="test", **options)
    world = Clutter(rows, config, autoreset="disabled", illegal="raise")
    world.reset(seed=0)
    return world


def test_the_pile_is_as_laid(pile):
    """Tops at 55, 90 and 55 mm; a third of 0 is visible, all of the others."""
    assert pile.top[0] == pytest.approx([0.055, 0.09, 0.055], abs=1e-6)
    assert pile.exposed[0] == pytest.approx([1 / 3, 1, 1], abs=1e-6)
    assert pile.action_mask.all()


def test_highest_takes_the_top_one(pile):
    """1 lies on 0; a row that may not take 1 takes 0, which is as high as 2 and has the lower number."""
    pile.action_mask[1, 1] = False
    assert highest(pile).tolist() == [1, 0]


def test_exposed_takes_the_most_visible_object(pile):
    """1 and 2 are fully visible, and 1 is higher; with 1 masked it takes 2, though 0 is as high."""
    pile.action_mask[1, 1] = False
    assert exposed(pile).tolist() == [1, 2]
    pile.exposed[0] = (0.5, 0.25, 0.25)  # visibility comes before height
    assert exposed(pile).tolist() == [0, 2]


def test_lowest_takes_the_bottom_one(pile):
    """0 and 2 lie equally low: the lower number, if allowed."""
    pile.action_mask[1, 0] = False
    assert lowest(pile).tolist() == [0, 2]


@pytest.mark.parametrize(("policy", "then"), [(highest, 0), (exposed, 2), (lowest, 2)])
def test_failed_objects_are_tried_last(pile, policy, then):
    """After a failure of the best one, the next best is taken; after one failure of each, the best one again."""
    favourite = int(policy(pile)[0])
    pile.fails[0, favourite] = 1
    assert policy(pile).tolist() == [then, favourite]
    pile.fails[0] = 1
    assert policy(pile).tolist() == [favourite, favourite]


def test_all_equal_is_the_lowest_number(pile):
    pile.top[0], pile.exposed[0] = 0.05, 0.5
    pile.top[1], pile.exposed[1], pile.action_mask[1, 0] = 0.05, 0.5, False
    for policy in (highest, exposed, lowest):
        assert policy(pile).tolist() == [0, 1]


def test_a_pile_is_cleared_from_its_top(pile):
    """Highest first takes 1, then 0, then 2, and nothing falls."""
    for target in (1, 0, 2):
        assert highest(pile).tolist() == [target] * 2
        pile.step(highest(pile))
    assert pile.success.all() and pile.grasp_order[0].tolist() == [1, 0, 2]


def test_the_oracle_does_not_take_a_supporting_object(pile):
    """It never takes 0 from under 1, for any earlier failures: of the others it takes the one with the higher
    reward."""
    first = oracle(pile)
    assert first[0] == first[1] != 0
    twin = Clutter(2, pile.config, autoreset="disabled")
    twin.load_state_dict(pile.state_dict())
    twin.step([1, 2])
    assert first[0] == 1 + int(twin.reward[1] > twin.reward[0])


def test_the_oracle_predicts_the_reward_of_a_pick():
    """Six scenes, three picks each: its choice has the highest reward of all allowed objects, to the bit."""
    world, twin = small(6), small(6)
    for _ in range(3):
        chosen, found = oracle(world), np.full((6, 6), -np.inf)
        for target in range(6):
            allowed = np.flatnonzero(world.action_mask[:, target])
            twin.load_state_dict(world.state_dict())
            twin.step(np.full(len(allowed), target), rows=allowed)
            found[allowed, target] = twin.reward[allowed]
        world.step(chosen)
        assert np.array_equal(world.reward, found.max(1))


def test_the_oracle_does_not_change_the_world():
    """It uses copies: no field of the world changes."""
    world = small(3)
    before = world.state_dict()
    oracle(world)
    after = world.state_dict()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_oracle_uses_the_default_reward(monkeypatch):
    """It depends neither on the world's reward nor on the number of picks in one call."""
    chosen = oracle(small(4)).tolist()
    assert oracle(small(4, rewards="published", reward_disturb=-7.0)).tolist() == chosen
    monkeypatch.setattr(policies, "AT_ONCE", 5)
    assert Oracle()(small(4)).tolist() == chosen


def test_the_oracle_tries_only_rows_that_read_a_choice():
    """Rows that have ended or are in the middle of a pick are not tried."""
    world = small(2, step_mode="tick")
    chosen = oracle(world)
    assert chosen.tolist() == oracle(small(2)).tolist()
    world.step(chosen)
    assert (world.env_stage != IDLE).all()
    alone = Oracle()
    alone(world)
    assert not alone._copies
    ended = small(2)
    ended.terminated[:] = True
    alone(ended)
    assert not alone._copies


def test_the_oracle_is_no_worse_than_highest_first():
    """Sixteen small scenes: it earns more and disturbs much less."""
    found = {name: evaluate(small(16), policy, 16) for name, policy in (("oracle", oracle), ("highest", highest))}
    assert found["oracle"].mean >= found["highest"].mean
    assert found["oracle"].kpi("disturbance")[0] < 0.6 * found["highest"].kpi("disturbance")[0]


def test_policies_are_available_by_name():
    assert list(policies_for(ID)) == ["random", "highest", "exposed", "lowest", "oracle"]
    world = milkrun.make(ID, 2, preset="small_scene", autoreset="disabled")
    world.reset(seed=0)
    assert policies_for(ID)["highest"](0)(world).tolist() == highest(world).tolist()


@pytest.mark.parametrize("name", ["highest", "exposed", "lowest", "oracle"])
def test_other_worlds_are_refused(name):
    """A cup moved by the policy has no choice of objects, and a TSP has no cup."""
    moved = Clutter.variant(Clutter.Config(use_discrete_action=False))(1, Clutter.Config(use_discrete_action=False))
    policy, said = policies_for(ID)[name](0), f"'{name}' is a policy of picking from clutter"
    with pytest.raises(ConfigError, match=said):
        policy(moved)
    with pytest.raises(ConfigError, match=said):
        policy(milkrun.make("milkrun/TSP-v0", 1, num_loc=5))
