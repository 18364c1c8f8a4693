"""The built wheel writes the same pages, with the dependencies of `import milkrun` only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from milkrun.replay.page import write_page
from milkrun.replay.record_policies import compare

ROOT = Path(__file__).resolve().parents[2]
WRITE = """
import sys
import milkrun
assert milkrun.__file__.startswith(sys.argv[1]), milkrun.__file__
from milkrun.replay.page import write_page
from milkrun.replay.record_policies import compare
write_page(compare("milkrun/CVRP-v0", ["random", "nearest"], seed=7, num_loc=10), sys.argv[2])
"""
OWN_ALONE = """
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
"""
PACKAGES = {
    "milkrun",
    "numpy",
    "numba",
    "llvmlite",
    "gymnasium",
    "cloudpickle",
    "farama-notifications",
    "typing-extensions",
    "pip",
    "setuptools",
}
"""What an environment has into which the wheel alone was installed: its dependencies, theirs, and Python's own."""


def run(command: list[str], where: Path) -> str:
    """The output of a program that runs outside of this checkout."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def wheel(tmp_path):
    """The package as it is published."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run([sys.executable, "-c", "from setuptools import build_meta; build_meta.build_wheel('..')"], source)
    (built,) = tmp_path.glob("*.whl")
    return built


def assert_same_page(python: str, code: str, package: Path, folder: Path) -> None:
    run([python, "-c", code, str(package), str(folder / "wheel.html")], folder)
    own = write_page(compare("milkrun/CVRP-v0", ["random", "nearest"], seed=7, num_loc=10), folder / "own.html")
    assert (folder / "wheel.html").read_bytes() == own.read_bytes()


@pytest.mark.slow
def test_the_built_wheel_writes_the_same_bytes(wheel, tmp_path):
    """Scripts, styles and vendored files are in the package, and no extra is needed."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    assert_same_page(sys.executable, OWN_ALONE + WRITE, tmp_path / "installed", tmp_path)


@pytest.mark.long
def test_the_wheel_in_an_environment_of_its_own_writes_the_same_bytes(wheel, tmp_path):
    """pip installs the wheel into an empty environment, with its dependencies and nothing else."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    run(
        [
            python,
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "-c",
            str(ROOT / "constraints.txt"),
            str(wheel),
        ],
        tmp_path,
    )
    listed = json.loads(run([python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"], tmp_path))
    assert {package["name"].lower().replace("_", "-") for package in listed} <= PACKAGES
    assert_same_page(python, WRITE, home, tmp_path)
