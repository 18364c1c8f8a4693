"""TianshouVectorEnv: every number is the World's own, in the rows that are named; infos, memory, collecting."""

import importlib
import random
import sys
import zlib

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.data import Batch, Collector, VectorReplayBuffer

import milkrun
from milkrun.api.gymnasium import MilkrunVectorEnv
from milkrun.api.tianshou import TianshouVectorEnv
from milkrun.core.errors import Closed, ConfigError, MissingExtra, ResetNeeded, ShapeError
from milkrun.core.fields import Role, int64, view
from tests.api.tianshou_tools import lowest, plain
from tests.core.toys import Convoy, Glider, Lantern, rows_of
from tests.truth.test_gymnasium_conformance import arrays_in, assert_same

TSP, CVRP = "milkrun/TSP-v0", "milkrun/CVRP-v0"
SQUARE = {"locs": np.array([[[0, 0], [0, 1], [1, 1], [1, 0]]], np.float32)}
IDS = [
    id
    for id in milkrun.list_worlds()
    if not milkrun.world_spec(id).extras and milkrun.world_spec(id).family in ("routing", "delivery")
]


class Watched(Lantern):
    """Also shows how often its image was painted."""

    looks = view(int64, on_demand=True, observed=True)


def shown(world, name, rows):
    array = getattr(world, name)
    return array[world.instance_row[rows] if world.fields[name].role is Role.INSTANCE else rows]


def assert_shows(obs, world, rows):
    """The dict layout of these rows is the world's memory, number by number, and the mask is its mask."""
    world.observe()
    groups = {group: f"{group}_obs" for group in world.groups}
    for key, array in plain(obs.obs).items():
        raw = shown(world, groups.get(key, key), rows)
        assert array.reshape(raw.shape).tobytes() == raw.astype(array.dtype).tobytes(), key
    assert obs.mask.dtype == bool
    assert_same(obs.mask, world.action_mask[rows])


@pytest.mark.parametrize("id", IDS)
def test_every_bit_is_the_worlds(id):
    """Three episodes of seven rows, named in any order. Observations, masks, rewards, ends and the internal state equal
    those of a World of the same keys and actions."""
    venv = TianshouVectorEnv(id, 7, layout="dict", seed_rule="row", seed=5, max_steps=50)
    world = milkrun.make(id, 7, seed=5, autoreset="disabled", max_steps=50)
    world.reset()
    obs, _ = venv.reset()
    assert_shows(obs, world, np.arange(7))
    episodes, turn, rng = np.zeros(7, int), 0, np.random.default_rng(1)
    while (left := np.flatnonzero(episodes < 3)).size:
        rows = rng.permutation(left)[: max(1, len(left) - turn % 2)]
        actions = world.sample_actions(9, turn)[rows]
        world.step(actions, rows)
        obs, rewards, terminated, truncated, infos = venv.step(actions, rows)
        assert_shows(obs, world, rows)
        assert_same(rewards, world.reward[rows].astype(np.float64))
        assert_same((terminated, truncated), (world.terminated[rows], world.truncated[rows]))
        assert [(info["env_id"], info["illegal"]) for info in infos] == [(b, bool(world.illegal[b])) for b in rows]
        ended = rows[terminated | truncated]
        totals = {info["env_id"]: (info["objective"], info["episode_steps"]) for info in infos if "objective" in info}
        assert totals == {b: (world.objective[b], world.i[b]) for b in ended}
        if len(ended):
            world.reset(ended)
            assert_shows(venv.reset(ended)[0], world, ended)
            episodes[ended] += 1
        turn += 1
    assert rows_of(venv.world) == rows_of(world)


