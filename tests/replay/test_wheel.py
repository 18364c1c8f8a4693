"""What is installed writes the same pages: the built wheel, with nothing beside it but what `import milkrun` needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from milkrun.replay.page import write_page
from milkrun.replay.record import compare

ROOT = Path(__file__).resolve().parents[2]
WRITE = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

class OwnAlone(PathFinder):
    '''Of all that this environment has, the wheel finds its own dependencies and theirs.'''

    known = {"milkrun", "numpy", "numba", "llvmlite", "gymnasium", "cloudpickle", "farama_notifications",
             "typing_extensions", *sys.stdlib_module_names}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return super().find_spec(name, path, target) if name.partition(".")[0] in cls.known else None

sys.meta_path[:] = [BuiltinImporter, FrozenImporter, OwnAlone]
sys.path.insert(0, sys.argv[1])
import milkrun
assert milkrun.__file__.startswith(sys.argv[1]), milkrun.__file__
from milkrun.replay.page import write_page
from milkrun.replay.record import compare
write_page(compare("milkrun/CVRP-v0", ["random", "nearest"], seed=7, num_loc=10), sys.argv[2])
"""


@pytest.mark.slow
def test_the_built_wheel_writes_the_same_bytes(tmp_path):
    """Scripts, styles and vendored files are in the package, and no extra is needed."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", WRITE, str(tmp_path / "installed"), str(tmp_path / "wheel.html")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own = write_page(compare("milkrun/CVRP-v0", ["random", "nearest"], seed=7, num_loc=10), tmp_path / "own.html")
    assert (tmp_path / "wheel.html").read_bytes() == own.read_bytes()
