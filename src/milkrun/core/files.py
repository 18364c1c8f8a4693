"""Reads and writes text files, with errors that name the file, and defines what counts as a number.

Readers of formats (instances, maps, solutions) use this; no format is known here.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError, FormatError

REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number in a file: no NaN, no infinity, no digit grouping, no digits of other scripts. No two repetitions in a row
match the same characters, which would take quadratic time."""
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
DRAFT = ".part"  # how the name of a file ends that is being written


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


def read_own(path: Path, most: int) -> bytes:
    """The bytes of a regular file in the folder of its name: no link, pipe or device, and at most `most` bytes."""
    try:
        # Without O_NONBLOCK a pipe without a writer would never open.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FormatError(f"{path}: is no regular file")
            if found.st_size > most:
                raise FormatError(f"{path}: has {found.st_size:,} bytes, more than {most:,}")
            return file.read()
    except OSError as e:
        if path.is_symlink():
            raise FormatError(f"{path}: is a link, which may lead out of its folder") from None
        raise FormatError(f"{path}: cannot be read: {e.strerror}") from None


def file_name(text: str) -> str:
    """A text, such as the id of a world or the name of a policy, as the name of a file in a folder: no separators, no
    leading dot, at most 100 characters."""
    return re.sub(r"[^\w.+=-]+", "_", text).lstrip(".")[:100] or "_"


def write_bytes(path: str | os.PathLike[str], raw: bytes) -> None:
    name = name_of(path)
    try:
        Path(name).write_bytes(raw)
    except (OSError, ValueError) as e:
        raise FormatError(f"{name or '(no name)'}: cannot be written: {getattr(e, 'strerror', None) or e}") from None


def replace_file(path: Path, raw: bytes) -> None:
    """Writes or replaces a file atomically: after a kill or a full disk the old or the new one is there, whole. A kill
    may leave a draft, whose name ends in DRAFT. Raises OSError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT}")
    try:
        with open(draft, "xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_csv(path: str | os.PathLike[str], names: Iterable[str], lines: Iterable[Iterable[Any]]) -> None:
    """Writes a table with a header line of names."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *lines])
    write_bytes(path, text.getvalue().encode())


def decoded(raw: bytes) -> str:
    """The text of a file, in UTF-8 or Latin-1, with newlines as line ends."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # for comments in old files; readers of numbers refuse it
    return text.replace("\r\n", "\n").replace("\r", "\n")


def short(word: str) -> str:
    """A word of a file for an error message, cut to 40 characters."""
    return repr(word if len(word) <= 40 else word[:37] + "...")


def as_written(value: float) -> str:
    """The shortest decimal that is read back as this number."""
    return str(int(value)) if value == int(value) else repr(float(value))
