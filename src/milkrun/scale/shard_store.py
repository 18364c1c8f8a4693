"""Stores finished shards in a folder, so that the same call can continue after an interrupt or a kill.

Each shard is one file of arrays, written to a temporary name and renamed. `manifest.json` holds the parameters of the
job and the checksum of each finished shard. While a call runs, it appends checksums to `shards.sha256`, in the format
of the command sha256sum. A file that does not match its checksum is computed again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from milkrun._version import __version__
from milkrun.core.dataset import MANIFEST, arrays_of, read_manifest, read_shard, shard_path
from milkrun.core.errors import ConfigError, FormatError, ScaleError, shown
from milkrun.core.files import DRAFT, name_of, replace_file
from milkrun.scale.lock import Lock

FORMAT = 1
SUMS, LOCK = "shards.sha256", "lock"
Arrays = Mapping[str, np.ndarray]


class ShardStore:
    """The folder of one job, locked while it is open (`with`).

    `key` holds the parameters of the job as JSON values. A folder with another key is refused, and the error names
    every entry that differs.
    """

    def __init__(self, folder: Any, key: Mapping[str, Any], stem: str = "shard") -> None:
        self.folder = Path(name_of(folder))
        self.key = {"format": FORMAT, "milkrun": __version__, **json.loads(json.dumps(key))}
        self.stem = stem
        self._sums: dict[int, str] = {}
        self._lock = Lock(self.folder / LOCK)

    def __enter__(self) -> ShardStore:
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"keep={str(folder)!r} is a file: give a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except OSError as e:
            raise ConfigError(f"keep={str(folder)!r}: cannot be written: {e.strerror}") from None
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._write_manifest()
        except OSError as e:
            if error is None:
                raise ScaleError(f"{self.folder / MANIFEST}: cannot be written: {e.strerror}") from None
        finally:
            self._lock.release()

    def path(self, k: int) -> Path:
        return shard_path(self.folder, self.stem, k)

    def load(self, k: int) -> dict[str, np.ndarray] | None:
        """The arrays of a shard; None if there is no file of the right checksum."""
        try:
            raw = read_shard(self.path(k)) if k in self._sums else b""
        except FormatError:
            return None
        if hashlib.sha256(raw).hexdigest() != self._sums.get(k):
            return None
        return arrays_of(raw)

    def store(self, k: int, arrays: Arrays) -> None:
        """Writes a finished shard. If that fails, the error names the file, and earlier shards stay valid."""
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        raw = content.getvalue()
        try:
            replace_file(self.path(k), raw)
            self._sums[k] = hashlib.sha256(raw).hexdigest()
            with open(self.folder / SUMS, "a") as sums:
                sums.write(f"{self._sums[k]}  {self.path(k).name}\n")
        except OSError as e:
            raise ScaleError(
                f"{self.path(k)}: cannot be written: {e.strerror}; the shards before it stay in "
                f"{self.folder}, and the same call continues there",
                shard=k,
            ) from None

    def _open(self) -> None:
        for part in self.folder.glob(f"*{DRAFT}"):
            part.unlink()
        manifest = self.folder / MANIFEST
        if not manifest.exists():
            if strange := next((p.name for p in sorted(self.folder.iterdir()) if p.name != LOCK), None):
                raise ConfigError(
                    f"{self.folder} has no {MANIFEST} but other files, such as {strange!r}: give an empty folder"
                )
            self._write_manifest()
            return
        manifest_content = read_manifest(self.folder)
        stored_key = {name: value for name, value in manifest_content.items() if name != "shards"}
        if differing := list(_differences(stored_key, self.key)):
            raise ConfigError(
                f"{self.folder} holds another job: {'; '.join(differing)}. Take another folder, or remove this one"
            )
        for name, value in {**manifest_content["shards"], **self._appended_sums()}.items():
            if match := re.fullmatch(rf"{self.stem}-(\d{{6,}})\.npz", name):
                self._sums[int(match[1])] = value

    def _appended_sums(self) -> dict[str, str]:
        """The checksums that a killed call has appended. Its last line may be incomplete."""
        try:
            lines = (self.folder / SUMS).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {name: value for value, _, name in (line.partition("  ") for line in lines)}

    def _write_manifest(self) -> None:
        shards = {self.path(k).name: self._sums[k] for k in sorted(self._sums)}
        replace_file(self.folder / MANIFEST, (json.dumps({**self.key, "shards": shards}, indent=1) + "\n").encode())
        (self.folder / SUMS).unlink(missing_ok=True)


def _differences(stored: Any, given: Any, path: str = "") -> Any:
    """A sentence for every entry that differs."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in sorted({*stored, *given}):
            yield from _differences(stored.get(name), given.get(name), f"{path}.{name}" if path else name)
    elif stored != given:
        yield f"{path} is {shown(stored)} there and {shown(given)} here"
