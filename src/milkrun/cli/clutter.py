"""What `milkrun run` adds for picking from clutter: headlines, the events, and a film of the median episode's ticks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from milkrun.cli.details import Details
from milkrun.core.world import World

HEADLINES = (
    "success_rate",
    "percent_cleared",
    "grasp_success",
    "disturbance",
    "blocked_share",
    "lost_share",
    "picks_per_hour",
)


def recorded(world: World, film_of: int | None = None) -> Any:
    """A recorder of the attempts, where an action is one: the cup that a policy moves itself is only shown."""
    if world.action.kind != "discrete":
        return world
    from milkrun.replay.clutter import Picks

    return Picks(world)


def write_episode(shown: Any, stem: Path, title: str, again: Callable[..., World]) -> dict[str, str]:
    """Writes events and film; the names of the files by what they are. `again(config)` is the shown world with other
    options at the start of its episode: the film plays the same attempts a tick a step, which gives the same bits."""
    from milkrun.replay.clutter import film_of, write_events

    files = {"log": stem.with_name(f"{stem.name}_log.csv")}
    write_events(shown, files["log"])
    if shown.action.kind == "discrete":
        files["film"] = stem.with_name(f"{stem.name}_film.gif")
        film_of(again({"step_mode": "tick"}), shown.targets).save(files["film"])
    return {kind: file.name for kind, file in files.items()}


FILES = {"log": "the log of the median episode", "film": "a film of the median episode"}
DETAILS = Details(HEADLINES, FILES, recorded, write_episode)
