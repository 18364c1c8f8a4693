"""MilkrunMultiAgentEnv: the PettingZoo environment's numbers under RLlib's names, its ends and its registration."""

import importlib
import sys

import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.tune.registry import ENV_CREATOR, _global_registry

import milkrun
from milkrun.api.pettingzoo import MilkrunParallelEnv
from milkrun.api.rllib import MilkrunMultiAgentEnv, register_rllib
from milkrun.core.errors import Closed, ConfigError, MissingExtra, ResetNeeded, ShapeError
from tests.core.toys import Convoy, ConvoyConfig, Drifter, Glider, Lantern
from tests.truth.test_gymnasium_conformance import assert_same

TEAM = ["truck_0", "drone_0", "drone_1"]
TRUCK_DRONE = "milkrun/TruckDrone-v0"


def convoy(max_steps=None):
    return Convoy(1, ConvoyConfig(max_steps=max_steps), seed=3, autoreset="disabled")


@pytest.mark.parametrize(
    "options",
    [{"world": TRUCK_DRONE, "preset": "default", "max_steps": 30}, {"world": TRUCK_DRONE, "preset": "published"},
     {"world": "milkrun/CVRP-v0", "num_loc": 6}],
    ids=["default", "published", "CVRP"],
)  # fmt: skip
def test_numbers_are_those_of_pettingzoo(options):
    """Three episodes of random actions: observations, masks, rewards, ends and infos agree for every agent."""
    ours = MilkrunMultiAgentEnv(options)
    theirs = MilkrunParallelEnv(options["world"], **{k: v for k, v in options.items() if k != "world"})
    assert ours.possible_agents == ours.agents == theirs.possible_agents
    for episode in range(3):
        seed = 5 if episode == 0 else None
        obs, infos = ours.reset(seed=seed)
        obs2, infos2 = theirs.reset(seed=seed)
        turn = 0
        while True:
            for a in ours.agents:
                assert list(obs[a]) == ["observations", "action_mask"]
                assert_same(obs[a]["observations"], obs2[a]["observation"])
                assert_same(obs[a]["action_mask"], obs2[a]["action_mask"].astype(np.float32))
                assert ours.get_observation_space(a).contains(obs[a])
                assert infos[a].pop("action_mask") is obs[a]["action_mask"]
                infos2[a].pop("action_mask")
            assert_same(infos, infos2)
            if not theirs.agents:
                break
            joint = np.atleast_1d(ours.world.sample_actions(1, turn)[0])
            turn += 1
            obs, rewards, terminateds, truncateds, infos = ours.step(dict(zip(ours.agents, joint)))
            obs2, rewards2, terminations, truncations, infos2 = theirs.step(dict(zip(ours.agents, joint)))
            assert rewards == rewards2
            assert terminateds == {**terminations, "__all__": all(terminations.values())}
            assert truncateds == {**truncations, "__all__": all(truncations.values())}


@pytest.mark.parametrize(("home", "limit", "flags"), [([9, 9, 1], None, (True, False)), ([0, 0, 0], 1, (False, True))])
def test_both_kinds_of_end_show_every_agent_its_last(home, limit, flags):
    """One more place: 19 end at 20, 0 are cut off at the first step; all agents see where they stand and are paid 1."""
    env = MilkrunMultiAgentEnv({"world": convoy(limit)})
    env.reset(options={"instance": {"home": home}})
    obs, rewards, terminateds, truncateds, infos = env.step({"drone_1": 1})
    assert [obs[a]["observations"].tolist() for a in TEAM] == [[home[0]], [home[1]], [home[2] + 1]]
    assert rewards == dict.fromkeys(TEAM, 1.0)
    assert (terminateds, truncateds) == tuple(dict.fromkeys([*TEAM, "__all__"], flag) for flag in flags)
    assert {infos[a]["episode_steps"] for a in TEAM} == {1}
    with pytest.raises(ResetNeeded):
        env.step({})


