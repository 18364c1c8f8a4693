"""Where maps are found: a folder given, those that the variable MILKRUN_MAPS names, the bundled one, in this order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from milkrun.core.errors import MapError
from milkrun.routing.maps.files import read_map
from milkrun.routing.maps.map import Map

VARIABLE = "MILKRUN_MAPS"
BUNDLED = Path(__file__).parent / "data"
ENDINGS = (".csv", ".geojson")


def load_map(name: str, path: str | os.PathLike[str] | None = None) -> Map:
    """The map of this name; case, spaces, `-` and `_` do not matter."""
    for folder in _folders(path):
        found = [file for file in _files(folder) if _plain(file.stem) == _plain(str(name))]
        if len(found) > 1:
            raise MapError(f"{name!r} may be {' or '.join(file.name for file in found)} in {folder}: keep one of them")
        if found:
            return read_map(found[0])
    places = ", ".join(map(str, _folders(path)))
    raise MapError(
        f"there is no map {name!r} in {places}; available: {', '.join(available_maps(path))}. "
        "How to write one: docs/maps.md"
    )


def available_maps(path: str | os.PathLike[str] | None = None) -> list[str]:
    """The names that `load_map` finds, sorted."""
    names: dict[str, str] = {}
    for folder in _folders(path):
        for file in _files(folder):
            names.setdefault(_plain(file.stem), file.stem)
    return sorted(names.values())


def _folders(path: str | os.PathLike[str] | None) -> list[Path]:
    given = [] if path is None else [("map_path", os.fspath(path))]
    named = [(VARIABLE, part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    for origin, folder in [*given, *named]:
        if not Path(folder).is_dir():
            raise MapError(f"{origin} names {folder!r}, which is not a folder")
    return [*(Path(folder) for _, folder in [*given, *named]), BUNDLED]


def _files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in ENDINGS and not file.stem.lower().endswith(".dist") and file.is_file():
            yield file


def _plain(name: str) -> str:
    return "".join(name.lower().replace("_", " ").replace("-", " ").split())
