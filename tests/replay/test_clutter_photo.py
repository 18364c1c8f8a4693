"""The photo of a tray by MuJoCo's renderer: correct with GL, an error message without."""

from __future__ import annotations

import os
import subprocess
import sys

import mujoco
import numpy as np
import pytest

import milkrun
from milkrun.core.errors import ConfigError, RenderError, ResetNeeded, ShapeError
from milkrun.render.canvas import PALETTE
from milkrun.replay.clutter import photo

SMALL = {"preset": "small_scene", "split": "test", "seed": 0}
TAKEN = f"""
import sys, numpy as np, milkrun
from milkrun.core.errors import RenderError
from milkrun.replay.clutter import photo

world = milkrun.make("milkrun/Clutter-v0", 2, **{SMALL})
world.reset()
try:
    full = photo(world, 1, (120, 160))
except RenderError as error:
    sys.exit(str(error))
world.grasped[1, :2] = True
np.save(sys.argv[1], np.stack([full, photo(world, 1, (120, 160))]))
"""


@pytest.fixture
def world():
    return milkrun.make("milkrun/Clutter-v0", 2, **SMALL)


def pixels_of(picture, colour):
    """The number of pixels of this colour, in any light."""
    ways = picture / np.maximum(np.linalg.norm(picture, axis=-1, keepdims=True), 1)
    return int((ways @ (np.array(colour) / np.linalg.norm(colour)) > 0.98).sum())


def test_a_photo_shows_types_in_their_colours_and_nothing_that_is_out(tmp_path):
    """Two boxes of each of three types; then those of the first are out. MuJoCo chooses its GL when it is imported, so
    other processes take the photos."""
    said = []
    for kind in ("egl", "osmesa"):
        done = subprocess.run(
            [sys.executable, "-c", TAKEN, tmp_path / "photos.npy"],
            capture_output=True,
            text=True,
            env={**os.environ, "MUJOCO_GL": kind},
        )
        if done.returncode == 0:
            break
        said.append(done.stderr)
        assert "found no OpenGL" in done.stderr
    else:
        pytest.skip(f"no GL: {said}")
    full, fewer = np.load(tmp_path / "photos.npy")
    assert full.shape == (120, 160, 3) and full.dtype == np.uint8
    for colour in PALETTE[:3]:
        assert pixels_of(full, colour) > 100
    assert pixels_of(fewer, PALETTE[0]) == 0 and pixels_of(fewer, PALETTE[1]) > 100


def test_without_gl_a_sentence_says_what_to_set(world, monkeypatch):
    """The error has MuJoCo's message on a machine without a screen, and the remedy."""

    def none(*_):
        raise mujoco.FatalError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(mujoco, "Renderer", none)
    world.reset()
    with pytest.raises(RenderError, match=r"has not been loaded.*MUJOCO_GL=egl or MUJOCO_GL=osmesa"):
        photo(world)


def test_invalid_rows_and_sizes_are_refused(world):
    with pytest.raises(ResetNeeded):
        photo(world)
    world.reset()
    with pytest.raises(ShapeError):
        photo(world, 2)
    for size in ((480,), 480, (0, 640), (480, 1e3), (480, 5000)):
        with pytest.raises(ConfigError, match="size"):
            photo(world, 0, size)
