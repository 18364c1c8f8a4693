"""The config.json of the benchmark DAT: one section of options for each of its environments.

The options of the tracking world are in `config.py`; those of DAT's second environment, LunarLander, are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from milkrun.core.config import Config, option, read_json
from milkrun.core.errors import ConfigError, did_you_mean

PACKAGED = Path(__file__).with_name("config.json")
"""DAT's own file, as published."""
BENCHMARK, LUNAR_LANDER = "Benchmark", "LunarLander"
SECTIONS = (BENCHMARK, LUNAR_LANDER)

C = TypeVar("C", bound=Config)
Source = Mapping[str, Any] | str | Path | None
"""A whole file (its path or a mapping), or a single section; None is the packaged file."""


def read_section(config: type[C], source: Source, name: str) -> C:
    """The configuration of a section; errors use the option names of the file."""
    section, where = _section_of(source, name)
    try:
        return config.build(config=section)
    except ConfigError as e:
        raise in_words_of(e, where, {ours: theirs for theirs, ours in config.synonyms.items()}) from None


@dataclass(frozen=True, kw_only=True)
class LunarLanderConfig(Config):
    """The section "LunarLander" of DAT's file, by DAT's option names: Gymnasium's LunarLander observed as pictures."""

    Need_render: int = option(1, "1: states are pictures of the landing", choices=(0, 1))
    Action_dim: int = option(4, "actions: LunarLander has 4", choices=(4,))
    State_size: int = option(84, "pixels a side of a picture", low=16, high=512)
    State_channel: int = option(3, "3: RGB; 1: grey", choices=(1, 3))
    Norm_Type: int | None = option(0, "0: /255; 1: (v-128)/128; None: uint8", choices=(0, 1))

    @classmethod
    def from_dat(cls, source: Source = None) -> LunarLanderConfig:
        """Reads a file of DAT: its path, its contents, or the section; None is the packaged one."""
        return read_section(cls, source, LUNAR_LANDER)


def _section_of(source: Source, name: str) -> tuple[Mapping[str, Any], str]:
    """The section of this name, and the name of its origin in errors."""
    if isinstance(source, Mapping):
        values, where = source, f"the section {name!r}"
    elif source is None or isinstance(source, (str, Path)):
        path = PACKAGED if source is None else Path(source)
        values, where = read_json(path), str(path)
    else:
        raise ConfigError(f"a configuration must be a path, a mapping or None, not a {type(source).__name__}")
    if not values.keys() & set(SECTIONS):
        return values, where
    if isinstance(source, Mapping):
        where = "the given configuration"
    for key in values.keys() - set(SECTIONS):
        raise ConfigError(f"{where}: has no section {key!r}{did_you_mean(str(key), SECTIONS)}")
    if name not in values:
        raise ConfigError(f"{where}: lacks the section {name!r}")
    if not isinstance(values[name], Mapping):
        raise ConfigError(
            f"{where}: the section {name!r} must hold options by name, not a {type(values[name]).__name__}"
        )
    return values[name], where


def in_words_of(error: ConfigError, where: str, names: Mapping[str, str]) -> ConfigError:
    """The same error with its origin, and with the option name used there. `names` maps our names to theirs."""
    theirs = next((f"{theirs}: " for ours, theirs in names.items() if f".{ours} = " in str(error)), "")
    return ConfigError(f"{where}: {theirs}{error}")
