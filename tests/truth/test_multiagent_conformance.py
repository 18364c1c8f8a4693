"""Conformance with multi-agent libraries: the checkers of PettingZoo, RLlib and TorchRL, and on-policy's buffer."""

import random
import warnings

import numpy as np
import pytest
import torch
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test, state_test
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from torchrl.envs import PettingZooWrapper
from torchrl.envs.utils import check_marl_grouping

import milkrun
from milkrun.api.mappo import MAPPOVecEnv
from milkrun.api.pettingzoo import MilkrunParallelEnv, env
from milkrun.api.rllib import MilkrunMultiAgentEnv
from tests.core.toys import Convoy
from tests.truth.test_gymnasium_conformance import WORLDS, assert_same

pytestmark = pytest.mark.truth

MULTI = [id for id in WORLDS if milkrun.world_spec(id).agents == "multi"]
TRUCK_DRONE = [("milkrun/TruckDrone-v0", {"preset": preset}) for preset in ("default", "published")]
CASES = [(id, {}) for id in WORLDS if id not in MULTI] + TRUCK_DRONE
MULTI_CASES = [("convoy", {}), *TRUCK_DRONE]
by_case = pytest.mark.parametrize(("id", "options"), [("convoy", {}), *CASES], ids=str)
by_team = pytest.mark.parametrize(("id", "options"), MULTI_CASES, ids=str)

DICTS = {
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Agents have different observation space sizes",
    "Observations are different shapes",
}
"""Warnings of api_test for every environment with masks or unequal agents, unless it knows the environment by name."""
TOY = {"Observation is a single number", "Observation numpy array is all zeros."}
"""Warnings for the convoy, whose agents observe one number, which may be 0."""


def made(id, options):
    if id == "convoy":
        return MilkrunParallelEnv(world=Convoy(1, autoreset="disabled"))
    return MilkrunParallelEnv(id, **options)


def in_turn(id, options):
    if id == "convoy":
        return env(world=Convoy(1, autoreset="disabled"))
    return env(id, **options)


def test_every_multi_agent_world_is_here():
    assert {id for id, _ in TRUCK_DRONE} == set(MULTI)


@by_case
@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("pettingzoo", "parallel_api_test")
def test_parallel_api(id, options):
    """parallel_api_test, 1000 cycles, without a warning."""
    parallel_api_test(made(id, options), num_cycles=1000)


@by_case
@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("pettingzoo", "parallel_seed_test")
def test_parallel_seed(id, options):
    """parallel_seed_test, without a warning."""
    parallel_seed_test(lambda: made(id, options))


@by_case
@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("pettingzoo", "state_test")
def test_state(id, options):
    """state_test, sequential and parallel, without a warning (except that a convoy may stand at 0)."""
    with warnings.catch_warnings():
        if id == "convoy":
            warnings.filterwarnings("ignore", "State numpy array is all zeros")
        state_test(in_turn(id, options), made(id, options), num_cycles=50)


@by_case
@pytest.mark.conformance("pettingzoo", "api_test")
def test_api_in_turn(id, options):
    """api_test; its only warnings are those of masks and unequal agents."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(in_turn(id, options), num_cycles=100)
    assert {str(w.message) for w in caught} <= DICTS | (TOY if id == "convoy" else set())


@by_case
@pytest.mark.filterwarnings("error")
@pytest.mark.conformance("pettingzoo", "seed_test")
def test_seed_in_turn(id, options):
    """seed_test, without a warning."""
    seed_test(lambda: in_turn(id, options), num_cycles=100)


@by_case
def test_two_environments_are_one(id, options):
    """Two environments with the same seed return equal episodes; another seed differs."""
    one, two, other = (made(id, options) for _ in range(3))
    (obs, infos), (obs2, infos2), (obs3, _) = one.reset(seed=11), two.reset(seed=11), other.reset(seed=12)
    assert any((obs[a]["observation"] != obs3[a]["observation"]).any() for a in obs)
    steps = ends = 0
    while ends < 2 and steps < 600:
        assert_same((obs, infos, one.state()), (obs2, infos2, two.state()))
        joint = np.atleast_1d(one.world.sample_actions(3, steps)[0])
        actions = dict(zip(one.agents, joint.tolist()))
        obs, *paid, infos = one.step(actions)
        obs2, *paid2, infos2 = two.step(actions)
        assert paid == paid2 and one.agents == two.agents
        steps += 1
        if not one.agents:
            assert_same((obs, infos), (obs2, infos2))
            ends += 1
            (obs, infos), (obs2, infos2) = one.reset(), two.reset()
    assert ends >= 1


@by_team
@pytest.mark.filterwarnings("error", "ignore:PettingZoo in TorchRL is tested using version")
@pytest.mark.conformance("torchrl", "check_marl_grouping")
def test_groups_are_those_of_torchrl(id, options):
    """TorchRL groups PettingZoo's agent names as the world does, and its check of the grouping passes."""
    team = made(id, options)
    groups = team.world.groups
    check_marl_grouping(groups, team.possible_agents)
    wrapped = PettingZooWrapper(team, use_mask=True)
    assert wrapped.group_map == groups
    if id != "convoy":
        assert milkrun.make(id, api="torchrl", **options).group_map == groups


