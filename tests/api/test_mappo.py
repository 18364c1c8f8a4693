"""MAPPOVecEnv: every number is the World's own, also around automatic resets; seeds, infos, memory."""

import copy
import pickle
import zlib

import numpy as np
import pytest

import milkrun
from milkrun.api.gymnasium import MilkrunVectorEnv
from milkrun.api.mappo import MAPPOVecEnv
from milkrun.core.errors import Closed, ConfigError, ResetNeeded, ShapeError
from tests.core.toys import Convoy, ConvoyConfig, Glider
from tests.truth.test_gymnasium_conformance import arrays_in, assert_same

TRUCK_DRONE = "milkrun/TruckDrone-v0"


def convoy(num_envs=5, max_steps=None, drones=2, **options):
    config = ConvoyConfig(max_steps=max_steps, drones=drones)
    return Convoy(num_envs, config, autoreset="same_step", **{"seed": 3, **options})


def truck_drone(num_envs=5, **options):
    return milkrun.make(TRUCK_DRONE, num_envs, autoreset="same_step", **{"seed": 3, **options})


WORLDS = {
    "convoy": convoy,
    "convoy cut off": lambda: convoy(max_steps=5),
    "four drones": lambda: convoy(drones=4),
    "default": lambda: truck_drone(preset="default", max_steps=40),
    "published": lambda: truck_drone(preset="published", max_steps=40),
}


def padded(vectors, width):
    return np.stack([np.concatenate([v, np.zeros(width - len(v), np.float32)]) for v in vectors])


def expected(world, arrays, b):
    """obs (A, O), share_obs (A, S), available (A, n) of one row, agent by agent from the arrays of a world."""
    seen = [v for group in world.groups for v in arrays[f"{group}_obs"][b]]
    widths = world.action.nvec(world.sizes)
    masks = np.split(arrays["action_mask"][b].astype(np.float32), np.cumsum(widths)[:-1])
    return (padded(seen, max(map(len, seen))), np.stack([arrays["state"][b]] * len(seen)), padded(masks, max(widths)))


def rows(world, arrays, count):
    return [np.stack(parts) for parts in zip(*(expected(world, arrays, b) for b in range(count)))]


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_every_bit_is_the_worlds(make):
    """150 steps against a World of the same seed: padded views, masks, rewards, ends, and what stood before resets."""
    env, world = MAPPOVecEnv(make()), make()
    agents, count = len(world.action.nvec(world.sizes)), world.num_envs
    assert (env.num_envs, env.n_agents) == (count, agents)
    looks = env.reset()
    world.reset()
    assert_same(list(looks), rows(world, world.observe(), count))
    cut = over = 0
    for t in range(150):
        actions = world.sample_actions(7, t)
        actions[t % count, t % agents] = t % 6  # now and then an illegal one
        obs, share_obs, rewards, dones, infos, available = env.step(actions)
        world.step(actions)
        assert_same([obs, share_obs, available], rows(world, world.observe(), count))
        done = world.terminated | world.truncated
        assert_same(rewards, np.stack([world.reward] * agents, 1)[:, :, None])
        assert_same(dones, np.stack([done] * agents, 1))
        assert np.flatnonzero(done).tolist() == world.final_rows.tolist()
        for b in range(count):
            assert len(infos[b]) == agents
            for info in infos[b]:
                assert info["bad_transition"] is bool(world.truncated[b])
                assert ("terminal_obs" in info) == ("episode" in info) == done[b]
        for k, b in enumerate(world.final_rows):
            old = expected(world, world.final, k)
            cut, over = cut + int(world.truncated[b]), over + int(world.terminated[b])
            for a, info in enumerate(infos[b]):
                shown = [info[f"terminal_{name}"] for name in ("obs", "share_obs", "available_actions")]
                assert_same(shown, [part[a] for part in old])
                ended = {"r": world.final["objective"][k], "l": world.final["i"][k]}
                assert info["episode"] == ended
                assert (info["objective"], info["episode_steps"]) == (ended["r"], ended["l"])
    assert cut + over >= 10
    assert all(space.contains(view) for space, view in zip(env.observation_space, obs[0]))
    assert all(space.contains(view) for space, view in zip(env.share_observation_space, share_obs[0]))