def test_spaces_by_agent():
    """Dicts by agent of their own spaces, and the joint ones; the mask is float32, as RLlib's networks want it."""
    env = MilkrunMultiAgentEnv({"world": convoy()})
    assert list(env.observation_spaces) == list(env.action_spaces) == TEAM
    assert [env.get_action_space(a).n for a in TEAM] == [4, 2, 2]
    for a in TEAM:
        assert env.get_observation_space(a)["action_mask"].dtype == np.float32
        assert env.get_observation_space(a)["action_mask"].shape == (env.get_action_space(a).n,)
        assert env.observation_space[a] is env.get_observation_space(a)
    picture = MilkrunMultiAgentEnv({"world": Lantern(1, autoreset="disabled")})
    obs, _ = picture.reset(options={"instance": {"goal": 5}})
    assert obs["agent_0"]["observations"].dtype == np.float32 and (obs["agent_0"]["observations"] == 5).all()
    assert picture.observation_space.contains(obs)
    for numbers in (Glider, Drifter):
        env = MilkrunMultiAgentEnv({"world": numbers(1, autoreset="disabled")})
        assert list(env.reset()[0]["agent_0"]) == list(env.get_observation_space("agent_0")) == ["observations"]


def test_config_is_that_of_make():
    """An EnvContext as RLlib hands it; a missing world, an unknown key, an unknown agent are refused."""
    context = EnvContext({"world": TRUCK_DRONE, "num_drones": 3, "seed": 4}, worker_index=1)
    env = MilkrunMultiAgentEnv(context)
    assert env.possible_agents == ["truck_0", "drone_0", "drone_1", "drone_2"]
    obs, _ = env.reset()
    assert_same(obs, MilkrunMultiAgentEnv({"world": TRUCK_DRONE, "num_drones": 3}).reset(seed=4)[0])
    with pytest.raises(ShapeError, match="no agent 'drone_3'"):
        env.step({"drone_3": 0})
    with pytest.raises(ConfigError, match="names no world"):
        MilkrunMultiAgentEnv({})
    with pytest.raises(ConfigError, match="num_dronez"):
        MilkrunMultiAgentEnv({"world": TRUCK_DRONE, "num_dronez": 3})


def test_made_by_id():
    """milkrun.make; a batch is refused, and so is resetting in the step."""
    env = milkrun.make("milkrun/CVRP-v0", api="rllib", num_loc=4, render_mode="rgb_array", seed=2)
    assert isinstance(env, MilkrunMultiAgentEnv) and env.world.config.num_loc == 4
    env.reset()
    assert_same(env.render(), env.world.render(0))
    env.close()
    with pytest.raises(Closed):
        env.reset()
    for wrong in ({"num_envs": 3}, {"autoreset": "same_step"}, {"render_mode": "human"}):
        with pytest.raises(ConfigError):
            milkrun.make(TRUCK_DRONE, api="rllib", **wrong)


def test_register_rllib():
    """Every world of several agents, and no other, can be named in an RLlib configuration."""
    ids = register_rllib()
    assert TRUCK_DRONE in ids and "milkrun/CVRP-v0" not in ids
    assert ids == [id for id in milkrun.list_worlds() if milkrun.world_spec(id).agents == "multi"]
    assert all(_global_registry.contains(ENV_CREATOR, id) for id in ids)
    env = _global_registry.get(ENV_CREATOR, TRUCK_DRONE)(EnvContext({"num_drones": 1}, worker_index=0))
    assert isinstance(env, MilkrunMultiAgentEnv) and env.possible_agents == ["truck_0", "drone_0"]


def test_without_ray_the_extra_is_named(monkeypatch):
    """Importing the binding says what to install."""
    monkeypatch.setitem(sys.modules, "ray.rllib.env.multi_agent_env", None)
    monkeypatch.delitem(sys.modules, "milkrun.api.rllib")
    with pytest.raises(MissingExtra, match=r'pip install "milkrun\[rllib\]"'):
        importlib.import_module("milkrun.api.rllib")


def test_what_an_environment_config_cannot_say_is_refused():
    """A bare id, and rows or modes that RLlib decides; actions must stand by name."""
    id = "milkrun/TruckDrone-v0"
    for config, words in (
        (id, "must be a dict"),
        ({"world": id, "num_envs": 3}, "num_envs cannot be set here"),
        ({"world": id, "autoreset": "same_step"}, "autoreset cannot be set here"),
    ):
        with pytest.raises(ConfigError, match=words):
            MilkrunMultiAgentEnv(config)
    env = MilkrunMultiAgentEnv({"world": id})
    env.reset()
    with pytest.raises(ShapeError, match="must be a dict with those of truck_0, drone_0, drone_1"):
        env.step([0, 0, 0])
