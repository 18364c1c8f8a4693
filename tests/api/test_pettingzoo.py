"""MilkrunParallelEnv: agents, actions, ends, seeds and memory, with values worked out by hand on a toy convoy."""

import importlib
import sys
import zlib

import numpy as np
import pytest
import torch
from pettingzoo import AECEnv

import milkrun
from milkrun.api.gymnasium import MilkrunEnv
from milkrun.api.pettingzoo import MilkrunParallelEnv, env, parallel_env
from milkrun.core.errors import Closed, ConfigError, IllegalAction, MissingExtra, ResetNeeded, ShapeError
from tests.core.toys import Convoy, ConvoyConfig, Drifter, Glider, Lantern, checksum
from tests.truth.test_gymnasium_conformance import arrays_in, assert_same

TEAM = ["truck_0", "drone_0", "drone_1"]
HOME = {"instance": {"home": [1, 0, 4]}}
TRUCK_DRONE = "milkrun/TruckDrone-v0"


def convoy(seed=3, max_steps=None, **options):
    """A truck (drives 0..3) and two drones (fly 0 or 1) on places 0..9; the team ends at 20 places in all."""
    return MilkrunParallelEnv(
        world=Convoy(1, ConvoyConfig(max_steps=max_steps), seed=seed, autoreset="disabled", **options)
    )


def test_every_agent_sees_itself_and_the_state_sees_all():
    """From places 1, 0, 4 the truck drives 2 and the second drone flies: 3, 0, 5, and each is paid 3."""
    team = convoy()
    obs, infos = team.reset(options=HOME)
    assert team.agents == team.possible_agents == list(obs) == list(infos) == TEAM
    assert [obs[a]["observation"].tolist() for a in TEAM] == [[1], [0], [4]]
    obs, rewards, terminations, truncations, infos = team.step({"truck_0": 2, "drone_0": 0, "drone_1": np.int8(1)})
    assert [obs[a]["observation"].tolist() for a in TEAM] == [[3], [0], [5]]
    assert obs["truck_0"]["observation"].dtype == np.float32
    assert [obs[a]["action_mask"].tolist() for a in TEAM] == [[1, 1, 1, 1], [1, 1], [1, 1]]
    assert rewards == dict.fromkeys(TEAM, 3.0)
    assert terminations == truncations == dict.fromkeys(TEAM, False)
    assert all(type(v) is float for v in rewards.values()) and all(type(v) is bool for v in terminations.values())
    assert team.state().tolist() == [3, 0, 5]
    assert team.state().dtype == team.state_space.dtype == np.float32


def test_masks_are_unpadded_and_shown_twice():
    """At place 8 the truck may drive 1 at most; info holds the observation's own mask."""
    team = convoy()
    obs, infos = team.reset(options={"instance": {"home": [8, 9, 0]}})
    assert [obs[a]["action_mask"].tolist() for a in TEAM] == [[1, 1, 0, 0], [1, 0], [1, 1]]
    assert all(infos[a] == {"action_mask": obs[a]["action_mask"]} for a in TEAM)
    obs, *_, infos = team.step({})
    assert all(infos[a]["action_mask"] is obs[a]["action_mask"] for a in TEAM)
    assert all(infos[a]["illegal"] is False for a in TEAM)


def test_each_agent_has_its_own_space_objects():
    """Repeated calls return the same object; two agents of a group have two objects, so that each is seeded
    independently."""
    team = convoy()
    assert [team.action_space(a).n for a in TEAM] == [4, 2, 2]
    for kind in (team.observation_space, team.action_space):
        assert kind("drone_0") is kind("drone_0")
        assert kind("drone_0") == kind("drone_1") and kind("drone_0") is not kind("drone_1")
    obs, _ = team.reset(seed=1)
    assert all(team.observation_space(a).contains(obs[a]) for a in TEAM)
    assert team.state_space.contains(team.state())