def test_the_flat_layout_is_the_vector_envs():
    """The vectors of all rows equal those of Gymnasium's binding, 100 steps with resets of the rows that ended."""
    venv = TianshouVectorEnv(CVRP, 5, num_loc=6)
    theirs = MilkrunVectorEnv(5, CVRP, num_loc=6, layout="flat", autoreset_mode="disabled")
    obs, _ = venv.reset(seed=3)
    assert_same(obs.obs, theirs.reset(seed=3)[0])
    assert obs.obs[0] in venv.observation_space[0]
    for turn in range(100):
        actions = theirs.world.sample_actions(1, turn)
        obs, _, terminated, *_ = venv.step(actions)
        assert_same(obs.obs, theirs.step(actions)[0])
        if terminated.any():
            first, _ = venv.reset(np.flatnonzero(terminated))
            assert_same(first.obs, theirs.reset(options={"reset_mask": terminated})[0][terminated])


def test_only_the_named_rows_move():
    """A step and a reset of rows 2 and 0 change no bit of the others, and results stand in the order named."""
    venv = TianshouVectorEnv(CVRP, 5, seed=3, num_loc=6)
    venv.reset()
    before = rows_of(venv.world, [1, 3, 4])
    allowed = venv.world.sample_actions(0, 0)[[2, 0]]
    obs, _, _, _, infos = venv.step(allowed, [2, 0])
    assert [info["env_id"] for info in infos] == [2, 0]
    assert_same(obs.mask, venv.world.action_mask[[2, 0]])
    assert [info["env_id"] for info in venv.reset(np.array([2]))[1]] == [2]
    assert rows_of(venv.world, [1, 3, 4]) == before
    assert venv.world.stream[:, 2].tolist() == [0, 0, 1, 0, 0]


def test_a_square_tour_by_hand():
    """Around the unit square each step from node 0 back to it costs 1: the return is -4."""
    venv = TianshouVectorEnv(TSP, 2, num_loc=4, seed=1)
    venv.reset()
    venv.reset(1, options={"instance": SQUARE})
    turns = [venv.step([node], 1) for node in (1, 2, 3, 0)]
    assert sum(turn[1][0] for turn in turns) == -4
    assert [turn[2].tolist() for turn in turns] == [[False], [False], [False], [True]]
    assert turns[3][4].tolist() == [{"env_id": 1, "illegal": False, "objective": -4.0, "episode_steps": 4}]
    assert turns[0][4].tolist() == [{"env_id": 1, "illegal": False}]
    assert turns[3][0].mask.tolist() == [[True, False, False, False]]


def test_an_illegal_action_is_reported():
    """A second visit to node 2 is not allowed: nothing happens, and the row's info reports it."""
    venv = TianshouVectorEnv(TSP, 2, num_loc=4, seed=1)
    venv.reset()
    venv.step(np.array([2, 2]))
    obs, rewards, _, _, infos = venv.step(np.array([2, 3]))
    assert [info["illegal"] for info in infos] == [True, False]
    assert rewards[0] == 0
    assert obs.mask.tolist() == [[False, True, False, True], [False, True, False, False]]


@pytest.mark.parametrize("layout", ["flat", "dict"])
def test_returned_arrays_never_change(layout):
    """Checksums of all that 60 steps and their resets returned are the same at the end."""
    kept, venv = [], TianshouVectorEnv(CVRP, 4, num_loc=5, seed=2, layout=layout)

    def keep(returned):
        kept.extend((array, zlib.crc32(array.tobytes())) for array in arrays_in(plain(returned)))
        return returned

    keep(venv.reset())
    for turn in range(60):
        ended = np.flatnonzero(keep(venv.step(venv.world.sample_actions(7, turn)))[2])
        if len(ended):
            keep(venv.reset(ended))
    assert len(kept) > 300
    assert all(zlib.crc32(array.tobytes()) == checksum for array, checksum in kept)


