"""VRPDummyVecEnv and VRPSubprocVecEnv equal separate VRPEnvs, also around ends, on one world or on several."""

import functools
from argparse import Namespace

import numpy as np
import pytest

from milkrun.api.mappo import MAPPOVecEnv
from milkrun.compat.vrp import env_wrappers
from milkrun.compat.vrp.env_wrappers import VRPDummyVecEnv, VRPSubprocVecEnv
from milkrun.compat.vrp.environment import MultiAgentVRPEnv
from milkrun.compat.vrp.VRP_env import VRPEnv
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError, WorkerError

MOMENT = ["available_actions", "customers_served", "policy_id", "share_obs", "time_step", "total_customers"]
OF_STEP = ["executed_action", "forced", "illegal"]
SHORT = {"episode_length": 12, "delivery_threshold": 0.3}


class Plain:
    """An environment of another class around a VRPEnv, which therefore keeps its own world."""

    def __init__(self, env):
        self.env = env

    def __getattr__(self, name):
        return getattr(self.env, name)


def envs_of(seeds, wrap=None, **options):
    """Functions that make an environment for each seed."""

    def made(seed):
        env = VRPEnv(Namespace(seed=seed, **options))
        return env if wrap is None else wrap(env)

    return [functools.partial(made, seed) for seed in seeds]


