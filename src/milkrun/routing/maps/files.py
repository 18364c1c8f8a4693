"""Map files: where they are found, and how they are read.

A map is a table of places (CSV or GeoJSON), an optional matrix of distances and an optional sidecar. Maps are searched
for in the given folder, then in those that the variable MILKRUN_MAPS names, then in the bundled one. Every fault in a
file is a FormatError that names file, line and column (GeoJSON: feature and property).
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.errors import FormatError, MapError, did_you_mean
from milkrun.core.files import REAL, read_bytes
from milkrun.routing.maps.map import Floats, Map, project

VARIABLE = "MILKRUN_MAPS"
BUNDLED = Path(__file__).parent / "data"
ENDINGS = (".csv", ".geojson")
MAX_BINS = 10_000
MOST_DIGITS = 300
BOUNDS = {
    "lat": (-90.0, 90.0),
    "lon": (-180.0, 180.0),
    "x": (-1e5, 1e5),
    "y": (-1e5, 1e5),
    "volume_m3": (1e-6, 1e6),
    "fill_mean": (0.0, 1.0),
    "fill_std": (0.0, 10.0),
}
OPTIONAL = ("stream", "volume_m3", "fill_mean", "fill_std")
KINDS = ("depot", "bin")
SIDECAR = {"title": str, "synthetic": bool, "source": str, "licence": str}


@dataclass(frozen=True)
class Place:
    """One place as its file has it, and the errors that name it."""

    file: Path
    where: str
    cell: str
    values: dict[str, Any]

    def fault(self, column: str, sentence: str) -> FormatError:
        return FormatError(f"{self.file}, {self.where}, {self.cell} {column}: {sentence}")

    def has(self, column: str) -> bool:
        return self.values.get(column) not in (None, "")

    def text(self, column: str) -> str:
        value = self.values.get(column)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value.strip():
            rule = "a text is needed here" if value in (None, "") else f"{reprlib.repr(value)} is not a text"
            raise self.fault(column, rule)
        return value.strip()

    def real(self, column: str) -> float:
        value = self.values.get(column)
        if isinstance(value, str) and REAL.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            rule = f"{reprlib.repr(value)} is not a number" if self.has(column) else "a number is needed here"
            raise self.fault(column, rule)
        low, high = BOUNDS[column]
        if not low <= value <= high:
            hint = ": a share of the bin a day, not percent" if column == "fill_mean" else ""
            raise self.fault(column, f"{value!r} is not within {low:g}..{high:g}{hint}")
        return float(value)


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


def read_map(path: Path) -> Map:
    """The map in a file, with the matrix and the sidecar next to it."""
    records = (_geojson if path.suffix.lower() == ".geojson" else _csv)(path)
    depots = [r for r in records if r.text("kind") == "depot"]
    if len(depots) != 1:
        found = f": {', '.join(r.where for r in depots)}" if depots else ""
        raise FormatError(f"{path}, column kind: a map has exactly one depot, this has {len(depots)}{found}")
    nodes = [depots[0], *(r for r in records if r is not depots[0])]
    if not 1 <= len(nodes) - 1 <= MAX_BINS:
        raise FormatError(f"{path}: a map has 1..{MAX_BINS} bins, this has {len(nodes) - 1}")
    ids = _ids(nodes)
    lat, lon, x, y = _places(path, nodes)
    unless_stated: dict[str, Any] = {"title": path.stem, "synthetic": False, "source": "", "licence": ""}
    return Map(
        name=path.stem,
        ids=ids,
        kinds=tuple(r.text("kind") for r in nodes),
        lat=lat,
        lon=lon,
        x=x,
        y=y,
        width_km=float(x.max()),
        height_km=float(y.max()),
        dist=_matrix(path.with_name(f"{path.stem}.dist.csv"), ids),
        **_attributes(nodes),
        **(unless_stated | _sidecar(path.with_name(f"{path.stem}.json"))),
    )


def _ids(nodes: list[Place]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for r in nodes:
        if r.text("kind") not in KINDS:
            raise r.fault("kind", f"{r.text('kind')!r} is neither depot nor bin")
        if (id := r.text("id")) in seen:
            raise r.fault("id", f"{id!r} is also in {seen[id]}")
        seen[id] = r.where
    return tuple(seen)


def _places(path: Path, nodes: list[Place]) -> tuple[Floats | None, Floats | None, Floats, Floats]:
    degrees = "lat" in nodes[0].values
    first, second = (np.array([r.real(name) for r in nodes]) for name in (("lat", "lon") if degrees else ("x", "y")))
    x, y = project(first, second) if degrees else (first - first.min(), second - second.min())
    if max(x.max(), y.max()) <= 0.0:
        raise FormatError(f"{path}: all places are the same one")
    return (first, second, x, y) if degrees else (None, None, x, y)


def _attributes(nodes: list[Place]) -> dict[str, Any]:
    """The optional columns. If one bin has a value, every bin must have one; the depot counts as empty."""
    depot, *bins = nodes
    found: dict[str, Any] = {}
    for column in OPTIONAL:
        if depot.has(column):
            raise depot.fault(column, "the depot has none")
        if any(r.has(column) for r in bins):
            found[column] = (
                ("", *(r.text(column) for r in bins))
                if column == "stream"
                else np.array([0.0, *(r.real(column) for r in bins)])
            )
    if ("fill_mean" in found) != ("fill_std" in found):
        missing = "fill_std" if "fill_mean" in found else "fill_mean"
        raise bins[0].fault(missing, "fill_mean and fill_std go together")
    for r, mean, std in zip(nodes, found.get("fill_mean", ()), found.get("fill_std", ())):
        # Chained: std above 0 and mean equal to 0, for which there is no gamma law.
        if std > 0.0 == mean:
            raise r.fault("fill_std", f"{std:g} around a mean of 0: no such law")
    return found


def _csv(path: Path) -> list[Place]:
    rows = _rows(path)
    line, header = next(rows, (1, []))
    known = ("id", "kind", "lat", "lon", "x", "y", *OPTIONAL)
    _warn_of_unknown(f"{path}, line {line}", "column", header, known)
    for k, name in enumerate(header):
        if name in known and name in header[:k]:
            raise FormatError(f"{path}, line {line}, column {k + 1}: {name!r} is there twice")
    places = [name for name in header if name in ("lat", "lon", "x", "y")]
    if not {"id", "kind"} <= set(header) or sorted(places) not in (["lat", "lon"], ["x", "y"]):
        raise FormatError(f"{path}, line {line}: the header needs id, kind and either lat and lon or x and y")
    records = []
    for line, cells in rows:
        if len(cells) != len(header):
            raise FormatError(f"{path}, line {line}: {len(cells)} cells under {len(header)} columns")
        records.append(Place(path, f"line {line}", "column", dict(zip(header, cells))))
    return records


def _warn_of_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Unknown columns are ignored; one that looks like a misspelt name is logged."""
    for name in names:
        if name not in known and "did you mean" in (hint := did_you_mean(name, known)):
            logging.getLogger("milkrun").warning("%s, %s %r is not read%s", where, what, name, hint)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of a CSV file, without blank lines.

    Cells are separated by commas, or by semicolons where the comma is the decimal point; then 2,5 is read as 2.5.
    """
    text = _text(path)
    head = text.lstrip().split("\n", 1)[0]
    by_semicolon = head.count(";") > head.count(",")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=";" if by_semicolon else ",")

    def plain(cell: str) -> str:
        number = cell.replace(",", ".")
        return number if by_semicolon and REAL.fullmatch(number) else cell

    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [plain(cell.strip()) for cell in cells]
    except csv.Error as e:
        raise FormatError(f"{path}, line {reader.line_num}: not a CSV table: {e}") from None


def _text(path: Path) -> str:
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        raise FormatError(f"{path}, line {line}: byte {raw[e.start]:#04x} is not UTF-8 text") from None


def _json(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number of JSON")

    def whole(word: str) -> int:
        if len(word) > MOST_DIGITS:  # int() has an error of its own from 4300 on
            raise ValueError(f"a number of {len(word)} digits; at most {MOST_DIGITS} are allowed")
        return int(word)

    try:
        return json.loads(_text(path), parse_constant=refuse, parse_int=whole)
    except json.JSONDecodeError as e:
        raise FormatError(f"{path}, line {e.lineno}, column {e.colno}: not JSON: {e.msg}") from None
    except RecursionError:
        raise FormatError(f"{path}: not a map: its brackets are nested too deeply") from None
    except ValueError as e:
        raise FormatError(f"{path}: not JSON: {e}") from None


def _geojson(path: Path) -> list[Place]:
    whole = _json(path)
    features = whole.get("features") if isinstance(whole, dict) else None
    if not isinstance(features, list) or whole.get("type") != "FeatureCollection":
        raise FormatError(f"{path}: a GeoJSON map is a FeatureCollection with a list of features")
    return [_point(path, k, feature) for k, feature in enumerate(features, start=1)]


def _point(path: Path, k: int, feature: Any) -> Place:
    properties = feature.get("properties") if isinstance(feature, dict) else None
    shape = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(properties, dict) or not isinstance(shape, dict) or shape.get("type") != "Point":
        raise FormatError(f"{path}, feature {k}: each feature has properties and a Point as its geometry")
    known = ("id", "kind", *OPTIONAL)
    record = Place(path, f"feature {k}", "property", dict(properties))
    _warn_of_unknown(f"{path}, feature {k}", "property", properties, known)
    where = shape.get("coordinates")
    if not isinstance(where, list) or len(where) not in (2, 3):
        raise record.fault("coordinates", "must be [longitude, latitude]")
    record.values.update(lon=where[0], lat=where[1])
    return record


def _matrix(path: Path, ids: tuple[str, ...]) -> Floats | None:
    """The distances in the order of `ids`."""
    if not path.is_file():
        return None
    rows = list(_rows(path))
    heads, sides = rows[0][1][1:] if rows else [], [cells[0] for _, cells in rows[1:]]
    for found, what, line in ((heads, "row", rows[0][0] if rows else 1), (sides, "column", 1)):
        if len(found) != len(set(found)) or set(found) != set(ids):
            strange = sorted(set(found) ^ set(ids)) or sorted({i for i in found if found.count(i) > 1})
            said = f"must name each id of the map once; see {', '.join(map(repr, strange[:3]))}"
            raise FormatError(f"{path}, line {line}: the first {what} {said}")
    dist = np.zeros((len(ids), len(ids)))
    place = {id: k for k, id in enumerate(ids)}
    for line, (side, *cells) in rows[1:]:
        if len(cells) != len(heads):
            raise FormatError(f"{path}, line {line}: {len(cells)} distances for {len(heads)} ids")
        for head, cell in zip(heads, cells):
            value = float(cell) if REAL.fullmatch(cell) else math.nan
            if not 0.0 <= value <= 1e6 or (value > 0 and head == side):
                rule = "must be 0 from a place to itself" if head == side else "is not within 0..1e6 km"
                raise FormatError(f"{path}, line {line}, column {head}: {cell!r} {rule}")
            dist[place[side], place[head]] = value
    return dist


def _sidecar(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    stated = _json(path)
    if not isinstance(stated, dict):
        raise FormatError(f"{path}: must be an object with {', '.join(SIDECAR)}")
    for key, value in stated.items():
        if key not in SIDECAR:
            raise FormatError(f"{path}, key {key}: is not known{did_you_mean(key, SIDECAR)}")
        kind = SIDECAR[key]
        if type(value) is not kind:
            wanted = "text" if kind is str else "true or false"
            raise FormatError(f"{path}, key {key}: {reprlib.repr(value)} is not a {wanted}")
    return stated
