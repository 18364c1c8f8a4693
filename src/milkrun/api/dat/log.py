"""The step log of an environment: a line a step, in files that do not grow without end."""

from __future__ import annotations

import io
import os
import weakref
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.tracking.config import REASONS

LARGEST = 10_000_000
"""Bytes after which a file is put aside."""
KEPT = 2
"""Files that were put aside and are kept: `.1` is the younger."""


class StepLog:
    """`Agent{index}.log` in a folder: episodes, and of each step its action, what it paid, why it ended.

    The file is opened by the first line, continued if it is there, and written to at the end of each episode.
    """

    def __init__(self, folder: str | Path, index: int) -> None:
        self.path = Path(folder) / f"Agent{index}.log"
        self._file: io.TextIOWrapper | None = None
        self._episode, self._size, self._process = 0, 0, 0

    def begin(self) -> None:
        """An episode begins."""
        self._episode += 1
        self._write(f"episode {self._episode}\n")

    def step(self, action: Any, sim_step: int, reward: float, r_c: float, r_d: float, reason: int) -> None:
        """A step was played."""
        line = f"sim_step {sim_step} action {action} reward {reward:.9g} r_c {r_c:.6f} r_d {r_d:.0f}"
        self._write(f"{line} end {REASONS[reason]}\n" if reason else f"{line}\n")
        if reason:
            self.flush()

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file; a further line would open it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None}

    def _write(self, line: str) -> None:
        if self._file is None or self._process != os.getpid():  # a forked child writes for itself
            self._open()
        elif self._size + len(line) > LARGEST:
            self._put_aside()
            self._open()
        self._size += len(line)
        self._file.write(line)  # type: ignore[union-attr]

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = open(self.path, "a", buffering=1 << 16, encoding="utf-8")  # noqa: SIM115 (open until close())
        except OSError as e:
            raise ConfigError(f"log_dir: cannot write {self.path}: {e.strerror}") from None
        self._file, self._size, self._process = file, file.tell(), os.getpid()
        weakref.finalize(self, file.close)

    def _put_aside(self) -> None:
        self.close()
        for k in range(KEPT, 0, -1):
            older = self.path if k == 1 else self.path.with_name(f"{self.path.name}.{k - 1}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{k}"))
