"""What `milkrun run` shows of some worlds beside returns and pictures: figures, logs, films, days. A world class names
its own by the attribute `run_details`; `run` and `demo` know no world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Details:
    """What there is; a world has all of it or a part."""

    headlines: tuple[str, ...] = ()
    """the reported figures that are printed; the JSON file has all"""
    files: Mapping[str, str] = field(default_factory=dict)
    """kind of file that `write_episode` writes: the words that say what it is"""
    recorded: Callable[..., Any] | None = None
    """of (world, film_of=None or steps): the world as it is to be played, for `write_episode`"""
    write_episode: Callable[..., dict[str, str]] | None = None
    """of (what `recorded` gave, the beginning of the files' names, title, again): writes files, returns their names by
    kind; `again(options)` is the same world with other options at the start of its episode"""
    of_rows: Callable[..., dict[str, Any]] | None = None
    """of (make, factory of the policy, seed, rows, world of the median episode, the beginning of the files' names):
    more entries of the summary"""
    show: Callable[..., None] | None = None
    """of (summary, folder): prints what `of_rows` added"""
