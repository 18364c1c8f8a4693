"""The scripts of `examples/` run as they are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.docs.generated import ROOT


@pytest.mark.skipif(find_spec("safetensors") is None, reason="needs the extra 'learn'")
def test_a_world_of_a_single_script_is_trained(tmp_path):
    """It derives the features of its own world, trains a few steps, and compares the policy with a heuristic."""
    script = ROOT / "examples" / "train_own_world.py"
    short = ("--steps", "2", "--instances", "8", "--out", tmp_path / "run")
    done = subprocess.run([sys.executable, script, *short], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "greedy heuristic" in done.stdout and "trained, starts,x8" in done.stdout
    assert (tmp_path / "run" / "best.safetensors").exists()
