"""The files of the original benchmark: its config.json, packaged unchanged, and its simulator's env_config.json."""

from __future__ import annotations

import json

import numpy as np
import pytest

from milkrun.core.errors import ConfigError
from milkrun.tracking import LunarLanderConfig, Tracking, TrackingConfig, load_env_config
from milkrun.tracking.files import PACKAGED
from milkrun.tracking.tables import FOGGY, SCENE_LAWS, V_HIGH

PUBLISHED = {
    "Benchmark": {
        "Need_render": 0,
        "Action_dim": 7,
        "State_size": 84,
        "State_channel": 3,
        "Norm_Type": 0,
        "Forward_Speed": 40,
        "Backward_Speed": -40,
        "Left_Speed": 40,
        "Right_Speed": -40,
        "CW_omega": 2,
        "CCW_omega": -2,
        "Control_Frequence": 125,
        "port_process": 33727,
        "end_reward": False,
        "end_reward_list": [-20, 20],
        "scene": "citystreet",
        "weather": "day",
        "auto_start": False,
        "Other_State": False,
        "CloudPoint": False,
        "RewardParams": True,
        "RewardType": "DVAT",
        "verbose": True,
        "delay": 20,
    },
    "LunarLander": {"Need_render": 1, "Action_dim": 4, "State_size": 84, "State_channel": 3, "Norm_Type": 0},
}
SECTION = PUBLISHED["Benchmark"]
SIGNED = (
    "Action_dim",
    "State_size",
    "State_channel",
    "Forward_Speed",
    "Backward_Speed",
    "Left_Speed",
    "Right_Speed",
    "CW_omega",
    "CCW_omega",
    "Control_Frequence",
    "port_process",
    "delay",
)

SIMULATOR = {
    "Simulation_Mode": "train",
    "Tracker_Def": "DRONE",
    "Drone_Supervisor_Ctrl": True,
    "Socket_Ip": "127.0.0.1",
    "Config_Agen_Num_Port": 35531,
    "Train_Total_Steps": 1200,
    "Init_No_Done_Steps": 80,
    "No_Reward_Done_Steps": 90,
    "Control_Frequence": 100,
    "Customized_Rewards": True,
    "Lidar_Enable": True,
    "Tracking_Object": "SUMO_VEHICLE",
    "Verbose": False,
    "Done_Range": {
        "max_height": 45,
        "min_height": 3,
        "velocity": 100,
        "omiga": 5.5,
        "roll": 1.1,
        "pitch": 1.2,
        "distance_error": 40,
    },
    "Reward_Config": {
        "reward_type": "distance",
        "reward_mode": "discrete",
        "reward_cut_off": 0.002,
        "distance_scale": 0.02,
        "distance_range": 6,
        "view_scale": 3,
        "view_range": 0.8,
    },
    "Sumo_Params": {
        "rou_update": True,
        "max_sumo_car": 40,
        "fixed_car_group_num": False,
        "car_group_num": 10,
        "car_import_interval": 52.0,
        "car_type": "bus",
        "fixed_color": True,
        "normalize_color": [1, 0, 0.2],
        "max_car_speed": 12,
        "max_car_accel": 25,
        "max_car_decel": 25,
        "max_rou_distance": 7000,
        "min_rou_distance": 500,
        "route_num": 100000,
        "fixed_seed": True,
        "random_seed": 4,
    },
    "Other_Params": {"max_obj_num": 10, "obj_edge_distribution_min": -10},
    "Out_Video": {"channels": 4, "ccw_omega": -2},
    "Drone_Random_Config": {
        "start_time_bias_ms": 510,
        "view_pitch_random": True,
        "view_pitch_fixed": 1.37,
        "view_pitch_random_max": 1.3,
        "view_pitch_random_min": 0.7,
        "height_random": False,
        "height_fixed": 20,
        "height_random_max": 22.0,
        "height_random_min": 13.0,
        "direction_random": True,
        "direction_random_multilateral": False,
        "direction_fixed": 1.57,
        "direction_random_max": 0.5,
        "direction_random_min": -0.25,
        "horizon_bias_random": True,
        "horizon_bias_multilateral": True,
        "horizon_bias_fixed": 0,
        "horizon_bias_random_max": 4.0,
        "horizon_bias_random_min": 2.0,
        "verticle_bias_random": False,
        "verticle_bias_multilateral": True,
        "verticle_bias_fixed": 0,
        "verticle_bias_random_max": 4.5,
        "verticle_bias_random_min": 2.5,
    },
    "Env_Params": {
        "background_luminosity_random": False,
        "foggy_use_default": False,
        "foggy_visibility_range_random": True,
        "foggy_visibility_range_fixed": 400,
        "foggy_visibility_range_max": 1000,
        "foggy_visibility_range_min": 300,
    },
}
"""With the keys of the original's documents; most values are not its defaults."""


