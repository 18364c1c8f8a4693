"""The tracking world needs no display: it renders and writes pictures without OpenGL, EGL, OSMesa and X11."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDDEN = ("libGL.", "libGLX", "libGLdispatch", "libOpenGL", "libEGL", "libOSMesa", "libX11", "libxcb", "libGLESv")

HIDE = f"""
import ctypes, os, sys
HIDDEN = {HIDDEN!r}

def refuse(event, args):
    "An import of one of these libraries fails as if it were not installed."
    if event == "ctypes.dlopen" and args and args[0] and os.path.basename(str(args[0])).startswith(HIDDEN):
        raise OSError(f"{{args[0]}}: cannot open shared object file: No such file or directory")

sys.addaudithook(refuse)
os.environ.pop("DISPLAY", None)
os.environ.pop("WAYLAND_DISPLAY", None)
try:
    ctypes.CDLL("libGL.so.1")
except OSError as error:
    assert "libGL.so.1: cannot open" in str(error)
else:
    raise AssertionError("it is not hidden")
"""

PLAY = """
from pathlib import Path
import milkrun
from milkrun.render.canvas import Canvas
from milkrun.tracking.rendering import render

world = milkrun.make("milkrun/Tracking-v0", 2, seed=1, size=16, ground_cell=2.0, weather=("night", "snow"))
world.reset()
world.step(world.sample_actions())
assert world.observe()["image"].any()
canvas = Canvas(1024, 512)
canvas.pixels[:] = world.render(0)
canvas.to_png(sys.argv[1])
assert Path(sys.argv[1]).read_bytes().startswith(b"\\x89PNG") and len(set(canvas.pixels.ravel().tolist())) > 50
image, ids, depth = render((0, 0, 20), 0.0, 1.0, 0.2, {"pos": [(13, 0, 1)], "half": [(1, 1, 1)]}, None, "day", 16)
assert (ids >= 0).any() and (ids == -2).any()
"""

LOADED = """
mapped = [line.split()[-1] for line in open("/proc/self/maps") if "/" in line]
print(sorted({path for path in mapped if os.path.basename(path).startswith(HIDDEN)}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pictures_are_made_without_any_display(tmp_path):
    """A world steps, observes, renders and writes a PNG; none of the libraries is loaded in the process at its end."""
    done = subprocess.run(
        [sys.executable, "-c", HIDE + PLAY + LOADED, str(tmp_path / "a.png")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
