"""Writes a picture of the first scenes of every preset of the clutter world."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from milkrun.clutter import Clutter
from milkrun.render.canvas import Canvas
from milkrun.replay.clutter import sheet_of_worlds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--split", choices=("train", "test"), default="test")
    parser.add_argument("--scenes", type=int, default=4)
    given = parser.parse_args()
    worlds = {}
    for preset in Clutter.Config.presets:
        worlds[preset] = Clutter(given.scenes, Clutter.Config.preset(preset).replace(split=given.split, augment=False))
        worlds[preset].reset(instance={"scene_id": np.arange(given.scenes)})
    pixels = sheet_of_worlds(worlds, given.scenes)
    sheet = Canvas(pixels.shape[1], pixels.shape[0])
    sheet.pixels[:] = pixels
    sheet.to_png(given.file)


if __name__ == "__main__":
    main()
