"""SB3VecEnv as SB3 handles it: seeds, options, attributes, pictures, statistics, wrappers, refusals, memory."""

import random
import subprocess
import sys
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor, VecNormalize

import milkrun
from milkrun.api.sb3 import SB3VecEnv
from milkrun.core.errors import Closed, ConfigError, IllegalAction, ResetNeeded, ShapeError
from tests.api.test_sb3 import CVRP, checksums, cvrp
from tests.truth.test_gymnasium_conformance import assert_same


def test_seeds_follow_the_rule():
    """Offset: row i of seed 5 plays (5 + i, 0); row: (5, i); a list its own; they count for one reset only."""
    env = cvrp(3)
    assert env.world.stream.tolist() == [[3, 0, -1], [4, 0, -1], [5, 0, -1]]
    assert env.seed(5) == [5, 6, 7]
    env.reset()
    assert env.world.stream.tolist() == [[5, 0, 0], [6, 0, 0], [7, 0, 0]]
    env.reset()
    assert env.world.stream.tolist() == [[5, 0, 1], [6, 0, 1], [7, 0, 1]]
    env.seed([9, 8, 7])
    env.reset()
    assert env.world.stream.tolist() == [[9, 0, 0], [8, 0, 0], [7, 0, 0]]
    by_row = cvrp(3, seed_rule="row", first_row=2)
    assert by_row.seed(5) == [5, 5, 5]
    by_row.reset()
    assert by_row.world.stream.tolist() == [[5, 2, 0], [5, 3, 0], [5, 4, 0]]
    by_row.reset()
    assert by_row.world.stream.tolist() == [[5, 2, 1], [5, 3, 1], [5, 4, 1]]
    assert env.seed() != env.seed()
    with pytest.raises(ConfigError, match="seed"):
        env.seed(-1)
    with pytest.raises(ShapeError, match="2 seeds for 3 rows"):
        env.seed([1, 2])


def test_options_give_instances_for_one_reset():
    """One instance for all is played by all, and stays through their ends; a list gives each row its own; then rows
    draw again."""
    source = milkrun.make(CVRP, 3, seed=77, num_loc=5)
    source.reset()
    names = ("locs", "demand_units", "capacity")
    each = [{"instance": {name: getattr(source, name)[b] for name in names}} for b in range(3)]
    env = cvrp(3)
    env.set_options(each[1])
    obs = env.reset()
    assert (obs["locs"] == source.locs[1]).all()
    for t in range(20):
        obs, *_ = env.step(env.world.sample_actions(1, t))
    assert env.world.stream[:, 2].min() > 0 and (obs["locs"] == source.locs[1]).all()
    env.set_options(each)
    assert_same(env.reset()["locs"], source.locs)
    assert not (env.reset()["locs"] == source.locs).any()
    for options, problem in (([{}, *each[:2]], "2 of 3 rows"), ({"level": 1}, "no option 'level'")):
        env.set_options(options)
        with pytest.raises(ConfigError, match=problem):
            env.reset()
    env.set_options(each[:2])
    with pytest.raises(ShapeError, match="2 options for 3 rows"):
        env.reset()
    env.reset()


def test_attributes_are_the_worlds():
    """A field row by row, anything else repeated; what is not there is an AttributeError; nothing can be set."""
    env = cvrp(3)
    env.reset()
    env.step(env.world.sample_actions(1, 0))
    assert env.get_attr("objective", [2, 0]) == [env.world.objective[2], env.world.objective[0]]
    assert_same(env.get_attr("locs", 1), [env.world.locs[1]])
    assert env.get_attr("num_envs") == [3, 3, 3]
    assert env.get_attr("render_mode") == ["rgb_array"] * 3 and env.get_attr("action_space") == [env.action_space] * 3
    assert env.has_attr("config") and not env.has_attr("windmill")
    with pytest.raises(AttributeError, match="windmill"):
        env.get_attr("windmill")
    with pytest.raises(AttributeError, match="fly"):
        env.env_method("fly")
    with pytest.raises(ConfigError, match="'num_loc' cannot be set"):
        env.set_attr("num_loc", 9)
    with pytest.raises(ShapeError, match=r"7 is not in 0\.\.2"):
        env.get_attr("objective", [7])
    assert env.env_is_wrapped(Monitor) == [True] * 3 and env.env_is_wrapped(VecMonitor) == [False] * 3
    assert cvrp(monitor=False).env_is_wrapped(Monitor, 0) == [False]


