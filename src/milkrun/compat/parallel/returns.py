"""Returns of finished episodes on disk: a line of `rewards.csv` and, where it is installed, a point for TensorBoard.

Nothing is written while episodes run.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

FILE = "rewards.csv"
HEADER = ("turn", "env", "episode", "steps", "return")


class Returns:
    """Sums the rewards of the first `count` environments and writes each sum when its episode ends.

    Appends to an existing file. An episode that an explicit reset cuts short is not written.
    """

    def __init__(self, count: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / FILE, "a", newline="", buffering=1)  # noqa: SIM115 (open until close())
        self._lines = csv.writer(self._file)
        if self._file.tell() == 0:
            self._lines.writerow(HEADER)
        self._board = _board(folder)
        self._turn = 0
        self._episodes = np.zeros(count, np.int64)
        self._sums = np.zeros(count)
        self._steps = np.zeros(count, np.int64)

    def begin(self) -> None:
        """Records that all environments begin an episode."""
        self._sums[:], self._steps[:] = 0, 0

    def add(self, rewards: np.ndarray, done: np.ndarray, reset_turn: np.ndarray) -> None:
        """Records a turn."""
        count = len(self._sums)
        self._turn += 1
        self._sums += rewards[:count]
        self._steps += ~reset_turn[:count]
        for i in np.flatnonzero(done[:count]).tolist():
            self._episodes[i] += 1
            total = float(self._sums[i])
            self._lines.writerow((self._turn, i, self._episodes[i], self._steps[i], total))
            if self._board is not None:
                self._board.add_scalar(f"return/env_{i}", total, self._turn)
            self._sums[i], self._steps[i] = 0, 0

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
