"""MilkrunEnv and MilkrunVectorEnv: masks, memory, resets and ends, the rest of the surface."""

import gc
import zlib

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import milkrun
from milkrun.api.gymnasium import MilkrunEnv, MilkrunVectorEnv
from milkrun.core.errors import Closed, ConfigError
from milkrun.core.fields import Role
from tests import small
from tests.truth.test_gymnasium_conformance import CVRP, EVERY_LAYOUT, WORLDS, arrays_in, assert_same

TSP, DRONE = "milkrun/TSP-v0", "milkrun/Tracking-v0"
SQUARE = {"locs": [[0, 0], [3, 0], [3, 4], [0, 4]]}


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("id", WORLDS)
def test_masks_agree_and_are_never_empty(id, mode):
    """10^5 random row-steps (few of a slow world), every second action unmasked: obs, info and action_masks() are one,
    no row all False."""
    rows = small.rows(id, 500)
    env = MilkrunVectorEnv(rows, id, layout="dict", autoreset_mode=mode, **small.options(id))
    env.action_space.seed(2)
    obs, infos = env.reset(seed=3)
    for t in range(small.turns(id, 201)):
        if t:
            free = env.action_space.sample()
            second = (np.arange(rows) % 2 == 1).reshape(rows, *(1 for _ in free.shape[1:]))
            obs, *_, infos = env.step(np.where(second, env.world.sample_actions(5, t), free))
        mask = env.action_masks()
        assert mask.dtype == bool
        assert mask.any(1).all()
        assert infos["action_mask"] is obs["action_mask"]
        assert obs["action_mask"].dtype == np.int8
        assert np.array_equal(obs["action_mask"], mask)
        if t and "final_obs" in infos:
            assert all(o["action_mask"].any() for o in infos["final_obs"][infos["_final_obs"]])


@pytest.mark.parametrize(("id", "layout"), EVERY_LAYOUT)
def test_single_masks_agree_and_are_never_empty(id, layout):
    """The same of a MilkrunEnv, finished rows included; info's mask is the observation's own array."""
    env = MilkrunEnv(id, layout=layout, **small.options(id))
    env.action_space.seed(2)
    obs, info = env.reset(seed=3)
    for _ in range(small.turns(id, 500)):
        mask = env.action_masks()
        assert mask.any()
        assert np.array_equal(info["action_mask"], mask)
        if layout == "dict":
            assert info["action_mask"] is obs["action_mask"]
        obs, _, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            assert env.action_masks().any()
            assert np.array_equal(info["action_mask"], env.action_masks())
            obs, info = env.reset()


