"""EnvClutterEnv: lists of objects, infos and indices are live views of the world's arrays, and cannot be written."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import milkrun
import milkrun.clutter.config as sections
from milkrun.api.gymnasium import MilkrunVectorEnv
from milkrun.clutter import CATALOGUE, Clutter, ClutterConfig, ClutterMotion
from milkrun.clutter.config import Config, get_config
from milkrun.compat.clutter import EnvClutterEnv
from milkrun.core.errors import ConfigError, IllegalAction, ShapeError

TWO_TYPES = {"box_objects": ("004_sugar_box", "008_pudding_box"), "num_objects_per_type": 1, "bank_size": 4}


@pytest.fixture(scope="module")
def played():
    """Six objects a row, two rows, two picks of the highest object in each."""
    env = EnvClutterEnv(num_envs=2, config_preset="small_scene", threads=1)
    env.reset(seed=0)
    for _ in range(2):
        env.step(highest(env))
    yield env
    env.close()


def highest(env: EnvClutterEnv) -> np.ndarray:
    return np.where(env.world.action_mask, env.world.top, -1).argmax(1)


def tiny(**changes) -> EnvClutterEnv:
    return EnvClutterEnv(num_envs=2, custom_config=ClutterConfig(**TWO_TYPES), threads=1, **changes)


def test_it_is_made_as_documented():
    """By number of environments and preset; one environment if no number is given."""
    env = EnvClutterEnv(num_envs=4, use_discrete_action=True, config_preset="default")
    assert (len(env.all_objects), env.total_objects_per_env) == (48, 12)
    env = EnvClutterEnv(num_envs=8, use_discrete_action=True, config_preset="large_scene")
    assert (len(env.all_objects), env.total_objects_per_env) == (144, 18)
    env = EnvClutterEnv(config_preset="small_scene")
    assert (len(env.all_objects), env.total_objects_per_env, env.num_envs) == (6, 6, 1)
    assert isinstance(env, MilkrunVectorEnv) and isinstance(env.world, Clutter)


def test_a_custom_configuration(monkeypatch):
    """Five of each type and 18 attempts; a later edit has no effect. (Few scenes, as they are generated here.)"""
    monkeypatch.setitem(sections.DEFAULTS, "bank_size", 1)
    config = Config()
    config.env.num_objects_per_type = 5
    config.env.total_objects_per_env = 15
    config.env.max_episode_steps_discrete = 18

    env = EnvClutterEnv(num_envs=4, use_discrete_action=True, custom_config=config)
    config.env.num_objects_per_type = 1
    assert (env.num_objects_per_type, env.num_object_types, env.total_objects_per_env) == (5, 3, 15)
    assert env.config.max_episode_steps_discrete == 18 and env.single_action_space.n == 15
    assert env.BOX_OBJECTS == ("004_sugar_box", "006_mustard_bottle", "008_pudding_box")


def test_objects_are_found_as_documented(played):
    """Counts after two picks: grasped and remaining objects sum to six in every environment."""
    env = played
    all_objects = env.all_objects
    env_0_objects = env.selectable_objects[0]
    env_0_info = env.object_info[0]
    grasped_count = len(env.grasped_objects[0])
    remaining_count = len(env.remaining_indices[0])
    assert (len(all_objects), len(env_0_objects), len(env_0_info)) == (12, 6, 6)
    assert grasped_count + remaining_count + env.world.lost[0].sum() == 6 and grasped_count > 0


def test_suction_is_active_while_the_cup_holds():
    """Switched on over nothing it is inactive; `current_suction_object` agrees."""
    env = tiny(use_discrete_action=False)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.array([[0.0, 0.0, 1.0, 1.0]] * 2, np.float32))
    assert not env.is_suction_active.any() and env.current_suction_object.tolist() == [-1, -1]


def test_observations_lie_within_the_declared_bounds():
    """The bounds are tight, so that scaled numbers keep their digits: at most 2 at the cup's farthest position."""
    for options in ({}, {"use_discrete_action": False}):
        env = EnvClutterEnv(2, config_preset="small_scene", seed=1, threads=1, **options)
        space = env.world.fields["globals"].bounds(env.world.sizes)
        assert space == (-2, 2)
        obs, _ = env.reset()
        assert env.observation_space.contains(obs) and abs(env.world.globals).max() > 0.3
    far = ClutterConfig.build("small_scene", home_pos=(0.0, 0.0, 4.0), suction_force=400.0)
    env = EnvClutterEnv(1, custom_config=far, threads=1)
    assert env.world.fields["globals"].bounds(env.world.sizes) == (-10, 10)
    assert env.world.globals[0, 6] == 10.0 and env.world.globals[0, 11] == 8.0


