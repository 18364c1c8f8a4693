"""Editable options of the clutter world in sections: `Config().env.num_objects_per_type = 5`.

A world takes a `ClutterConfig`, which is flat and frozen; `Config.frozen()` returns it. Sections derive from its
options. A key is the option's name without its section, as `suction.force` for `suction_force`; the full name works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from milkrun.clutter.options import BOX_OBJECTS, ClutterConfig
from milkrun.core.config import read_json, write_json
from milkrun.core.errors import ConfigError, did_you_mean, shown

FIRST = {
    "max_steps": "env",
    "tray_side": "scene",
    "timestep": "physics",
    "suction_force": "suction",
    "ray_samples": "obs",
    "rewards": "reward",
}
"""The first option of each section, in the order of `ClutterConfig`."""
LEFT_OUT = {"suction": ("suction_", "weld_"), "obs": ("ray_",), "reward": ("reward_",)}
"""Prefixes of option names that the keys of a section omit."""
TOTALS = ("num_object_types", "total_objects_per_env")


def _key(section: str, option: str) -> str:
    if option == ClutterConfig.rule_option:
        return "preset"
    begins = [start for start in LEFT_OUT.get(section, ()) if option.startswith(start)]
    return option.removeprefix(begins[0]) if begins else option


def _sections() -> dict[str, dict[str, str]]:
    """The keys of each section, with the option of each."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for f in fields(ClutterConfig):
        section = FIRST.get(f.name, section)
        found.setdefault(section, {})[_key(section, f.name)] = f.name
    return found


OPTIONS = _sections()
DEFAULTS = {f.name: f.default for f in fields(ClutterConfig)}


