"""Replay pages: one HTML file to play, scrub and compare episodes, offline, in any browser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milkrun.core.errors import ConfigError
from milkrun.replay.episode import Episode
from milkrun.replay.record_policies import check_names
from milkrun.replay.template import THREE, UPLOT, script_json, whole_page, write_whole

SCRIPTS = (
    "words.js",
    "data.js",
    "theme.js",
    "view2d.js",
    "view3d.js",
    "images.js",
    "gantt.js",
    "curves.js",
    "player.js",
)
MOST_BYTES = 16 * 2**20


def write_page(
    episodes: Sequence[Episode] | Sequence[Sequence[Episode]],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    source: str | None = None,
) -> Path:
    """Write the page of some episodes.

    Episodes of one list are shown side by side: at most 3, of different policies on the same instance. A list of lists
    gives a choice of instances. `source` names the origin of instances that no seed generated. The same episodes give
    the same bytes.
    """
    if not isinstance(episodes, Sequence) or isinstance(episodes, str):
        raise ConfigError(f"a page needs a list of episodes, not a {type(episodes).__name__}")
    if not len(episodes):
        raise ConfigError("a page needs at least one episode, and the list is empty")
    lists = [list(e) if isinstance(e, Sequence) else [e] for e in episodes]
    for e in (e for one in lists for e in one):
        if not isinstance(e, Episode):
            raise ConfigError(f"a page shows episodes, as `record` and `compare` return them, not a {type(e).__name__}")
    groups = [[e for one in lists for e in one]] if isinstance(episodes[0], Episode) else lists
    for group in groups:
        check_names([e.policy for e in group])
        _check_instance(group)
    first = groups[0][0].data
    title = str(first["title"] if title is None else title)
    data = script_json(
        {
            "format": "milkrun-page",
            "version": 1,
            "title": title,
            "subtitle": _subtitle(groups, source),
            "groups": [{"label": _label(group), "episodes": [e.data for e in group]} for group in groups],
        }
    )
    if len(data) > MOST_BYTES:
        raise ConfigError(_too_large(groups, len(data)))
    deep = any(mark["kind"] == "bodies" for group in groups for e in group for mark in e.data["marks"])
    own = [name for name in SCRIPTS if deep or name != "view3d.js"]
    return write_whole(path, whole_page("page.html", title, data, own, [UPLOT, THREE] if deep else [UPLOT]))


def _check_instance(group: Sequence[Episode]) -> None:
    def describe(e: Episode) -> str:
        return f"{e.world}, row {e.data['row']}, instance {e.instance}"

    for other in group[1:]:
        if (other.world, other.instance) != (group[0].world, group[0].instance):
            raise ConfigError(
                f"{describe(group[0])} and {describe(other)} differ: episodes side by side need the same instance"
            )


def _label(group: Sequence[Episode]) -> str:
    data = group[0].data
    return f"row {data['row']}" + (f", episode {data['episode']}" if data["episode"] else "")


def _subtitle(groups: Sequence[Sequence[Episode]], source: str | None) -> str:
    """One line: the world, then the source, or the seed and the instance or the number of instances."""
    data = groups[0][0].data
    where = [f"seed {data['seed']}", _label(groups[0]) if len(groups) == 1 else f"{len(groups)} instances"]
    return " · ".join([data["world"].removeprefix("milkrun/"), *(where if source is None else [source])])


def _too_large(groups: Sequence[Sequence[Episode]], size: int) -> str:
    def parts(e: Episode) -> list[tuple[int, str]]:
        flat: dict[str, Any] = {key: value for key, value in e.data.items() if key != "marks"}
        flat |= {f"mark {mark['name']!r}": mark for mark in e.data["marks"]}
        return [(len(script_json(value)), f"{key} of {e.policy!r} in {_label([e])}") for key, value in flat.items()]

    largest, name = max(part for group in groups for e in group for part in parts(e))
    return (
        f"the data of the page has {size / 2**20:.1f} MB, above {MOST_BYTES // 2**20}; the largest part is {name} with "
        f"{largest / 2**20:.1f} MB. Use fewer rows, policies or images, or keep every n-th image only"
    )