def test_an_agent_without_an_action_stays():
    """Left out, or None, is action 0: only the truck moves."""
    team = convoy()
    team.reset(options=HOME)
    team.step({"truck_0": 1})
    assert team.state().tolist() == [2, 0, 4]
    team.step({"truck_0": 1, "drone_0": None})
    assert team.state().tolist() == [3, 0, 4]
    *_, infos = team.step({})
    assert team.state().tolist() == [3, 0, 4]
    assert not infos["drone_0"]["illegal"]


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ({"drone_7": 1}, "no agent 'drone_7'; did you mean 'drone_0' or 'drone_1'"),
        ({"truck_0": 1.0}, "truck_0: the action must be an integer of shape .*, not float64"),
        ({"truck_0": True}, "not bool"),
        ({"truck_0": [1]}, r"not int64 \(1,\)"),
        ({"truck_0": "go"}, "truck_0: the action must be an integer"),
        ({"truck_0": 2**70}, "no 64-bit integer"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(actions, said):
    """A ShapeError names the agent; the world is as before."""
    team = convoy()
    team.reset(seed=1)
    before = checksum(team.world)
    with pytest.raises(ShapeError, match=said):
        team.step({"drone_1": 1, **actions})
    assert checksum(team.world) == before


def test_the_space_of_an_unknown_agent_is_refused_by_name():
    """As a KeyError, which PettingZoo's users expect, in a sentence."""
    team = convoy()
    for space in (team.action_space, team.observation_space):
        with pytest.raises(KeyError) as caught:
            space("drone_7")
        assert str(caught.value) == "there is no agent 'drone_7'; did you mean 'drone_0' or 'drone_1'?"


@pytest.mark.parametrize("number", [4, -1, 2**40, np.uint64(2**64 - 1)])
def test_numbers_out_of_range_are_illegal(number):
    """The convoy stays, the step counts, and illegal="raise" refuses it."""
    team = convoy()
    team.reset(options=HOME)
    _, rewards, *_, infos = team.step({"truck_0": number, "drone_0": 1})
    assert all(infos[a]["illegal"] is True for a in TEAM)
    assert rewards["truck_0"] == 0 and team.state().tolist() == [1, 0, 4]
    strict = convoy(illegal="raise")
    strict.reset(options=HOME)
    with pytest.raises(IllegalAction, match="row 0"):
        strict.step({"truck_0": number})


def test_cpu_tensors_are_actions():
    """A 0-d torch tensor is an integer like others."""
    team = convoy()
    team.reset(options=HOME)
    team.step({"truck_0": torch.tensor(3)})
    assert team.state().tolist() == [4, 0, 4]


@pytest.mark.parametrize(("home", "limit", "ended"), [([1, 0, 4], None, "terminated"), ([0, 0, 0], 4, "truncated")])
def test_all_agents_end_together(home, limit, ended):
    """Four steps pay 5 + 5 + 3 + 2: they bring 5 places to 20, or are cut off at 15; then `agents` is empty."""
    team = convoy(max_steps=limit)
    team.reset(options={"instance": {"home": home}})
    for moves in ([3, 1, 1], [3, 1, 1], [1, 1, 1]):
        *_, terminations, truncations, infos = team.step(dict(zip(TEAM, moves)))
        assert not any(terminations.values()) and not any(truncations.values())
        assert "objective" not in infos["truck_0"]
    obs, rewards, terminations, truncations, infos = team.step({"truck_0": 1, "drone_0": 1})
    flags = {"terminated": terminations, "truncated": truncations}
    assert flags.pop(ended) == dict.fromkeys(TEAM, True)
    assert next(iter(flags.values())) == dict.fromkeys(TEAM, False)
    assert list(obs) == list(rewards) == list(infos) == team.possible_agents == TEAM
    assert team.agents == [] and team.num_agents == 0
    assert rewards == dict.fromkeys(TEAM, 2.0)
    assert [obs[a]["observation"][0] for a in TEAM] == [home[0] + 8, home[1] + 4, home[2] + 3]
    assert [obs[a]["action_mask"].tolist() for a in TEAM] == [[1, 0, 0, 0], [1, 0], [1, 0]]
    for info in infos.values():
        assert (info["objective"], info["episode_steps"]) == (15.0, 4)
    with pytest.raises(ResetNeeded, match="row 0 ended"):
        team.step(dict.fromkeys(TEAM, 0))
    obs, infos = team.reset()
    assert team.agents == TEAM
    assert "objective" not in infos["truck_0"]


def test_step_before_reset_is_refused():
    with pytest.raises(ResetNeeded):
        convoy().step({})


def test_seeds_are_those_of_row_zero():
    """reset(seed=21) plays (21, 0, 0), further resets (21, 0, 1) and (21, 0, 2), as a World seeded 21 does."""
    world, team = Convoy(1, seed=21), convoy(seed=5)
    for seed in (21, None, None):
        world.reset()
        team.reset(seed=seed)
        assert team.state().tolist() == world.at[0].tolist()


def test_the_constructors_seed_is_that_of_the_first_reset():
    """Seed 5 of a slice from row 2 on is seed 7, in the constructor and in `reset`."""
    seven = MilkrunParallelEnv(TRUCK_DRONE)
    sliced = MilkrunParallelEnv(TRUCK_DRONE, seed=5, first_row=2)
    assert_same(sliced.reset(), seven.reset(seed=7))
    assert_same(sliced.reset(), seven.reset())
    assert_same(sliced.reset(seed=5), seven.reset(seed=7))


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "milkrun/DARP-v0"])
def test_a_single_agent_is_a_gymnasium_env(id):
    """agent_0 gets, for three episodes of random actions, all that the flat MilkrunEnv gives; state() is the same."""
    team, single = MilkrunParallelEnv(id), MilkrunEnv(id, layout="flat")
    assert team.possible_agents == ["agent_0"]
    assert team.state_space == team.observation_space("agent_0")["observation"] == single.observation_space
    assert team.action_space("agent_0") == single.action_space
    single.action_space.seed(4)
    for episode in range(3):
        seed = 6 if episode == 0 else None
        seen, infos = team.reset(seed=seed)
        obs, info = single.reset(seed=seed)
        ended = False
        while True:
            assert_same(seen["agent_0"]["observation"], obs)
            assert_same(team.state(), obs)
            assert_same(infos["agent_0"], info)
            if ended:
                break
            action = single.action_space.sample(info["action_mask"] if episode else None)
            obs, reward, terminated, truncated, info = single.step(action)
            seen, rewards, terminations, truncations, infos = team.step({"agent_0": action})
            assert (rewards, terminations, truncations) == (
                {"agent_0": reward},
                {"agent_0": terminated},
                {"agent_0": truncated},
            )
            ended = terminated or truncated