def test_no_global_random_state_is_touched():
    """numpy's, torch's and Python's own stand as they stood after 100 steps, resets and seeds."""

    def states():
        return np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes(), random.getstate()

    before = states()
    venv = TianshouVectorEnv(CVRP, 4, num_loc=5)
    venv.reset()
    for turn in range(100):
        *_, truncated, _ = result = venv.step(venv.world.sample_actions(7, turn))
        if (ended := np.flatnonzero(result[2] | truncated)).size:
            venv.seed(turn)
            venv.reset(ended)
    assert states() == before


def test_other_layouts_and_worlds_without_masks():
    """What "view" leaves out is in the infos, the mask aside; a world of numbers shows its observation alone."""
    lantern = TianshouVectorEnv(Watched(3, seed=1, autoreset="disabled"), layout="view")
    obs, infos = lantern.reset(seed=4)
    goals = lantern.world.goal
    assert [image[0, 0] for image in obs.obs] == goals.tolist()
    seen = [lantern.world.looks.tolist()]
    assert [{key: np.ravel(value).tolist() for key, value in info.items()} for info in infos] == [
        {"env_id": [b], "looks": [seen[0][b]]} for b in range(3)
    ]
    obs, _, _, _, infos = lantern.step([1, 1], [2, 0])
    assert [image[0, 0] for image in obs.obs] == [10 + goals[2], 10 + goals[0]]
    assert [info["looks"].tolist() for info in infos] == [[seen[0][b] + 1] for b in (2, 0)]
    assert lantern.world.looks.tolist() == [2, 1, 2]
    glider = TianshouVectorEnv(Glider(2, autoreset="disabled"))
    obs, _ = glider.reset(seed=1)
    assert isinstance(obs, np.ndarray)
    assert glider.step(np.zeros((2, *glider.action_space[0].shape)))[0].shape == obs.shape
    convoy = TianshouVectorEnv(Convoy(2, seed=1, autoreset="disabled"))
    obs, _ = convoy.reset()
    assert_same(obs.mask, convoy.world.action_mask)
    assert convoy.action_space[0] == spaces.MultiDiscrete(convoy.world.action.nvec(convoy.world.sizes))


def test_it_has_the_attributes_of_a_tianshou_vector_env():
    """Length, lists of attributes once a row, and no workers."""
    venv = milkrun.make(TSP, 3, api="tianshou", num_loc=4, seed=1)
    assert (type(venv), len(venv), venv.is_async, venv.workers) == (TianshouVectorEnv, 3, False, [])
    assert venv.action_space == [spaces.Discrete(4)] * 3
    assert venv.get_env_attr("action_space", 1) == [spaces.Discrete(4)]
    assert len(venv.get_env_attr("observation_space", [0, 2])) == 2
    assert venv.spec == [milkrun.world_spec(TSP)] * 3
    assert venv.metadata[0]["render_modes"] == ["rgb_array"]
    venv.reset()
    venv.step(np.array([1, 2, 3]))
    assert [int(node) for node in venv.get_env_attr("current_node")] == [1, 2, 3]
    assert_same(venv.get_env_attr("locs", [2])[0], venv.world.locs[2])
    assert_same(venv.render()[1], venv.world.render(1))
    with pytest.raises(AttributeError, match="altitude"):
        venv.get_env_attr("altitude")
    with pytest.raises(ConfigError, match="share one configuration"):
        venv.set_env_attr("num_loc", 5)


