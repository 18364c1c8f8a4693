"""MilkrunMultiAgentEnv: the PettingZoo environment's numbers under RLlib's names, its ends and its registration."""

import importlib
import sys

import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.tune.registry import ENV_CREATOR, _global_registry

import milkrun
from milkrun.api.pettingzoo import MilkrunParallelEnv
from milkrun.api.rllib import MilkrunMultiAgentEnv, MilkrunSingleAgentEnv, register_rllib
from milkrun.core.errors import Closed, ConfigError, MissingExtra, ResetNeeded, ShapeError
from tests.core.toys import Convoy, ConvoyConfig, Drifter, Glider, Lantern
from tests.truth.test_gymnasium_conformance import assert_same

TEAM = ["truck_0", "drone_0", "drone_1"]
TRUCK_DRONE = "milkrun/TruckDrone-v0"


def convoy(max_steps=None):
    return Convoy(1, ConvoyConfig(max_steps=max_steps), seed=3, autoreset="disabled")


@pytest.mark.parametrize(
    "options",
    [
        {"world": TRUCK_DRONE, "preset": "default", "max_steps": 30},
        {"world": TRUCK_DRONE, "preset": "published"},
        {"world": "milkrun/CVRP-v0", "num_loc": 6},
    ],
    ids=["default", "published", "CVRP"],
)
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
    """Every world can be named in an RLlib configuration; one of a single agent is no multi-agent environment."""
    ids = register_rllib()
    assert ids == milkrun.list_worlds() and {TRUCK_DRONE, "milkrun/CVRP-v0"} <= set(ids)
    assert all(_global_registry.contains(ENV_CREATOR, id) for id in ids)
    alone = _global_registry.get(ENV_CREATOR, "milkrun/CVRP-v0")(EnvContext({"num_loc": 4}, worker_index=0))
    assert isinstance(alone, MilkrunSingleAgentEnv) and alone.world.config.num_loc == 4
    env = _global_registry.get(ENV_CREATOR, TRUCK_DRONE)(EnvContext({"num_drones": 1}, worker_index=0))
    assert isinstance(env, MilkrunMultiAgentEnv) and env.possible_agents == ["truck_0", "drone_0"]


def test_without_ray_the_extra_is_named(monkeypatch):
    """Importing the binding says what to install."""
    monkeypatch.setitem(sys.modules, "ray.rllib.env.multi_agent_env", None)
    monkeypatch.delitem(sys.modules, "milkrun.api.rllib")
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[rllib\]"'):
        importlib.import_module("milkrun.api.rllib")


def test_unsupported_environment_configs_are_refused():
    """A bare id, and rows or modes that RLlib decides; actions must be given by name."""
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


def test_a_single_agent_sees_what_it_sees_in_a_team_of_one():
    """An episode of CVRP: observations, masks, rewards and ends are those of the only agent; without a mask the
    observation is the array alone; a team is refused."""
    config = {"world": "milkrun/CVRP-v0", "num_loc": 5}
    alone, team = MilkrunSingleAgentEnv(config), MilkrunMultiAgentEnv(config)
    (obs, _), (by_agent, _) = alone.reset(seed=3), team.reset(seed=3)
    ended, turn = False, 0
    while not ended:
        assert_same(obs, by_agent["agent_0"])
        assert alone.observation_space.contains(obs)
        action = int(alone.world.sample_actions(1, turn)[0])
        obs, reward, terminated, truncated, info = alone.step(action)
        by_agent, rewards, terminateds, truncateds, infos = team.step({"agent_0": action})
        assert (reward, terminated, truncated) == tuple(x["agent_0"] for x in (rewards, terminateds, truncateds))
        assert info["illegal"] == infos["agent_0"]["illegal"]
        ended, turn = terminated or truncated, turn + 1
    box = MilkrunSingleAgentEnv({"world": Glider(1, autoreset="disabled")})
    assert box.observation_space.contains(box.reset()[0])
    with pytest.raises(ConfigError, match=r"several agents \(truck_0, drone_0, drone_1\)"):
        MilkrunSingleAgentEnv({"world": TRUCK_DRONE})


def test_rllibs_masking_module_gives_closed_actions_no_chance():
    """After two steps of a TSP of six nodes, the network's logits of visited nodes are the lowest float, of open ones
    not."""
    torch = pytest.importorskip("torch")
    from ray.rllib.core.columns import Columns
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    env = MilkrunSingleAgentEnv({"world": "milkrun/TSP-v0", "num_loc": 6})
    env.reset(seed=1)
    env.step(2)
    obs, *_ = env.step(4)
    module = ActionMaskingTorchRLModule(
        observation_space=env.observation_space, action_space=env.action_space, model_config={}
    )
    batch = {name: torch.from_numpy(np.stack([values])) for name, values in obs.items()}
    logits = module.forward_exploration({Columns.OBS: batch})[Columns.ACTION_DIST_INPUTS][0].detach().numpy()
    assert (logits > -1e30).tolist() == obs["action_mask"].astype(bool).tolist()
    assert obs["action_mask"][[2, 4]].tolist() == [0, 0] and obs["action_mask"].sum() > 0


@pytest.mark.long
def test_rllib_trains_on_a_single_agent_world():
    """An iteration of PPO with action masking on a TSP of five nodes: every episode ends by its own rules."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    from milkrun.scale.cluster import connected

    register_rllib()
    with connected():
        config = (
            PPOConfig()
            .environment("milkrun/TSP-v0", env_config={"num_loc": 5})
            .env_runners(num_env_runners=0)
            .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=1)
            .rl_module(rl_module_spec=RLModuleSpec(module_class=ActionMaskingTorchRLModule))
        )
        algorithm = config.build_algo()
        figures = algorithm.train()["env_runners"]
        algorithm.stop()
    assert figures["episode_len_mean"] == 5