def test_pictures():
    """A frame a row, which SB3 tiles; without a mode there are none."""
    env = cvrp(3)
    env.reset()
    frames = env.get_images()
    assert [frame.shape for frame in frames] == [(512, 512, 3)] * 3
    assert_same(env.env_method("render", indices=1), [frames[1]])
    assert env.render().shape == (1024, 1024, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cvrp(2, render_mode=None).get_images() == [None, None]


def test_episodes_are_recorded_as_they_were():
    """evaluate_policy, by our monitor, without it and through SB3's VecMonitor: the sums of the World's rewards."""

    class Lowest:
        """Takes the first allowed customer."""

        def predict(self, obs, state=None, episode_start=None, deterministic=True):
            return obs["action_mask"].argmax(1), None

    by_seed = [milkrun.make(CVRP, 1, num_loc=5, autoreset="disabled") for _ in range(4)]
    expected = []
    for b, world in enumerate(by_seed):
        world.reset(seed=[3 + b])
        while not world.terminated[0]:
            world.step(world.action_mask.argmax(1))
        expected.append((world.objective[0], world.i[0]))
    wrapped = [cvrp(), cvrp(monitor=False), VecMonitor(cvrp(monitor=False))]
    for env in wrapped:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returns, lengths = evaluate_policy(Lowest(), env, n_eval_episodes=4, return_episode_rewards=True)
        played = sorted(zip(returns, lengths))
        assert [length for _, length in played] == [length for _, length in sorted(expected)]
        assert np.allclose([r for r, _ in played], [r for r, _ in sorted(expected)], rtol=0, atol=1e-5)


@pytest.mark.parametrize("wrap", [partial(VecNormalize, norm_obs=True), partial(VecFrameStack, n_stack=2)])
def test_sb3s_wrappers_take_it(wrap):
    """Those that rewrite terminal observations do it on rows that ended, whose infos are their own."""
    env = wrap(cvrp(4, layout="flat"))
    env.reset()
    ends = 0
    for t in range(30):
        obs, _, dones, infos = env.step(env.unwrapped.world.sample_actions(1, t))
        for b in np.flatnonzero(dones):
            assert infos[b]["terminal_observation"].shape == obs[b].shape
            ends += 1
    assert ends >= 8


def test_no_generator_of_the_process_is_touched():
    """numpy's, Python's and torch's states are the same after 100 steps, resets and a seed drawn."""
    import torch

    def states():
        return repr(np.random.get_state()), random.getstate(), torch.random.get_rng_state().tolist()

    env = cvrp()
    before = states()
    env.seed()
    env.reset()
    for t in range(100):
        env.step(env.world.sample_actions(1, t))
    env.reset()
    assert states() == before


def test_invalid_use_is_refused():
    """Keywords, modes, actions, order of calls; an action refused by "raise" leaves all rows unchanged."""
    for options, problem in (
        ({"infos": "some"}, "infos='some'"),
        ({"seed_rule": "x"}, "seed_rule='x'"),
        ({"num_log": 5}, "num_loc"),
        ({"layout": "tree"}, "layout 'tree'"),
        ({"render_mode": "human"}, "render_mode='human'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            cvrp(**options)
    with pytest.raises(ConfigError, match="disabled"):
        milkrun.make(CVRP, 2, api="sb3", autoreset="disabled")
    with pytest.raises(ConfigError, match="autoreset='next_step'"):
        SB3VecEnv(milkrun.make(CVRP, 2))
    env = cvrp(2, illegal="raise")
    with pytest.raises(ResetNeeded):
        env.step(np.array([1, 1]))
    env.reset()
    with pytest.raises(ShapeError, match=r"step_wait\(\) has no actions"):
        env.step_wait()
    for actions in (np.array([1.0, 2.0]), np.array([1]), "ab"):
        with pytest.raises(ShapeError):
            env.step(actions)
    before = checksums(env.world.state_dict())
    with pytest.raises(IllegalAction, match="row 1: action 0"):
        env.step(np.array([1, 0]))
    assert checksums(env.world.state_dict()) == before
    env.close()
    env.close()
    with pytest.raises(Closed):
        env.step(np.array([1, 1]))


def test_make_builds_the_environment():
    """One row without num_envs; keywords of the binding may stand among those of the configuration."""
    env = milkrun.make(CVRP, api="sb3", num_loc=7, layout="flat", seed=4)
    assert type(env) is SB3VecEnv and env.num_envs == 1 and env.world.sizes["N"] == 8
    assert isinstance(env.observation_space, spaces.Box)
    assert milkrun.make(CVRP, 5, api="sb3", autoreset="same_step").num_envs == 5


def test_without_the_extra_the_import_says_what_to_install():
    """Where stable_baselines3 cannot be found, the import raises MissingExtra with the command."""
    code = """
import sys
sys.modules["stable_baselines3"] = None
from milkrun.core.errors import MissingExtra
try:
    import milkrun.api.sb3
except MissingExtra as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert 'pip install -e ".[sb3]"' in done.stdout, done.stderr


def grown(env, steps, warm):
    """Bytes that Python and numpy hold more after so many steps."""
    for t in range(warm):
        env.step(env.world.sample_actions(1, t))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for t in range(steps):
        env.step(env.world.sample_actions(1, t))
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


def test_steps_leave_no_memory_behind():
    """2,000 calls with an end in most of them grow by less than 100 bytes each."""
    env = cvrp(16)
    env.reset()
    assert grown(env, 2000, 200) < 200_000


@pytest.mark.long
def test_ten_million_steps_are_flat_in_memory():
    """Resident memory after 10^7 steps of rows is within 8 MB of that after 10^6."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    env = cvrp(1024)
    env.reset()
    marks = []
    for t in range(10_000):
        env.step(env.world.sample_actions(1, t))
        if t + 1 in (1_000, 10_000):
            marks.append(resident())
    print(f"resident: {marks[0] / 2**20:.1f} MB after 10^6 steps, {marks[1] / 2**20:.1f} MB after 10^7")
    assert marks[1] - marks[0] < 8 * 2**20


@pytest.mark.parametrize(
    ("id", "options", "fps"),
    [
        ("milkrun/TSP-v0", {}, 10),
        ("milkrun/Tracking-v0", {}, 125),
        ("milkrun/Tracking-v0", {"control_hz": 50}, 50),
    ],
)
def test_render_fps_follows_the_step_length(id, options, fps):
    """`render_fps` is the steps a second where steps have a length, else 10; here as in tianshou and PettingZoo."""
    assert milkrun.make(id, 2, api="sb3", **options).metadata["render_fps"] == fps
    rows = milkrun.make(id, 2, api="tianshou", **options).get_env_attr("metadata")
    assert [row["render_fps"] for row in rows] == [fps, fps]
    assert milkrun.make(id, api="pettingzoo", **options).metadata["render_fps"] == fps
