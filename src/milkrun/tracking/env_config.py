"""Translates the env_config.json of DAT's simulator into options of the tracking world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from milkrun.core.config import read_json
from milkrun.core.errors import ConfigError, did_you_mean, shown
from milkrun.tracking.config import TrackingConfig
from milkrun.tracking.files import in_words_of

AS_THEY_ARE = {
    "Train_Total_Steps": "max_sim_steps",
    "Init_No_Done_Steps": "init_no_done",
    "No_Reward_Done_Steps": "no_reward_done",
    "Control_Frequence": "control_hz",
    "Lidar_Enable": "cloud",
    "Customized_Rewards": "reward_params",
    "Config_Agen_Num_Port": "port",
    "Done_Range.velocity": "done_speed",
    "Done_Range.omiga": "done_yaw_rate",
    "Done_Range.roll": "done_roll",
    "Done_Range.pitch": "done_pitch",
    "Done_Range.distance_error": "done_drift",
    "Reward_Config.reward_type": "reward_kind",
    "Reward_Config.reward_mode": "reward_mode",
    "Reward_Config.reward_cut_off": "cut_off",
    "Reward_Config.distance_scale": "distance_scale",
    "Reward_Config.distance_range": "distance_range",
    "Reward_Config.reward_range": "distance_range",
    "Reward_Config.view_scale": "view_scale",
    "Reward_Config.view_range": "view_range",
    "Sumo_Params.max_sumo_car": "max_vehicles",
    "Sumo_Params.max_car_speed": "max_car_speed",
}
"""Keys that map to an option one to one. `reward_range` is the old name of `distance_range`."""
START = {
    "view_pitch": "start_pitch",
    "height": "start_height",
    "direction": "start_direction",
    "horizon_bias": "start_lat",
    "verticle_bias": "start_long",
}
"""Quantities of a start: each is fixed, or drawn between two numbers, or of both signs ("multilateral")."""
CAR_TYPES = {
    "passenger": ("sedan", "compact", "suv", "van"),
    "private": ("sedan", "compact", "suv", "van"),
    "bus": ("bus",),
    "truck": ("truck",),
    "trailer": ("truck",),
    "motorcycle": ("motorcycle",),
}
"""Kinds of the target by SUMO's type of car; `private` is an old name of `passenger`."""
READ = frozenset(
    (
        *AS_THEY_ARE,
        "Done_Range.max_height",
        "Done_Range.min_height",
        *(f"Sumo_Params.{key}" for key in "car_type fixed_color normalize_color fixed_seed random_seed".split()),
        *(
            f"Drone_Random_Config.{name}_{key}"
            for name in START
            for key in "random fixed random_max random_min".split()
        ),
        "Drone_Random_Config.direction_random_multilateral",
        "Drone_Random_Config.horizon_bias_multilateral",
        "Drone_Random_Config.verticle_bias_multilateral",
        "Env_Params.foggy_use_default",
        *(f"Env_Params.foggy_visibility_range_{key}" for key in "random fixed max min".split()),
    )
)
"""All supported keys."""
UNREAD = frozenset(
    (
        *"Simulation_Mode Tracker_Def Drone_Supervisor_Ctrl Socket_Ip Tracking_Object Verbose Sumo_Random_Mode".split(),
        *(
            f"Sumo_Params.{key}"
            for key in (
                "rou_update fixed_car_group_num car_group_num car_import_interval max_car_accel "
                "max_car_decel max_rou_distance min_rou_distance route_num"
            ).split()
        ),
        *(
            f"Other_Params.{key}"
            for key in (
                "max_obj_num obj_import_interval import_group_num obj_edge_distribution_random "
                "obj_edge_distribution_multilateral obj_edge_distribution_fixed "
                "obj_edge_distribution_max obj_edge_distribution_min"
            ).split()
        ),
        *(
            f"Out_Video.{key}"
            for key in (
                "channels fps start_time total_time warm_up_steps output_car_dir random_action "
                "forward_speed backward_speed left_speed right_speed cw_omega ccw_omega"
            ).split()
        ),
        "Drone_Random_Config.start_time_bias_ms",
        *(
            f"Env_Params.{key}"
            for key in (
                "enable_each_reset background_luminosity_random bgl_incremental bgl_random_max "
                "bgl_random_min backgroundLight_luminosity_random bgLl_incremental "
                "bgLl_random_max bgLl_random_min"
            ).split()
        ),
    )
)
"""Keys of Webots, SUMO and DAT's videos, which have no equivalent here."""
GROUPS = {key.partition(".")[0] for key in READ | UNREAD if "." in key}


