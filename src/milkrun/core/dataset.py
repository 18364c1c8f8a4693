"""Reads datasets of instances, which `milkrun dataset` and `milkrun.scale.generate` write."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from milkrun.core.arguments import check_count
from milkrun.core.errors import ConfigError, FormatError
from milkrun.core.files import name_of, read_bytes, read_own

MANIFEST = "manifest.json"
STEM = "data"
LARGEST = 4 << 30  # bytes of a file that is read whole
Arrays = dict[str, np.ndarray]


def read_dataset(path: str | os.PathLike[str]) -> Arrays:
    """The instances of a dataset as arrays by field, the instance first, for `World.reset(instance=...)`, `solve` and
    the tasks.

    `path` is a folder that `milkrun dataset` wrote, whose files must match its manifest and are joined, or one npz
    file. `milkrun.scale.instances` reads a folder that is larger than memory, file by file.
    """
    name = Path(name_of(path))
    if name.is_dir():
        shards = list(shards_in(name))
        return {field: np.concatenate([shard[field] for shard in shards]) for field in shards[0]}
    raw = read_bytes(name)
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            arrays = {field: file[field] for field in file.files}
    except Exception as e:  # a damaged zip file or header, a single array
        raise FormatError(f"{name}: is no npz file of arrays ({e})") from None
    if len({array.shape[:1] for array in arrays.values()}) != 1 or not all(array.ndim for array in arrays.values()):
        shapes = ", ".join(f"{field} {array.shape}" for field, array in arrays.items()) or "no array"
        raise FormatError(f"{name}: arrays with as many instances each are needed, found {shapes}")
    return arrays


def shards_in(path: Path) -> Iterator[Arrays]:
    """The files of a dataset in order. An incomplete dataset, or a file that differs from its manifest, is refused."""
    manifest = read_manifest(path)
    if manifest.get("kind") != "generate":
        raise ConfigError(f"{path} holds no dataset but the shards of {manifest.get('kind')!r}")
    wanted = check_count("instances", manifest.get("instances"), 1)
    each = check_count("shard_rows", manifest.get("shard_rows"), 1)
    whole = -(-wanted // each)
    if len(manifest["shards"]) != whole:
        count = len(manifest["shards"])
        raise ConfigError(f"{path} has {count} of {whole} shards: the call that was stopped completes it")
    for k in range(whole):
        file = shard_path(path, STEM, k)  # no file name is taken from the manifest
        if file.name not in manifest["shards"]:
            raise FormatError(f"{path / MANIFEST} does not list {file.name}: generate the dataset again")
        raw = read_shard(file)
        if hashlib.sha256(raw).hexdigest() != manifest["shards"][file.name] or (arrays := arrays_of(raw)) is None:
            raise FormatError(f"{file} is not what the manifest says: generate it again")
        rows = min(each, wanted - k * each)
        if any(values.shape[:1] != (rows,) for values in arrays.values()):
            raise FormatError(f"{file} does not hold {rows} instances: generate it again")
        yield arrays


def shard_path(folder: Path, stem: str, k: int) -> Path:
    return folder / f"{stem}-{k:06d}.npz"


def read_shard(path: Path) -> bytes:
    """The bytes of a shard; FormatError for a file that this library cannot have written."""
    return read_own(path, LARGEST)


def arrays_of(raw: bytes) -> dict[str, np.ndarray] | None:
    """The arrays in the bytes of a shard's file, without unpickling; None if it is no such file.

    Shards are not compressed, so their arrays are no larger than the file. A compressed one could unpack to any size.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            if sum(entry.file_size for entry in packed.infolist()) > len(raw):
                return None
        with np.load(io.BytesIO(raw), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception:  # a damaged zip file or header
        return None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder; any other file is refused by name."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(read_own(path, LARGEST))
    except FormatError as e:
        raise ConfigError(str(e)) from None
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is damaged ({e}): remove the folder, its shards cannot be trusted") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("shards"), dict):
        raise ConfigError(f"{path} is no manifest of Milkrun: give a folder of its own")
    return manifest
