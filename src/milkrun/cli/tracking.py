"""What `milkrun run` adds for drone tracking: headlines, a film of the median episode, and a sheet of scenes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milkrun.cli.details import Details
from milkrun.core.world import World

HEADLINES = ("CR", "TSR", "crash", "lost", "time", "target_gone")
FRAMES = 125
"""Pictures of a film at most: photographs take room."""


def recorded(world: World, film_of: int | None = None) -> Any:
    """The world, or a film of `film_of` steps of it."""
    if film_of is None:
        return world
    from milkrun.replay.tracking import FlightFilm

    return FlightFilm(world, every=max(1, -(-film_of // FRAMES)))


def write_episode(shown: Any, stem: Path, title: str, _: Any) -> dict[str, str]:
    """Writes the film, and what every scene looks like in every weather; the names of the files by what they are."""
    from milkrun.render.canvas import Canvas
    from milkrun.tracking.picture import contact_sheet

    files = {"film": stem.with_name(f"{stem.name}_film.gif"), "scenes": stem.with_name(f"{stem.name}_scenes.png")}
    shown.save(files["film"])
    pixels = contact_sheet()
    sheet = Canvas(pixels.shape[1], pixels.shape[0])
    sheet.pixels[:] = pixels
    sheet.to_png(files["scenes"])
    return {kind: file.name for kind, file in files.items()}


FILES = {"film": "a film of the median episode", "scenes": "every scene in every weather"}
DETAILS = Details(HEADLINES, FILES, recorded, write_episode)
