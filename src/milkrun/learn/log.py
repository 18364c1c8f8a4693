"""What a run writes for people: a line of progress, the curve as CSV, PNG and TensorBoard events."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from milkrun.learn.checkpoint import write_file

COLUMNS = ("step", "seconds", "instances", "train", "held_out", "best", "gap", "gradient")
"""Columns of the curve: mean return of the last training batches, of the held-out instances, the best so far, and the
gap of the best to the best reference in percent."""


class Bar:
    """One line, rewritten on a terminal; elsewhere a line at each evaluation only."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.is_terminal = bool(getattr(self.stream, "isatty", bool)())
        self._width = 0

    def show(self, line: str, *, lasting: bool = False) -> None:
        if self.is_terminal:
            self.stream.write("\r" + line.ljust(self._width) + ("\n" if lasting else ""))
            self._width = 0 if lasting else len(line)
        elif lasting:
            self.stream.write(line + "\n")
        self.stream.flush()


def clock_text(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def write_curve(folder: Path, curve: Sequence[Mapping[str, Any]]) -> None:
    """curve.csv, replaced as a whole."""
    lines = [",".join(COLUMNS)]
    lines += [",".join(_cell(row.get(name)) for name in COLUMNS) for row in curve]
    write_file(folder / "curve.csv", ("\n".join(lines) + "\n").encode())


def _cell(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def draw_curve(path: Path, curve: Sequence[Mapping[str, Any]], references: Mapping[str, float], title: str) -> bool:
    """The curve as a picture; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    steps = [row["step"] for row in curve]
    axes.plot(steps, [row["train"] for row in curve], color="0.7", label="training batches")
    axes.plot(steps, [row["held_out"] for row in curve], color="#1f6fb4", marker=".", label="held-out instances")
    for k, (name, value) in enumerate(sorted(references.items(), key=lambda item: -item[1])):
        axes.axhline(value, color=f"C{k % 8 + 1}", linestyle="--", linewidth=1, label=f"{name} {value:.4g}")
    shown = [row["held_out"] for row in curve if row["held_out"] is not None]
    if shown:
        # Of the references below the curve only the best one is shown: random play would flatten all others.
        below = [value for value in references.values() if value < min(shown)]
        shown += [value for value in references.values() if value >= min(shown)] + ([max(below)] if below else [])
        margin = 0.08 * (max(shown) - min(shown) or 1.0)
        axes.set_ylim(min(shown) - margin, max(shown) + margin)
    axes.set_xlabel("training steps")
    axes.set_ylabel("mean return")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)
    write_file(path, picture.getvalue())
    return True


class Events:
    """TensorBoard events, if tensorboard is installed."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = None
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder))

    def add(self, row: Mapping[str, Any]) -> None:
        if self._writer is not None:
            for name in ("train", "held_out", "gap", "gradient"):
                if row.get(name) is not None:
                    self._writer.add_scalar(name, row[name], row["step"])
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
