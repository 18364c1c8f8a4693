"""The bar of a call: shards done, episodes a second, nodes alive, remaining time. On a terminal, unless told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from milkrun.core.errors import ConfigError, missing_extra

LOOK_SECONDS = 2.0  # between two looks at the nodes

Tell = Callable[[int, int], None]
"""called with shards and units (episodes, instances) that have just been done"""


@contextmanager
def bar(progress: bool | None, title: str, shards: int, units: str, nodes: Callable[[], int]) -> Iterator[Tell]:
    """What to call when work is done; `progress` None: a bar where stderr is a terminal."""
    if progress not in (None, True, False):
        raise ConfigError(f"progress={progress!r}: must be True, False or None (a bar on a terminal)")
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield lambda *_: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        if progress:
            raise missing_extra("rich", "cli") from None
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("shards"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=shards, rate="")
        began, looked, done, alive = time.monotonic(), 0.0, 0, 0

        def tell(finished: int, count: int) -> None:
            nonlocal looked, done, alive
            done += count
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked, alive = now, nodes()
            speed = done / max(now - began, 1e-3)
            shown.update(task, advance=finished, rate=f"{speed:,.0f} {units}/s on {alive} node{'s' * (alive != 1)}")

        yield tell