@pytest.mark.parametrize("world_class", [Glider, Drifter])
def test_numbers_as_actions_have_no_mask(world_class):
    """The glider flies from 0 by push and wind; out of [-1, 1] is illegal; an absent action is no push."""
    team = MilkrunParallelEnv(world=world_class(1, autoreset="disabled"))
    assert list(team.observation_space("agent_0")) == ["observation"]
    obs, infos = team.reset(options={"instance": {"wind": 0.5}})
    assert list(obs["agent_0"]) == ["observation"] and infos == {"agent_0": {}}
    obs, *_ = team.step({"agent_0": np.array([1.0, -0.25])})
    assert obs["agent_0"]["observation"].tolist()[1:3] == [1.5, 0.25]
    obs, *_ = team.step({})
    assert obs["agent_0"]["observation"].tolist()[1:3] == [2.0, 0.75]
    *_, infos = team.step({"agent_0": np.array([1e300, 0.0])})
    assert infos["agent_0"]["illegal"] is True
    with pytest.raises(ShapeError, match=r"floats of shape \(2,\), not int64 \(\)"):
        team.step({"agent_0": 1})


def test_an_image_world_shows_its_picture():
    """The observation is the view as declared; the state is the flat layout; both are of the moment."""
    team = MilkrunParallelEnv(world=Lantern(1, autoreset="disabled"))
    obs, _ = team.reset(options={"instance": {"goal": 5}})
    assert (obs["agent_0"]["observation"] == 5).all() and obs["agent_0"]["observation"].shape == (8, 8)
    obs, *_ = team.step({"agent_0": 2})
    assert (obs["agent_0"]["observation"] == 25).all() and obs["agent_0"]["observation"].dtype == np.uint8
    assert (team.state() == 25).all() and team.state().shape == (64,)


def observing(*names):
    """A convoy that shows these fields alone."""
    world = Convoy(1, autoreset="disabled")
    world.observed = [world.fields[name] for name in names]
    return world


