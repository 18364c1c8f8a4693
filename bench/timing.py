"""Measures costs, and prints and saves tables of them.

Measurements are warm medians: the first run is dropped and the garbage collector is off. A median ignores short
disturbances of a shared machine. On a busy machine `set_clock("cpu")` counts the processor time of all threads of this
process instead; for single-threaded work both agree on a quiet machine.
"""

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_clock_name = "wall"


def set_clock(name: str) -> None:
    """Measure by "wall" (the default) or "cpu" from now on."""
    global _clock_name
    if name not in CLOCKS:
        raise ValueError(f"no clock {name!r}; there are {sorted(CLOCKS)}")
    _clock_name = name


def clock() -> float:
    """Seconds on the chosen clock."""
    return CLOCKS[_clock_name]()


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector in a timed section."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def median_time(fn: Callable[[], object], *, repeats: int = 7, min_seconds: float = 0.1) -> float:
    """Seconds per call of `fn`: the median of `repeats`, each of as many calls as take `min_seconds`."""

    def spent(calls: int) -> float:
        before = clock()
        for _ in range(calls):
            fn()
        return clock() - before

    with no_garbage_collection():
        calls = 1
        while (seconds := spent(calls)) < min_seconds:
            calls *= max(2, min(100, int(1.2 * min_seconds / max(seconds, 1e-9))))
        return statistics.median(spent(calls) / calls for _ in range(repeats))


Part = tuple[Callable[[], object], Callable[[int, int], float], int]
"""Start, play, and the number of steps."""


def step_time(
    start: Callable[[], object],
    play: Callable[[int, int], float],
    steps: int,
    *,
    repeats: int = 7,
    min_seconds: float = 0.1,
    chunk_seconds: float = 1e-3,
) -> float:
    """Seconds per step of a recorded episode of `steps` steps, without resets.

    `start()` resets the world to the start of the episode and is not timed. `play(first, last)` plays the recorded
    steps first..last-1 and returns their seconds by `clock()`, without the work that is no part of a step.

    The episode is cut into chunks of about `chunk_seconds`, or of one step if that takes longer. Each chunk counts with
    its median over the repeats: at least `repeats` episodes, and `repeats * min_seconds` in all. The result is the mean
    over the episode, so that early and late steps have equal weight and a disturbance affects one chunk of one repeat.
    """
    timing = {"repeats": repeats, "min_seconds": min_seconds, "chunk_seconds": chunk_seconds}
    return step_times({"": (start, play, steps)}, **timing)[""]  # type: ignore[arg-type]


def step_times(
    parts: dict[str, Part], *, repeats: int = 7, min_seconds: float = 0.1, chunk_seconds: float = 1e-3
) -> dict[str, float]:
    """The same for several contestants that play an episode each in turn, so that a slow moment affects all."""
    with no_garbage_collection():
        cuts: dict[str, list[int]] = {}
        whole = 0.0
        for name, (start, play, steps) in parts.items():
            start()
            play(0, steps)
            start()
            per_step = max(play(0, steps) / steps, 1e-9)
            chunk = min(steps, max(1, round(chunk_seconds / per_step)))
            cuts[name] = [*range(0, steps, chunk), steps]
            whole += per_step * steps
        rounds = max(repeats, round(repeats * min_seconds * len(parts) / whole))
        samples = {name: np.empty((rounds, len(ends) - 1)) for name, ends in cuts.items()}
        for k in range(rounds):
            for name, (start, play, _) in parts.items():
                start()
                for j, (first, last) in enumerate(pairwise(cuts[name])):
                    samples[name][k, j] = play(first, last)
    return {name: float(np.median(taken, axis=0).sum() / parts[name][2]) for name, taken in samples.items()}


def machine() -> dict[str, str]:
    """Machine and clock of a measurement."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [s for s in cpuinfo.read_text().splitlines() if s.startswith("model name")] if cpuinfo.exists() else []
    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "clock": _clock_name,
        "python": platform.python_version(),
    }


class Table:
    """Rows of named cells: printed aligned, saved as JSON (exact) and Markdown (as printed)."""

    def __init__(self, title: str, columns: list[str], *, notes: dict[str, Any] | None = None) -> None:
        self.title = title
        self.columns = columns
        self.notes = notes or {}
        self.rows: list[dict[str, Any]] = []

    def add(self, **cells: Any) -> None:
        """Append a row; missing columns stay blank."""
        unknown = sorted(set(cells) - set(self.columns))
        if unknown:
            raise KeyError(f"table {self.title!r} has no column {unknown[0]!r}; it has {self.columns}")
        self.rows.append(cells)

    def lines(self) -> list[str]:
        """The table in aligned Markdown."""
        body = [[_shown(row.get(c)) for c in self.columns] for row in self.rows]
        widths = [max(len(c), 3, *(len(r[k]) for r in body)) for k, c in enumerate(self.columns)]
        numeric = [all(isinstance(row.get(c), int | float | None) for row in self.rows) for c in self.columns]

        def line(cells: list[str]) -> str:
            padded = (s.rjust(w) if num else s.ljust(w) for s, w, num in zip(cells, widths, numeric, strict=True))
            return "| " + " | ".join(padded) + " |"

        rule = ["-" * (w - 1) + ":" if num else "-" * w for w, num in zip(widths, numeric, strict=True)]
        return [line(self.columns), line(rule), *map(line, body)]

    def print(self) -> None:
        """Print title, table and notes."""
        print(f"\n{self.title}", *self.lines(), *self._note_lines(), sep="\n", flush=True)

    def save(self, stem: str | Path) -> list[Path]:
        """Write `stem`.json and `stem`.md; returns their paths."""
        stem = Path(stem)
        stem.parent.mkdir(parents=True, exist_ok=True)
        as_json, as_markdown = stem.with_suffix(".json"), stem.with_suffix(".md")
        content = {"title": self.title, "notes": self.notes, "machine": machine(), "rows": self.rows}
        as_json.write_text(json.dumps(content, indent=1) + "\n")
        as_markdown.write_text("\n".join([f"# {self.title}", "", *self.lines(), "", *self._note_lines()]) + "\n")
        return [as_json, as_markdown]

    def _note_lines(self) -> list[str]:
        return [f"- {key}: {value}" for key, value in {**self.notes, **machine()}.items()]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
