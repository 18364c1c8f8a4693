"""Refused input: the error names the fault, and the world is unchanged."""

from __future__ import annotations

import numpy as np
import pytest

import milkrun
from milkrun.clutter import register_object_type
from milkrun.core.errors import BadInstance, ConfigError, ShapeError
from milkrun.core.instances import instances_of

from .trays import SUGAR, UPRIGHT, bits, config, heavy, laid, made, on_floor, tray

TWO = [on_floor(SUGAR, y=-0.12), on_floor(SUGAR, y=0.12)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"box_objects": ("004_suger_box",)}, "004_suger_box.*004_sugar_box"),
        ({"box_objects": (SUGAR, SUGAR)}, "box_objects.*once"),
        ({"box_objects": ()}, "box_objects"),
        ({"num_objects_per_type": 0}, "num_objects_per_type = 0"),
        ({"num_objects_per_type": 1.5}, "num_objects_per_type"),
        ({"step_mode": "ticks"}, "step_mode.*ticks.*tick"),
        ({"split": "valid"}, "split.*valid"),
        ({"rewards": "sparse"}, "rewards.*sparse"),
        ({"reward_lost": float("nan")}, "reward_lost"),
        ({"reward_success": float("inf")}, "reward_success"),
        ({"mass_range": (1.5, 0.5)}, "mass_range.*smaller first"),
        ({"friction_range": (0.0, 1.0)}, "friction_range.*two factors in 1e-06..1e\\+06"),
        ({"mass_range": (1.0, 1e30)}, "mass_range.*two factors in"),
        ({"mass_range": (1e-12, 1.0)}, "mass_range.*two factors in"),
        ({"home_pos": (1e300, 0, 0)}, r"cup_speed.*1e\+302 ticks.*shorter ways"),
        ({"suction_range": (1.0,)}, "suction_range.*two"),
        ({"mass_range": (1.0, float("nan"))}, "mass_range"),
        ({"iterations": 3}, "iterations = 3"),
        ({"tray_side": 0.19}, "tray_side = 0.19.*1.1 of the longest extent, 0.1925"),
        ({"home_pos": (0, 0)}, "home_pos.*three"),
        ({"drop_pos": (0, 0, float("inf"))}, "drop_pos.*finite"),
        ({"use_discrete_action": False, "step_mode": "tick"}, "step_mode"),
        ({"suction_force": -1.0}, "suction_force"),
        ({"timestep": 0.0}, "timestep"),
        ({"timestep": 1e-4, "substeps": 1, "cup_speed": 0.1}, "cup_speed.*ticks"),
        ({"approach": 10.0, "descend_speed": 0.001}, "descend_speed.*500000 ticks"),
        ({"lift_height": 10.0, "clearance": 10.0, "cup_speed": 0.0041}, "cup_speed.*ticks.*shorter ways"),
        ({"lift_acc": 100.0, "timestep": 0.05, "substeps": 100, "cup_speed": 0.001}, "cup_speed.*ticks"),
        ({"tray_side": 9.0, "drop_pos": (0, 0, 0.5), "home_pos": (0, 0, 0.5), "cup_speed": 0.019}, "cup_speed.*ticks"),
    ],
)
def test_options_are_refused_by_name(options, words):
    """The error has key, value and rule."""
    with pytest.raises(ConfigError, match=words):
        config(**options)


def test_unknown_words_are_refused():
    """Unknown options and presets, and an invalid number of rows."""
    with pytest.raises(ConfigError, match=r"suction_froce.*suction_force"):
        milkrun.make("milkrun/Clutter-v0", suction_froce=3)
    with pytest.raises(ConfigError, match=r"smal_scene.*small_scene"):
        milkrun.make("milkrun/Clutter-v0", preset="smal_scene")
    with pytest.raises(ConfigError, match="num_envs"):
        made(0)


@pytest.mark.parametrize(
    ("name", "shape", "size", "mass"),
    [
        ("", "box", (1, 1, 1), 1),
        ("a", "ball", (1,), 1),
        ("a", "box", (0.1, 0.1), 1),
        ("a", "box", (0.1, 0.1, -0.1), 1),
        ("a", "cylinder", (0.1, 0.1), float("nan")),
        ("a", "cylinder", (10**400, 1), 1),
        (SUGAR, "box", (0.1, 0.1, 0.1), 1),
    ],
)
def test_object_types_are_refused(name, shape, size, mass):
    """Invalid names, shapes, sizes and masses; an existing name with other numbers."""
    with pytest.raises(ConfigError):
        register_object_type(name, shape, size, mass)


