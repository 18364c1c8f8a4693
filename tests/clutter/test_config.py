"""The sectioned configuration: keys map to options of ClutterConfig, totals are derived, errors name the key."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from milkrun.clutter.config import OPTIONS, PRESET_CONFIGS, SECTIONS, Config, EnvConfig, get_config
from milkrun.clutter.options import ClutterConfig
from milkrun.core.errors import ConfigError


def test_every_option_has_one_key():
    """The sections hold each option of ClutterConfig once."""
    options = [option for keys in OPTIONS.values() for option in keys.values()]
    assert sorted(options) == sorted(f.name for f in dataclasses.fields(ClutterConfig))
    assert set(OPTIONS) == set(SECTIONS)


def test_keys_are_options_without_their_section():
    """The names that differ, and one option of each section that has its own name."""
    assert OPTIONS["suction"]["force"] == "suction_force"
    assert OPTIONS["suction"]["torquescale"] == "weld_torquescale"
    assert OPTIONS["suction"]["lift_acc"] == "lift_acc"
    assert OPTIONS["obs"]["samples"] == "ray_samples"
    assert OPTIONS["obs"]["maps"] == "maps"
    assert OPTIONS["reward"]["preset"] == "rewards"
    assert OPTIONS["reward"]["success"] == "reward_success"
    assert OPTIONS["env"]["goal_thresh"] == "goal_thresh"
    assert OPTIONS["scene"]["suction_range"] == "suction_range"
    assert OPTIONS["physics"]["settle_max"] == "settle_max"


def test_the_full_name_of_an_option_is_accepted():
    """`suction.suction_force` is `suction.force`."""
    config = Config()
    config.suction.suction_force = 20.0
    assert config.suction.force == config.suction.suction_force == 20.0
    assert config.to_dict()["suction"]["force"] == 20.0
    assert config.frozen().suction_force == 20.0


def test_a_new_configuration_is_the_default():
    """Frozen without a change it equals ClutterConfig(), and each preset its ClutterConfig.preset."""
    assert Config().frozen() == ClutterConfig()
    for preset in ClutterConfig.presets:
        assert get_config(preset).frozen() == ClutterConfig.preset(preset)


def test_presets_have_their_totals():
    """Six of three types are 18, two are 6."""
    assert PRESET_CONFIGS["large_scene"] == {
        "env": {"num_objects_per_type": 6, "total_objects_per_env": 18, "max_episode_steps_discrete": 20}
    }
    assert PRESET_CONFIGS["small_scene"] == {
        "env": {"num_objects_per_type": 2, "total_objects_per_env": 6, "max_episode_steps_discrete": 8}
    }
    assert PRESET_CONFIGS["default"] == {}


def test_totals_are_derived():
    """Changing only the number of objects of a type changes the total everywhere, also after a preset."""
    config = get_config("large_scene")
    assert (config.env.num_object_types, config.env.total_objects_per_env) == (3, 18)
    config.env.num_objects_per_type = 5
    config.env.box_objects.append("009_gelatin_box")
    assert (config.env.num_object_types, config.env.total_objects_per_env) == (4, 20)
    assert config.to_dict()["env"]["total_objects_per_env"] == 20
    assert config.frozen().total_objects_per_env == 20


def test_totals_may_be_written_if_they_agree():
    """In either order; also as the product of the current numbers."""
    config = Config()
    config.env.total_objects_per_env = 15
    config.env.num_objects_per_type = 5
    config.env.num_object_types = len(config.env.box_objects)
    config.env.total_objects_per_env = config.env.num_objects_per_type * config.env.num_object_types
    config.env.max_episode_steps_discrete = 18
    assert config.frozen() == ClutterConfig(num_objects_per_type=5, max_episode_steps_discrete=18)
    assert EnvConfig(total_objects_per_env=3, num_objects_per_type=1) == EnvConfig(num_objects_per_type=1)


@pytest.mark.parametrize(("key", "value", "true"), [("total_objects_per_env", 15, 12), ("num_object_types", 4, 3)])
def test_a_total_that_disagrees_is_refused(key, value, true):
    """The error of `frozen` has both numbers; reading the total gives the true one."""
    config = Config()
    setattr(config.env, key, value)
    assert getattr(config.env, key) == true
    with pytest.raises(ConfigError, match=rf"{key} = {value}: .* {key} = {true}"):
        config.frozen()


def test_none_means_the_three_types():
    """`box_objects=None` selects the default types."""
    config = Config(env=EnvConfig(box_objects=None))
    assert len(config.env.box_objects) == 3
    assert config.frozen() == ClutterConfig()


def test_configurations_share_nothing():
    """Editing a list changes neither another configuration nor a frozen one."""
    one, other = Config(), Config()
    frozen = one.frozen()
    one.env.box_objects.append("009_gelatin_box")
    one.scene.mass_range[0] = 0.5
    assert other == Config() and other.frozen() == frozen == ClutterConfig()
    assert one != other


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"enw": {}}, r"no section 'enw'; did you mean 'env'"),
        ({"env": {"num_object_per_type": 3}}, "'num_object_per_type'; did you mean 'num_objects_per_type'"),
        ({"suction": {"forse": 3}}, r"suction has no key 'forse'; did you mean 'force'"),
        ({"env": 3}, "must be a mapping of its keys"),
        (3, "a mapping of sections"),
    ],
)
def test_unknown_keys_are_named(given, message):
    """With the nearest known one; no key is written, not even known ones."""
    config = Config()
    with pytest.raises(ConfigError, match=message):
        config.update_from_dict({"scene": {"augment": False}, **given} if isinstance(given, dict) else given)
    assert config == Config()


def test_misspelt_attributes_are_refused():
    """Writing one raises ConfigError, reading one AttributeError; both name the nearest."""
    config = Config()
    with pytest.raises(ConfigError, match="did you mean 'num_objects_per_type'"):
        config.env.num_objects_per_typ = 5
    with pytest.raises(AttributeError, match="did you mean 'num_objects_per_type'"):
        _ = config.env.num_objects_per_typ
    with pytest.raises(ConfigError, match="did you mean 'scene'"):
        config.scenes = config.scene
    with pytest.raises(ConfigError, match="must be a EnvConfig"):
        config.env = config.scene
    with pytest.raises(ConfigError, match="no section 'envs'"):
        Config(envs=EnvConfig())


def test_values_are_checked_when_frozen():
    """By the bounds of the option, under its own name."""
    config = Config()
    config.physics.iterations = 3
    with pytest.raises(ConfigError, match=r"ClutterConfig.iterations = 3: must be in 4"):
        config.frozen()


@pytest.mark.parametrize(("key", "value"), [("box_objects", 5), ("num_objects_per_type", None)])
def test_a_total_with_an_invalid_number_is_refused(key, value):
    """After a total was written, creating a world refuses the wrong value by its name."""
    config = Config()
    config.env.total_objects_per_env = 15
    setattr(config.env, key, value)
    assert f"{key}={value}" in repr(config) and config.to_dict()["env"]["total_objects_per_env"] == 0
    with pytest.raises(ConfigError, match=f"{key} = {value}: must be"):
        config.frozen()


def test_an_unwritable_path_is_refused(tmp_path):
    for save in (Config().save, Config().frozen().to_json):
        with pytest.raises(ConfigError, match=r"cannot write the configuration .*c.json: No such file or directory"):
            save(tmp_path / "none" / "c.json")


def test_unknown_presets_are_refused():
    """They do not fall back to the default."""
    with pytest.raises(ConfigError, match="no preset 'larg_scene'; did you mean 'large_scene'"):
        get_config("larg_scene")


def test_a_file_gives_the_same(tmp_path):
    """All sections, including numpy numbers; the loaded configuration is editable."""
    config = get_config("small_scene")
    config.env.box_objects = ("004_sugar_box", "007_tuna_fish_can")
    config.scene.mass_range = (0.8, 1.2)
    config.suction.force = np.float32(20.0)
    config.suction.home_pos = np.array([0.0, 0.1, 0.5])
    config.reward.preset = "published"
    config.reward.disturb = 1.0
    config.save(tmp_path / "config.json")
    found = Config.load(tmp_path / "config.json")
    assert found == config and found.to_dict() == config.to_dict() and found.frozen() == config.frozen()
    assert found.frozen().home_pos == (0.0, 0.1, 0.5)
    found.env.num_objects_per_type = 4
    assert found.frozen().total_objects_per_env == 8


def test_a_file_may_name_some_keys(tmp_path):
    """The others have their defaults; the error on an invalid file names it."""
    (tmp_path / "some.json").write_text('{"obs": {"samples": 5}}')
    assert Config.load(tmp_path / "some.json").frozen() == ClutterConfig(ray_samples=5)
    with pytest.raises(ConfigError, match=r"cannot read .*none.json"):
        Config.load(tmp_path / "none.json")


def test_copies_are_equal_and_independent():
    """By copy.deepcopy and by pickle."""
    config = get_config("large_scene")
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other == config
        other.env.num_objects_per_type = 1
        assert config.env.total_objects_per_env == 18 and other.env.total_objects_per_env == 3
