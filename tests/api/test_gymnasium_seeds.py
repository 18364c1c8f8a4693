"""Seeds of MilkrunEnv and MilkrunVectorEnv: they alone decide what a row draws."""

import random

import numpy as np
import pytest

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.core.errors import ConfigError, ShapeError
from tests import small
from tests.truth.test_gymnasium_conformance import CVRP, WORLDS, arrays_in, assert_same

TSP = "milkrun/TSP-v0"


def row_of(obs, b):
    return {key: array[b] for key, array in obs.items()} if isinstance(obs, dict) else obs[b]


def assert_row_3_is_seed_14(id, num_envs, **options):
    """Row 3 of a batch seeded 11 against a single row seeded 14, step by step for five episodes."""
    batch = MilkrunVectorEnv(small.rows(id, num_envs), id, **options, **small.options(id))
    single = MilkrunEnv(id, **small.options(id))
    assert_same(row_of(batch.reset(seed=11)[0], 3), single.reset(seed=14)[0])
    episodes = turn = 0
    while episodes < 5:
        actions = batch.world.sample_actions(0, turn)
        obs, reward, terminated, truncated, _ = batch.step(actions)
        turn += 1
        obs1, reward1, terminated1, truncated1, _ = single.step(actions[3])
        assert_same(row_of(obs, 3), obs1)
        assert (reward[3], terminated[3], truncated[3]) == (reward1, terminated1, truncated1)
        if terminated1 or truncated1:
            episodes += 1
            obs, reward, terminated, *_ = batch.step(actions)
            assert_same(row_of(obs, 3), single.reset()[0])
            assert (reward[3], terminated[3]) == (0, False)


@pytest.mark.parametrize("num_envs", [7, 64])
@pytest.mark.parametrize("id", WORLDS)
def test_row_3_of_seed_11_is_the_env_of_seed_14(id, num_envs):
    """Gymnasium's convention: row i of seed s is seed s + i, at any batch size, through five episodes."""
    assert_row_3_is_seed_14(id, num_envs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("id", [CVRP, "milkrun/TruckDrone-v0"])
def test_row_3_is_the_same_on_any_number_of_threads(id, threads):
    """Threads change no bit, whether they step one agent or a team."""
    assert_row_3_is_seed_14(id, 64, threads=threads)


def test_seed_rule_row_is_the_worlds_own():
    """seed_rule="row": row i has the key (seed, i, 0), as in World."""
    env = MilkrunVectorEnv(4, CVRP, seed_rule="row")
    obs, _ = env.reset(seed=11)
    world = milkrun.make(CVRP, num_envs=4, seed=11)
    world.reset()
    assert_same(obs["locs"], world.locs)
    assert env.world.stream.tolist() == [[11, b, 0] for b in range(4)]


def test_a_list_of_seeds_is_one_a_row_also_beside_reset_mask():
    """Row i gets (s_i, 0, 0); a partial reset reads the entries of its rows."""
    env = MilkrunVectorEnv(3, CVRP)
    env.reset(seed=[5, 9, 5])
    assert env.world.stream.tolist() == [[5, 0, 0], [9, 0, 0], [5, 0, 0]]
    env.reset(seed=[1, 2, 3], options={"reset_mask": np.array([False, True, True])})
    assert env.world.stream.tolist() == [[5, 0, 0], [2, 0, 0], [3, 0, 0]]
    env.reset(seed=20, options={"reset_mask": np.array([True, False, True])})
    assert env.world.stream.tolist() == [[20, 0, 0], [2, 0, 0], [22, 0, 0]]


def test_reset_without_seed_goes_to_the_next_episode():
    """Seed and row stay, the episode counts up."""
    env = MilkrunEnv(CVRP)
    env.reset(seed=6)
    env.reset()
    assert env.world.stream.tolist() == [[6, 0, 1]]


@pytest.mark.parametrize("options", [{}, {"seed_rule": "row"}])
def test_make_with_a_seed_seeds_the_first_reset(options):
    """make(seed=s) then reset() is reset(seed=s); first_row=f gives the rows from f on of the batch."""
    whole = milkrun.make(CVRP, num_envs=6, api="gymnasium", seed=40, **options)
    obs, _ = whole.reset()
    assert_same(obs, MilkrunVectorEnv(6, CVRP, **options).reset(seed=40)[0])
    part = milkrun.make(CVRP, num_envs=2, api="gymnasium", seed=40, first_row=3, **options)
    assert_same(part.reset()[0], {key: array[3:5] for key, array in obs.items()})
    assert_same(part.reset(seed=40)[0], {key: array[3:5] for key, array in obs.items()})


def test_make_gives_an_env_without_num_envs():
    """The same keywords; a single row has nothing to autoreset."""
    env = milkrun.make(CVRP, api="gymnasium", seed=40, num_loc=5, layout="flat", threads=2)
    assert isinstance(env, MilkrunEnv)
    assert_same(env.reset()[0], MilkrunEnv(CVRP, num_loc=5, layout="flat").reset(seed=40)[0])
    with pytest.raises(ConfigError, match="same_step"):
        milkrun.make(CVRP, api="gymnasium", autoreset="same_step")


def test_global_random_state_is_neither_read_nor_written():
    """100 steps and resets under two global seeds: the same numbers, the states as they were."""
    played = []
    for s in (1, 2):
        np.random.seed(s)
        random.seed(s)
        before = np.random.get_state(), random.getstate()
        env = MilkrunVectorEnv(3, CVRP, num_loc=5, autoreset_mode="same_step")
        returns = [env.reset(seed=4)]
        returns += [env.step(env.world.sample_actions(1, t)) for t in range(100)]
        returns += [env.reset() for _ in range(3)]
        played.append([array.tobytes() for array in arrays_in(returns)])
        assert random.getstate() == before[1]
        assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), before[0]))
    assert played[0] == played[1]


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "7", [1], [1, -1]])
def test_bad_seeds_are_refused(seed):
    """Outside of 0..2**63-1, not an integer, or not one a row."""
    env = MilkrunVectorEnv(2, TSP)
    with pytest.raises((ConfigError, ShapeError), match="seed"):
        env.reset(seed=seed)
    if not isinstance(seed, list):
        with pytest.raises(ConfigError, match="seed"):
            MilkrunEnv(TSP).reset(seed=seed)
