"""Files of text as people write them: read and written with errors that name the file, and what counts as a number.

Readers of formats (instances, maps, solutions) stand on this; nothing here knows a format.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError, FormatError

REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in a file: no NaN, no infinity, no digit grouping, no digits of other scripts."""
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def name_of(path: Any) -> str:
    """A path as text."""
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"a path is a str or an os.PathLike, not a {type(path).__name__}")
    return os.fsdecode(path)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    name = name_of(path)
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError) as e:  # a null byte in a name is a ValueError
        raise FormatError(f"{name or '(no name)'}: cannot be read: {getattr(e, 'strerror', None) or e}") from None


def write_bytes(path: str | os.PathLike[str], raw: bytes) -> None:
    name = name_of(path)
    try:
        Path(name).write_bytes(raw)
    except (OSError, ValueError) as e:
        raise FormatError(f"{name or '(no name)'}: cannot be written: {getattr(e, 'strerror', None) or e}") from None


def write_csv(path: str | os.PathLike[str], names: Iterable[str], lines: Iterable[Iterable[Any]]) -> None:
    """A table under its names."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *lines])
    write_bytes(path, text.getvalue().encode())


def decoded(raw: bytes) -> str:
    """The text of a file of any age, its lines ended by newlines."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # names in old comments; in a number it is refused there
    return text.replace("\r\n", "\n").replace("\r", "\n")


def short(word: str) -> str:
    """A word of a file in an error sentence."""
    return repr(word if len(word) <= 40 else word[:37] + "...")


def as_written(value: float) -> str:
    """The shortest decimal that reads back as this number."""
    return str(int(value)) if value == int(value) else repr(float(value))
