"""A lock file for a folder that one call at a time may use.

Between processes of one machine `flock` decides, which the system releases when a process dies. The file also names
process and machine, for error messages and for machines that share the folder but not its locks.
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
    """Held from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Acquires the lock, also one of a dead process. Raises if another process holds it."""
        while self._file is None:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _read(file)
                os.close(file)
                raise ConfigError(
                    f"{self.path.parent} is in use by process {holder.get('pid')} on {holder.get('host')}: "
                    "wait for it, or take another folder"
                ) from None
            if not self._is_current(file):  # its holder has removed it in between
                os.close(file)
                continue
            holder = _read(file)
            if holder.get("host", socket.gethostname()) != socket.gethostname():
                os.close(file)
                raise ConfigError(
                    f"{self.path.parent} is in use by process {holder.get('pid')} on {holder['host']}, as "
                    f"{self.path.name} says: if that process has ended, remove the file"
                )
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
            self._file = file

    def release(self) -> None:
        if self._file is not None:
            # Before the lock is released: afterwards the file of this name may belong to another process.
            self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _is_current(self, file: int) -> bool:
        try:
            current = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(current, os.fstat(file))


def _read(file: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(file, 4096, 0))
    except (ValueError, RecursionError):  # incomplete: its holder is writing it, or was killed meanwhile
        return {}
    return holder if isinstance(holder, dict) else {}
