"""The original's config.json: one section of options for each environment that it knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from milkrun.core.config import Config, read_json
from milkrun.core.errors import ConfigError, did_you_mean

PACKAGED = Path(__file__).with_name("config.json")
"""The original's own file, as published."""
BENCHMARK, LUNAR_LANDER = "Benchmark", "LunarLander"
SECTIONS = (BENCHMARK, LUNAR_LANDER)

C = TypeVar("C", bound=Config)
Source = Mapping[str, Any] | str | Path | None
"""A whole file by its path or as a mapping, or the section alone; None is the packaged file."""


def read_section(config: type[C], source: Source, name: str) -> C:
    """The configuration that a section tells; errors are in the words of the file."""
    section, where = _section_of(source, name)
    try:
        return config.build(config=section)
    except ConfigError as e:
        raise in_words_of(e, where, {ours: theirs for theirs, ours in config.synonyms.items()}) from None


def _section_of(source: Source, name: str) -> tuple[Mapping[str, Any], str]:
    """The section of this name, and what to call its origin in an error."""
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
    """The same error with its origin, and with the name that the option has there. `names`: of ours theirs."""
    theirs = next((f"{theirs}: " for ours, theirs in names.items() if f".{ours} = " in str(error)), "")
    return ConfigError(f"{where}: {theirs}{error}")
