"""Scenarios of the list API: six reward weights, nothing else to override, and values of the row."""

from argparse import Namespace

import numpy as np
import pytest

from milkrun.compat.vrp import scenarios
from milkrun.compat.vrp.core import World
from milkrun.compat.vrp.environment import MultiAgentVRPEnv
from milkrun.compat.vrp.scenarios.truck_drone_basic import Scenario
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import ConfigError
from tests.compat.test_vrp_env import KEYS, assert_bits, row


def test_the_weights_of_a_scenario_apply():
    """A waiting step costs the scenario's time penalty, given as keyword, by a subclass or by assignment."""

    class Hurry(Scenario):
        time_penalty = 0.75

    set_later = Scenario()
    set_later.time_penalty = 0.5
    for scenario, cost in ((Scenario(time_penalty=2), 2.0), (Hurry(), 0.75), (set_later, 0.5), (Scenario(), 0.1)):
        env = VRPEnv(Namespace(), scenario)
        env.reset()
        assert env.step([0, 0, 0])[1] == [[-cost]] * 3
        assert env.scenario is scenario
        assert scenario.compute_global_reward(env.world) == -cost
        with pytest.raises(AttributeError, match=r"Scenario\(delivery_bonus=...\)"):
            scenario.delivery_bonus = 1.0
    assert VRPEnv(Namespace(preset="default"), Scenario()).world.batch.config.completion_bonus == 100.0


def test_only_weights_of_a_scenario_can_be_overridden():
    """Overridden methods raise TypeError; errors on unknown weights and attributes name them."""
    with pytest.raises(TypeError, match=r"Mine\.observation: .* a world of their own"):

        class Mine(Scenario):
            def observation(self, agent, world):
                return None

    with pytest.raises(TypeError, match="compute_global_reward"):
        Scenario().compute_global_reward = lambda world: 0.0
    with pytest.raises(ConfigError, match="time_penalty"):
        Scenario(time_penality=1)
    with pytest.raises(AttributeError, match="time_penalty"):
        Scenario().time_penality = 1
    with pytest.raises(ConfigError, match="energy_cost"):
        VRPEnv(Namespace(), Scenario(energy_cost=-1))
    with pytest.raises(TypeError, match="must be a Scenario"):
        VRPEnv(Namespace(), Scenario)
    with pytest.raises(ConfigError, match="time_penalty = 3"):
        MultiAgentVRPEnv(World.of(row()), Scenario(time_penalty=3))


def test_scenarios_by_name():
    """`load` finds the module, with or without its ending; an unknown name is a ConfigError."""
    assert scenarios.load("truck_drone_basic").Scenario is Scenario
    assert scenarios.load("truck_drone_basic.py").Scenario is Scenario
    with pytest.raises(ConfigError, match="simple_spread"):
        VRPEnv(Namespace(scenario_name="simple_spread"))


def test_a_scenario_returns_the_values_of_the_row():
    """Unpadded observation, shared observation, mask, end and info are the row's current ones."""
    env = VRPEnv(Namespace(seed=5, episode_length=3))
    scenario, world, batch = env.scenario, env.world, env.world.batch
    scenario.reset_world(world)
    for actions in ([6, 0, 0], [7, 2, 0], [1, 2, 3]):
        assert not scenario.is_terminal(world)
        obs_n, _, _, info_n = env.step(actions)
        for a, agent in enumerate(world.policy_agents):
            own = scenario.observation(agent, world)
            assert_bits(own, obs_n[a][: [38, 33, 33][a]])
            assert_bits(scenario.get_available_actions(agent, world), info_n[a]["available_actions"])
            info = scenario.info(agent, world)
            assert sorted(info) == KEYS and info["policy_id"] == min(a, 1)
            assert info["executed_action"] == info_n[a]["executed_action"] == actions[a]
        assert_bits(scenario.get_share_obs(world), batch.state[0])
    assert scenario.is_terminal(world)
    assert scenario.compute_share_obs_dim(world) == 34
    assert not np.shares_memory(scenario.observation(world.truck, world), batch.truck_obs)
    assert not np.shares_memory(scenario.get_share_obs(world), batch.state)
