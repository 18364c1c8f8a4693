"""The world of `add-a-world.md` as an external package: one file and one line, and nothing of this library changes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import milkrun
from tests.docs.generated import ROOT
from tests.docs.test_docs import blocks

PAGE = ROOT / "docs" / "add-a-world.md"
SOURCES = Path(milkrun.__file__).parents[1]
LINE = '\n\ndef worlds():\n    import milkrun\n    milkrun.register("example/Van-v0", "van:Van", title="Van loading")\n'
USES = """
from pathlib import Path
import milkrun
from milkrun.cli import main
from milkrun.routing.generators import get_generator
from milkrun.solvers import policies_for, solve

def command(*words):
    try:
        main(list(words))
    except SystemExit as end:
        assert not end.code, words

assert milkrun.world_spec("example/Van-v0").title == "Van loading"
assert list(policies_for("example/Van-v0")) == ["random", "densest"]
drawn = get_generator("van", preset="small").generate(3, seed=1)
assert solve("Van", drawn, method="dynamic", preset="small").optimal.all()
assert milkrun.check_world("example/Van-v0") == []
command("info", "example/Van-v0")
few = ("--num-envs", "8", "--preset", "small")
command("run", "example/Van-v0", "--policy", "densest", *few, "--out", "out")
command("eval", "example/Van-v0", "--policies", "random,densest", "--instances", "8", *few)
assert Path("out/example_Van-v0_densest.png").exists()
"""
TORCH = """
env = milkrun.make("example/Van-v0", num_envs=4, api="torchrl", preset="small", seed=1)
assert type(env).__name__ == "VanEnv" and (env.reset()["weight"] == env.generator.generate(4, seed=1)["weight"]).all()
"""


def of_the_file() -> str:
    """The blocks of van.py on the page."""
    sources = ["\n".join(block) for _, block in blocks(PAGE, "python")]
    more = next(source for source in sources if "class VanGenerator" in source)
    return f"{sources[0]}\n\n\n{more}\n"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("typer") is None, reason="needs the extra 'cli'")
def test_a_world_of_another_package_needs_one_file_and_one_line(tmp_path):
    """With both packages installed, its policy, solver, generator, checker, picture and environments are found by
    name."""
    (tmp_path / "van.py").write_text(of_the_file() + LINE)
    info = tmp_path / "van-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: van\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[milkrun.worlds]\nvan = van:worlds\n")
    program = USES if find_spec("torchrl") is None else USES + TORCH
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(tmp_path)])},
    )
    assert done.returncode == 0, done.stderr
    assert "densest" in done.stdout
