"""`VRPEnv`: makes the environment from an argument list."""

from __future__ import annotations

from typing import Any

from milkrun.compat.vrp import scenarios
from milkrun.compat.vrp.environment import MultiAgentVRPEnv
from milkrun.compat.vrp.scenarios.truck_drone_basic import Scenario, preset_weights

__all__ = ["VRPEnv"]


def VRPEnv(args: Any, scenario: Scenario | None = None) -> MultiAgentVRPEnv:
    """One row of truck and drones.

    args: a Namespace. Read, where present: scenario_name, preset ("published"), num_drones, num_customers,
    num_route_nodes, episode_length, delivery_threshold, recovery_threshold, road_graph (a flag that the preset
    "published" does not have), seed (0); absent ones are the preset's. Other attributes are ignored, since
    trainers pass all their arguments.
    scenario: the reward's weights, instead of the preset's.
    """
    module = scenarios.load(getattr(args, "scenario_name", "truck_drone_basic"))
    if scenario is None:
        scenario = module.Scenario(**preset_weights(args))
    elif not isinstance(scenario, Scenario):
        raise TypeError(f"scenario must be a Scenario, not {scenario!r}")
    return MultiAgentVRPEnv(scenario.make_world(args), scenario)