def test_the_first_scene_stands_after_construction():
    """Nothing is grasped, all objects remain, none is targeted; a first reset without a seed starts the same scene."""
    env = EnvClutterEnv(num_envs=4, config_preset="default", seed=3, threads=1)
    assert [len(env.grasped_objects[e]) for e in range(4)] == [0] * 4
    assert [env.remaining_indices[e].tolist() for e in range(4)] == [list(range(12))] * 4
    assert env.env_target.tolist() == [-1] * 4 and env.step_count.tolist() == [0] * 4
    assert not env.env_busy.any() and not env.is_suction_active.any()
    first = env.object_info[0][0]
    np.testing.assert_allclose(first["size"], CATALOGUE["004_sugar_box"].size, rtol=1e-6)
    before, seen = env.merged_objects.pose.p.copy(), env.world.exposed_area.copy()
    assert (before[:, 2] > 0).all() and seen.max() > 0 and (first["center"] == first["initial_pose"][:3]).all()
    env.reset()
    assert (env.merged_objects.pose.p == before).all() and (env.world.exposed_area == seen).all()
    assert env.world.stream[:, 2].tolist() == [0] * 4
    env.reset()
    assert env.world.stream[:, 2].tolist() == [1] * 4 and (env.merged_objects.pose.p != before).any()
    vector = milkrun.make("milkrun/Clutter-v0", 4, api="gymnasium", seed=3, threads=1)
    vector.reset()
    assert (vector.world.obj_pose[..., :3].reshape(-1, 3) == before).all()


def test_global_and_local_indices_give_the_same_object(played):
    """The handles by global index and by index within the type are equal, also as keys."""
    for env_idx in range(2):
        for local_idx in range(played.total_objects_per_env):
            global_idx = env_idx * played.total_objects_per_env + local_idx
            o = played.all_objects[global_idx]
            assert o == played.selectable_objects[env_idx][local_idx]
            assert len({o, played.selectable_objects[env_idx][local_idx]}) == 1
            assert (o.global_idx, o.env_idx, o.local_idx) == (global_idx, env_idx, local_idx)
    assert played.all_objects[0] != played.all_objects[6]


def test_handles_have_names_and_types(played):
    """Objects are sorted by type: with two each, number 3 is the second bottle."""
    o = played.all_objects[6 + 3]
    assert (o.name, o.type) == ("env_1_006_mustard_bottle_1", "006_mustard_bottle")
    np.testing.assert_array_equal(o.size, np.float32([0.05, 0.085, 0.175]))
    assert [o.name for o in played.selectable_objects[0]] == [
        f"env_0_{kind}_{k}" for kind in played.BOX_OBJECTS for k in range(2)
    ]


def test_poses_are_those_of_the_world(played):
    """One by one, and merged in global order."""
    pose, speed = played.world.obj_pose, played.world.obj_vel
    for o in played.all_objects:
        np.testing.assert_array_equal(np.r_[o.pose.p, o.pose.q], pose[o.env_idx, o.local_idx])
        np.testing.assert_array_equal(np.r_[o.linear_velocity, o.angular_velocity], speed[o.env_idx, o.local_idx])
    merged = played.merged_objects.pose
    assert merged.p.shape == (12, 3) and merged.q.shape == (12, 4)
    np.testing.assert_array_equal(merged.p[7], pose[1, 1, :3])
    np.testing.assert_array_equal(merged.q[7], pose[1, 1, 3:])