def changed(path, value, source=SIMULATOR):
    """The file with another value for one key, "Group.key"."""
    copy = json.loads(json.dumps(source))
    *groups, key = path.split(".")
    inner = copy
    for group in groups:
        inner = inner[group]
    inner[key] = value
    return copy


# -- config.json ----------------------------------------------------------------------------------------------


def test_the_packaged_file_is_the_published_one():
    assert json.loads(PACKAGED.read_text()) == PUBLISHED


def test_every_form_of_the_file_is_read(tmp_path):
    """None, a path, the whole file, the section: all give the preset `published`."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    sources = (None, PACKAGED, str(PACKAGED), tmp_path / "config.json", PUBLISHED, SECTION)
    assert {TrackingConfig.from_dat(source) for source in sources} == {TrackingConfig.preset("published")}
    lunar = {LunarLanderConfig.from_dat(source) for source in (None, PUBLISHED, PUBLISHED["LunarLander"])}
    assert lunar == {LunarLanderConfig()}


@pytest.mark.parametrize("key", sorted(SECTION))
@pytest.mark.parametrize("wrong", [{}, [None], "nine"])
def test_every_key_refuses_another_type(key, wrong):
    """Under its name in the file."""
    with pytest.raises(ConfigError, match=rf"\b{key}\b.* = "):
        TrackingConfig.from_dat({**SECTION, key: wrong})


@pytest.mark.parametrize("key", SIGNED)
def test_every_number_refuses_the_other_sign(key):
    with pytest.raises(ConfigError, match=rf"\b{key}\b.* = {-SECTION[key]}"):
        TrackingConfig.from_dat({**SECTION, key: -SECTION[key]})


@pytest.mark.parametrize("key", sorted(SECTION))
def test_every_misspelt_key_is_refused(key):
    """By its name, before any other fault; the message suggests the right key, in either spelling."""
    section = {f"{key}s" if name == key else name: value for name, value in SECTION.items()}
    with pytest.raises(ConfigError, match=f"has no option '{key}s'; did you mean .*(?i:'{key}')"):
        TrackingConfig.from_dat(section)


@pytest.mark.parametrize("key", sorted(PUBLISHED["LunarLander"]))
@pytest.mark.parametrize("wrong", [-1, 1.5, "nine"])
def test_the_other_section_refuses_too(key, wrong):
    with pytest.raises(ConfigError, match=rf"LunarLanderConfig\.{key} = "):
        LunarLanderConfig.from_dat({**PUBLISHED["LunarLander"], key: wrong})


def test_broken_files_are_refused_with_path_and_line(tmp_path):
    path = tmp_path / "config.json"
    for text, said in [
        ('{\n"Benchmark": {\n"Action_dim": 7,\n}}', r"config\.json, line 4: not JSON"),
        ("[1, 2]", r"config\.json: a configuration is a JSON object, not a list"),
        ('{"Benchmark": 3}', r"config\.json: the section 'Benchmark' must hold options"),
        ('{"LunarLander": {}}', r"config\.json: lacks the section 'Benchmark'"),
        ('{"Benchmark": {}, "Lunar": {}}', r"config\.json: has no section 'Lunar'; did you mean 'LunarLander'"),
        ('{"Benchmark": {"Action_dim": 8}}', r"config\.json: Action_dim: TrackingConfig.action_dim = 8"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            TrackingConfig.from_dat(path)
    for source, said in ((tmp_path / "none.json", r"none\.json"), (7, "not a int")):
        with pytest.raises(ConfigError, match=said):
            TrackingConfig.from_dat(source)


# -- env_config.json ------------------------------------------------------------------------------------------


def test_the_simulators_keys_become_options(tmp_path):
    """Supported keys override the other options; unsupported ones are listed."""
    path = tmp_path / "env_config.json"
    path.write_text(json.dumps(SIMULATOR))
    config = load_env_config(path, TrackingConfig(size=32, reward="E2E"))
    expected = TrackingConfig(
        size=32,
        reward="E2E",
        port=35531,
        max_sim_steps=1200,
        init_no_done=80,
        no_reward_done=90,
        control_hz=100,
        reward_params=True,
        cloud=True,
        done_height=(3, 45),
        done_speed=100,
        done_yaw_rate=5.5,
        done_roll=1.1,
        done_pitch=1.2,
        done_drift=40,
        reward_kind="distance",
        reward_mode="discrete",
        cut_off=0.002,
        distance_scale=0.02,
        distance_range=6,
        view_scale=3,
        view_range=0.8,
        max_vehicles=40,
        target_kinds=("bus",),
        target_rgb=(255, 0, 51),
        max_car_speed=12,
        town="fixed",
        town_seed=4,
        start_pitch=(0.7, 1.3),
        start_height=(20, 20),
        start_direction=(-0.25, 0.5),
        start_lat=(2, 4),
        start_long=(0, 0),
        fog_sight=(300, 1000),
    )
    assert config == expected
    assert {
        "Simulation_Mode",
        "Sumo_Params.route_num",
        "Out_Video.channels",
        "Drone_Random_Config.start_time_bias_ms",
        "Env_Params.background_luminosity_random",
    } <= set(config.ignored)
    assert len(config.ignored) == 21 and not any("pitch" in key for key in config.ignored)
    assert config.replace(size=16).ignored == config.ignored and TrackingConfig().ignored == ()


def test_missing_keys_keep_their_options():
    """Also one of a pair; and the old name of a key."""
    config = load_env_config({"Done_Range": {"min_height": 4}, "Reward_Config": {"reward_range": 9}})
    assert config == TrackingConfig(done_height=(4, 50), distance_range=9)
    assert load_env_config({}) == TrackingConfig() and load_env_config({}).ignored == ()
    fixed = load_env_config(changed("Env_Params.foggy_visibility_range_random", False))
    assert fixed.fog_sight == (400, 400)
    assert load_env_config(changed("Env_Params.foggy_use_default", True)).fog_sight is None
    assert load_env_config(changed("Sumo_Params.fixed_color", False)).target_rgb is None
    assert load_env_config(changed("Sumo_Params.fixed_seed", False)).town == "episode"
    drawn = changed("Drone_Random_Config.horizon_bias_multilateral", False)
    drawn["Drone_Random_Config"]["horizon_bias_random_min"] = -4.0
    assert load_env_config(drawn).start_lat == (0, 4)  # either sign, up to 4


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("Train_Total_Step", 3, "has no key 'Train_Total_Step'; did you mean 'Train_Total_Steps'"),
        ("Done_Range.max_hight", 3, "has no key 'Done_Range.max_hight'"),
        ("Done_Range", 3, "Done_Range = 3: must hold keys"),
        ("Train_Total_Steps", "many", "Train_Total_Steps: .*max_sim_steps = 'many'"),
        ("Control_Frequence", 120, "Control_Frequence: .*divisor of 500"),
        ("Lidar_Enable", 1, "Lidar_Enable: .*cloud = 1: must be bool"),
        ("Done_Range.max_height", 2, "Done_Range.min_height, max_height: .*the smaller first"),
        ("Reward_Config.reward_type", "area", "Reward_Config.reward_type: .*reward_kind = 'area'"),
        ("Sumo_Params.max_sumo_car", 0, "Sumo_Params.max_sumo_car: .*max_vehicles = 0"),
        ("Sumo_Params.car_type", "tank", "Sumo_Params.car_type = 'tank': must be one of passenger"),
        ("Sumo_Params.normalize_color", [1, 0, 2], "Sumo_Params.normalize_color = .*0..1"),
        ("Sumo_Params.normalize_color", 3, "must be a list"),
        ("Sumo_Params.fixed_color", 1, "must be true or false"),
        ("Sumo_Params.random_seed", -4, "Sumo_Params.random_seed: .*town_seed = -4"),
        ("Drone_Random_Config.view_pitch_random_min", 0.4, r"Drone_Random_Config.view_pitch_\*: .*within 0.5..1.5"),
        ("Drone_Random_Config.view_pitch_random_max", "x", "view_pitch_random_max = 'x': must be a number"),
        ("Drone_Random_Config.horizon_bias_multilateral", False, "horizon_bias_multilateral = False: must be true"),
        ("Drone_Random_Config.verticle_bias_fixed", 2, "verticle_bias_fixed = 2: must be 0"),
        ("Drone_Random_Config.direction_random_multilateral", True, None),
        ("Env_Params.foggy_visibility_range_min", 0, r"Env_Params.foggy_visibility_range_\*: .*fog_sight"),
    ],
)
def test_the_simulators_file_is_refused_by_its_own_names(path, value, said):
    """Name, value, allowed values. Both signs of a direction form one range if it reaches 0."""
    if said is None:
        assert load_env_config(changed(path, value)).start_direction == (-0.5, 0.5)
        return
    with pytest.raises(ConfigError, match=said):
        load_env_config(changed(path, value))


def test_two_names_of_an_option_must_agree():
    """distance_range and its old name, reward_range, in either order."""
    for first, second in (("distance_range", "reward_range"), ("reward_range", "distance_range")):
        said = r"Reward_Config\.distance_range and Reward_Config\.reward_range are two names of one option"
        with pytest.raises(ConfigError, match=said):
            load_env_config({"Reward_Config": {first: 5, second: 9}})
        assert load_env_config({"Reward_Config": {first: 5, second: 5}}).distance_range == 5


def test_files_named_by_a_key_must_exist():
    file = json.loads(json.dumps(SIMULATOR))
    del file["Drone_Random_Config"]["height_fixed"]
    with pytest.raises(ConfigError, match=r"lacks Drone_Random_Config\.height_fixed"):
        load_env_config(file)


def test_no_desired_speed_exceeds_the_limit():
    """In the desert desired speeds reach 20 m/s; a limit of 9 applies to all cars and changes no other draw."""
    small = {"size": 16, "ground_cell": 10.0, "scene": "desert", "max_vehicles": 8}
    free, held = (Tracking(12, TrackingConfig(**small, **more), seed=1) for more in ({}, {"max_car_speed": 9.0}))
    free.reset(), held.reset()
    assert free.veh_v0.max() > 15 and 8 <= held.veh_v0[held.veh_on].min() <= held.veh_v0.max() <= 9
    np.testing.assert_array_equal(free.veh_kind, held.veh_kind)
    assert SCENE_LAWS[4, V_HIGH] == 20


def test_sight_in_fog_is_the_given_one():
    """beta = 3.912 / sight: 400 m give 0.00978 in fog, and nothing by day."""
    small = {"size": 16, "ground_cell": 10.0, "max_vehicles": 2, "fog_sight": (400.0, 400.0)}
    for weather, beta in (("foggy", 3.912 / 400), ("day", 0.0)):
        world = Tracking(2, TrackingConfig(**small, weather=weather), seed=1)
        world.reset()
        assert world.light[:, 5] == pytest.approx([beta, beta]) and (world.weather_id == FOGGY).all() == (beta > 0)