@pytest.mark.parametrize("layout", ["dict", "flat"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_returned_arrays_never_change(mode, layout):
    """Everything returned keeps its checksum through 100 resets, and no array is the world's memory."""
    env = MilkrunVectorEnv(5, CVRP, num_loc=4, autoreset_mode=mode, layout=layout)
    handed = list(arrays_in(env.reset(seed=1)))
    sums = [zlib.crc32(a.tobytes()) for a in handed]
    ends = turn = 0
    while ends < 100:
        returned = env.step(env.world.sample_actions(1, turn))
        turn += 1
        done = returned[2] | returned[3]
        ends += int(done.sum())
        if mode == "disabled" and done.any():
            returned = (*returned, env.reset(options={"reset_mask": done}))
        fresh = list(arrays_in(returned))
        handed += fresh
        sums += [zlib.crc32(a.tobytes()) for a in fresh]
    assert [zlib.crc32(a.tobytes()) for a in handed] == sums
    memory = [getattr(env.world, name) for name, field in env.world.fields.items() if field.per_row]
    assert not any(np.shares_memory(a, m) for a in fresh for m in memory if m.size)


def test_without_copies_arrays_are_the_worlds_memory():
    """copy=False: views that the next call changes; the dicts are fresh, so wrappers may add to them."""
    env = MilkrunVectorEnv(3, CVRP, copy=False)
    obs, infos = env.reset(seed=1)
    assert obs["locs"] is env.world.locs
    assert np.shares_memory(obs["visited"], env.world.visited)
    obs["mine"] = infos["mine"] = 1
    obs2, reward, *_, infos2 = env.step(env.world.sample_actions())
    assert reward is env.world.reward
    assert obs2["visited"].sum() == obs["visited"].sum() == 3
    assert "mine" not in obs2 and "mine" not in infos2


@pytest.mark.parametrize("layout", ["dict", "flat"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_copy_changes_no_value(mode, layout):
    """copy=True and copy=False return the same numbers."""
    options = {"num_loc": 5, "autoreset_mode": mode, "layout": layout}
    fresh, views = MilkrunVectorEnv(4, TSP, **options), MilkrunVectorEnv(4, TSP, **options, copy=False)
    assert_same(fresh.reset(seed=1), views.reset(seed=1))
    for t in range(5 if mode == "disabled" else 30):
        actions = fresh.world.sample_actions(1, t)
        assert_same(fresh.step(actions), views.step(actions))


def highest_allowed(world):
    """Of every agent, in the world's own shape."""
    choices = world.action.nvec(world.sizes)
    parts = np.split(world.action_mask, np.cumsum(choices)[:-1], axis=1)
    best = np.stack([n - 1 - part[:, ::-1].argmax(1) for n, part in zip(choices, parts, strict=True)], axis=1)
    return best.reshape(world.num_envs, *world.action.shape(world.sizes))


@pytest.mark.parametrize("given", [{}, {"seed": 3}, {"instance": True}])
@pytest.mark.parametrize("id", WORLDS)
def test_partial_reset_changes_no_bit_of_other_rows(id, given):
    """reset_mask of rows 1 and 3: rows 0, 2, 4 keep all their state; obs and masks are full for every row."""
    env = MilkrunVectorEnv(5, id, layout="dict", autoreset_mode="disabled")
    env.reset(seed=8)
    for _ in range(4):  # the highest action: a random one might go home and end
        env.step(highest_allowed(env.world))
    others, mask = [0, 2, 4], np.array([False, True, False, True, False])
    options = {"reset_mask": mask}
    if "instance" in given:
        saved, roles = env.world.state_dict([0, 2]), {f.name: f.role for f in env.world.fields.values()}
        options["instance"] = {k: v for k, v in saved.items() if roles[k] is Role.INSTANCE and v.size}
    before, shown = env.world.state_dict(others), dict(options)
    obs, infos = env.reset(seed=given.get("seed"), options=options)
    assert_same(env.world.state_dict(others), before)
    assert options == shown
    assert env.world.i.tolist() == [4, 0, 4, 0, 4]
    assert_same(obs["action_mask"], env.action_masks().view(np.int8))
    assert infos["_action_mask"].all() and set(infos) == {"action_mask", "_action_mask"}


def test_reset_turn_is_aligned():
    """NEXT_STEP by hand on the square 3 x 4: legs 3, 4, 3, 4, then a turn of reward 0 that ignores its action."""
    env = MilkrunVectorEnv(2, TSP, num_loc=4)
    square = {"locs": np.array([SQUARE["locs"]] * 2, np.float32)}
    env.reset(options={"instance": square})
    rewards, flags = [], []
    for actions in ([1, 1], [2, 2], [3, 1], [0, 0], [3, 3]):
        _, reward, terminated, _, infos = env.step(np.array(actions))
        rewards.append(reward.tolist())
        flags.append((terminated.tolist(), infos["illegal"].tolist(), infos["_illegal"].tolist()))
    assert rewards == [[-3, -3], [-4, -4], [-3, 0], [-4, 0], [0, -3]]
    assert flags[2:] == [
        ([False, False], [False, True], [True, True]),
        ([True, False], [False, True], [True, True]),
        ([False, False], [False, False], [False, True]),
    ]
    obs, *_, infos = env.step(np.array([1, 0]))
    assert (infos["objective"][1], infos["episode_steps"][1], infos["_objective"].tolist()) == (-14, 6, [False, True])
    assert_same(obs["locs"], square["locs"])


@pytest.mark.parametrize("options", [None, {"reset_mask": np.array([True, False])}])
def test_after_a_reset_by_hand_the_next_turn_is_a_step(options):
    """Both rows have ended and wait for their reset turn; those reset by hand have none, the others have."""
    env = MilkrunVectorEnv(2, TSP, num_loc=4, max_episode_steps=1)
    env.reset(seed=1)
    assert env.step(env.world.sample_actions())[3].all()
    env.reset(options=options)
    _, reward, _, truncated, infos = env.step(env.world.sample_actions())
    stepped = [True, options is None]
    assert infos["_illegal"].tolist() == truncated.tolist() == (reward < 0).tolist() == stepped


def test_given_instance_stays_until_a_full_reset():
    """Through autoresets and partial resets the square is played; reset() goes back to the generator."""
    env = MilkrunVectorEnv(2, TSP, num_loc=4, autoreset_mode="same_step")
    square = np.array([SQUARE["locs"]] * 2, np.float32)
    env.reset(seed=1, options={"instance": {"locs": square}})
    for t in range(8):
        obs, *_ = env.step(env.world.sample_actions(1, t))
        assert_same(obs["locs"], square)
    assert_same(env.reset(options={"reset_mask": np.array([True, False])})[0]["locs"], square)
    assert env.reset()[0]["locs"].max() < 1


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_rows_that_share_instances_are_shown_their_own(mode):
    """Two instances for four rows: each observation is the one its row plays, also the final one."""
    env = MilkrunVectorEnv(4, TSP, num_loc=4, autoreset_mode=mode)
    locs = np.array([SQUARE["locs"], np.add(SQUARE["locs"], 10)], np.float32)
    expected = locs[[0, 1, 1, 0]]
    obs, _ = env.reset(options={"instance": {"locs": locs, "instance_row": np.array([0, 1, 1, 0])}})
    assert_same(obs["locs"], expected)
    for t in range(4):
        obs, *_, infos = env.step(env.world.sample_actions(1, t))
        assert_same(obs["locs"], expected)
    if mode == "same_step":
        assert_same(np.stack([o["locs"] for o in infos["final_obs"]]), expected)


def test_an_env_plays_a_given_instance():
    """The square has the tour 3 + 4 + 3 + 4, which the last info has as objective."""
    env = MilkrunEnv(TSP, num_loc=4)
    obs, info = env.reset(options={"instance": SQUARE})
    assert obs["locs"].tolist() == SQUARE["locs"]
    assert set(info) == {"action_mask"}
    for action in (1, np.int32(2), np.array(3)):
        assert set(env.step(action)[-1]) == {"action_mask", "illegal"}
    obs, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (-4.0, True, False)
    assert [type(x) for x in (reward, terminated, truncated)] == [float, bool, bool]
    assert (info["objective"], info["episode_steps"], info["illegal"]) == (-14.0, 4, False)


def test_actions_may_be_any_integers():
    """Lists, narrow integers, unsigned ones and foreign arrays play the same step."""

    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2])

    shown = []
    for actions in ([1, 2], np.array([1, 2], np.int8), np.array([1, 2], np.uint64), Foreign()):
        env = MilkrunVectorEnv(2, TSP)
        env.reset(seed=1)
        shown.append(env.step(actions)[0])
    for obs in shown:
        assert obs["current_node"].tolist() == [1, 2]
        assert_same(obs, shown[0])


def test_max_episode_steps_is_max_steps():
    """The third step truncates every row; contradicting limits are refused."""
    env = MilkrunVectorEnv(2, CVRP, max_episode_steps=3)
    env.reset(seed=1)
    ends = [env.step(env.world.sample_actions(1, t))[3].tolist() for t in range(3)]
    assert ends == [[False, False], [False, False], [True, True]]
    with pytest.raises(ConfigError, match="contradicts"):
        MilkrunVectorEnv(2, CVRP, max_episode_steps=3, max_steps=4)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, "SameStep", "same_step"])
