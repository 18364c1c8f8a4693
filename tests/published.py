"""Finds the published instances and recorded episodes that tests and benchmarks read.

They are part of the repository, in `tests/data`; SOURCES.md there states their sources. A folder with the same layout,
named by MILKRUN_DATA, is searched first: for larger sets, or other copies of the same files. After a change in
`tests/data`, this writes the list of files and checksums again:

    python -m tests.published
"""

from __future__ import annotations

import hashlib
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import NoReturn

KEPT = Path(__file__).resolve().parent / "data"
"""The folder of the repository."""
LIST = KEPT / "SHA256SUMS"
"""What must be in it, byte by byte; `sha256sum -c` reads it too."""


def published_file(name: str) -> Path:
    """The file of this name, as in "routing/tsplib/eil51.tsp".

    One that the repository should have and has not is an error; one of a larger set that is not here skips the test.
    """
    for folder in _folders():
        if (folder / name).is_file():
            return folder / name
    _absent(name)


def published_files(pattern: str) -> list[Path]:
    """All files that match, as in "routing/*/*.vrp", sorted by name; each where `published_file` finds it."""
    there = {path.relative_to(folder).as_posix() for folder in _folders() for path in folder.glob(pattern)}
    listed = {name for name in checksums() if fnmatch(name, pattern) and name.count("/") == pattern.count("/")}
    if not there | listed:
        _absent(pattern)
    return [published_file(name) for name in sorted(there | listed)]


def checksums() -> dict[str, str]:
    """By name, the checksum of every file of the repository's folder, as it is listed."""
    lines = (line.split(maxsplit=1) for line in LIST.read_text().splitlines())
    return {name: digest for digest, name in lines}


def count_up() -> dict[str, str]:
    """The same, of the files that are there; the words about them, *.md, are not data."""
    paths = [path for path in KEPT.rglob("*") if path.is_file() and path != LIST and path.suffix != ".md"]
    found = {path.relative_to(KEPT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    return dict(sorted(found.items()))


def _folders() -> list[Path]:
    given = os.environ.get("MILKRUN_DATA")
    if not given:
        return [KEPT]
    if not Path(given).is_dir():
        raise NotADirectoryError(f"MILKRUN_DATA={given!r} is no folder")
    return [Path(given), KEPT]


def _absent(name: str) -> NoReturn:
    if name in checksums():
        raise FileNotFoundError(f"tests/data/{name} is missing: it is part of the repository")
    import pytest  # here, since benchmarks run without it

    pytest.skip(f"no {name}: not in tests/data, nor in a folder that MILKRUN_DATA names", allow_module_level=True)


if __name__ == "__main__":
    LIST.write_text("".join(f"{digest}  {name}\n" for name, digest in count_up().items()))