@pytest.mark.parametrize("id", ["milkrun/TSP-v0", "milkrun/CVRP-v0", "milkrun/DARP-v0"])
def test_a_single_agent_sees_the_flat_layout(id):
    """One agent: observation and state are those of the flat MilkrunVectorEnv, final ones included."""
    env = MAPPOVecEnv(id, 7, seed=4)
    vector = MilkrunVectorEnv(7, id, seed=4, seed_rule="row", layout="flat", autoreset_mode="same_step")
    obs, share_obs, available = env.reset()
    flat, vector_infos = vector.reset()
    ends = 0
    for t in range(120):
        assert_same(
            [obs[:, 0], share_obs[:, 0], available[:, 0]], [flat, flat, vector_infos["action_mask"].astype(np.float32)]
        )
        actions = vector.world.sample_actions(1, t)
        obs, share_obs, rewards, dones, infos, available = env.step(actions[:, None])
        flat, reward, terminated, truncated, vector_infos = vector.step(actions)
        assert_same([rewards[:, 0, 0], dones[:, 0]], [reward, terminated | truncated])
        for b in np.flatnonzero(dones[:, 0]):
            ends += 1
            assert_same(infos[b][0]["terminal_obs"], vector_infos["final_obs"][b])
            mask = vector_infos["final_info"]["action_mask"][b].astype(np.float32)
            assert_same(infos[b][0]["terminal_available_actions"], mask)
            assert infos[b][0]["episode"]["r"] == vector_infos["final_info"]["objective"][b]
    assert ends >= 7


@pytest.mark.parametrize("make", [convoy, truck_drone])
def test_after_an_autoreset_all_is_as_reset_gives_it(make):
    """A row's episode e begins with what e + 1 resets of that row alone give: observation, state and mask."""
    env = MAPPOVecEnv(make(3, max_steps=9))
    env.reset()
    episode, begun = np.zeros(3, int), 0
    for t in range(30):
        obs, share_obs, _, dones, _, available = env.step(env.world.sample_actions(2, t))
        for b in np.flatnonzero(dones[:, 0]):
            episode[b] += 1
            begun += 1
            alone = MAPPOVecEnv(make(1, first_row=int(b), max_steps=9))
            for _ in range(episode[b] + 1):
                looks = alone.reset()
            assert_same([obs[b : b + 1], share_obs[b : b + 1], available[b : b + 1]], list(looks))
    assert begun >= 9


def test_by_hand():
    """Places 1, 0, 4; the truck drives 2, the second drone flies: 3, 0, 5, paid 3 each; absent choices are 0."""
    env = MAPPOVecEnv(convoy(1))
    obs, share_obs, available = env.reset(instance={"home": [[1, 0, 4]]})
    assert obs.tolist() == [[[1], [0], [4]]]
    assert share_obs.tolist() == [[[1, 0, 4]] * 3]
    assert available.tolist() == [[[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0]]]
    assert {a.dtype for a in (obs, share_obs, available)} == {np.dtype(np.float32)}
    obs, _, rewards, dones, infos, _ = env.step([[2, 0, 1]])
    assert obs.tolist() == [[[3], [0], [5]]]
    assert rewards.tolist() == [[[3], [3], [3]]] and dones.tolist() == [[False] * 3]
    assert list(infos) == [[{"bad_transition": False, "illegal": False}] * 3]


def test_rows_may_share_a_given_instance():
    """Three rows on two squares see their own one, then drawn ones again."""
    env = MAPPOVecEnv("milkrun/TSP-v0", 3, num_loc=4, seed=1)
    drawn = env.reset()[0]
    squares = np.array([[[0, 0], [1, 0], [1, 1], [0, 1]], [[0.5, 0], [1, 0], [1, 1], [0.5, 1]]], np.float32)
    obs = env.reset(instance={"locs": squares, "instance_row": [1, 0, 1]})[0]
    assert obs[:, 0, :8].tolist() == squares.reshape(2, 8)[[1, 0, 1]].tolist()
    env.seed(1)
    assert_same(env.reset()[0], drawn)


@pytest.mark.parametrize(("home", "bad"), [([9, 9, 1], False), ([0, 0, 0], True)])
def test_bad_transitions_are_those_cut_off(home, bad):
    """With one step allowed, 19 places and one more end by the rules and 0 are cut off; the rules go first."""
    env = MAPPOVecEnv(convoy(1, max_steps=1))
    env.reset(instance={"home": [home]})
    infos = env.step([[0, 0, 1]])[4]
    assert [info["bad_transition"] for info in infos[0]] == [bad] * 3
    assert infos[0][2]["terminal_obs"].tolist() == [home[2] + 1]
    assert infos[0][0]["episode"] == {"r": 1.0, "l": 1}


def test_illegal_is_reported_for_that_agent_alone():
    """Row 1's second drone takes what its mask forbids, on the last step too."""
    env = MAPPOVecEnv(truck_drone(2, max_steps=2))
    available = env.reset()[2]
    wrong = np.flatnonzero(available[1, 2] == 0)[0]
    for _ in range(2):
        infos = env.step([[0, 0, 0], [0, 0, wrong]])[4]
        assert [[info["illegal"] for info in row] for row in infos] == [[False] * 3, [False, False, True]]
    assert infos[1][2]["bad_transition"] is True


