"""One caller a folder: a lock file that says who holds it, and that the system lets go of when its holder dies.

The file names process and machine for people and for machines that share the folder but not their locks; between
processes of one machine the system's own lock on it decides, so a killed caller leaves none that holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError


class Lock:
    """Held from `take` to `free`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> None:
        """Takes the lock, also one that its holder left behind; refuses by a sentence that names who has it."""
        while self._file is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                said = _read(file)
                os.close(file)
                raise ConfigError(
                    f"{self.path.parent} is in use by process {said.get('pid')} on {said.get('host')}: "
                    "wait for it, or take another folder"
                ) from None
            if not self._is_still(file):  # its holder removed it in between
                os.close(file)
                continue
            said = _read(file)
            if said.get("host", socket.gethostname()) != socket.gethostname():
                os.close(file)
                raise ConfigError(
                    f"{self.path.parent} is in use by process {said.get('pid')} on {said['host']}, as "
                    f"{self.path.name} says: if that one has ended, remove the file"
                )
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
            self._file = file

    def free(self) -> None:
        if self._file is not None:
            # While it is still locked: once it is let go, a file of this name may be another's.
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _is_still(self, file: int) -> bool:
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(file))


def _read(file: int) -> dict[str, Any]:
    try:
        said = json.loads(os.pread(file, 4096, 0))
    except (ValueError, RecursionError):  # its holder is writing it, or was killed at it
        return {}
    return said if isinstance(said, dict) else {}
