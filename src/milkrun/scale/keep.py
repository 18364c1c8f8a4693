"""Finished shards in a folder, so that a call that was interrupted or killed is continued by the same call.

One file a shard, arrays only, written under another name and renamed. `manifest.json` says of which work they are, and
of each finished shard the checksum; while a call runs, checksums are added to `shards.sha256` beside it, in the form of
the command sha256sum, one line a shard. What is not as its checksum says is computed again, never trusted.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from milkrun._version import __version__
from milkrun.core.dataset import MANIFEST, arrays_of, read_manifest, read_shard, shard_path
from milkrun.core.errors import ConfigError, FormatError, ScaleError, shown
from milkrun.core.files import name_of
from milkrun.scale.lock import Lock

FORMAT = 1
SUMS, LOCK, UNFINISHED = "shards.sha256", "lock", ".part"
Arrays = Mapping[str, np.ndarray]


class Kept:
    """The folder of one piece of work, locked while it is open (`with`).

    `key` is what the work is, as JSON has it. A folder of other work is refused, with every entry that differs.
    """

    def __init__(self, folder: Any, key: Mapping[str, Any], stem: str = "shard") -> None:
        self.folder = Path(name_of(folder))
        self.key = {"format": FORMAT, "milkrun": __version__, **json.loads(json.dumps(key))}
        self.stem = stem
        self._sums: dict[int, str] = {}
        self._lock = Lock(self.folder / LOCK)

    def __enter__(self) -> Kept:
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"keep={str(folder)!r} is a file: give a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock.take()
        except OSError as e:
            raise ConfigError(f"keep={str(folder)!r}: cannot be written: {e.strerror}") from None
        try:
            self._open()
        except BaseException:
            self._lock.free()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._conclude()
        except OSError as e:
            if error is None:
                raise ScaleError(f"{self.folder / MANIFEST}: cannot be written: {e.strerror}") from None
        finally:
            self._lock.free()

    def path(self, k: int) -> Path:
        return shard_path(self.folder, self.stem, k)

    def load(self, k: int) -> dict[str, np.ndarray] | None:
        """The arrays of a shard; None where there is none that can be trusted."""
        try:
            raw = read_shard(self.path(k)) if k in self._sums else b""
        except FormatError:
            return None
        if hashlib.sha256(raw).hexdigest() != self._sums.get(k):
            return None
        return arrays_of(raw)

    def store(self, k: int, arrays: Arrays) -> None:
        """Writes a finished shard; a disk that cannot take it is named, and all shards before it stay."""
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        raw = content.getvalue()
        try:
            self._replace(self.path(k), raw)
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
        for part in self.folder.glob(f"*{UNFINISHED}"):
            part.unlink()
        manifest = self.folder / MANIFEST
        if not manifest.exists():
            if strange := next((p.name for p in sorted(self.folder.iterdir()) if p.name != LOCK), None):
                raise ConfigError(
                    f"{self.folder} has no {MANIFEST} but other files, as {strange!r}: give a folder of its own"
                )
            self._conclude()
            return
        said = read_manifest(self.folder)
        theirs = {name: value for name, value in said.items() if name != "shards"}
        if differing := list(_differences(theirs, self.key)):
            raise ConfigError(
                f"{self.folder} holds other work: {'; '.join(differing)}. Take another folder, or remove this one"
            )
        for name, value in {**said["shards"], **self._added()}.items():
            if match := re.fullmatch(rf"{self.stem}-(\d{{6,}})\.npz", name):
                self._sums[int(match[1])] = value

    def _added(self) -> dict[str, str]:
        """What a call that did not end wrote of its shards; its last line may be half."""
        try:
            lines = (self.folder / SUMS).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {name: value for value, _, name in (line.partition("  ") for line in lines)}

    def _conclude(self) -> None:
        shards = {self.path(k).name: self._sums[k] for k in sorted(self._sums)}
        self._replace(self.folder / MANIFEST, (json.dumps({**self.key, "shards": shards}, indent=1) + "\n").encode())
        (self.folder / SUMS).unlink(missing_ok=True)

    def _replace(self, path: Path, raw: bytes) -> None:
        part = path.with_name(path.name + UNFINISHED)
        try:
            with open(part, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _differences(theirs: Any, ours: Any, where: str = "") -> Any:
    """Every entry that differs, as a sentence."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted({*theirs, *ours}):
            yield from _differences(theirs.get(name), ours.get(name), f"{where}.{name}" if where else name)
    elif theirs != ours:
        yield f"{where} is {shown(theirs)} there and {shown(ours)} here"
