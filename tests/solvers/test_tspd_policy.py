"""The policy `partition` plays the best split of the truck's tour in every row."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, ResetNeeded
from milkrun.delivery import TSPD
from milkrun.delivery.instances import Operation, TSPDInstance
from milkrun.delivery.tspd.log import actions_of
from milkrun.solvers import evaluate, policies_for, rollout
from milkrun.solvers.tspd import partition, truck_only
from milkrun.solvers.tspd.policy import PartitionPolicy, instance_of

TRIANGLE = TSPDInstance.of_places("triangle", [[0, 0], [3, 4], [6, 0]])
LINE = TSPDInstance.of_places("line", [[0, 0], [10, 0], [20, 0], [30, 0]], drone_factor=1.0)


def best_split(instance):
    return partition(instance, [op.start for op in truck_only(instance).operations]).cost


@pytest.mark.parametrize("config", [{}, {"preset": "alpha1"}, {"max_fly": 25.0}, {"num_nodes": 16}])
def test_every_row_takes_as_long_as_its_plan(config):
    """All actions are allowed, and minus the return is the solver's cost."""
    world = milkrun.make("milkrun/TSPD-v0", 12, seed=4, illegal="raise", autoreset="disabled", **config)
    world.reset()
    costs = [best_split(instance_of(world, b)) for b in range(12)]
    rollout(world, policies_for("milkrun/TSPD-v0")["partition"](0))
    assert world.terminated.all()
    assert -world.objective == pytest.approx(costs, abs=1e-9)


@pytest.mark.parametrize("autoreset", ["disabled", "next_step", "same_step"])
def test_the_next_episode_has_its_own_plan(autoreset):
    """Eight episodes in three rows: each is the best split of the instance that a single world would draw."""
    world = milkrun.make("milkrun/TSPD-v0", 3, seed=4, num_nodes=7, illegal="raise", autoreset=autoreset)
    found = evaluate(world, PartitionPolicy(), 8, seed=4).returns
    alone = milkrun.make("milkrun/TSPD-v0", 3, seed=4, num_nodes=7, autoreset="disabled")
    costs = []
    for _ in range(3):
        alone.reset()
        costs += [best_split(instance_of(alone, b)) for b in range(3)]
    assert -found == pytest.approx(costs[:8], abs=1e-9)


def test_smaller_instances_are_played_without_their_padding():
    """Three nodes batched with four: 10 by the drone to 2 and back, and 60 on a line where the drone is no faster."""
    world = TSPD.from_instances([TRIANGLE, LINE], illegal="raise", autoreset="disabled")
    assert instance_of(world, 0).num_nodes == 3
    rollout(world, PartitionPolicy())
    assert world.clock.tolist() == [10.0, 60.0]


def test_a_new_instance_gets_a_new_plan():
    """The same seed twice with another instance: the plan of the first would not end the second."""
    world = milkrun.make("milkrun/TSPD-v0", 1, num_nodes=4, illegal="raise", autoreset="disabled")
    policy = PartitionPolicy()
    for factor, makespan in ((1.0, 60.0), (0.1, 40.0)):
        world.reset(seed=1, instance=TSPDInstance.of_places("line", LINE.locs, drone_factor=factor).fields())
        policy(world)
        rollout(world, policy)
        assert world.clock[0] == makespan


def test_a_row_that_left_its_plan_is_refused():
    """The first step was not the policy's; after a reset it plays again. Ended rows get action 0."""
    world = TSPD.from_instances([TRIANGLE], repeat=2, autoreset="disabled")
    policy = PartitionPolicy()
    world.step([2, 5])  # the plan begins with a launch to 2, action 5
    with pytest.raises(ResetNeeded, match="row 0 is in an episode that does not follow its plan"):
        policy(world)
    world.reset()
    rollout(world, policy)
    assert world.terminated.all() and policy(world).tolist() == [0, 0]


def test_other_worlds_are_refused():
    """It cannot plan for them."""
    world = milkrun.make("milkrun/TSP-v0", 1)
    world.reset()
    with pytest.raises(ConfigError, match="partition is a policy of the TSP with drone, not of TSP"):
        PartitionPolicy()(world)


def test_operations_as_actions():
    """In a world of 6 nodes: launch to 3, drive 1, 2, join; drive 4; launch to 5, join at the waiting truck; home."""
    plan = [Operation(0, 2, 3, (1,)), Operation(2, 4), Operation(4, 4, 5), Operation(4, 0)]
    assert [a for op in plan for a in actions_of(op, 6)] == [9, 1, 2, 12, 4, 11, 12, 0]
    assert np.array_equal(list(actions_of(Operation(0, 0, 2, (1,)), 3)), [5, 1, 0, 6])