def load_env_config(source: str | Path | Mapping[str, Any], config: TrackingConfig | None = None) -> TrackingConfig:
    """`config` overridden by the options of the file; None for `config` is the defaults, the preset `dat`.

    Keys without an equivalent here are listed in the result's `ignored`; keys unknown to DAT are refused.
    """
    if not isinstance(source, (str, Path, Mapping)):
        raise ConfigError(f"an env_config must be a path or a mapping, not {shown(source)}")
    where = "the given env_config" if isinstance(source, Mapping) else str(source)
    values = dict(_flat(source if isinstance(source, Mapping) else read_json(Path(source)), where))
    base = TrackingConfig() if config is None else config
    changes: dict[str, Any] = {}
    names: dict[str, str] = {}
    for key in (key for key in values if key in AS_THEY_ARE):
        option, value = AS_THEY_ARE[key], values[key]
        if option in changes and changes[option] != value:
            both = " and ".join(sorted((key, names[option])))
            raise ConfigError(f"{where}: {both} are two names of one option, with two values: leave one out")
        changes[option], names[option] = value, key
    reader = _Reader(values, where)
    for option, keys, read in (
        ("done_height", "Done_Range.min_height, max_height", reader.heights(base)),
        *((option, f"Drone_Random_Config.{name}_*", reader.start(name)) for name, option in START.items()),
        ("target_kinds", "Sumo_Params.car_type", reader.kinds()),
        ("target_rgb", "Sumo_Params.normalize_color", reader.colour()),
        ("town_seed", "Sumo_Params.random_seed", reader.town_seed()),
        ("fog_sight", "Env_Params.foggy_visibility_range_*", reader.fog()),
    ):
        if read is not None:
            changes[option], names[option] = read, keys
    if "town_seed" in changes:
        changes["town"] = "fixed"
    try:
        made = base.replace(**changes)
    except ConfigError as e:
        raise in_words_of(e, where, names) from None
    object.__setattr__(made, "ignored", tuple(key for key in values if key in UNREAD))
    return made


def _flat(values: Mapping[str, Any], where: str) -> list[tuple[str, Any]]:
    """The keys of a file, prefixed by their groups. Refuses unknown keys."""
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if key in GROUPS:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{where}: {key} = {shown(value)}: must hold keys by name")
            found += [(f"{key}.{inner}", one) for inner, one in value.items()]
        else:
            found.append((key, value))
    for key, _ in found:
        if key not in READ | UNREAD:
            raise ConfigError(f"{where}: has no key {key!r}{did_you_mean(key, READ | UNREAD)}")
    return found


class _Reader:
    """Options derived from several keys; None if the file does not have them."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = values
        self._where = where

    def heights(self, base: TrackingConfig) -> tuple[Any, Any] | None:
        low, high = (self._values.get(f"Done_Range.{key}_height") for key in ("min", "max"))
        if low is None and high is None:
            return None
        return base.done_height[0] if low is None else low, base.done_height[1] if high is None else high

    def start(self, name: str) -> tuple[Any, Any] | None:
        key = f"Drone_Random_Config.{name}"
        random, biased = self._flag(f"{key}_random"), name.endswith("bias")
        if random is None:
            return None
        if not random:
            fixed = self._needed(f"{key}_fixed")
            if biased and fixed != 0:
                self._refuse(f"{key}_fixed", "must be 0: a bias has either sign here, by chance")
            return fixed, fixed
        low, high = self._needed(f"{key}_random_min"), self._needed(f"{key}_random_max")
        both = self._flag(f"{key}_multilateral" if biased else f"{key}_random_multilateral")
        if biased and not both:
            # A range from -high to high equals a size from 0 to high with a random sign.
            if low != -high:
                self._refuse(f"{key}_multilateral", "must be true: a bias has either sign here, by chance")
            return 0.0, high
        if not biased and both:
            # low..high and its mirror image form one range if both contain 0, which is -high..high.
            if not -high <= low <= 0:
                self._refuse(f"{key}_random_multilateral", "must be false: a start is drawn from one range here")
            return -high, high
        return low, high

    def kinds(self) -> tuple[str, ...] | None:
        key = "Sumo_Params.car_type"
        if key not in self._values:
            return None
        given = self._values[key]
        if not isinstance(given, str) or given not in CAR_TYPES:
            self._refuse(key, f"must be one of {', '.join(CAR_TYPES)}")
        return CAR_TYPES[given]

    def colour(self) -> tuple[int, ...] | None:
        if not self._flag("Sumo_Params.fixed_color"):
            return None
        key = "Sumo_Params.normalize_color"
        given = self._needed(key, list)
        if len(given) != 3 or not all(_is_number(c) and 0 <= c <= 1 for c in given):
            self._refuse(key, "must be three numbers in 0..1")
        return tuple(round(255 * c) for c in given)

    def town_seed(self) -> Any:
        return self._needed("Sumo_Params.random_seed") if self._flag("Sumo_Params.fixed_seed") else None

    def fog(self) -> tuple[Any, Any] | None:
        if self._flag("Env_Params.foggy_use_default") is not False:
            return None
        key = "Env_Params.foggy_visibility_range"
        if self._flag(f"{key}_random"):
            return self._needed(f"{key}_min"), self._needed(f"{key}_max")
        return (self._needed(f"{key}_fixed"),) * 2

    def _flag(self, key: str) -> bool | None:
        """True or False; None if the file lacks the key."""
        given = self._values.get(key)
        if given is not None and not isinstance(given, bool):
            self._refuse(key, "must be true or false")
        return given

    def _needed(self, key: str, kind: type | None = None) -> Any:
        """A value that other keys require: a number, or a value of this type."""
        if key not in self._values:
            raise ConfigError(f"{self._where}: lacks {key}, which other keys require")
        given = self._values[key]
        if not (_is_number(given) if kind is None else isinstance(given, kind)):
            self._refuse(key, "must be a number" if kind is None else f"must be a {kind.__name__}")
        return given

    def _refuse(self, key: str, rule: str) -> None:
        raise ConfigError(f"{self._where}: {key} = {shown(self._values.get(key))}: {rule}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
