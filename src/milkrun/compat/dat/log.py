"""The step log of an environment: a line a step, in files of bounded size."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.tracking.config import REASONS

LARGEST = 10_000_000
"""Bytes after which a file is rotated."""
KEPT = 2
"""Rotated files that are kept: `.1` is the newer."""
WAITING = 1 << 16
"""Characters that are buffered before they are written."""


class StepLog:
    """`Agent{index}.log` in a folder: episodes, and of each step its action, its reward, the reason of an end.

    The file is opened with the first line, in append mode, and written at the end of each episode.
    """

    def __init__(self, folder: str | Path, index: int) -> None:
        self.path = Path(folder) / f"Agent{index}.log"
        self._file: _LineFile | None = None
        self._episode = 0

    def begin(self) -> None:
        """Records the beginning of an episode."""
        self._episode += 1
        self._write(f"episode {self._episode}\n")

    def step(
        self, action: Any, sim_step: int, reward: float, r_c: float, r_d: float, visible: bool, reason: int
    ) -> None:
        """Records a step. A target in the window that is not visible is hidden by a box."""
        line = f"sim_step {sim_step} action {action} reward {reward:.9g} r_c {r_c:.6f} r_d {r_d:.0f}"
        line += " hidden" if r_d and not visible else ""
        self._write(f"{line} end {REASONS[reason]}\n" if reason else f"{line}\n")
        if reason:
            self.flush()

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file; a further line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_file": None}

    def _write(self, line: str) -> None:
        if self._file is not None and not self._file.is_own:  # a forked child has a file of its own
            self.close()
        elif self._file is not None and self._file.size + len(line) > LARGEST:
            self._put_aside()
        if self._file is None:
            self._open()
        self._file.write(line)  # type: ignore[union-attr]

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _LineFile(self.path)
        except OSError as e:
            raise ConfigError(f"log_dir: cannot write {self.path}: {e.strerror}") from None
        weakref.finalize(self, self._file.close)

    def _put_aside(self) -> None:
        self.close()
        for k in range(KEPT, 0, -1):
            older = self.path if k == 1 else self.path.with_name(f"{self.path.name}.{k - 1}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{k}"))


class _LineFile:
    """A file and its buffered lines. A fork copies the lines: the process that opened the file writes them, any other
    drops them. So the buffer is here and not Python's own, which every process would write."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open until close())
        self._lines: list[str] = []
        self._waiting = 0
        self._process = os.getpid()
        self.size = self._file.tell()

    @property
    def is_own(self) -> bool:
        """Whether this process opened it."""
        return self._process == os.getpid()

    def write(self, line: str) -> None:
        self._lines.append(line)
        self.size += len(line)
        self._waiting += len(line)
        if self._waiting >= WAITING:
            self.flush()

    def flush(self) -> None:
        lines = self._lines
        self._lines = []
        self._waiting = 0
        if lines and self.is_own:
            self._file.write("".join(lines))
            self._file.flush()

    def close(self) -> None:
        """Writes the buffered lines. Idempotent."""
        try:
            self.flush()
        finally:
            self._file.close()
