"""Writes the settled scenes that the package ships: train and test scenes of every preset.

    python scripts/clutter_banks.py [preset ...]

Settling is chaotic: another processor or MuJoCo version gives other scenes of the same quality. Run this again only
when the law of scenes (`LAW` in `clutter/bank.py`) or the physics of a preset changes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from milkrun.clutter import bank
from milkrun.clutter.options import ClutterConfig

FOLDER = Path(bank.__file__).parent / "banks"


def write(preset: str) -> None:
    """Write the scenes of a preset and their hits, as one byte each: no preset has more than 127 objects."""
    start, arrays = time.process_time(), {}
    for split in bank.PURPOSES:
        config = ClutterConfig.build(preset, split=split)
        poses = bank.settled(config, range(bank.scenes_of(config)))
        arrays |= {
            f"{split}_key": np.array(bank.key_of(config)),
            f"{split}_poses": poses,
            f"{split}_hits": bank.hits(config, poses).astype(np.int8),
        }
    file = FOLDER / f"{preset}.npz"
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    kilobytes, seconds = file.stat().st_size / 1000, time.process_time() - start
    print(f"{file.name}: {kilobytes:.0f} kB, {seconds:.1f} CPU seconds", flush=True)


if __name__ == "__main__":
    for preset in sys.argv[1:] or ClutterConfig.presets:
        write(preset)