def test_seeds_are_rows_of_the_world():
    """seed(s) gives row i the stream (s, i) from the next reset on, a list each row its own; then episodes go on."""
    env, world = MAPPOVecEnv(convoy(seed=9)), convoy(seed=9)
    for seed in (None, 7, None, [4, 4, 4, 2, 1]):
        if seed is not None:
            env.seed(seed)
        obs = env.reset()[0]
        world.reset(seed=seed)
        assert_same(obs, expected_obs(world))
    assert_same(obs[0], obs[1])
    with pytest.raises(ConfigError, match="seed -1"):
        env.seed(-1)
    env.seed([1, 2])
    with pytest.raises(ShapeError, match="2 seeds for 5 rows"):
        env.reset()


def expected_obs(world):
    return rows(world, world.observe(), world.num_envs)[0]


@pytest.mark.parametrize("make", [lambda: convoy(max_steps=6), lambda: truck_drone(max_steps=6)])
def test_returned_arrays_never_change(make):
    """Arrays keep their checksum through 100 autoresets, and infos read late equal those read at once."""
    env, twin = MAPPOVecEnv(make()), MAPPOVecEnv(make())
    handed, late, at_once = list(arrays_in(env.reset())), [], []
    twin.reset()
    sums = [zlib.crc32(a.tobytes()) for a in handed]
    ends = turn = 0
    while ends < 100:
        actions = env.world.sample_actions(1, turn)
        actions[turn % 5, 1] = 5
        turn += 1
        *arrays, infos, available = env.step(actions)
        at_once.append(copy.deepcopy(list(twin.step(actions)[4])))
        late.append(infos)
        fresh = [*arrays, available]
        handed += fresh
        sums += [zlib.crc32(a.tobytes()) for a in fresh]
        ends += int(arrays[3][:, 0].sum())
    assert [zlib.crc32(a.tobytes()) for a in handed] == sums
    for ours, theirs in zip(late, at_once):
        assert_same(list(ours), theirs)
    memory = [getattr(env.world, name) for name, field in env.world.fields.items() if field.per_row]
    assert not any(np.shares_memory(a, m) for a in [*fresh, *arrays_in(list(infos))] for m in memory if m.size)


def test_infos_are_a_sequence_of_rows():
    """Length, negative numbers, slices, iteration; (B, A) as an array; a dict stays the same; pickled it is a list."""
    env = MAPPOVecEnv(convoy())
    env.reset(instance={"home": [[9, 9, 1], *[[0, 0, 0]] * 4]})
    infos = env.step([[0, 0, 1]] * 5)[4]
    assert ["episode" in row[0] for row in infos] == [True, False, False, False, False]
    infos[0][1]["mine"] = infos[3][1]["mine"] = 1
    assert len(infos) == 5 and len(list(infos)) == 5 and len(infos[1:3]) == 2
    assert infos[-2] is infos[3] and infos[0][1]["mine"] == infos[3][1]["mine"] == 1
    with pytest.raises(IndexError):
        infos[5]
    table = np.array(infos)
    assert table.shape == (5, 3) and table[3, 1] is infos[3][1]
    for copied in (pickle.loads(pickle.dumps(infos)), copy.deepcopy(infos)):
        assert isinstance(copied, list)
        assert_same(copied, list(infos))
    assert "bad_transition" in repr(infos)


def test_made_by_id():
    """milkrun.make; rows reset in the step, so autoreset="disabled" cannot be; numbers as actions have no mask."""
    env = milkrun.make(TRUCK_DRONE, 4, api="mappo", seed=5, preset="published", pad_actions=True, threads=1)
    world = truck_drone(4, seed=5, preset="published")
    world.reset()
    assert_same(env.reset()[0], expected_obs(world))
    assert env.world.autoreset == "same_step" and len({space.n for space in env.action_space}) == 1
    assert milkrun.make("milkrun/TSP-v0", api="mappo", autoreset="same_step", num_loc=5).num_envs == 1
    for wrong in ({"autoreset": "disabled"}, {"num_envs": 0}, {"num_drone": 3}):
        with pytest.raises(ConfigError):
            milkrun.make(TRUCK_DRONE, api="mappo", **wrong)
    with pytest.raises(ConfigError, match="its actions are numbers"):
        MAPPOVecEnv(Glider(2, autoreset="same_step"))
    with pytest.raises(ConfigError, match="must be 'same_step'"):
        MAPPOVecEnv(Convoy(2))
    with pytest.raises(ConfigError, match="has 5 rows, not 2"):
        MAPPOVecEnv(convoy(), 2)


def test_render_and_close():
    """All rows' pictures; a step needs a reset, and nothing goes on after close()."""
    env = MAPPOVecEnv("milkrun/CVRP-v0", 2, num_loc=4, seed=1)
    with pytest.raises(ResetNeeded):
        env.step([[1], [1]])
    env.reset()
    assert_same(env.render("rgb_array"), np.stack([env.world.render(0), env.world.render(1)]))
    with pytest.raises(ConfigError, match="mode='human'"):
        env.render("human")
    env.close()
    env.close()
    with pytest.raises(Closed):
        env.reset()