@by_team
@pytest.mark.conformance("ray", "check_multiagent_environments")
def test_rllib(id, options):
    """check_multiagent_environments, twenty times since it samples without masks."""
    config = {"world": id, **options} if id != "convoy" else {"world": Convoy(1, autoreset="disabled")}
    env = MilkrunMultiAgentEnv(config)
    for _ in range(20):
        check_multiagent_environments(env)


@by_team
def test_returns_stored_by_on_policy_are_those_of_the_episodes(id, options):
    """Its insert: masks are 0 after an end, bad_masks 0 after a truncation. Returns summed by them equal the episodes'
    returns."""
    if id == "convoy":
        vec = MAPPOVecEnv(Convoy(6, seed=2, autoreset="same_step"))
    else:
        vec = MAPPOVecEnv(id, 6, seed=2, max_steps=25, **options)
    vec.reset()
    returns, finished, reported = np.zeros((6, vec.n_agents)), [], []
    for t in range(200):
        _, _, rewards, dones, infos, available = vec.step(vec.world.sample_actions(5, t))
        assert available.any(-1).all()
        dones_env = np.all(dones, axis=1)
        masks = np.ones((6, vec.n_agents, 1), np.float32)
        masks[dones_env] = 0
        bad = np.array([[[0.0] if info[a]["bad_transition"] else [1.0] for a in range(vec.n_agents)] for info in infos])
        assert (bad >= masks).all() and (bad[~vec.world.truncated] == 1).all() and (bad[vec.world.truncated] == 0).all()
        returns += rewards[:, :, 0]
        finished += returns[dones_env].tolist()
        reported += [[info["episode"]["r"] for info in infos[b]] for b in np.flatnonzero(dones_env)]
        returns *= masks[:, :, 0]
    assert len(finished) >= 40
    assert np.allclose(finished, reported, rtol=1e-5, atol=1e-5)  # rewards are float32, the objective is not


@by_team
def test_no_global_randomness(id, options):
    """A hundred steps and resets of all three bindings leave the generators of numpy, torch and Python unchanged."""
    if id == "convoy":
        team, peer = made(id, options), MilkrunMultiAgentEnv({"world": Convoy(1, autoreset="disabled")})
        vec = MAPPOVecEnv(Convoy(4, autoreset="same_step"))
    else:
        team, peer = made(id, options), MilkrunMultiAgentEnv({"world": id, **options})
        vec = MAPPOVecEnv(id, 4, max_steps=20, **options)

    def played():
        for one in (team, peer):
            one.reset()
            for _ in range(100):
                *_, terminated, truncated, _ = one.step({})
                if any(terminated.values()) or any(truncated.values()):
                    one.reset(seed=1)
        vec.reset()
        return [vec.step(vec.world.sample_actions(0, t))[0].sum() for t in range(100)]

    np.random.seed(1)
    torch.manual_seed(1)
    random.seed(1)
    before = [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()]
    before_torch, before_random = torch.get_rng_state(), random.getstate()
    first = played()
    assert [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()] == before
    assert torch.equal(torch.get_rng_state(), before_torch) and random.getstate() == before_random
    vec.seed(3)
    again = played()
    np.random.seed(2)
    random.seed(2)
    vec.seed(3)
    assert played() == again != first