def test_autoreset_modes_have_three_spellings(mode):
    """The member, its value and our word; metadata holds the member, in a dict of the instance's own."""
    env = MilkrunVectorEnv(2, TSP, autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert "autoreset_mode" not in MilkrunVectorEnv.metadata
    single = MilkrunEnv(TSP)
    single.metadata["render_modes"].append("mine")
    assert MilkrunEnv.metadata == MilkrunEnv(TSP).metadata == {"render_modes": ["rgb_array"], "render_fps": 10}


@pytest.mark.parametrize(("id", "options", "fps"), [(TSP, {}, 10), (DRONE, {}, 125), (DRONE, {"control_hz": 50}, 50)])
def test_render_fps_follows_the_step_length(id, options, fps):
    """`render_fps` is the steps a second where steps have a length, else 10, in the metadata of each environment."""
    settings = {"num_envs": 2, **options}
    single, batch = MilkrunEnv(id, **options), MilkrunVectorEnv(world_id=id, **settings)
    assert [env.metadata["render_fps"] for env in (single, batch)] == [fps, fps]


def test_call_and_get_attr_return_one_value_per_row():
    """Values with one entry per row are split, others are repeated."""
    env = MilkrunVectorEnv(3, CVRP, num_loc=5, render_mode="rgb_array")
    env.reset(seed=1)
    env.step(env.world.sample_actions())
    assert env.get_attr("i") == (1, 1, 1)
    assert [m.tolist() for m in env.call("action_masks")] == env.action_masks().tolist()
    assert [s.tolist() for s in env.call("solution")] == env.world.solution().tolist()
    assert env.get_attr("action_space") == (env.single_action_space,) * 3
    assert env.get_attr("render_mode") == ("rgb_array",) * 3
    assert [p.tolist() for p in env.get_attr("locs")] == env.world.locs.tolist()
    assert len(env.call("render")) == 3
    with pytest.raises(AttributeError, match="'wheels'"):
        env.get_attr("wheels")


def test_render():
    """512 x 512 RGB, a frame a row, and nothing but a warning without a render mode."""
    env = MilkrunVectorEnv(2, CVRP, render_mode="rgb_array")
    env.reset(seed=1)
    frames = env.render()
    assert [(f.shape, f.dtype) for f in frames] == [((512, 512, 3), np.uint8)] * 2
    assert (frames[0] != frames[1]).any()
    single = MilkrunEnv(CVRP, render_mode="rgb_array")
    single.reset(seed=2)
    assert_same(single.render(), frames[1])
    silent = MilkrunEnv(CVRP)
    silent.reset()
    with pytest.warns(UserWarning, match="rgb_array"):
        assert silent.render() is None
    with pytest.raises(ConfigError, match="'human'"):
        MilkrunEnv(CVRP, render_mode="human")


def test_a_given_world_is_not_closed_with_its_environment():
    """The environment steps it; forgetting the environment does not close it, close() does."""
    world = milkrun.make(CVRP, num_envs=3, num_loc=5)
    env = MilkrunVectorEnv(3, world=world)
    env.reset(seed=1)
    assert env.world is world
    del env
    gc.collect()
    world.step(world.sample_actions())
    env = MilkrunVectorEnv(3, world=world)
    env.close()
    env.close()
    with pytest.raises(Closed):
        env.step(np.ones(3, int))


def test_a_world_made_here_is_closed_when_forgotten():
    """No __del__ needed: Gymnasium 1.4 has none."""
    env = MilkrunVectorEnv(1, CVRP)
    world = env.world
    del env
    gc.collect()
    with pytest.raises(Closed):
        world.reset()


def test_a_table_of_the_world_is_repeated():
    """Also where its length happens to equal the number of rows."""
    env = MilkrunVectorEnv(5, "milkrun/TruckDrone-v0", num_route_nodes=5)
    env.reset(seed=1)
    assert env.world.ring.shape == (5, 2)
    assert [value.tolist() for value in env.get_attr("ring")] == [env.world.ring.tolist()] * 5