def test_infos_are_those_of_the_world(played):
    """Type, size, initial pose, centre and visible area of an object in play."""
    i = int(played.remaining_indices[1][0])
    info, w = played.object_info[1][i], played.world
    assert list(info) == ["type", "size", "initial_pose", "center", "exposed_area"] and len(info) == 5
    assert info["type"] == played.BOX_OBJECTS[i // 2]
    np.testing.assert_array_equal(info["size"], w.size[1, i])
    np.testing.assert_array_equal(info["initial_pose"], w.init_pose[1, i])
    np.testing.assert_array_equal(info["center"], w.obj_pose[1, i, :3])
    assert info["exposed_area"] == w.exposed_area[1, i]
    with pytest.raises(KeyError):
        info["colour"]


def test_indices_are_in_order():
    """Objects in play are ascending; removed objects are in the order of their picks."""
    env = tiny(autoreset_mode="disabled")
    env.reset(seed=0)
    np.testing.assert_array_equal(env.remaining_indices[0], [0, 1])
    env.reset(options={"instance": {"init_pose": flat(env)}})
    env.step([1, 0])
    assert [list(x) for x in env.grasped_objects] == [[1], [0]]
    assert [list(x) for x in env.remaining_indices] == [[0], [1]]
    env.step([0, 1])
    assert [list(x) for x in env.grasped_objects] == [[1, 0], [0, 1]]
    assert [list(x) for x in env.remaining_indices] == [[], []]
    assert list(env.step_count) == [2, 2]


def flat(env: EnvClutterEnv) -> np.ndarray:
    """Two boxes on their backs, apart, in every row: in its own frame the long side of a box points up."""
    pose = np.zeros((2, 2, 7))
    half = np.sqrt(0.5)
    for i, (x, thick) in enumerate(((-0.045, 0.089), (0.045, 0.110))):
        pose[:, i] = x, 0.0, 0.02 + thick / 2, half, half, 0.0, 0.0
    return pose


def test_views_are_live():
    """Views created before a pick show its result."""
    env = tiny()
    env.reset(seed=0)
    o, info, count, remaining = env.all_objects[0], env.object_info[0][0], env.step_count, env.remaining_indices
    before, seen = o.pose.p.copy(), info["exposed_area"]
    assert seen > 0 and list(count) == [0, 0]
    env.reset(options={"instance": {"init_pose": flat(env)}})
    env.step([0, 1])
    assert list(count) == [1, 1] and list(remaining[0]) == [1]
    assert not np.array_equal(o.pose.p, before) and info["exposed_area"] == 0
    np.testing.assert_array_equal(info["center"], env.world.obj_pose[0, 0, :3])


def test_the_stage_of_each_environment():
    """One tick a step: the arrays are the world's, with the dtypes of their tensors."""
    env = tiny(step_mode="tick")
    env.reset(seed=0)
    assert not env.env_busy.any() and list(env.env_target) == [-1, -1]
    actions = highest(env)
    env.step(actions)
    assert env.env_busy.all() and list(env.env_target) == list(actions)
    assert list(env.env_stage) == [1, 1] and list(env.stage_tick) == [1, 1]
    names = {
        "env_stage": np.int8,
        "env_target": np.int16,
        "env_busy": np.bool_,
        "stage_tick": np.int16,
        "stage_positions": np.float32,
        "step_count": np.int32,
        "is_suction_active": np.bool_,
        "current_suction_object": np.int16,
    }
    for name, dtype in names.items():
        array, held = getattr(env, name), getattr(env.world, name)
        assert array.dtype == dtype and np.shares_memory(array, held), name
    np.testing.assert_allclose(env.stage_positions, env.world.cup_goal, rtol=1e-6)
    for _ in range(400):
        if env.is_suction_active.any():
            break
        env.step(actions)
    (b,) = np.flatnonzero(env.is_suction_active)[:1]
    assert env.current_suction_object[b] == actions[b] and env.env_stage[b] == 4


def test_a_copy_has_its_own_views(played):
    """Views of a copy show the copy; views of the original are unchanged."""
    for other in (copy.deepcopy(played), pickle.loads(pickle.dumps(played))):
        o, mine = other.all_objects[0], played.all_objects[0]
        assert o != mine and np.array_equal(o.pose.p, mine.pose.p)
        other.reset(seed=1)
        assert list(other.step_count) == [0, 0] and list(played.step_count) == [2, 2]
        assert len(other.remaining_indices[0]) == 6 and len(played.grasped_objects[0]) > 0
        other.close()


ATTRIBUTES = [
    "all_objects",
    "merged_objects",
    "selectable_objects",
    "object_info",
    "remaining_indices",
    "grasped_objects",
    "step_count",
    "is_suction_active",
    "current_suction_object",
    "env_stage",
    "env_target",
    "env_busy",
    "stage_tick",
    "stage_positions",
    "BOX_OBJECTS",
    "num_objects_per_type",
    "total_objects_per_env",
    "config",
]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_cannot_be_written(played, name):
    """Python's AttributeError for a property without a setter."""
    with pytest.raises(AttributeError):
        setattr(played, name, None)


def test_handles_and_poses_cannot_be_written(played):
    """AttributeError for a handle, ValueError for an array."""
    o = played.all_objects[0]
    for name in ("name", "type", "pose", "global_idx", "env_idx"):
        with pytest.raises(AttributeError):
            setattr(o, name, 0)
    with pytest.raises(AttributeError):
        o.pose.p = np.zeros(3)
    info = played.object_info[0][0]
    arrays = [
        o.pose.p,
        o.pose.q,
        o.size,
        o.linear_velocity,
        o.angular_velocity,
        info["center"],
        info["size"],
        info["initial_pose"],
        played.merged_objects.pose.p,
        played.remaining_indices[0],
        played.grasped_objects[0],
        played.step_count,
        played.env_stage,
        played.stage_positions,
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_sequences_and_infos_cannot_be_written(played):
    """TypeError, as of a tuple."""
    for things in (
        played.all_objects,
        played.selectable_objects,
        played.selectable_objects[0],
        played.object_info,
        played.object_info[0],
        played.remaining_indices,
        played.grasped_objects,
    ):
        with pytest.raises(TypeError):
            things[0] = None
        with pytest.raises(TypeError):
            del things[0]
    with pytest.raises(TypeError):
        played.object_info[0][0]["exposed_area"] = 1.0


def test_sequences_are_sequences(played):
    """They support negative indices, slices and numpy integers, and raise beyond the end."""
    objects = played.all_objects
    assert objects[-1] == objects[np.int64(11)] and [o.global_idx for o in objects[4:8]] == [4, 5, 6, 7]
    assert played.selectable_objects[-1] == played.selectable_objects[1]
    assert [len(row) for row in played.selectable_objects[:2]] == [6, 6]
    assert [info["type"] for info in played.object_info[0][4:]] == ["008_pudding_box"] * 2
    for things, last in ((objects, 12), (played.remaining_indices, 2), (played.object_info[0], 6)):
        with pytest.raises(IndexError, match=f"number {last} of {last}"):
            things[last]


def test_it_plays_as_the_binding_does():
    """The same seeds and actions give the results of a MilkrunVectorEnv of the same world."""
    env = tiny()
    other = MilkrunVectorEnv(2, "milkrun/Clutter-v0", config=ClutterConfig(**TWO_TYPES), threads=1)
    for mine, theirs in zip((env.reset(seed=3), env.step([0, 1])), (other.reset(seed=3), other.step([0, 1]))):
        for key in theirs[0]:
            np.testing.assert_array_equal(mine[0][key], theirs[0][key])
    np.testing.assert_array_equal(env.world.physics, other.world.physics)


def test_the_seed_of_the_first_reset():
    """`seed=5` and reset() is reset(seed=5)."""
    one, other = tiny(seed=5), tiny()
    one.reset()
    other.reset(seed=5)
    np.testing.assert_array_equal(one.world.init_pose, other.world.init_pose)


def test_the_cup_may_be_moved():
    """Four numbers a tick, and the same lists; "tick" makes a step one tick."""
    env = tiny(use_discrete_action=False)
    env.reset(seed=0)
    assert isinstance(env.world, ClutterMotion) and env.single_action_space.shape == (4,)
    env.step(np.zeros((2, 4), np.float32))
    assert len(env.remaining_indices[1]) == 2 and not env.is_suction_active.any()
    assert tiny(step_mode="tick").config.step_mode == "tick"
    kept = EnvClutterEnv(custom_config=ClutterConfig(**TWO_TYPES, step_mode="tick"))
    assert kept.config.step_mode == "tick" and kept.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_invalid_arguments_are_refused():
    """Unknown presets and modes, two configurations at once, totals that disagree, no environments, no Config."""
    wrong = get_config("small_scene")
    wrong.env.total_objects_per_env = 7
    cases = [
        ({"config_preset": "huge_scene"}, "no preset 'huge_scene'; did you mean 'large_scene'"),
        ({"config_preset": "small_scene", "custom_config": Config()}, "give one of them"),
        ({"custom_config": wrong}, "total_objects_per_env = 7.* = 6"),
        ({"custom_config": {"env": {}}}, "must be a Config or a ClutterConfig"),
        ({"step_mode": "pik"}, "step_mode = 'pik'.*'pick'"),
        ({"config_preset": "small_scene", "num_envs": 0}, "num_envs"),
        ({"use_discrete_action": 3}, "use_discrete_action = 3"),
        ({"config_preset": "small_scene", "illegal": "ignore"}, "illegal"),
    ]
    for given, message in cases:
        with pytest.raises(ConfigError, match=message):
            EnvClutterEnv(**given)


def test_wrong_actions_change_nothing():
    """A wrong shape is refused before any change. If illegal actions raise, a removed object is refused by name."""
    env = tiny(illegal="raise", autoreset_mode="disabled")
    env.reset(options={"instance": {"init_pose": flat(env)}})
    for actions in ([0], [0.5, 1.0], [[0, 1]]):
        with pytest.raises(ShapeError):
            env.step(actions)
    assert list(env.step_count) == [0, 0]
    env.step([0, 1])
    with pytest.raises(IllegalAction, match="object 0 is out already"):
        env.step([0, 0])
    assert list(env.step_count) == [1, 1]