@pytest.mark.parametrize(
    ("shape", "size", "mass", "words"),
    [
        ("box", (0.05, 0.05, 0.05), 1e-20, r"mass 1e-20.*down to 4.17e-24, at least 2e-15"),
        ("box", (1e-7, 0.05, 1e-7), 0.1, "down to 1.67e-16, at least"),
        ("cylinder", (1e-7, 0.05), 0.1, "down to 1.25e-16, at least"),
        ("cylinder", (0.05, 0.05), 1e30, r"mass 1e\+30: the mass must be at most 1e\+12 kg"),
    ],
)
def test_types_beyond_the_limits_of_the_engine_are_refused(shape, size, mass, words):
    """Moments of inertia of 1e-15 count as 0 in MuJoCo; those of thin boxes are m (x2 + y2) / 12, of thin rods m d2 /
    8."""
    with pytest.raises(ConfigError, match=words):
        register_object_type(f"{shape} of {mass} kg", shape, size, mass)


def test_a_light_type_bounds_how_masses_vary():
    """1e-9 kg of foam is accepted, a millionth of it is not: its inertia would be 1e-9 * (2 * 0.05**2) / 12 * 1e-6."""
    register_object_type("foam", "box", (0.05, 0.05, 0.05), 1e-9)
    assert config(box_objects=("foam",)).types[0].least == pytest.approx(4.17e-13, rel=1e-3)
    with pytest.raises(ConfigError, match=r"mass_range.*4.17e-19, and must be at least 2e-15"):
        config(box_objects=("foam",), mass_range=(1e-6, 1.0))


def test_too_few_attempts_give_a_warning():
    """With fewer attempts than objects no tray can be cleared."""
    with pytest.warns(UserWarning, match="2 attempts cannot clear a tray of 3"):
        milkrun.clutter.ClutterConfig(num_objects_per_type=1, max_episode_steps_discrete=2)


@pytest.fixture(scope="module")
def pair():
    return laid(*TWO, tray_side=0.5, bank_size=2)


def poses(*changed) -> np.ndarray:
    return np.array([[*TWO[: 2 - len(changed)], *changed]], float)


TILTED = [0.0, 0.12, 0.1, 0.9, 0.9, 0.0, 0.0]


@pytest.mark.parametrize(
    ("instance", "error", "words"),
    [
        ({"init_pose": poses()[0]}, ShapeError, "init_pose"),
        ({"init_pose": poses()[:, :, :6]}, ShapeError, "init_pose"),
        ({"init_pose": poses([0.0, np.nan, 0.1, *UPRIGHT])}, BadInstance, "row 0.*object 1.*finite|init_pose.*finite"),
        ({"init_pose": poses(TILTED)}, BadInstance, "row 0, object 1.*quaternion"),
        ({"init_pose": poses(on_floor(SUGAR, x=0.26))}, BadInstance, "row 0, object 1.*in the tray.*0.25"),
        (
            {"init_pose": poses(on_floor(SUGAR, y=-0.12, over=0.032))},
            BadInstance,
            "row 0: object 1 and object 0 overlap by 6.0 mm",
        ),
        (
            {"init_pose": poses(on_floor(SUGAR, y=0.12, over=-0.007))},
            BadInstance,
            "object 1 and the tray overlap by 7.0 mm",
        ),
        ({"scene_id": [2]}, BadInstance, "row 0: scene 2.*0..1"),
        ({"scene_id": [-1]}, BadInstance, "scene -1"),
        ({"scene_id": [0.5]}, ShapeError, "scene_id"),
        ({"scene_id": [0, 1]}, ShapeError, "shape"),
        ({"scene_id": [0], "init_pose": poses()}, BadInstance, "scene_id and init_pose"),
        ({"scene_id": [0], "scene_rot": [4]}, BadInstance, "row 0: scene_rot must be in 0..3"),
        ({"scene_id": [0], "scene_rot": [[1]]}, ShapeError, "scene_rot"),
        ({"scene_id": [0], "scene_rot": [1.0]}, ShapeError, "scene_rot"),
        ({"scene_id": [0], "scene_label": [[0, 2]]}, BadInstance, "row 0, object 1: scene_label must be in 0..1"),
        ({"scene_id": [0], "scene_label": [[1, 1]]}, BadInstance, "scene_label must name each object once"),
        ({"scene": [0]}, Exception, "scene"),
        ({"init_pose": poses(), "mass": np.full((1, 2), 3.0, np.float32)}, BadInstance, "mass must be that"),
        ({"init_pose": poses(), "friction_factor": np.full(1, 2.0, np.float32)}, BadInstance, "friction_factor"),
        ({"init_pose": poses(), "suction_limit": np.zeros(1, np.float32)}, BadInstance, "suction_limit"),
    ],
)
def test_scenes_are_refused(pair, instance, error, words):
    """The error has row, object and rule; the row is unchanged, to the byte."""
    before = bits(pair, 0)
    with pytest.raises(error, match=words):
        pair.reset(instance=instance)
    assert bits(pair, 0) == before
    with pytest.raises(error, match=words):
        pair.reset(rows=[0], instance=instance)
    assert bits(pair, 0) == before


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("mass", 50.0, r"row 0, object 1: mass must be that of its type, or .* 0.5..1.5"),
        ("mass", 0.514 * 1.501, "mass must be"),
        ("mass", 0.514 * 0.499, "mass must be"),
        ("mass", 1e-30, "mass must be"),
        ("friction_factor", 1.7, r"friction_factor must be 1, or in friction_range 0.4..1.6"),
        ("friction_factor", 1e-30, "friction_factor must be"),
        ("suction_limit", 1e-12, r"suction_limit must be suction_force by a factor in 1e-06..1e\+06"),
        ("suction_limit", 1e30, "suction_limit must be"),
    ],
)
def test_factors_beyond_their_ranges_are_refused(name, value, words):
    """Bounds of masses hold for given scenes too, including those of the engine."""
    world = laid(*TWO, tray_side=0.5, mass_range=(0.5, 1.5), friction_range=(0.4, 1.6))
    given = {
        "init_pose": poses(),
        "mass": np.full((1, 2), 0.514),
        "friction_factor": np.ones(1),
        "suction_limit": np.full(1, 40.0),
    }
    given[name].flat[-1] = value
    with pytest.raises(BadInstance, match=words):
        world.reset(instance=given)