class Section:
    """Some options, by their keys. Setting an unknown key raises ConfigError."""

    section: ClassVar[str]

    def __init__(self, **given: Any) -> None:
        vars(self).update({key: _editable(DEFAULTS[option]) for key, option in OPTIONS[self.section].items()})
        for name, value in given.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        vars(self)[self.key_of(name)] = _editable(value)

    def __getattr__(self, name: str) -> Any:
        """The value of an option by its full name; only called if there is no such key."""
        for key, option in OPTIONS[self.section].items():
            if option == name and key in vars(self):
                return vars(self)[key]
        raise AttributeError(f"{self.section} has no key {name!r}{did_you_mean(name, self.known())}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.to_dict().items())})"

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The keys that can be set."""
        return tuple(OPTIONS[cls.section])

    @classmethod
    def key_of(cls, name: Any) -> str:
        """The key of this name; ConfigError if there is none."""
        for key, option in OPTIONS[cls.section].items():
            if name in (key, option):
                return key
        if name in cls.known():
            return str(name)
        raise ConfigError(f"{cls.section} has no key {shown(name)}{did_you_mean(str(name), cls.known())}")

    def to_dict(self) -> dict[str, Any]:
        return {key: _editable(getattr(self, key)) for key in self.known()}

    def options(self) -> dict[str, Any]:
        """The values by their names in `ClutterConfig`."""
        return {option: getattr(self, key) for key, option in OPTIONS[self.section].items()}


class EnvConfig(Section):
    """The content of an environment.

    Totals follow from the other options. They may be set, and are compared with them when a world is made.
    """

    section = "env"
    _claimed: dict[str, Any]  # totals that were set and differ from the options

    def __init__(self, **given: Any) -> None:
        vars(self)["_claimed"] = {}
        super().__init__(**given)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in TOTALS:
            self._claimed[name] = value
        else:
            super().__setattr__(name, BOX_OBJECTS if name == "box_objects" and value is None else value)
        for total in [t for t in self._claimed if self._claimed[t] == getattr(self, t)]:
            del self._claimed[total]  # it agrees, and must not block a later change

    @property
    def num_object_types(self) -> int:
        """Number of types; 0 while `box_objects` is no list, which `frozen` refuses."""
        return len(self.box_objects) if isinstance(self.box_objects, list) else 0

    @property
    def total_objects_per_env(self) -> int:
        """Number of objects of a row."""
        return self.num_object_types * (self.num_objects_per_type if isinstance(self.num_objects_per_type, int) else 0)

    @classmethod
    def known(cls) -> tuple[str, ...]:
        return *super().known(), *TOTALS

    def check_totals(self, made: ClutterConfig) -> None:
        """Raise ConfigError if a total was set that the options do not give."""
        for name, value in self._claimed.items():
            if value != (true := getattr(made, name)):
                raise ConfigError(
                    f"env.{name} = {shown(value)}: {made.num_objects_per_type} objects of each of "
                    f"{made.num_object_types} types make {name} = {true}; leave it out, or change these"
                )


class SceneConfig(Section):
    """The tray and the scenes at the start of episodes."""

    section = "scene"


class PhysicsConfig(Section):
    """The physics engine, and when a pile is at rest."""

    section = "physics"


class SuctionConfig(Section):
    """The cup: its motion and its force."""

    section = "suction"


class RewardConfig(Section):
    """The reward; None = the value of `preset`."""

    section = "reward"


class ObsConfig(Section):
    """The observation."""

    section = "obs"


SECTIONS: dict[str, type[Section]] = {
    kind.section: kind for kind in (EnvConfig, SceneConfig, PhysicsConfig, SuctionConfig, RewardConfig, ObsConfig)
}


class Config:
    """All sections. A world copies them when it is made."""

    env: EnvConfig
    scene: SceneConfig
    physics: PhysicsConfig
    suction: SuctionConfig
    reward: RewardConfig
    obs: ObsConfig

    def __init__(self, **sections: Section) -> None:
        for name, kind in SECTIONS.items():
            setattr(self, name, sections.pop(name) if name in sections else kind())
        for name in sections:
            _section(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, _section(name)):
            raise ConfigError(f"{name} = {shown(value)}: must be a {_section(name).__name__}")
        vars(self)[name] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and vars(other) == vars(self)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={getattr(self, name)!r}' for name in SECTIONS)})"

    def frozen(self) -> ClutterConfig:
        """The validated, frozen configuration of a world."""
        options: dict[str, Any] = {}
        for name in SECTIONS:
            options |= getattr(self, name).options()
        made = ClutterConfig(**options)
        self.env.check_totals(made)
        return made

    def update_from_dict(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        """Set keys by section: all of them, or none if one is unknown."""
        if not isinstance(given, Mapping):
            raise ConfigError(f"a configuration is a mapping of sections, not {shown(given)}")
        for name, keys in given.items():
            kind = _section(name)
            if not isinstance(keys, Mapping):
                raise ConfigError(f"{name} = {shown(keys)}: must be a mapping of its keys")
            for key in keys:
                kind.key_of(key)
        for name, keys in given.items():
            for key, value in keys.items():
                setattr(getattr(self, name), key, value)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """All keys by section."""
        return {name: getattr(self, name).to_dict() for name in SECTIONS}

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        write_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read a file of `save`, or one with some of the keys; the others have their defaults."""
        made = cls()
        made.update_from_dict(read_json(Path(path)))
        return made


def _section(name: Any) -> type[Section]:
    if name not in SECTIONS:
        raise ConfigError(f"a configuration has no section {shown(name)}{did_you_mean(str(name), SECTIONS)}")
    return SECTIONS[name]


def _editable(value: Any) -> Any:
    """The value as JSON types; lists are copied."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else value


def _preset(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A preset of `ClutterConfig` by section, with the total of objects if it differs."""
    found: dict[str, dict[str, Any]] = {}
    for name, keys in OPTIONS.items():
        for key, option in keys.items():
            if option in options:
                found.setdefault(name, {})[key] = options[option]
    if "num_objects_per_type" in options:
        found["env"]["total_objects_per_env"] = ClutterConfig(**options).total_objects_per_env
    return found


PRESET_CONFIGS = {name: _preset(options) for name, options in ClutterConfig.presets.items()}
"""The changes of each preset, by section."""


def get_config(preset: str = "default") -> Config:
    """An editable configuration of a preset."""
    if not isinstance(preset, str) or preset not in PRESET_CONFIGS:
        raise ConfigError(f"no preset {shown(preset)}{did_you_mean(shown(preset), PRESET_CONFIGS)}")
    made = Config()
    made.update_from_dict(PRESET_CONFIGS[preset])
    return made


__all__ = [
    "PRESET_CONFIGS",
    "Config",
    "EnvConfig",
    "ObsConfig",
    "PhysicsConfig",
    "RewardConfig",
    "SceneConfig",
    "SuctionConfig",
    "get_config",
]