def test_a_world_without_state_shows_its_critic_all_views():
    """The flat layout of the groups' views replaces `state`; fields that no agent sees are in every agent's info."""
    team = MilkrunParallelEnv(world=observing("truck_obs", "drone_obs"))
    team.reset(options=HOME)
    team.step({"truck_0": 3})
    assert team.state().tolist() == [4, 0, 4] and team.state_space.shape == (3,)
    team = MilkrunParallelEnv(world=observing("truck_obs", "drone_obs", "state", "at"))
    _, infos = team.reset(options=HOME)
    assert [infos[a]["at"].tolist() for a in TEAM] == [[1, 0, 4]] * 3


def test_a_group_without_a_view_is_refused():
    with pytest.raises(ConfigError, match="Convoy has no observed view truck_obs"):
        MilkrunParallelEnv(world=observing("drone_obs", "state"))


def test_illegal_is_reported_for_that_agent_alone():
    """A drone on board may not fly out: its own info has the flag, the truck's has not."""
    team = MilkrunParallelEnv(TRUCK_DRONE, seed=2)
    obs, _ = team.reset()
    wrong = int(np.flatnonzero(obs["drone_1"]["action_mask"] == 0)[0])
    *_, infos = team.step({"drone_1": wrong})
    assert {a: info["illegal"] for a, info in infos.items() if info["illegal"]} == {"drone_1": True}
    assert "illegal_agents" not in infos["truck_0"]


@pytest.mark.parametrize("make", [lambda: convoy(max_steps=6), lambda: MilkrunParallelEnv(TRUCK_DRONE, max_steps=6)])
def test_returned_arrays_never_change(make):
    """Everything returned keeps its checksum through 20 episodes, and no array is the world's memory."""
    team = make()
    handed = list(arrays_in(team.reset(seed=1)))
    sums = [zlib.crc32(a.tobytes()) for a in handed]
    for episode in range(20):
        t = 0
        while team.agents:
            joint = team.world.sample_actions(episode, t)[0]
            fresh = [*arrays_in(team.step(dict(zip(team.agents, joint)))), team.state()]
            handed += fresh
            sums += [zlib.crc32(a.tobytes()) for a in fresh]
            t += 1
        team.reset()
    assert [zlib.crc32(a.tobytes()) for a in handed] == sums
    memory = [getattr(team.world, name) for name, field in team.world.fields.items() if field.per_row]
    assert not any(np.shares_memory(a, m) for a in fresh for m in memory if m.size)


def test_module_functions_and_make():
    """parallel_env, env (agents in turn) and milkrun.make; a batch is refused, and so is resetting in the step."""
    assert isinstance(parallel_env("milkrun/CVRP-v0", num_loc=4), MilkrunParallelEnv)
    in_turn = env("milkrun/CVRP-v0", num_loc=4)
    assert isinstance(in_turn, AECEnv) and isinstance(in_turn.unwrapped, MilkrunParallelEnv)
    made = milkrun.make("milkrun/CVRP-v0", 1, api="pettingzoo", num_loc=4, seed=8, illegal="raise")
    assert isinstance(made, MilkrunParallelEnv) and str(made) == "milkrun/CVRP-v0"
    obs, _ = made.reset()
    assert_same(obs["agent_0"]["observation"], MilkrunEnv("milkrun/CVRP-v0", num_loc=4, layout="flat").reset(seed=8)[0])
    with pytest.raises(IllegalAction):
        made.step({})  # the depot is no place to drive to from the depot
    for wrong in ({"num_envs": 2}, {"autoreset": "same_step"}, {"render_mode": "human"}, {"num_lok": 4}):
        with pytest.raises(ConfigError):
            milkrun.make("milkrun/CVRP-v0", api="pettingzoo", **wrong)


def test_render_and_close():
    """A picture under rgb_array; after close() nothing goes on, and a second close is fine."""
    team = parallel_env("milkrun/CVRP-v0", num_loc=4, render_mode="rgb_array")
    team.reset(seed=1)
    assert_same(team.render(), team.world.render(0))
    team.close()
    team.close()
    with pytest.raises(Closed):
        team.reset()


def test_without_pettingzoo_the_extra_is_named(monkeypatch):
    """Importing the binding says what to install."""
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "milkrun.api.pettingzoo")
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[pettingzoo\]"'):
        importlib.import_module("milkrun.api.pettingzoo")