def test_factors_at_the_ends_of_their_ranges_are_accepted():
    """Factor 1 is allowed, even outside of the range: the mass is that of its type."""
    heavy_box = heavy(SUGAR, 5.0)
    world = laid(*TWO, box_objects=(heavy_box,), tray_side=0.5, mass_range=(0.1, 0.5), friction_range=(2.0, 3.0))
    assert world.mass.tolist() == [[5.0, 5.0]] and world.objects.max() == 5 <= world.sizes["reach"]
    world.reset(instance={"init_pose": poses(), "mass": np.array([[0.5, 2.5]]), "friction_factor": np.array([3.0])})
    assert world.mass.tolist() == [[0.5, 2.5]]


def test_a_scene_of_the_bank_has_its_own_turns():
    """An object turned by 69 degrees is not that of its scene; a quaternion and its negative are the same turn."""
    world = tray(4, num_objects_per_type=2)
    given = instances_of(world)
    assert len(set(given["scene_rot"].tolist())) > 1
    given["init_pose"][:, ::2, 3:] *= -1
    world.reset(instance=given)
    given["init_pose"][2, 1, 3:] = [np.cos(0.6), np.sin(0.6), 0, 0]
    with pytest.raises(BadInstance, match="row 2, object 1: init_pose is not that of its scene"):
        world.reset(instance=given)


@pytest.mark.parametrize("actions", [[0], [0, 1, 2], [[0, 1]], [0.0, 1.0], "ab", [None, 0], [True, False]])
def test_actions_of_another_shape_are_refused(actions):
    """Before any change."""
    world = tray(2)
    before = [bits(world, b) for b in range(2)]
    with pytest.raises(ShapeError):
        world.step(actions)
    assert [bits(world, b) for b in range(2)] == before


@pytest.mark.parametrize("actions", [np.zeros((2, 3)), np.zeros(4), np.zeros((2, 4), np.int64) > 0, [["a"] * 4] * 2])
def test_motions_of_another_shape_are_refused(actions):
    """The same if an action is four numbers."""
    world = tray(2, use_discrete_action=False)
    before = [bits(world, b) for b in range(2)]
    with pytest.raises(ShapeError):
        world.step(actions)
    assert [bits(world, b) for b in range(2)] == before


@pytest.mark.parametrize("rows", [[0, 0], [2], [-3], [0.5], [[0]]])
def test_rows_out_of_range_are_refused(rows):
    """In a reset and in a step, by name; nothing changes."""
    world = tray(2)
    before = [bits(world, b) for b in range(2)]
    for call in (lambda: world.reset(rows=rows), lambda: world.step([0] * len(rows), rows=rows)):
        with pytest.raises(ShapeError, match="row"):
            call()
    assert [bits(world, b) for b in range(2)] == before


