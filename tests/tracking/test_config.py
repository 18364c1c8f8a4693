"""The options of the tracking world: names, error messages, derived values."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys

import pytest
from scipy.signal import butter

from milkrun.core.errors import ConfigError
from milkrun.tracking import TrackingConfig, curriculum_stages

SECTION = {
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
    "Other_State": False,
    "CloudPoint": False,
    "RewardParams": True,
    "RewardType": "default",
}


def test_the_names_of_the_original_are_understood():
    """A section of the original's file gives the same options as our names."""
    config = TrackingConfig.build(config=SECTION)
    assert config == TrackingConfig(reward_params=True)
    assert (config.cw, config.ccw, config.size) == (2, -2, 84)


@pytest.mark.parametrize(
    ("fc", "design", "b0", "a1", "a2"),
    [
        (20, "bilinear", 0.0133592000, -1.6474599811, 0.7008967812),
        (20, "as_coded", 0.0445267459, -1.3207910690, 0.4988980525),
    ],
)
def test_numbers_of_the_filter(fc, design, b0, a1, a2):
    """At 20 Hz of 500; the true one is scipy's second-order Butterworth."""
    found = TrackingConfig(filter_hz=fc, filter_design=design).filter_numbers()
    assert found == pytest.approx((b0, a1, a2), abs=1e-10)
    if design == "bilinear":
        b, a = butter(2, fc, fs=500)
        assert found == pytest.approx((b[0], a[1], a[2]), abs=1e-12)


def test_what_follows():
    """An agent step is 4 sim steps, an episode 375 of them; the picture is 45 degrees wide and 34.5 high."""
    config = TrackingConfig()
    assert (config.n_sub, config.max_agent_steps, config.cells) == (4, 375, 480)
    assert math.degrees(2 * math.atan(config.tan_v)) == pytest.approx(34.52, abs=0.01)


def test_presets():
    """The six others differ from the default `dat` only in the options of their name."""
    assert TrackingConfig.preset("dat") == TrackingConfig()
    repo = TrackingConfig.preset("dat_repo")
    assert (repo.start_pitch, repo.reward_mode, repo.no_reward_done) == ((1.37, 1.37), "discrete", 10000)
    assert TrackingConfig.preset("published").reward == "D-VAT"
    assert TrackingConfig.preset("dvat").action_mode == "velocity"
    assert TrackingConfig.preset("aot").reward == "E2E"


def test_curriculum_has_three_stages():
    """One car, several, the whole town; all other options are equal."""
    config = TrackingConfig(size=32)
    assert [c.stage for c in curriculum_stages(config)] == [0, 1, 2]
    assert {c.size for c in curriculum_stages(config)} == {32}


def test_both_spellings_of_dvat():
    """The original's code uses one, its paper the other."""
    assert TrackingConfig(reward="DVAT") == TrackingConfig(reward="D-VAT")


def test_json_round_trip(tmp_path):
    """Pairs come back as pairs."""
    config = TrackingConfig(scene=("lake", "desert"), wind_mean=(1.0, -2.0), target_rgb=(1, 2, 3))
    config.to_json(tmp_path / "c.json")
    assert TrackingConfig.from_json(tmp_path / "c.json") == config
    assert json.loads((tmp_path / "c.json").read_text())["scene"] == ["lake", "desert"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"forward": -1}, "forward = -1: must be in 0..100"),
        ({"backward": 1}, "backward = 1"),
        ({"ccw": 2}, "ccw = 2: must be in -6..0"),
        ({"control_hz": 120}, "must be a divisor of 500"),
        ({"size": 8}, "must be in 16..512"),
        ({"channels": 2}, "must be one of 1, 3"),
        ({"scene": "citystret"}, "did you mean 'citystreet'"),
        ({"scene": ()}, "must name one or more"),
        ({"scene": ("lake", "lake")}, "names one twice"),
        ({"scene": 3}, "scene = 3"),
        ({"weather": ("day", "sun")}, "must be of day, night, foggy, snow"),
        ({"target_kinds": ("tank",)}, "must be of sedan"),
        ({"start_pitch": (1.0, 0.8)}, "the smaller first"),
        ({"start_pitch": (0.4, 0.8)}, "within 0.5..1.5"),
        ({"start_pitch": (0.5, 0.8), "hfov": 1.6}, "would reach the horizon"),
        ({"start_height": (math.nan, 3.0)}, "must be two numbers"),
        ({"start_long": (1.0,)}, "must be two numbers"),
        ({"wind_mean": (1e9, 0.0)}, "within +-100"),
        ({"camera_px": (320, 0)}, "must be two whole numbers"),
        ({"target_rgb": (0, 0, 256)}, "must be three whole numbers"),
        ({"ground_cell": 0.25, "half_extent": 400.0}, "at most 2000"),
        ({"reward": "dense"}, "must be one of 'default', 'E2E', 'D-VAT'"),
        ({"norm": 2}, "must be one of 0, 1"),
        ({"Forward_Sped": 3}, "has no option 'Forward_Sped'"),
    ],
)
def test_errors_name_key_value_and_allowed_values(wrong, said):
    """Key, value, and what is allowed."""
    with pytest.raises(ConfigError) as error:
        TrackingConfig.build(config=wrong)
    assert said in str(error.value)


@pytest.mark.parametrize("key", sorted(SECTION))
def test_every_key_of_the_original_refuses_another_type(key):
    """Under our name of the key."""
    with pytest.raises(ConfigError, match=TrackingConfig.synonyms[key]):
        TrackingConfig.build(config={**SECTION, key: [None]})


def test_importing_the_package_is_light():
    """Neither numba nor torch nor gym: names are imported lazily."""
    code = (
        "import sys, milkrun.core.lazy; import importlib.util as u; "
        "s = u.find_spec('milkrun.tracking'); before = set(sys.modules); import milkrun.tracking; "
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "gym", "msgpack", "stable_baselines3"} & set(ast.literal_eval(found))