def test_bad_calls_are_refused():
    """Rows, actions, seeds, options and modes that cannot be, each by a sentence."""
    venv = TianshouVectorEnv(TSP, 3, num_loc=4)
    with pytest.raises(ResetNeeded):
        venv.step(np.zeros(3, int))
    venv.reset(seed=1)
    for id in ([], [0, 0], [3], [-1], 0.5):
        with pytest.raises(ShapeError):
            venv.step(np.zeros(1, int), id)
    with pytest.raises(ShapeError, match="actions"):
        venv.step(None)
    with pytest.raises(ShapeError, match=r"shape \(2,\)"):
        venv.step(np.zeros(3, int), [0, 1])
    with pytest.raises(ConfigError, match="no option 'instances'; did you mean 'instance'"):
        venv.reset(options={"instances": SQUARE})
    with pytest.raises(ShapeError, match="2 seeds for 3 rows"):
        venv.seed([1, 2])
    with pytest.raises(ConfigError):
        venv.seed(-1)
    for node in (1, 2, 3, 0):
        venv.step([node], 2)
    with pytest.raises(ResetNeeded, match="row 2"):
        venv.step(np.zeros(3, int))
    with pytest.raises(ConfigError, match="same_step"):
        milkrun.make(TSP, 3, api="tianshou", autoreset="same_step")
    with pytest.raises(ConfigError, match="'disabled'"):
        TianshouVectorEnv(milkrun.make(TSP, 3))
    with pytest.raises(ConfigError, match="seed_rule='rows'"):
        TianshouVectorEnv(TSP, 3, seed_rule="rows")


def test_close():
    """After close() nothing goes on, and a second close is fine."""
    venv = TianshouVectorEnv(TSP, 2, num_loc=4)
    venv.reset()
    venv.close()
    venv.close()
    for call in (venv.reset, venv.seed, lambda: venv.step(np.zeros(2, int)), lambda: venv.action_space):
        with pytest.raises(Closed):
            call()


@pytest.mark.parametrize("how", [{"n_step": 100}, {"n_episode": 10}])
def test_the_stock_collector_collects_true_transitions(how):
    """Tours of 5 nodes, 4 rows: lengths 5, returns equal to the reported objectives and to a World's. Every action is
    allowed by its mask, and the next observation of a step is the start of the next one."""
    venv = TianshouVectorEnv(TSP, 4, num_loc=5)
    buffer = VectorReplayBuffer(400, 4)
    collector = Collector(lowest(venv), venv, buffer)
    collector.reset(gym_reset_kwargs={"seed": 7})
    stats = collector.collect(**how)
    episodes = how.get("n_episode", 20)
    assert (stats.n_collected_episodes, stats.n_collected_steps, len(buffer)) == (episodes, 5 * episodes, 5 * episodes)
    assert stats.lens.tolist() == [5] * episodes
    data = buffer[:]
    assert data.obs.mask[np.arange(len(data)), data.act].all()
    assert not data.info.illegal.any()
    ends = np.flatnonzero(data.done)
    assert data.info.objective[ends] == pytest.approx(data.rew.reshape(-1, 5).sum(1), abs=1e-6)
    assert np.sort(data.info.objective[ends]) == pytest.approx(np.sort(stats.returns), abs=1e-12)
    goes_on = np.setdiff1d(np.arange(len(data) - 1), ends)
    assert_same(data.obs_next.obs[goes_on], data.obs.obs[goes_on + 1])
    world = milkrun.make(TSP, 4, num_loc=5, autoreset="disabled")
    world.reset(seed=[7, 8, 9, 10])
    for node in (1, 2, 3, 4, 0):
        world.step(np.full(4, node))
    assert [part.rew[:5].sum() for part in buffer.buffers] == pytest.approx(world.objective.tolist(), abs=1e-6)


def test_without_tianshou_the_extra_is_named(monkeypatch):
    """Importing the binding says what to install."""
    monkeypatch.setitem(sys.modules, "tianshou", None)
    monkeypatch.delitem(sys.modules, "milkrun.api.tianshou")
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[tianshou\]"'):
        importlib.import_module("milkrun.api.tianshou")


def test_a_batch_is_what_its_q_learners_read():
    """obs.obs and obs.mask of two rows, float32 vectors and bool masks."""
    obs, _ = TianshouVectorEnv(TSP, 2, num_loc=4).reset(seed=1)
    assert isinstance(obs, Batch)
    assert (obs.obs.dtype, obs.mask.dtype) == (np.float32, bool)
    assert obs.mask.tolist() == [[False, True, True, True]] * 2
