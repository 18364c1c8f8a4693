"""The base of all configurations: documented options, bounds, presets, refusal of unknown keys, JSON.

A world's configuration is a frozen dataclass that derives from `Config`; each option carries its own line of
documentation and its bounds, so `milkrun info`, the docs and the error messages all read from one place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from milkrun.core.errors import ConfigError, did_you_mean, shown

C = TypeVar("C", bound="Config")
R = TypeVar("R", bound="RuledConfig")

RESERVED = set("id num_envs api preset config seed first_row autoreset illegal threads debug".split())
"""Keywords of `make`, which no configuration may use as options. Bindings add theirs."""
ROWS = frozenset("n_envs num_env n_env nenvs batch_size num_rows n_rows".split())
"""Names of `num_envs` in other libraries."""


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    words: tuple[str, ...] = (),
) -> Any:
    """One option: its default, a line of documentation, bounds of numbers, and `words` allowed instead of a number."""
    return dataclasses.field(
        default=default, metadata={"doc": doc, "low": low, "high": high, "choices": choices, "words": words}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """The base class of all configurations."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    synonyms: ClassVar[Mapping[str, str]] = {}

    max_steps: int | str | None = option(
        None, "steps until a row is truncated; auto = the world's; None = no limit", low=1, high=2**62, words=("auto",)
    )

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for f in dataclasses.fields(self):
            value = _from_json(getattr(self, f.name), f, hints[f.name])
            object.__setattr__(self, f.name, value)
            _check(type(self).__name__, f, value, hints[f.name])
            if isinstance(value, numbers.Real) and not isinstance(value, (int, float)):
                # as Python's numbers: numpy's wrap around, and a Fraction has no JSON
                object.__setattr__(self, f.name, int(value) if isinstance(value, numbers.Integral) else float(value))
        self.validate()

    def validate(self) -> None:
        """Hook for rules between options; raises ConfigError."""

    def replace(self: C, **changes: Any) -> C:
        """A copy with some options changed; unknown ones are refused by name."""
        return dataclasses.replace(self, **self._known(changes))

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values; infinity is a text, which is read as the number again."""
        return {key: _to_json(value) for key, value in self.as_dict().items()}

    def to_json(self, path: str | Path) -> None:
        plain = self.as_json()
        if given := [key for key, value in plain.items() if callable(value)]:
            raise ConfigError(f"{', '.join(given)} was given as a function, which cannot be written to a JSON file")
        write_json(Path(path), plain)

    @classmethod
    def build(
        cls: type[C],
        preset: str | None = None,
        config: C | Mapping[str, Any] | str | Path | None = None,
        **overrides: Any,
    ) -> C:
        """defaults < preset < config (an instance, a mapping or the path of a JSON file) < overrides."""
        values: dict[str, Any] = {}
        if preset is not None:
            if not isinstance(preset, str) or preset not in cls.presets:
                raise ConfigError(
                    f"{cls.__name__} has no preset {shown(preset)}{did_you_mean(shown(preset), cls.presets)}"
                )
            values.update(cls._known(cls.presets[preset]))
        if isinstance(config, cls):
            values.update(config.as_dict())
        elif isinstance(config, (str, Path)):
            values.update(cls._known(read_json(Path(config))))
        elif isinstance(config, Mapping):
            values.update(cls._known(config))
        elif config is not None:
            raise ConfigError(
                f"config must be a {cls.__name__}, a mapping or the path of a JSON file, not {type(config).__name__}"
            )
        values.update(cls._known(overrides))
        return cls(**values)

    @classmethod
    def preset(cls: type[C], name: str) -> C:
        """The configuration of a preset."""
        return cls.build(name)

    @classmethod
    def from_json(cls: type[C], path: str | Path) -> C:
        """The configuration in a JSON file, which may name some options only."""
        return cls.build(config=Path(path))

    @classmethod
    def _known(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        names = {f.name for f in dataclasses.fields(cls)}
        known: dict[str, Any] = {}
        for key, value in given.items():
            name = cls.synonyms.get(key, key)
            if name in ROWS:
                raise ConfigError(f"{cls.__name__} has no option {key!r}: the number of rows is num_envs")
            if name not in names:
                meant = did_you_mean(str(key), {*names, *cls.synonyms})
                raise ConfigError(f"{cls.__name__} has no option {key!r}{meant}")
            if name in known:
                raise ConfigError(f"{cls.__name__}: {key!r} and its synonym were both given")
            known[name] = value
        return known


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuledConfig(Config):
    """A configuration with several rule sets. An option left at None takes the default of the chosen rule, and an
    option of another rule only is refused."""

    rule_option: ClassVar[str] = "rule"
    by_rule: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __post_init__(self) -> None:
        # Recorded before the defaults of the rule are filled in, since `replace` keeps only what was given.
        given = {f.name for f in dataclasses.fields(self) if getattr(self, f.name) is not None}
        object.__setattr__(self, "_given", given)
        rule = getattr(self, self.rule_option)
        for name, value in self.by_rule.get(rule if isinstance(rule, str) else "", {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        super().__post_init__()

    def validate(self) -> None:
        rule = getattr(self, self.rule_option)
        foreign = {name for options in self.by_rule.values() for name in options} - set(self.by_rule[rule])
        for name in sorted(foreign):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{type(self).__name__}.{name} = {getattr(self, name)!r}: "
                    f"no option of the {self.rule_option} {rule!r}"
                )

    def replace(self: R, **changes: Any) -> R:
        """A copy with some options changed. Under another rule, options that were not given take its defaults."""
        kept = {name: getattr(self, name) for name in self._given}  # type: ignore[attr-defined]
        return type(self)(**{**kept, **self._known(changes)})


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Writes a configuration, one key a line."""
    try:
        path.write_text(json.dumps(plain, indent=2) + "\n")
    except OSError as e:
        raise ConfigError(f"cannot write the configuration {path}: {e.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        values = json.loads(path.read_text())
    except OSError as e:
        raise ConfigError(f"cannot read the configuration {path}: {e.strerror}") from None
    except json.JSONDecodeError as e:
        raise ConfigError(f"{path}, line {e.lineno}: not JSON: {e.msg}") from None
    except (ValueError, RecursionError) as e:  # undecodable bytes, a NUL in the path, unlimited nesting
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {e}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a configuration is a JSON object, not a {type(values).__name__}")
    return values


def _hints(cls: type) -> dict[str, Any]:
    cached = cls.__dict__.get("_type_hints")
    if cached is None:
        cached = typing.get_type_hints(cls)
        setattr(cls, "_type_hints", cached)  # noqa: B010 (a class attribute of a frozen dataclass)
    return cached


def _check(owner: str, f: dataclasses.Field[Any], value: Any, hint: Any) -> None:
    meta = f.metadata
    where = f"{owner}.{f.name}"
    if not _is_a(value, hint):
        raise ConfigError(f"{where} = {shown(value)}: must be {_spell(hint)}")
    if isinstance(value, str):
        allowed = (*meta.get("choices", ()), *meta.get("words", ()))
        if allowed and value not in allowed:
            raise ConfigError(
                f"{where} = {shown(value)}: must be one of {', '.join(map(repr, allowed))}"
                f"{did_you_mean(value, [a for a in allowed if isinstance(a, str)])}"
            )
    elif meta.get("choices") and value is not None and not callable(value) and value not in meta["choices"]:
        raise ConfigError(f"{where} = {shown(value)}: must be one of {', '.join(map(repr, meta['choices']))}")
    elif isinstance(value, numbers.Real) and not isinstance(value, bool):
        low, high = meta.get("low"), meta.get("high")
        if not _has_room(value):
            room = ", within 64 bits" if isinstance(value, numbers.Integral) else ""
            raise ConfigError(f"{where} = {shown(value)}: must be {_span(low, high)}{room}")
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(f"{where} = {shown(value)}: must be {_span(low, high)}")


INFINITE = {"inf": math.inf, "-inf": -math.inf}
"""Texts for the numbers that JSON lacks."""


def _to_json(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [_to_json(one) for one in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _from_json(value: Any, f: dataclasses.Field[Any], hint: Any) -> Any:
    """The value of an option from its JSON value."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    kinds = [typing.get_origin(kind) or kind for kind in (typing.get_args(hint) if is_union else [hint])]
    if isinstance(value, list) and tuple in kinds and list not in kinds:
        return tuple(INFINITE.get(one, one) if isinstance(one, str) else one for one in value)
    if isinstance(value, str) and value in INFINITE and float in kinds:
        return value if value in f.metadata.get("words", ()) else INFINITE[value]
    return value


def _has_room(value: Any) -> bool:
    """Whether a number is no NaN and fits 64 bits."""
    if isinstance(value, numbers.Integral):
        return -(2**63) <= int(value) < 2**63
    try:
        return not math.isnan(value)
    except OverflowError:  # a Fraction of huge integers
        return False


def _span(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"in {low}..{high}"
    return f">= {low}" if low is not None else f"<= {high}" if high is not None else "a number"


def _is_a(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return any(_is_a(value, h) for h in typing.get_args(hint))
    if hint is type(None):
        return value is None
    origin = typing.get_origin(hint) or hint
    if origin is float:
        return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if origin is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if origin is tuple:
        return isinstance(value, (tuple, list))
    if getattr(origin, "__name__", "") == "Callable":
        return callable(value)
    return isinstance(value, origin)


def _spell(hint: Any) -> str:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join(_spell(h) for h in typing.get_args(hint))
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