def assert_same(a, b):
    """Equal values, types and bits."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert sorted(a) == sorted(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y)
    else:
        assert a == b


def by_hand(env, actions):
    """A step of one environment as in a trainer: an end is followed by a reset."""
    obs_n, reward_n, done_n, last = env.step(actions)
    infos = [dict(info) for info in last]
    if all(done_n):
        obs_n = env.reset()
        shared, masks = env.share_obs(), env.available_actions()
        for a, info in enumerate(infos):
            info.update(available_actions=masks[a], share_obs=shared, customers_served=0, time_step=0)
            info["terminal_info"] = last[a]
    return np.stack(obs_n), np.array(reward_n), np.array(done_n), infos


WAYS = {
    "one world": (None, {}, range(4, 9)),
    "one world, seeds anyhow": (None, SHORT, [7, 3, 7, 2**62]),
    "one world, default": (None, {"preset": "default", "episode_length": 25}, [1, 0]),
    "one world, one row": (None, SHORT, [3]),
    "worlds of their own": (Plain, SHORT, [7, 3]),
}


@pytest.mark.parametrize(("wrap", "options", "seeds"), WAYS.values(), ids=WAYS)
def test_several_episodes_are_those_of_separate_environments(wrap, options, seeds):
    """120 random steps, masked and not, to the bit: observations, rewards, ends, infos and final infos."""
    vec = VRPDummyVecEnv(envs_of(seeds, wrap, **options))
    alone = [make() for make in envs_of(seeds, **options)]
    worlds = {id(env.world.batch) for env in vec.envs}
    assert len(worlds) == (1 if wrap is None else len(seeds))
    assert_same(vec.reset(), np.stack([np.stack(env.reset()) for env in alone]))
    for env, moments in zip(alone, vec.reset_infos):
        assert_same(moments, env.moments())
        assert [sorted(info) for info in moments] == [MOMENT] * env.n
    rng = np.random.default_rng(len(seeds))
    ends = 0
    for step in range(120):
        if step % 3:
            actions = [[int(rng.choice(np.flatnonzero(mask))) for mask in env.available_actions()] for env in alone]
        else:
            actions = [[int(rng.integers(space.n)) for space in env.action_space] for env in alone]
        obs, rewards, dones, infos = vec.step(np.array(actions))
        turns = [by_hand(env, own) for env, own in zip(alone, actions)]
        assert_same([obs, rewards, dones], [np.stack([turn[k] for turn in turns]) for k in range(3)])
        assert_same(infos, [turn[3] for turn in turns])
        ends += int(dones[:, 0].sum())
    assert ends >= 2 * len(seeds)
    assert rewards.shape == (len(seeds), alone[0].n, 1) and rewards.dtype == np.float64


def test_an_end_reports_both_episodes():
    """Three waiting steps: the third has reward -.1 - 3 * 20, the new observation, and the final values of the old
    episode."""
    vec = VRPDummyVecEnv(envs_of([1, 2], episode_length=3))
    vec.reset()
    first = [env.world.customers[0].state.p_pos.tolist() for env in vec.envs]
    for _ in range(2):
        _, rewards, dones, infos = vec.step([[0, 0, 0]] * 2)
        assert not dones.any() and not any("terminal_info" in info for row in infos for info in row)
    obs, rewards, dones, infos = vec.step([[0, 0, 0], [0, 0, 9]])
    assert dones.all() and rewards == pytest.approx(np.full((2, 3, 1), -60.1), abs=1e-12)
    for b, row in enumerate(infos):
        assert [sorted(info) for info in row] == [sorted([*MOMENT, *OF_STEP, "terminal_info"])] * 3
        assert [(info["time_step"], info["terminal_info"]["time_step"]) for info in row] == [(0, 3)] * 3
        assert [int(info["terminal_info"]["available_actions"].sum()) for info in row] == [1, 1, 1]
        assert [int(info["available_actions"].sum()) for info in row] == [8, 1, 1]
        assert row[0]["terminal_info"]["share_obs"][-1] == 1.0 and row[0]["share_obs"][-1] == 0.0
        place = (obs[b, 0, 20:22] + obs[b, 0, :2]).tolist()
        assert place == pytest.approx(vec.envs[b].world.customers[0].state.p_pos.tolist(), abs=1e-6)
        assert place != pytest.approx(first[b], abs=1e-6)
    assert [info["illegal"] for info in infos[1]] == [False, False, True]
    assert [info["terminal_info"]["illegal"] for info in infos[1]] == [False, False, True]


def test_seeds_given_to_an_environment_apply():
    """`seed` before or after the wrapper is created: the next reset of that row starts (seed, 0, 0)."""

    def seeded(seed):
        env = VRPEnv(Namespace())
        env.seed(seed)
        return env

    vec = VRPDummyVecEnv([functools.partial(seeded, 1000 * rank) for rank in range(3)])
    alone = [VRPEnv(Namespace(seed=1000 * rank)) for rank in range(3)]
    assert_same(vec.reset(), np.stack([np.stack(env.reset()) for env in alone]))
    vec.envs[1].seed(77)
    vec.reset()
    assert vec.envs[0].world.batch.stream.tolist() == [[0, 0, 1], [77, 0, 0], [2000, 0, 1]]


def test_the_wrapper_uses_the_callers_environments():
    """The wrapper steps the given environments, so their views show its rows."""
    mine = [VRPEnv(Namespace(seed=k)) for k in range(2)]
    vec = VRPDummyVecEnv([lambda env=env: env for env in mine])
    assert vec.envs[0] is mine[0] and mine[0].world.batch is mine[1].world.batch
    vec.reset()
    vec.step([[6, 0, 0], [1, 0, 0]])
    assert [env.world.drones[0].state.status for env in mine] == ["flying", "onboard"]
    assert [env.current_step for env in mine] == [1, 1]


def test_started_or_different_environments_keep_their_own_world():
    """A started episode, a subclass or another configuration: each keeps its world, and the truck drives .1."""

    class Mine(MultiAgentVRPEnv):
        pass

    begun = VRPEnv(Namespace(seed=1))
    begun.reset()
    mine = Mine(VRPEnv(Namespace(seed=1)).world)
    longer = VRPEnv(Namespace(seed=1, episode_length=50))
    for odd in (begun, mine, longer):
        vec = VRPDummyVecEnv([lambda odd=odd: odd, lambda: VRPEnv(Namespace(seed=2))])
        assert vec.envs[0].world.batch is not vec.envs[1].world.batch
        vec.reset()
        obs, *_ = vec.step([[1, 0, 0]] * 2)
        assert obs[0, 0, :2] == pytest.approx([0.1, 0.0], abs=1e-7)


def test_returned_arrays_belong_to_the_caller():
    """No array of a turn shares memory with another, with the world, or with the result of a later turn."""
    vec = VRPDummyVecEnv(envs_of([1, 2], **SHORT))
    handed = [vec.reset()]
    handed += [info[key] for row in vec.reset_infos for info in row for key in ("available_actions", "share_obs")]
    for _ in range(13):
        obs, rewards, dones, infos = vec.step([[1, 0, 0]] * 2)
        every = [info for row in infos for info in row]
        every += [info["terminal_info"] for info in every if "terminal_info" in info]
        handed += [obs, rewards, dones]
        handed += [info[key] for info in every for key in ("available_actions", "share_obs")]
    batch = vec.envs[0].world.batch
    fields = [getattr(batch, name) for name in ("truck_obs", "drone_obs", "state", "action_mask", "reward_exact")]
    for k, array in enumerate(handed):
        assert not any(np.shares_memory(array, other) for other in [*handed[:k], *fields])
    before = [array.copy() for array in handed]
    vec.step([[2, 0, 0]] * 2)
    vec.reset()
    assert all(np.array_equal(a, b) for a, b in zip(handed, before))


def test_all_forms_of_actions_are_equivalent():
    """(n, A), (n, A, 1), lists and one-hot lists play the same turn."""
    forms = [
        np.array,
        lambda actions: np.array(actions)[..., None],
        list,
        lambda actions: [[np.eye(n)[a] for a, n in zip(own, (10, 5, 5))] for own in actions],
    ]
    vecs = [VRPDummyVecEnv(envs_of([1, 2])) for _ in forms]
    for vec in vecs:
        vec.reset()
    for actions in ([[6, 0, 0], [7, 0, 0]], [[1, 2, 0], [2, 0, 4]], [[1, 2, 0], [0, 0, 4]]):
        results = [vec.step(form(actions)) for vec, form in zip(vecs, forms)]
        for other in results[1:]:
            assert_same(other, results[0])
        assert [[info["executed_action"] for info in row] for row in results[0][3]] == actions


def test_invalid_use_of_a_wrapper_is_refused():
    """Wrong numbers of actions, steps before resets, no environments, duplicate environments, use after close."""
    vec = VRPDummyVecEnv(envs_of([1, 2]))
    with pytest.raises(ResetNeeded):
        vec.step([[0, 0, 0]] * 2)
    vec.reset()
    for bad in ([[0, 0, 0]], [[0, 0]] * 2, np.zeros((2, 3)), np.zeros((2, 4), int), 5, [[0, 0, 0], [0, 0, 0.5]]):
        with pytest.raises(ShapeError):
            vec.step(bad)
    assert [env.current_step for env in vec.envs] == [0, 0]
    with pytest.raises(ShapeError, match="step_async"):
        vec.step_wait()
    vec.step_async([[0, 0, 0]] * 2)
    assert vec.step_wait()[3][0][0]["time_step"] == 1
    with pytest.raises(ConfigError, match="empty"):
        VRPDummyVecEnv([])
    with pytest.raises(ConfigError, match=r"env_fns\[0\] is MultiAgentVRPEnv"):
        VRPDummyVecEnv(vec.envs)
    with pytest.raises(ConfigError, match=r"env_fns\[1\] returned an environment that another"):
        VRPDummyVecEnv([lambda: vec.envs[0]] * 2)
    with pytest.raises(ConfigError, match=r"env_fns\[1\] returned an environment of other spaces"):
        VRPDummyVecEnv([*envs_of([1]), *envs_of([1], num_customers=4)])
    vec.close()
    with pytest.raises(Closed):
        vec.step([[0, 0, 0]] * 2)


def test_the_number_of_agents_has_each_name():
    """A truck and two drones, in one environment and in every wrapper, under the names of the original."""
    assert env_wrappers.VRPDummyVecEnv is VRPDummyVecEnv and env_wrappers.VRPSubprocVecEnv is VRPSubprocVecEnv
    made = VRPEnv(Namespace()), VRPDummyVecEnv(envs_of([1, 2])), VRPSubprocVecEnv(envs_of([1]))
    for env in (*made, MAPPOVecEnv("milkrun/TruckDrone-v0", 2)):
        assert (env.n, env.n_agents, env.num_agents) == (3, 3, 3)
        env.close()


def test_spaces_and_pictures(capsys):
    """The spaces are lists by agent; "human" prints six lines for each environment, "rgb_array" returns pictures."""
    vec = VRPDummyVecEnv(envs_of([1, 2]))
    vec.reset()
    assert (vec.num_envs, [space.n for space in vec.action_space]) == (2, [10, 5, 5])
    assert [box.shape for box in vec.observation_space] == [(38,)] * 3
    assert [box.shape for box in vec.share_observation_space] == [(34,)] * 3
    assert vec.render() is None
    assert len(capsys.readouterr().out.splitlines()) == 12
    assert vec.render("rgb_array").shape == (2, 512, 512, 3)


def test_processes_equal_one_world():
    """60 steps of two environments in two processes, with several ends, equal those on one world to the bit."""
    make = envs_of([5, 9], **SHORT)
    here, there = VRPDummyVecEnv(make), VRPSubprocVecEnv(make)
    try:
        assert (there.num_envs, there.action_space) == (2, here.action_space)
        assert (there.observation_space, there.share_observation_space) == (
            here.observation_space,
            here.share_observation_space,
        )
        with pytest.raises(ResetNeeded):
            there.step([[0, 0, 0]] * 2)
        assert_same(there.reset(), here.reset())
        assert_same(there.reset_infos, here.reset_infos)
        rng, ends = np.random.default_rng(2), 0
        for step in range(60):
            actions = rng.integers([10, 5, 5], size=(2, 3))
            given = actions if step % 2 else [[np.eye(n)[a] for a, n in zip(own, (10, 5, 5))] for own in actions]
            mine, theirs = here.step(actions), there.step(given)
            assert_same(theirs, mine)
            ends += int(mine[2][:, 0].sum())
        assert ends >= 6
        assert_same(there.render("rgb_array"), here.render("rgb_array"))
        with pytest.raises(ShapeError, match="3 environments, not of 2"):
            there.step([[0, 0, 0]] * 3)
        with pytest.raises(WorkerError, match="drone_1"):
            there.step([[0, 0, 0], [0, 0, 0.5]])
    finally:
        there.close()
    with pytest.raises(Closed):
        there.reset()
