"""Writes the pictures of the tracking world's page: every scene in every weather, and a film of one flight."""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from milkrun.replay.tracking import FlightFilm
from milkrun.solvers import rollout
from milkrun.solvers.tracking import servo
from milkrun.tracking import Tracking, TrackingConfig
from milkrun.tracking.picture import contact_sheet

FRAMES = 90


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    sheet = Image.fromarray(contact_sheet()).quantize(256)
    sheet.save(given.folder / "tracking-scenes.png", optimize=True)
    world = Tracking(1, TrackingConfig(max_sim_steps=1500), seed=given.seed, autoreset="disabled")
    world.reset()
    film = FlightFilm(world, every=-(-world.config.max_agent_steps // FRAMES), scale=2)
    rollout(film, lambda _: servo(world))
    film.save(given.folder / "tracking-flight.gif")


if __name__ == "__main__":
    main()