def test_unreachable_saved_states_are_refused():
    """Kernels index with these: a target that is no object, a stage without a target."""
    world = tray(1, step_mode="tick")
    world.step([0])
    saved, before = world.state_dict(), bits(world, 0)
    for name, value in (("env_target", 9), ("env_stage", 8), ("hit", 50), ("scene_label", 7), ("env_target", -1)):
        wrong = {**saved, name: np.full_like(saved[name], value)}
        with pytest.raises(BadInstance, match=name):
            world.load_state_dict(wrong)
        assert bits(world, 0) == before
    wrong = saved["physics"].copy()
    wrong[:, world.at_qpos + 3 : world.at_qpos + 7] = 0.0
    with pytest.raises(BadInstance, match=r"row 0, object 0: physics.*quaternion"):
        world.load_state_dict({**saved, "physics": wrong})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grasped": [[True, False, False]], "lost": [[True, False, False]]}, "row 0, object 0: both grasped and lost"),
        ({"grasped": [[False, True, False]]}, "row 0, object 1: grasp_order must count"),
        ({"grasped": [[True, True, False]], "grasp_order": [[0, 2, -1]]}, "row 0, object 1: grasp_order must count"),
        ({"grasp_order": [[-1, -1, 0]]}, "row 0, object 2: grasp_order must count"),
        ({"lost": [[True, True, True]]}, "row 0: grasped and lost: nothing is left, and the row has not ended"),
        ({"lost": [[True, False, False]]}, "row 0, object 0: action_mask allows what is out of play"),
        ({"env_stage": 1, "env_target": 0, "stage_tick": 9, "stage_len": 8}, "row 0: stage_tick: the stage would be"),
    ],
)
def test_saved_states_that_contradict_themselves_are_refused(changes, words):
    """Each value is within its bounds, but contradicts another: an object is either in play, out or lost, and stages
    have a limited time. A row without objects would pick one that is not in the tray."""
    world = tray(1)
    world.action_mask[:] = True
    saved, before = world.state_dict(), bits(world, 0)
    world.load_state_dict(saved)
    wrong = {name: np.full_like(saved[name], value) for name, value in changes.items()}
    with pytest.raises(BadInstance, match=words):
        world.load_state_dict({**saved, **wrong})
    assert bits(world, 0) == before


@pytest.mark.parametrize("options", [{"step_mode": "tick"}, {"use_discrete_action": False}], ids=["ticks", "motion"])
@pytest.mark.parametrize("over", [{"at_rest": True}, {"at_rest": False, "settle_tick": 60}], ids=["rest", "time"])
def test_a_saved_pick_that_settles_a_pile_at_rest_is_refused(options, over):
    """A pile at rest does not move, so the pick would never end."""
    world = tray(1, **options)
    saved, before = world.state_dict(), bits(world, 0)
    changes = {"env_stage": 7, "env_target": 0, **over}
    wrong = {name: np.full_like(saved[name], value) for name, value in changes.items()}
    with pytest.raises(BadInstance, match="row 0: env_stage is settle, but by at_rest or settle_tick the pick is over"):
        world.load_state_dict({**saved, **wrong})
    assert bits(world, 0) == before


@pytest.mark.parametrize(
    "options",
    [{}, {"step_mode": "tick"}, {"use_discrete_action": False, "max_ticks": 40}],
    ids=["picks", "ticks", "motion"],
)
def test_every_reachable_state_is_accepted(options):
    """Through whole episodes with drops and losses, ended rows included."""
    world = tray(4, **{"lift_acc": 40.0, "suction_force": 100.0, "max_episode_steps_discrete": 2} | options)
    for turn in range(260):
        live = np.flatnonzero(~world.done)
        if not len(live):
            break
        world.step(world.sample_actions(1, turn)[live], rows=live)
        if turn % 7 == 0 or world.pick_mode:
            world.load_state_dict(world.state_dict())
    world.load_state_dict(world.state_dict())
    assert world.done.all()


def test_a_saved_state_that_is_not_finite_is_refused():
    """NaN is also refused."""
    world = tray(1)
    saved, before = world.state_dict(), bits(world, 0)
    for name in ("physics", "weld", "cup_pos", "grip_local"):
        wrong = saved[name].copy()
        wrong.ravel()[-3] = np.nan
        with pytest.raises(BadInstance, match=name):
            world.load_state_dict({**saved, name: wrong})
        assert bits(world, 0) == before
